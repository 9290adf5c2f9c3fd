//! One VLAN id per master over all namespaces: who has it, and who may take it.

use spiderpool_agent::nic::{Holder, NicError, NicOps};
use spiderpool_netops::netns::Netns;

use crate::rig::{Named, Rig, bare, target};

fn holder_of(error: NicError) -> Holder {
    assert_eq!(error.code(), 105, "{error}");
    match error {
        NicError::VlanInUse { holder, .. } => *holder,
        other => panic!("{other}"),
    }
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_dead_sandbox_loses_its_vlan() {
    let Some(rig) = Rig::new("a_dead_sandbox_loses_its_vlan").await else {
        return;
    };
    let (old, new) = (Named::new("old"), Named::new("new"));
    rig.nic.attach(bare(&old, 131)).await.unwrap();
    let error = rig.nic.attach(bare(&new, 131)).await.unwrap_err();
    for part in ["131", "eth1", "net1", old.path().to_str().unwrap()] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let holder = holder_of(error);
    let link = old.link("net1").await.unwrap();
    assert_eq!(
        (holder.netns_id, holder.ifindex, holder.mac),
        (Some(old.0.id()), link.ifindex, link.mac)
    );
    assert_eq!(new.names().await, [""; 0]);

    rig.nic.evict(holder.clone()).await.unwrap();
    assert_eq!(old.link("net1").await, None);
    rig.nic.attach(bare(&new, 131)).await.unwrap();
    rig.nic.evict(holder).await.unwrap();
    assert!(
        new.link("net1").await.is_some(),
        "a stale eviction touches nobody else"
    );
    assert!(
        !rig.nic
            .detach(target(&bare(&old, 131), &old))
            .await
            .unwrap()
    );
    assert!(
        new.link("net1").await.is_some(),
        "nor does the old sandbox's DEL"
    );
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_nic_renamed_in_the_pod_is_detached_all_the_same() {
    let Some(rig) = Rig::new("a_nic_renamed_in_the_pod_is_detached_all_the_same").await else {
        return;
    };
    let pod = Named::new("pod");
    let (first, mut second) = (bare(&pod, 132), bare(&pod, 133));
    second.ifname = "net2".parse().unwrap();
    second.mac = crate::rig::mac(0x0d);
    rig.nic.attach(first.clone()).await.unwrap();
    rig.nic.attach(second.clone()).await.unwrap();
    // The two change their names, so that the right name is on the wrong link.
    let rtnl = pod.rtnl().await;
    for (from, to) in [("net1", "swap"), ("net2", "net1"), ("swap", "net2")] {
        let link = pod.link(from).await.unwrap();
        rtnl.set_down(link.ifindex).await.unwrap();
        rtnl.rename_and_up(link.ifindex, to).await.unwrap();
    }
    rtnl.close().await;
    assert!(rig.nic.detach(target(&first, &pod)).await.unwrap());
    assert_eq!(pod.names().await, ["net1"]);
    assert_eq!(pod.link("net1").await.unwrap().vlan, Some(second.vlan));
    assert!(!rig.nic.detach(target(&first, &pod)).await.unwrap());
    assert!(rig.nic.detach(target(&second, &pod)).await.unwrap());
    assert_eq!(pod.names().await, [""; 0]);
}

#[tokio::test]
#[ignore = "vm level"]
async fn the_holder_is_the_one_on_the_same_master() {
    let Some(rig) = Rig::new("the_holder_is_the_one_on_the_same_master").await else {
        return;
    };
    let pods = ["a", "b", "c"].map(Named::new);
    let mut on_eth2 = bare(&pods[0], 132);
    on_eth2.master = "eth2".parse().unwrap();
    on_eth2.parent_mac = None;
    rig.nic.attach(on_eth2).await.unwrap();
    // Indexes repeat: the fabric's eth1 has the same one as the node's. A Pod with a NIC on the
    // node also has the VLAN on the fabric's eth1, which is another parent in another namespace.
    let tenant = Named::new("tenant");
    rig.nic.attach(bare(&tenant, 137)).await.unwrap();
    rig.add_vlan(&rig.fabric, "eth1", 132, &tenant, "elsewhere")
        .await
        .unwrap();
    let index = async |netns: &Named| netns.link("eth1").await.unwrap().ifindex;
    assert_eq!(index(&rig.fabric).await, index(&rig.host).await);
    rig.nic.attach(bare(&pods[1], 132)).await.unwrap();
    let error = rig.nic.attach(bare(&pods[2], 132)).await.unwrap_err();
    assert_eq!(holder_of(error).netns_id, Some(pods[1].0.id()));

    // Now only look-alikes can be found: the real holder has neither a known name nor a process.
    let dir = tempfile::tempdir().unwrap();
    let hidden = Named(Netns::create(dir.path().join("hidden")).unwrap());
    assert!(
        rig.nic
            .detach(target(&bare(&pods[1], 132), &pods[1]))
            .await
            .unwrap()
    );
    rig.nic.attach(bare(&hidden, 132)).await.unwrap();
    let error = rig.nic.attach(bare(&pods[2], 132)).await.unwrap_err();
    assert!(
        matches!(error, NicError::VlanHolderUnknown { .. }),
        "{error}"
    );
    assert_eq!(error.code(), 105);
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_namespace_that_is_ending_is_waited_for() {
    let Some(rig) = Rig::new("a_namespace_that_is_ending_is_waited_for").await else {
        return;
    };
    let (old, new) = (Named::new("old"), Named::new("new"));
    rig.nic.attach(bare(&old, 136)).await.unwrap();
    // An open socket keeps the namespace after its name is gone, as the kernel's own teardown does.
    let keeper = old.rtnl().await;
    drop(old);
    let (attached, ()) = tokio::join!(rig.nic.attach(bare(&new, 136)), keeper.close());
    attached.unwrap();
    assert_eq!(new.names().await, ["net1"]);
}

#[tokio::test]
#[ignore = "vm level"]
async fn an_administrators_link_on_the_node_is_never_evicted() {
    let Some(rig) = Rig::new("an_administrators_link_on_the_node_is_never_evicted").await else {
        return;
    };
    let pod = Named::new("pod");
    rig.add_vlan(&rig.host, "eth1", 133, &rig.host, "eth1.133")
        .await
        .unwrap();
    let holder = holder_of(rig.nic.attach(bare(&pod, 133)).await.unwrap_err());
    assert_eq!(
        (holder.netns_id, holder.ifname.as_str()),
        (Some(rig.host.0.id()), "eth1.133")
    );
    let error = rig.nic.evict(holder).await.unwrap_err();
    assert_eq!(error.code(), 105, "{error}");
    assert!(rig.host.link("eth1.133").await.is_some());
}

#[tokio::test]
#[ignore = "vm level"]
async fn an_equal_link_is_taken_over() {
    let Some(rig) = Rig::new("an_equal_link_is_taken_over").await else {
        return;
    };
    let pod = Named::new("pod");
    rig.bind(134).await;
    let wanted = crate::rig::spec(&pod, 134);
    rig.nic.attach(wanted.clone()).await.unwrap();
    let before = pod.link("net1").await.unwrap();
    let opened = rig
        .nic
        .open_target(&wanted.netns, &wanted.ifname)
        .await
        .unwrap();
    assert!(opened.vlan_link_present);
    let again = rig.nic.attach(wanted.clone()).await.unwrap();
    assert!(again.reused);
    assert_eq!(pod.link("net1").await.unwrap().ifindex, before.ifindex);
    rig.nic.check(wanted.clone()).await.unwrap();

    let mut other = wanted;
    other.mac = crate::rig::mac(0x55);
    let error = rig.nic.attach(other).await.unwrap_err();
    assert_eq!(error.code(), 107, "{error}");
    assert_eq!(pod.link("net1").await.unwrap().ifindex, before.ifindex);
}

#[tokio::test]
#[ignore = "vm level"]
async fn what_an_interrupted_attach_left_is_in_nobodys_way() {
    let Some(rig) = Rig::new("what_an_interrupted_attach_left_is_in_nobodys_way").await else {
        return;
    };
    let pod = Named::new("pod");
    let mut wanted = bare(&pod, 135);
    wanted.mac = crate::rig::mac(0xee);
    rig.add_vlan(&rig.host, "eth1", 135, &pod, "veth0123abcd")
        .await
        .unwrap();
    rig.nic.attach(wanted.clone()).await.unwrap();
    assert_eq!(pod.names().await, ["net1"]);
    assert!(rig.nic.detach(target(&wanted, &pod)).await.unwrap());

    rig.add_vlan(&rig.host, "eth1", 135, &pod, "veth0123abcd")
        .await
        .unwrap();
    assert!(
        rig.nic.detach(target(&wanted, &pod)).await.unwrap(),
        "DEL finds it too"
    );
    assert_eq!(pod.names().await, [""; 0]);
}
