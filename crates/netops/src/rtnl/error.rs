//! What the kernel or the socket answered, with the request in words.

use std::fmt;
use std::io;

use nix::errno::Errno;
use rtnetlink::packet_core::{ErrorMessage, NlasIterator};

/// Length of `struct nlmsghdr`: what precedes the attributes in a capped error message.
const NLMSG_HEADER_LEN: usize = 16;
/// `NLMSGERR_ATTR_MSG`: the text of an extended acknowledgement.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Why a netlink request failed. `tried` names the request, the link and the namespace.
#[derive(Debug, thiserror::Error)]
pub enum RtnlError {
    /// No netlink socket.
    #[error("cannot open a netlink socket in {netns}")]
    Socket {
        /// Where it was to be opened.
        netns: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The namespace could not be entered for the socket.
    #[error("cannot open a netlink socket in {netns}")]
    Netns {
        /// Where it was to be opened.
        netns: String,
        /// Why it could not be entered.
        source: crate::netns::NetnsError,
    },
    /// The kernel said no.
    #[error("the kernel refused to {tried}")]
    Refused {
        /// Request, link, namespace.
        tried: String,
        /// The kernel's answer.
        source: Refusal,
    },
    /// The connection ended before the answer.
    #[error("no answer to the request to {tried}: the netlink connection was closed")]
    Closed {
        /// Request, link, namespace.
        tried: String,
    },
    /// The kernel answered without what was asked for.
    #[error("the answer to the request to {tried} lacks {lacks}")]
    Incomplete {
        /// Request, link, namespace.
        tried: String,
        /// The missing part.
        lacks: &'static str,
    },
}

impl RtnlError {
    /// The error number, if the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => Some(source.errno),
            _ => None,
        }
    }

    /// Whether the object was there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// Whether the link is not (any more) there.
    #[must_use]
    pub fn is_no_device(&self) -> bool {
        self.errno() == Some(Errno::ENODEV)
    }
}

/// A negative acknowledgement: number and, from kernel 4.12 on, often a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The kernel's own words, such as "VLAN device already exists".
    pub text: Option<String>,
}

impl Refusal {
    /// Reads a capped error message (`NETLINK_CAP_ACK`): request header, then attributes.
    pub(super) fn from_message(message: &ErrorMessage) -> Self {
        let attributes = message.header.get(NLMSG_HEADER_LEN..).unwrap_or_default();
        let text = NlasIterator::new(attributes)
            .map_while(Result::ok)
            .find(|nla| nla.kind() == NLMSGERR_ATTR_MSG)
            .map(|nla| {
                String::from_utf8_lossy(nla.value())
                    .trim_end_matches('\0')
                    .to_owned()
            });
        let errno = Errno::from_raw(message.raw_code().saturating_neg());
        Self { errno, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            write!(f, "{text} ({})", self.errno)
        } else {
            self.errno.fmt(f)
        }
    }
}

impl std::error::Error for Refusal {}
