//! Rules in CEL: what an API server can judge by itself, also while no webhook answers. The
//! admission rules say the same for servers that have no CEL. Each rule looks at one object only and
//! at no list without a limit, so the estimated cost stays far below the server's budget.

use serde_json::{Value, json};

use crate::multus_config::CniType;

/// One rule at one place of a schema.
struct Rule {
    kind: &'static str,
    /// JSON pointer into the schema.
    at: String,
    expression: String,
    message: String,
    /// `FieldValueForbidden`, ...
    reason: &'static str,
    /// From there on.
    field: String,
}

const SPEC: &str = "/properties/spec";
const FORBIDDEN: &str = "FieldValueForbidden";
const REQUIRED: &str = "FieldValueRequired";
const INVALID: &str = "FieldValueInvalid";
const SMC: &str = "SpiderMultusConfig";

/// Writes the rules of a kind into its schema.
pub(super) fn add(kind: &str, schema: &mut Value) {
    for rule in all().into_iter().filter(|rule| rule.kind == kind) {
        let Some(node) = schema.pointer_mut(&rule.at).and_then(Value::as_object_mut) else {
            continue;
        };
        let rules = node
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({"rule": rule.expression, "message": rule.message,
                "reason": rule.reason, "fieldPath": rule.field}));
        }
    }
}

fn all() -> Vec<Rule> {
    let mut rules = networks();
    rules.extend(coordinators());
    rules.extend(sections());
    rules.extend(masters());
    rules.extend(devices());
    rules
}

fn rule(
    (kind, at): (&'static str, &str),
    reason: &'static str,
    field: &str,
    expression: &str,
    message: &str,
) -> Rule {
    Rule {
        kind,
        at: at.to_owned(),
        expression: expression.to_owned(),
        message: message.to_owned(),
        reason,
        field: field.to_owned(),
    }
}

/// Pools, subnets, reservations.
fn networks() -> Vec<Rule> {
    let version =
        "!has(oldSelf.ipVersion) || (has(self.ipVersion) && self.ipVersion == oldSelf.ipVersion)";
    let affinity = "!has(self.podAffinity) \
        || (has(self.podAffinity.matchLabels) && size(self.podAffinity.matchLabels) > 0) \
        || (has(self.podAffinity.matchExpressions) && size(self.podAffinity.matchExpressions) > 0)";
    let mut rules = Vec::new();
    for kind in ["SpiderIPPool", "SpiderSubnet", "SpiderReservedIP"] {
        rules.push(rule(
            (kind, SPEC),
            FORBIDDEN,
            ".ipVersion",
            version,
            "is immutable",
        ));
    }
    for kind in ["SpiderIPPool", "SpiderSubnet"] {
        let same = "self.subnet == oldSelf.subnet";
        rules.push(rule(
            (kind, SPEC),
            FORBIDDEN,
            ".subnet",
            same,
            "is immutable",
        ));
    }
    let message = "must not be empty: it would match no Pod on purpose and all by accident";
    rules.push(rule(
        ("SpiderIPPool", SPEC),
        INVALID,
        ".podAffinity",
        affinity,
        message,
    ));
    rules
}

fn coordinators() -> Vec<Rule> {
    let mut rules = vec![rule(
        ("SpiderCoordinator", SPEC),
        REQUIRED,
        ".podCIDRType",
        "has(self.podCIDRType)",
        "give auto, cluster, calico, cilium or none",
    )];
    for place in [
        ("SpiderCoordinator", SPEC),
        (SMC, "/properties/spec/properties/coordinator"),
    ] {
        rules.push(rule(
            place,
            INVALID,
            ".podMACPrefix",
            "!has(self.podMACPrefix) || self.podMACPrefix == '' \
             || self.podMACPrefix.matches('^[0-9a-fA-F][02468aceACE]:[0-9a-fA-F]{2}$')",
            "is not two bytes such as 0a:1b with an even first one",
        ));
    }
    rules
}

/// Exactly the section of `cniType`, and IPAM for sub-ENIs.
fn sections() -> Vec<Rule> {
    let mut rules = Vec::new();
    for cni_type in CniType::WITH_SECTION {
        let (name, Some(section)) = (cni_type.as_str(), cni_type.section()) else {
            continue;
        };
        let field = format!(".{section}");
        let needed = format!("self.cniType != '{name}' || has(self.{section})");
        let message = format!("cniType {name} needs this section");
        rules.push(rule((SMC, SPEC), REQUIRED, &field, &needed, &message));
        let foreign = format!("self.cniType == '{name}' || !has(self.{section})");
        let message = format!("is the section of cniType {name}, which this is not");
        rules.push(rule((SMC, SPEC), FORBIDDEN, &field, &foreign, &message));
    }
    let message = "cniType eni-vlan has its addresses from IPAM";
    let switch = "self.cniType != 'eni-vlan' || !has(self.ipam) || !has(self.ipam.enabled) || self.ipam.enabled";
    rules.push(rule(
        (SMC, SPEC),
        FORBIDDEN,
        ".ipam.enabled",
        switch,
        message,
    ));
    let old_switch = "self.cniType != 'eni-vlan' || !has(self.disableIPAM) || !self.disableIPAM \
        || (has(self.ipam) && has(self.ipam.enabled))";
    rules.push(rule(
        (SMC, SPEC),
        FORBIDDEN,
        ".disableIPAM",
        old_switch,
        message,
    ));
    rules
}

fn section(cni_type: CniType) -> String {
    format!(
        "{SPEC}/properties/{}",
        cni_type.section().unwrap_or_default()
    )
}

/// Sections with host NICs.
fn masters() -> Vec<Rule> {
    let mut rules = Vec::new();
    for cni_type in [
        CniType::Macvlan,
        CniType::Ipvlan,
        CniType::Vlan,
        CniType::EniVlan,
    ] {
        let bonded = "size(self.master) < 2 || has(self.bond)";
        let place = (SMC, section(cni_type));
        let place = (place.0, place.1.as_str());
        let message = "several masters need the bond they make";
        rules.push(rule(place, REQUIRED, ".bond", bonded, message));
        if cni_type == CniType::EniVlan {
            continue;
        }
        let unmatched = "!has(self.ippools) || !has(self.ippools.matchMasterSubnet) || !self.ippools.matchMasterSubnet";
        let field = ".ippools.matchMasterSubnet";
        let message = "is for plugins that get a device: sriov, ib-sriov, ipoib, ovs";
        rules.push(rule(place, FORBIDDEN, field, unmatched, message));
    }
    rules
}

/// Sections with devices.
fn devices() -> Vec<Rule> {
    let mut rules = Vec::new();
    for (cni_type, field, what) in [
        (
            CniType::Sriov,
            "resourceName",
            "name the resource of the SR-IOV device plugin",
        ),
        (
            CniType::IbSriov,
            "resourceName",
            "name the resource of the SR-IOV device plugin",
        ),
        (
            CniType::Ipoib,
            "master",
            "name the InfiniBand NIC of the nodes",
        ),
    ] {
        let named = format!("has(self.{field}) && self.{field} != ''");
        let place = section(cni_type);
        rules.push(rule(
            (SMC, &place),
            REQUIRED,
            &format!(".{field}"),
            &named,
            what,
        ));
    }
    let place = section(CniType::Sriov);
    let rates = "(has(self.minTxRateMbps) ? self.minTxRateMbps : 0) <= (has(self.maxTxRateMbps) ? self.maxTxRateMbps : 0)";
    let message = "is greater than maxTxRateMbps";
    rules.push(rule(
        (SMC, &place),
        INVALID,
        ".minTxRateMbps",
        rates,
        message,
    ));
    let place = format!("{}/properties/trunk/items", section(CniType::Ovs));
    let complete = "!has(self.maxID) || has(self.minID)";
    let message = "a range with maxID begins with minID";
    rules.push(rule((SMC, &place), REQUIRED, ".minID", complete, message));
    let ordered = "!has(self.minID) || !has(self.maxID) || self.minID <= self.maxID";
    let message = "is greater than maxID";
    rules.push(rule((SMC, &place), INVALID, ".minID", ordered, message));
    rules
}
