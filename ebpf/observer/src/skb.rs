//! A socket buffer as the parser reads it.

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use spiderpool_ebpf_common::parse::Load;

/// The socket buffer of the program's call.
pub struct Skb<'a>(pub &'a TcContext);

impl Skb<'_> {
    /// Index of the NIC.
    #[inline(always)]
    pub fn ifindex(&self) -> u32 {
        // SAFETY: the context is valid for the whole call, and the field is readable here.
        unsafe { (*self.0.skb.skb).ifindex }
    }
}

impl Load for Skb<'_> {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.0.len()
    }

    #[inline(always)]
    fn is_tagged(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.0.skb.skb).vlan_present != 0 }
    }

    #[inline(always)]
    fn tag(&self) -> u16 {
        // SAFETY: as above.
        unsafe { (*self.0.skb.skb).vlan_tci as u16 }
    }

    #[inline(always)]
    fn segments(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.0.skb.skb).gso_segs }
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: u32, bytes: &mut [u8; N]) -> bool {
        let start = self.0.data() + offset as usize;
        if start + N <= self.0.data_end() {
            // SAFETY: the comparison just made is the one the verifier asks for.
            *bytes = unsafe { *(start as *const [u8; N]) };
            return true;
        }
        // Headers may lie in fragments: then only the helper reaches them.
        // SAFETY: the helper writes the N bytes of the place it is given, zeros when it fails.
        unsafe {
            bpf_skb_load_bytes(
                self.0.skb.skb.cast(),
                offset,
                bytes.as_mut_ptr().cast(),
                N as u32,
            ) == 0
        }
    }
}
