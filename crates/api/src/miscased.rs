//! Field names that people write in the wrong case: CNI configurations spell some of them
//! differently, and acronyms invite it. An API server drops such a field without a word, so they
//! are declared as deprecated properties which admission moves to the right name (spec api 8.1).

/// One wrong spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miscased {
    /// Kind of the object.
    pub kind: &'static str,
    /// JSON pointer to the object that holds the field.
    pub parent: &'static str,
    /// What people write.
    pub wrong: &'static str,
    /// What is meant.
    pub right: &'static str,
}

const fn of(
    kind: &'static str,
    parent: &'static str,
    wrong: &'static str,
    right: &'static str,
) -> Miscased {
    Miscased {
        kind,
        parent,
        wrong,
        right,
    }
}

const POOL: &str = "SpiderIPPool";
const SUBNET: &str = "SpiderSubnet";
const COORDINATOR: &str = "SpiderCoordinator";
const SMC: &str = "SpiderMultusConfig";
const IN_SMC: &str = "/spec/coordinator";

/// All that are known.
pub const MISCASED: &[Miscased] = &[
    of(POOL, "/spec", "excludeIps", "excludeIPs"),
    of(SUBNET, "/spec", "excludeIps", "excludeIPs"),
    of(
        COORDINATOR,
        "/spec",
        "podDefaultRouteNic",
        "podDefaultRouteNIC",
    ),
    of(COORDINATOR, "/spec", "podDefaultCniNic", "podDefaultCniNIC"),
    of(COORDINATOR, "/spec", "podCidrType", "podCIDRType"),
    of(COORDINATOR, "/spec", "hijackCidr", "hijackCIDR"),
    of(COORDINATOR, "/spec", "podMacPrefix", "podMACPrefix"),
    of(COORDINATOR, "/spec", "podRpFilter", "podRPFilter"),
    of(COORDINATOR, "/spec", "vethMtu", "vethMTU"),
    of(COORDINATOR, "/spec", "detectIpConflict", "detectIPConflict"),
    of(SMC, IN_SMC, "podDefaultRouteNic", "podDefaultRouteNIC"),
    of(SMC, IN_SMC, "podDefaultCniNic", "podDefaultCniNIC"),
    of(SMC, IN_SMC, "podCidrType", "podCIDRType"),
    of(SMC, IN_SMC, "hijackCidr", "hijackCIDR"),
    of(SMC, IN_SMC, "podMacPrefix", "podMACPrefix"),
    of(SMC, IN_SMC, "podRpFilter", "podRPFilter"),
    of(SMC, IN_SMC, "vethMtu", "vethMTU"),
    of(SMC, IN_SMC, "detectIpConflict", "detectIPConflict"),
    of(SMC, "/spec", "disableIpam", "disableIPAM"),
    of(SMC, "/spec", "customCni", "customCNI"),
    of(SMC, "/spec", "chainCniJsonData", "chainCNIJsonData"),
    of(SMC, "/spec", "ipPools", "ippools"),
    of(SMC, "/spec/macvlan", "vlanId", "vlanID"),
    of(SMC, "/spec/macvlan", "ipPools", "ippools"),
    of(SMC, "/spec/ipvlan", "vlanId", "vlanID"),
    of(SMC, "/spec/ipvlan", "ipPools", "ippools"),
    of(SMC, "/spec/vlan", "vlanId", "vlanID"),
    of(SMC, "/spec/vlan", "ipPools", "ippools"),
    of(SMC, "/spec/sriov", "vlanId", "vlanID"),
    of(SMC, "/spec/sriov", "ipPools", "ippools"),
    of(SMC, "/spec/enivlan", "ipPools", "ippools"),
    of(SMC, "/spec/ovs", "deviceId", "deviceID"),
];
