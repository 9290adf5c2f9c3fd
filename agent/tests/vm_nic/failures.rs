//! What makes an attach fail, and that nothing is left then.

use std::time::Duration;

use spiderpool_agent::nic::{Drops, NicError, NicOps, NicSpec, Preflight};
use spiderpool_api::value::Mac;
use spiderpool_netops::rtnl::VethSpec;

use crate::rig::{Named, Rig, bare, mac, spec, target};

#[tokio::test]
#[ignore = "vm level"]
async fn a_silent_gateway_fails_closed_and_the_retry_attaches() {
    let Some(rig) = Rig::new("a_silent_gateway_fails_closed_and_the_retry_attaches").await else {
        return;
    };
    let pod = Named::new("pod");
    let wanted = spec(&pod, 121);
    let quick = Preflight {
        attempts: 2,
        timeout: Duration::from_millis(40),
    };
    let error = rig
        .nic
        .attach(NicSpec {
            preflight: Some(quick),
            ..wanted.clone()
        })
        .await
        .unwrap_err();
    assert_eq!(error.code(), 103);
    for part in [
        "10.71.0.1",
        "10.71.0.10",
        "fa:16:3e:00:71:0c",
        "VLAN 121",
        "eth1",
        "2 attempts",
        "40 ms",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(pod.names().await, [""; 0]);
    rig.bind(121).await;
    rig.nic.attach(wanted).await.unwrap();
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_sub_eni_with_its_masters_mac_is_never_made() {
    let Some(rig) = Rig::new("a_sub_eni_with_its_masters_mac_is_never_made").await else {
        return;
    };
    let pod = Named::new("pod");
    let mut wanted = bare(&pod, 120);
    wanted.mac = wanted.parent_mac.unwrap();
    let error = rig.nic.attach(wanted.clone()).await.unwrap_err();
    assert_eq!(error.code(), 106);
    assert!(error.to_string().contains("eth1"), "{error}");
    assert_eq!(pod.names().await, [""; 0]);
    // Nor are drops of it made up; of a NIC that is there they are read.
    assert_eq!(rig.nic.drops(target(&wanted, &pod)).await.unwrap(), None);
    let wanted = bare(&pod, 120);
    rig.nic.attach(wanted.clone()).await.unwrap();
    let drops = rig.nic.drops(target(&wanted, &pod)).await.unwrap();
    assert_eq!(drops, Some(Drops::default()));
}

#[tokio::test]
#[ignore = "vm level"]
async fn one_silent_family_is_enough_to_fail() {
    let Some(rig) = Rig::new("one_silent_family_is_enough_to_fail").await else {
        return;
    };
    let pod = Named::new("pod");
    rig.bind(122).await;
    let mut wanted = spec(&pod, 122);
    wanted.preflight = Some(Preflight {
        attempts: 1,
        timeout: Duration::from_millis(300),
    });
    wanted.addresses[1].gateway = Some("fd71::dead".parse().unwrap());
    let error = rig.nic.attach(wanted.clone()).await.unwrap_err();
    assert!(error.to_string().contains("fd71::dead"), "{error}");
    assert_eq!(pod.names().await, [""; 0]);
    wanted.addresses[1].gateway = None;
    wanted.routes.truncate(1);
    let attached = rig.nic.attach(wanted).await.unwrap();
    let results: Vec<_> = attached
        .preflight
        .iter()
        .map(|r| r.result.as_str())
        .collect();
    assert_eq!(results, ["ok", "skipped"]);
}

#[tokio::test]
#[ignore = "vm level"]
async fn the_master_must_be_the_parent_and_wide_enough() {
    let Some(rig) = Rig::new("the_master_must_be_the_parent_and_wide_enough").await else {
        return;
    };
    let pod = Named::new("pod");
    rig.add_vlan(&rig.host, "eth1", 7, &rig.host, "eth1.7")
        .await
        .unwrap();
    let good = bare(&pod, 123);
    let master = |name: &str| NicSpec {
        master: name.parse().unwrap(),
        parent_mac: None,
        ..good.clone()
    };
    let cases = [
        (master("nosuch"), 106, "nosuch"),
        (master("lo"), 106, "lo"),
        (master("eth1.7"), 106, "eth1.7"),
        (
            NicSpec {
                parent_mac: Some(Mac::new([2, 0, 0, 0, 9, 9])),
                ..good.clone()
            },
            106,
            "02:00:00:00:09:09",
        ),
        (
            NicSpec {
                mtu: Some(1501),
                ..good.clone()
            },
            7,
            "1501",
        ),
    ];
    for (wanted, code, part) in cases {
        let checked = rig
            .nic
            .check_master(&wanted.master, wanted.parent_mac, wanted.mtu)
            .await
            .unwrap_err();
        let error = rig.nic.attach(wanted.clone()).await.unwrap_err();
        assert_eq!((error.code(), checked.code()), (code, code), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.to_string(), checked.to_string());
        assert_eq!(pod.names().await, [""; 0]);
    }
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_smaller_mtu_than_the_masters_is_set() {
    let Some(rig) = Rig::new("a_smaller_mtu_than_the_masters_is_set").await else {
        return;
    };
    let pod = Named::new("pod");
    let narrow = NicSpec {
        mtu: Some(1400),
        ..bare(&pod, 128)
    };
    assert_eq!(rig.nic.attach(narrow).await.unwrap().mtu, 1400);
    assert_eq!(pod.link("net1").await.unwrap().mtu, 1400);
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_taken_name_is_left_alone() {
    let Some(rig) = Rig::new("a_taken_name_is_left_alone").await else {
        return;
    };
    let pod = Named::new("pod");
    let veth = VethSpec {
        name: "net1",
        peer: "other",
        peer_target: None,
        mac: None,
        peer_mac: None,
    };
    pod.rtnl().await.add_veth(&veth).await.unwrap();
    let wanted = bare(&pod, 124);
    let before = pod.link("net1").await;
    let opened = rig
        .nic
        .open_target(&wanted.netns, &wanted.ifname)
        .await
        .unwrap_err();
    let error = rig.nic.attach(wanted.clone()).await.unwrap_err();
    assert_eq!((opened.code(), error.code()), (107, 107));
    assert!(
        error.to_string().contains("net1") && error.to_string().contains("veth"),
        "{error}"
    );
    assert!(!rig.nic.detach(target(&wanted, &pod)).await.unwrap());
    assert_eq!(pod.link("net1").await, before);
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_netns_that_is_gone_is_code_4_for_add_and_success_for_del() {
    let Some(rig) = Rig::new("a_netns_that_is_gone_is_code_4_for_add_and_success_for_del").await
    else {
        return;
    };
    let pod = Named::new("pod");
    for path in ["", "/var/run/netns/nosuch", "/etc/passwd"] {
        let wanted = NicSpec {
            netns: path.into(),
            ..bare(&pod, 125)
        };
        let error = rig.nic.attach(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), 4, "{error}");
        assert!(matches!(error, NicError::NetnsMissing { .. }));
        assert!(!rig.nic.detach(target(&wanted, &pod)).await.unwrap());
    }
}

#[tokio::test]
#[ignore = "vm level"]
async fn detach_spares_what_is_not_described() {
    let Some(rig) = Rig::new("detach_spares_what_is_not_described").await else {
        return;
    };
    let (pod, other) = (Named::new("pod"), Named::new("other"));
    let wanted = bare(&pod, 126);
    rig.nic.attach(wanted.clone()).await.unwrap();
    let before = pod.link("net1").await;
    let good = target(&wanted, &pod);
    let mut others = [good.clone(), good.clone(), good.clone(), good.clone()];
    others[0].netns_id = Some(other.0.id());
    others[1].mac = Some(mac(0x77));
    others[2].vlan = Some(spec(&pod, 127).vlan);
    others[3].master = Some("eth2".parse().unwrap());
    for description in others {
        assert!(
            !rig.nic.detach(description.clone()).await.unwrap(),
            "{description:?}"
        );
        assert_eq!(pod.link("net1").await, before);
    }
    assert!(rig.nic.detach(good).await.unwrap());
}
