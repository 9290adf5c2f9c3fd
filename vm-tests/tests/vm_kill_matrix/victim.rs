//! A Pod whose agent dies, and what must be true of it afterwards.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::cni::CniResult;
use spiderpool_api::observer_v1::SubEniReport;
use spiderpool_api::value::Mac;
use vm_tests::lab::api_client::{ENDPOINTS, PODS};
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6};
use vm_tests::lab::node::IFNAME;
use vm_tests::lab::{Pod, Stack, inspect, observer, peers, wait, writes};

use crate::rig::Rig;

const LIMIT: Duration = Duration::from_secs(20);

/// Ways an ADD goes; each step is reached by one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A ready address of the node's pool.
    Prewarm,
    /// A ready pair.
    Pair,
    /// An address that the provider has to bind.
    Cold,
    /// A Pod that was replaced under its name, before its DEL.
    Successor,
}

impl Way {
    /// All of them; where a step is reached in any, Pods take turns between one family and two.
    pub(crate) const fn all(number: usize) -> [Self; 4] {
        match number / 2 % 2 {
            0 => [Self::Prewarm, Self::Pair, Self::Cold, Self::Successor],
            _ => [Self::Pair, Self::Prewarm, Self::Cold, Self::Successor],
        }
    }

    pub(crate) const fn stack(self) -> Stack {
        match self {
            Self::Prewarm | Self::Successor => Stack::V4,
            Self::Pair => Stack::Dual,
            Self::Cold => Stack::Global,
        }
    }
}

pub(crate) struct Victim {
    pub(crate) way: Way,
    pub(crate) pod: Pod,
    pub(crate) conf: Value,
    /// Sandbox of the Pod it replaced.
    before: Option<Pod>,
}

impl Victim {
    /// A container without Pod arguments: the agent makes its Pod object, named by twelve
    /// characters of its id.
    pub(crate) fn bare(rig: &Rig, number: usize, way: Way) -> Self {
        let conf = rig.node().conf(way.stack());
        let name = format!("{:x<12}", format!("k{number}"));
        let before = (way == Way::Successor).then(|| {
            let pod = rig.cloud.pod(&format!("{name}old")).unwrap();
            pod.attach(rig.node(), &conf).unwrap();
            pod
        });
        Self {
            way,
            pod: rig.cloud.pod(&format!("{name}new")).unwrap(),
            conf,
            before,
        }
    }

    /// A Pod of Kubernetes.
    pub(crate) fn of_cluster(rig: &Rig, name: &str, way: Way) -> Self {
        let node = rig.node();
        let conf = node.conf(way.stack());
        let before = (way == Way::Successor).then(|| {
            let uid = writes::create_pod(node, name).unwrap();
            let pod = writes::sandbox(&rig.cloud, &format!("{name}-old"), name, &uid).unwrap();
            pod.attach(node, &conf).unwrap();
            writes::delete_pod(node, name).unwrap();
            pod
        });
        let pod = writes::new_pod(&rig.cloud, node, name).unwrap();
        Self {
            way,
            pod,
            conf,
            before,
        }
    }

    /// Of its attachment, and of its DEL that waits.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{IFNAME}.json", self.pod.container_id)
    }

    /// UID of the Pod object.
    pub(crate) fn uid(&self, rig: &Rig) -> String {
        let pods = rig.node().api().unwrap().list(PODS).unwrap();
        let name = self.pod.object_name();
        let found = pods.iter().find(|object| key_of(object) == name).unwrap();
        found["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn addresses(&self, rig: &Rig, uid: &str) -> Vec<String> {
        rig.addresses(self.way.stack(), uid)
    }

    /// The Pod has exactly what `result` says, and it works.
    pub(crate) fn is_intact(&self, rig: &Rig, uid: &str, result: &CniResult, held: &[String]) {
        let node = rig.node();
        let given: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.addr()).collect();
        let texts: Vec<String> = given.iter().map(ToString::to_string).collect();
        assert_eq!(self.addresses(rig, uid), texts, "one record an address");
        for address in held {
            assert!(texts.contains(address), "{address} was held: {texts:?}");
        }
        assert_eq!(self.endpoint_uids(rig), [uid]);
        let sub = result.sub_eni.as_ref().unwrap();
        let links = inspect::links(self.pod.netns()).unwrap();
        let [nic] = &links[..] else {
            panic!("one link: {links:?}")
        };
        let link = &nic.link;
        assert_eq!((link.name.as_str(), link.up), (IFNAME, true));
        assert_eq!((link.mac, link.vlan), (Some(sub.mac), Some(sub.vlan)));
        let files = node.attachments().unwrap();
        assert!(files.contains(&self.file_name()), "{files:?}");
        for address in &given {
            let to = match address {
                IpAddr::V4(_) => GATEWAY_V4.into(),
                IpAddr::V6(_) => GATEWAY_V6.into(),
            };
            let ping = peers::ping(self.pod.netns(), to, 1, LIMIT).unwrap();
            assert!(ping.complete(), "{to}: {ping:?}");
        }
        self.is_counted(rig, sub.mac);
    }

    fn endpoint_uids(&self, rig: &Rig) -> Vec<String> {
        let endpoints = rig.node().api().unwrap().list(ENDPOINTS).unwrap();
        let name = self.pod.object_name();
        let own = endpoints.iter().filter(|object| key_of(object) == name);
        own.map(|object| {
            object["status"]["current"]["uid"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect()
    }

    /// The observer has counted what the link has, from its first frame.
    fn is_counted(&self, rig: &Rig, mac: Mac) {
        let row = || {
            let rows = observer::report(rig.node()).unwrap().subeni;
            rows.into_iter().find(|row| row.mac == mac).unwrap()
        };
        let counted = wait::until(LIMIT, "equal counters", || {
            let (seen, link) = (row(), observer::of_link(&self.pod)?);
            assert_eq!(seen.state, "active");
            Ok((observer::agree(&seen, &link) && link.tx_frames > 0).then_some(()))
        });
        counted.unwrap_or_else(|error| {
            panic!(
                "{error:#}\n{:#?}\n{:#?}",
                row(),
                observer::of_link(&self.pod)
            )
        });
    }

    /// Nothing of it is on the node, whatever waits for the provider.
    pub(crate) fn has_left_the_node(&self, rig: &Rig) {
        let node = rig.node();
        assert!(inspect::links(self.pod.netns()).unwrap().is_empty());
        let name = self.pod.object_name();
        let is_it = |row: &SubEniReport| format!("{}/{}", row.pod_namespace, row.pod_name) == name;
        let rows = observer::report(node).unwrap().subeni;
        // The Pod that it replaced has the same name; a scan at an agent's start may have collected it.
        let left = rows.iter().filter(|row| is_it(row)).count();
        assert!(left <= usize::from(self.before.is_some()), "{rows:?}");
        let files = node.attachments().unwrap();
        assert!(!files.contains(&self.file_name()), "{files:?}");
    }

    /// Nothing of it is in the API. The DEL of the Pod that it replaced comes now.
    pub(crate) fn leaves_nothing(self, rig: &Rig, uid: &str) {
        self.has_left_the_node(rig);
        assert_eq!(self.addresses(rig, uid), Vec::<String>::new());
        assert_eq!(self.endpoint_uids(rig), Vec::<String>::new());
        if let Some(before) = &self.before {
            before.release(rig.node(), &self.conf).unwrap();
            assert!(inspect::links(before.netns()).unwrap().is_empty());
        }
    }
}

/// `namespace/name` of an object.
fn key_of(object: &Value) -> String {
    let part = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}
