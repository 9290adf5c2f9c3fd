//! Sources and failures of spec api 7, one row a case.

use super::*;

const KUBEADM: &str = "apiVersion: kubeadm.k8s.io/v1beta3\nnetworking:\n  dnsDomain: cluster.local\n  podSubnet: 10.244.0.0/16,fd00:10::/56,oops\n  serviceSubnet: \"10.96.0.0/12\"\n";

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

/// A cluster made by kubeadm, without an overlay.
fn facts() -> Facts {
    Facts {
        cni_name: Ok(None),
        kubeadm: Some(KUBEADM.to_owned()),
        controller_manager: Ok(None),
        calico: Err("no such kind".to_owned()),
        cilium: Ok(None),
        cilium_pools: Err("no such kind".to_owned()),
        services: Ok(None),
    }
}

fn cilium(pairs: &[(&str, &str)]) -> Facts {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Facts {
        cilium: Ok(Some(pairs.collect())),
        ..facts()
    }
}

fn synced(kind: PodCidrType, facts: &Facts) -> (Vec<String>, Vec<String>) {
    let found = detect(Some(kind), facts);
    assert_eq!(found.status.phase, SYNCED, "{found:?}");
    assert_eq!((found.status.reason, found.warning), (None, None));
    (found.status.overlay_pod_cidr, found.status.service_cidr)
}

fn failed(kind: PodCidrType, facts: &Facts) -> (String, Vec<String>, Option<Warning>) {
    let found = detect(Some(kind), facts);
    assert_eq!(found.status.phase, NOT_READY, "{found:?}");
    assert_eq!(found.status.overlay_pod_cidr, Vec::<String>::new());
    let reason = found.status.reason.unwrap();
    (reason, found.status.service_cidr, found.warning)
}

#[test]
fn auto_goes_by_the_name_of_the_first_cni_file() {
    let calico = list(&["10.1.0.0/16"]);
    for (name, pods) in [
        (Some("k8s-pod-network"), calico.clone()),
        (Some("calico"), calico.clone()),
        (Some("flannel"), list(&["10.244.0.0/16", "fd00:10::/56"])),
        (Some("cilium"), list(&["10.2.0.0/16"])),
        (Some("other"), vec![]),
        (None, vec![]),
    ] {
        let facts = Facts {
            cni_name: Ok(name.map(str::to_owned)),
            calico: Ok(calico.clone()),
            ..cilium(&[
                ("ipam", "cluster-pool"),
                ("cluster-pool-ipv4-cidr", "10.2.0.0/16"),
            ])
        };
        let found = synced(PodCidrType::Auto, &facts);
        assert_eq!(found, (pods, list(&["10.96.0.0/12"])), "{name:?}");
    }
    let unreadable = Facts {
        cni_name: Err("it is not JSON".to_owned()),
        ..facts()
    };
    let (reason, services, warning) = failed(PodCidrType::Auto, &unreadable);
    assert_eq!(reason, "the first CNI file cannot be read: it is not JSON");
    assert_eq!((services, warning), (vec![], None));
    // Nobody asks for it otherwise.
    synced(PodCidrType::None, &unreadable);
}

#[test]
fn the_controller_manager_says_what_kubeadm_does_not() {
    let words = |words: &[&str]| Facts {
        kubeadm: None,
        controller_manager: Ok(Some(list(words))),
        ..facts()
    };
    let wanted = (list(&["10.5.0.0/16", "fd05::/64"]), list(&["10.6.0.0/16"]));
    for told in [
        words(&[
            "kcm",
            "--cluster-cidr=10.5.0.0/16,fd05::/64",
            "--service-cluster-ip-range=10.6.0.0/16",
        ]),
        words(&[
            "kcm",
            "--cluster-cidr",
            "10.5.0.0/16,fd05::/64",
            "--service-cluster-ip-range",
            "10.6.0.0/16",
        ]),
        words(&[
            "--cluster-cidr-x=1",
            "--cluster-cidr=10.5.0.0/16, fd05::/64",
            "--service-cluster-ip-range=10.6.0.0/16,x",
        ]),
    ] {
        assert_eq!(synced(PodCidrType::Cluster, &told), wanted);
    }
    let half = Facts {
        kubeadm: Some("networking:\n  serviceSubnet: 10.96.0.0/12\n".to_owned()),
        ..words(&[
            "--cluster-cidr=10.5.0.0/16",
            "--service-cluster-ip-range=10.6.0.0/16",
        ])
    };
    let found = synced(PodCidrType::Cluster, &half);
    assert_eq!(found, (list(&["10.5.0.0/16"]), list(&["10.96.0.0/12"])));
    // A manager that says nothing leaves nothing.
    assert_eq!(
        synced(PodCidrType::Cluster, &words(&["kcm"])),
        (vec![], vec![])
    );
}

#[test]
fn without_the_clusters_cidrs_no_kind_is_ready() {
    let none = Facts {
        kubeadm: None,
        ..facts()
    };
    let (reason, services, warning) = failed(PodCidrType::None, &none);
    assert!(
        reason.contains("component=kube-controller-manager"),
        "{reason}"
    );
    assert_eq!((services, warning), (vec![], None));
    let refused = Facts {
        controller_manager: Err("forbidden".to_owned()),
        ..none
    };
    let (reason, _, warning) = failed(PodCidrType::Calico, &refused);
    assert!(reason.ends_with("cannot be listed: forbidden"), "{reason}");
    assert_eq!(warning, Some(Warning::ClusterNotReady));
}

#[test]
fn calico_is_asked_for_its_pools() {
    let facts = Facts {
        calico: Ok(list(&["10.7.0.0/16", "bad", "fd07::/64"])),
        ..facts()
    };
    let found = synced(PodCidrType::Calico, &facts);
    assert_eq!(found.0, list(&["10.7.0.0/16", "fd07::/64"]));
    let (reason, services, _) = failed(PodCidrType::Calico, &self::facts());
    assert_eq!(reason, "Calico's IPPools cannot be read: no such kind");
    assert_eq!(services, list(&["10.96.0.0/12"]));
}

#[test]
fn cilium_is_asked_by_its_ipam_mode() {
    let pools = [
        ("cluster-pool-ipv6-cidr", "fd08::/104"),
        ("cluster-pool-ipv4-cidr", "10.8.0.0/16 10.9.0.0/16"),
    ];
    for mode in ["cluster-pool", "cluster-pool-v2beta"] {
        let found = synced(
            PodCidrType::Cilium,
            &cilium(&[&pools[..], &[("ipam", mode)]].concat()),
        );
        assert_eq!(found.0, list(&["10.8.0.0/16", "10.9.0.0/16", "fd08::/104"]));
    }
    let found = synced(PodCidrType::Cilium, &cilium(&[("ipam", "kubernetes")]));
    assert_eq!(found.0, list(&["10.244.0.0/16", "fd00:10::/56"]));
    let several = Facts {
        cilium_pools: Ok(list(&["10.10.0.0/16"])),
        ..cilium(&[("ipam", "multi-pool")])
    };
    assert_eq!(
        synced(PodCidrType::Cilium, &several).0,
        list(&["10.10.0.0/16"])
    );
    for (facts, part, warning) in [
        (cilium(&[("ipam", "multi-pool")]), "CiliumPodIPPools", None),
        (cilium(&[("ipam", "eni")]), "\"eni\"", None),
        (facts(), "does not exist", Some(Warning::CiliumNotReady)),
    ] {
        let (reason, services, told) = failed(PodCidrType::Cilium, &facts);
        assert!(reason.contains(part), "{reason}");
        assert_eq!((services, told), (list(&["10.96.0.0/12"]), warning));
    }
}

#[test]
fn service_cidrs_are_those_of_the_objects_where_there_are_any() {
    for (services, wanted) in [
        (
            Ok(Some(list(&["10.11.0.0/16", "fd11::/112"]))),
            ["10.11.0.0/16", "fd11::/112"].as_slice(),
        ),
        (Ok(Some(vec![])), &["10.96.0.0/12"]),
        (Ok(None), &["10.96.0.0/12"]),
    ] {
        let facts = Facts {
            services,
            ..facts()
        };
        assert_eq!(synced(PodCidrType::None, &facts).1, list(wanted));
    }
    let facts = Facts {
        services: Err("forbidden".to_owned()),
        ..facts()
    };
    let (reason, services, _) = failed(PodCidrType::None, &facts);
    assert_eq!(reason, "the ServiceCIDRs cannot be read: forbidden");
    assert_eq!(services, list(&["10.96.0.0/12"]));
}

#[test]
fn a_coordinator_without_a_kind_is_not_ready() {
    let found = detect(None, &facts());
    assert_eq!(found.status.phase, NOT_READY);
    assert_eq!(
        found.status.reason.as_deref(),
        Some("spec.podCIDRType is not set")
    );
}
