//! Rule 3 of spec api 3.6: the section of the cniType, and no other. The schema says much of this
//! where CEL is evaluated; a server without it has only these rules.

use serde_json::{Value, json};
use spiderpool_api::multus_config::section::{
    Bond, EniVlanSection, MasterSection, OvsSection, SectionPools, SriovSection, VlanMode,
    VlanSection,
};
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};

use super::{FieldError, FieldErrorKind, Settings};

/// Greatest VLAN id.
const LAST_VLAN: i64 = 4094;

pub(super) fn judge(spec: &SpiderMultusConfigSpec, settings: &Settings) -> Result<(), FieldError> {
    present(spec)?;
    match spec.main_plugin() {
        CniType::Macvlan => each(spec.macvlan.as_ref(), "spec.macvlan", shared_nic),
        CniType::Ipvlan => each(spec.ipvlan.as_ref(), "spec.ipvlan", shared_nic),
        CniType::Vlan => {
            let judge = |section: &VlanSection, at: &str| vlan(section, at, settings);
            each(spec.vlan.as_ref(), "spec.vlan", judge)
        }
        CniType::EniVlan => {
            ipam_of_sub_enis(spec)?;
            each(spec.enivlan.as_ref(), "spec.enivlan", eni_vlan)
        }
        CniType::Sriov => each(spec.sriov.as_ref(), "spec.sriov", sriov),
        CniType::IbSriov => each(spec.ibsriov.as_ref(), "spec.ibsriov", |section, at| {
            let message = "name the resource of the SR-IOV device plugin";
            named(
                section.resource_name.as_deref(),
                at,
                "resourceName",
                message,
            )
        }),
        CniType::Ipoib => each(spec.ipoib.as_ref(), "spec.ipoib", |section, at| {
            let message = "name the InfiniBand NIC of the nodes";
            named(section.master.as_deref(), at, "master", message)
        }),
        CniType::Ovs => each(spec.ovs.as_ref(), "spec.ovs", ovs),
        CniType::Custom => custom(spec.custom_cni.as_deref().unwrap_or_default()),
    }
}

fn each<T>(
    section: Option<&T>,
    at: &str,
    judge: impl Fn(&T, &str) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    section.map_or(Ok(()), |section| judge(section, at))
}

fn required(field: &str, message: impl Into<String>) -> FieldError {
    FieldError::new(FieldErrorKind::Required, field, Value::Null, message)
}

/// The own section is there, and no other.
fn present(spec: &SpiderMultusConfigSpec) -> Result<(), FieldError> {
    let plugin = spec.main_plugin();
    let found = [
        (CniType::Macvlan, spec.macvlan.is_some()),
        (CniType::Ipvlan, spec.ipvlan.is_some()),
        (CniType::Vlan, spec.vlan.is_some()),
        (CniType::Sriov, spec.sriov.is_some()),
        (CniType::IbSriov, spec.ibsriov.is_some()),
        (CniType::Ipoib, spec.ipoib.is_some()),
        (CniType::Ovs, spec.ovs.is_some()),
        (CniType::EniVlan, spec.enivlan.is_some()),
    ];
    for (cni_type, there) in found {
        let field = format!("spec.{}", cni_type.section().unwrap_or_default());
        let name = cni_type.as_str();
        if cni_type == plugin && !there {
            return Err(required(
                &field,
                format!("cniType {name} needs this section"),
            ));
        }
        if cni_type != plugin && there {
            let message = format!("is the section of cniType {name}, which this is not");
            return Err(FieldError::forbidden(&field, message));
        }
    }
    Ok(())
}

/// macvlan and ipvlan.
fn shared_nic(section: &MasterSection, at: &str) -> Result<(), FieldError> {
    vlan_id(section.vlan_id.map(i64::from), at, "vlanID")?;
    not_negative(section.mtu, at)?;
    no_master_subnet(section.ippools.as_ref(), at)?;
    masters(&section.master, section.bond.as_ref(), at)
}

fn vlan(section: &VlanSection, at: &str, settings: &Settings) -> Result<(), FieldError> {
    vlan_id(section.vlan_id.map(i64::from), at, "vlanID")?;
    not_negative(section.mtu, at)?;
    no_master_subnet(section.ippools.as_ref(), at)?;
    masters(&section.master, section.bond.as_ref(), at)?;
    let mode = format!("{at}.vlanMode");
    let id = format!("{at}.vlanID");
    match (section.vlan_mode, section.vlan_id, settings.generation_1) {
        (Some(VlanMode::Auto), _, false) => Err(FieldError::forbidden(
            &mode,
            "VLAN ids that the cloud gives out are those of cniType eni-vlan",
        )),
        (Some(VlanMode::Auto), Some(_), true) => Err(FieldError::forbidden(
            &id,
            "vlanMode auto has the cloud's VLAN ids and none of its own",
        )),
        (Some(VlanMode::Manual), None, _) => {
            Err(required(&id, "vlanMode manual needs the VLAN id"))
        }
        (None, None, false) => Err(required(
            &id,
            "cniType vlan has one VLAN id for all Pods; for ids that the cloud gives out use cniType eni-vlan",
        )),
        _ => Ok(()),
    }
}

fn eni_vlan(section: &EniVlanSection, at: &str) -> Result<(), FieldError> {
    not_negative(section.mtu, at)?;
    not_negative_as(section.validation_retries, at, "validationRetries")?;
    not_negative_as(section.validation_timeout_ms, at, "validationTimeoutMs")?;
    masters(&section.master, section.bond.as_ref(), at)
}

/// The cloud's addresses come from pools, however IPAM would be switched off.
fn ipam_of_sub_enis(spec: &SpiderMultusConfigSpec) -> Result<(), FieldError> {
    if spec.ipam_is_enabled() {
        return Ok(());
    }
    let set = spec.ipam.as_ref().and_then(|ipam| ipam.enabled);
    let field = match set {
        Some(_) => "spec.ipam.enabled",
        None => "spec.disableIPAM",
    };
    let message = "cniType eni-vlan has its addresses from IPAM";
    Err(FieldError::forbidden(field, message))
}

fn sriov(section: &SriovSection, at: &str) -> Result<(), FieldError> {
    vlan_id(section.vlan_id.map(i64::from), at, "vlanID")?;
    not_negative(section.mtu, at)?;
    let rate = |rate: Option<i64>| rate.unwrap_or(0);
    let (least, most) = (
        rate(section.min_tx_rate_mbps),
        rate(section.max_tx_rate_mbps),
    );
    for (key, rate) in [("minTxRateMbps", least), ("maxTxRateMbps", most)] {
        if rate < 0 {
            let field = format!("{at}.{key}");
            return Err(FieldError::invalid(&field, rate, "must not be negative"));
        }
    }
    if least > most {
        let field = format!("{at}.minTxRateMbps");
        return Err(FieldError::invalid(
            &field,
            least,
            "is greater than maxTxRateMbps",
        ));
    }
    let message = "name the resource of the SR-IOV device plugin";
    named(
        section.resource_name.as_deref(),
        at,
        "resourceName",
        message,
    )
}

fn ovs(section: &OvsSection, at: &str) -> Result<(), FieldError> {
    named(
        Some(&section.bridge),
        at,
        "bridge",
        "name the bridge of the nodes",
    )?;
    vlan_id(section.vlan.map(i64::from), at, "vlan")?;
    for (index, trunk) in section.trunk.iter().flatten().enumerate() {
        let at = format!("{at}.trunk[{index}]");
        for (key, id) in [
            ("minID", trunk.min_id),
            ("maxID", trunk.max_id),
            ("id", trunk.id),
        ] {
            vlan_id(id, &at, key)?;
        }
        match (trunk.min_id, trunk.max_id) {
            (None, Some(_)) => {
                let message = "a range with maxID begins with minID";
                return Err(required(&format!("{at}.minID"), message));
            }
            (Some(first), Some(last)) if first > last => {
                let field = format!("{at}.minID");
                return Err(FieldError::invalid(&field, first, "is greater than maxID"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn custom(text: &str) -> Result<(), FieldError> {
    if text.is_empty() {
        return Ok(());
    }
    serde_json::from_str::<Value>(text)
        .map(drop)
        .map_err(|error| {
            FieldError::invalid("spec.customCNI", text, format!("is not JSON: {error}"))
        })
}

fn named(text: Option<&str>, at: &str, key: &str, message: &str) -> Result<(), FieldError> {
    match text {
        Some(text) if !text.is_empty() => Ok(()),
        _ => Err(required(&format!("{at}.{key}"), message)),
    }
}

fn vlan_id(id: Option<i64>, at: &str, key: &str) -> Result<(), FieldError> {
    match id {
        Some(id) if !(0..=LAST_VLAN).contains(&id) => Err(FieldError::invalid(
            &format!("{at}.{key}"),
            id,
            "must be in 0-4094",
        )),
        _ => Ok(()),
    }
}

fn not_negative(mtu: Option<i32>, at: &str) -> Result<(), FieldError> {
    not_negative_as(mtu, at, "mtu")
}

fn not_negative_as(value: Option<i32>, at: &str, key: &str) -> Result<(), FieldError> {
    match value {
        Some(value) if value < 0 => Err(FieldError::invalid(
            &format!("{at}.{key}"),
            value,
            "must not be negative",
        )),
        _ => Ok(()),
    }
}

/// It needs the plugin's device.
fn no_master_subnet(pools: Option<&SectionPools>, at: &str) -> Result<(), FieldError> {
    if pools.is_some_and(|pools| pools.match_master_subnet == Some(true)) {
        let field = format!("{at}.ippools.matchMasterSubnet");
        let message = "is for plugins that get a device: sriov, ib-sriov, ipoib, ovs";
        return Err(FieldError::forbidden(&field, message));
    }
    Ok(())
}

fn masters(masters: &[String], bond: Option<&Bond>, at: &str) -> Result<(), FieldError> {
    let field = format!("{at}.master");
    if masters.is_empty() {
        return Err(required(&field, "name the NIC of the nodes"));
    }
    if let Some(index) = masters.iter().position(|name| name.trim().is_empty()) {
        let field = format!("{field}[{index}]");
        return Err(FieldError::invalid(&field, "", "is no name of a NIC"));
    }
    if masters.len() < 2 {
        return Ok(());
    }
    match bond {
        None => Err(required(
            &format!("{at}.bond"),
            "several masters need the bond they make",
        )),
        Some(bond) if bond.name.is_empty() => {
            Err(required(&format!("{at}.bond.name"), "name the bond"))
        }
        Some(bond) if !(0..=6).contains(&bond.mode) => Err(FieldError::invalid(
            &format!("{at}.bond.mode"),
            json!(bond.mode),
            "must be in 0-6",
        )),
        Some(_) => Ok(()),
    }
}
