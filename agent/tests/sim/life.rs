//! The kubelet's work for one Pod: sandboxes are made with new ids until an ADD succeeds, each DEL is
//! repeated until it is accepted, and the Pod object goes last unless somebody forced it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::clock::Clock;
use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni::CniResult;
use tokio::time::{Instant, sleep};

use crate::api::Kind;
use crate::check::Usage;
use crate::kubelet::{SUCCESSOR, Spec, create, grace_end, remove_object, restarts};
use crate::node::{Node, Reply};
use crate::world::{World, is_alive};

/// One Pod on its node.
pub(crate) struct Life {
    world: Arc<World>,
    nodes: Vec<Arc<Node>>,
    node: Arc<Node>,
    spec: Spec,
    /// How many there were.
    sandboxes: AtomicU64,
}

impl Life {
    pub(crate) fn new(
        world: &Arc<World>,
        nodes: &[Arc<Node>],
        node: &Arc<Node>,
        spec: Spec,
    ) -> Self {
        Self {
            world: Arc::clone(world),
            nodes: nodes.to_vec(),
            node: Arc::clone(node),
            spec,
            sandboxes: AtomicU64::new(0),
        }
    }

    /// Again after each loss of power, from what the API and the runtime's disk say.
    pub(crate) async fn live(&self) {
        loop {
            let powered = self.node.powered().await;
            tokio::select! {
                biased;
                () = powered.cancelled() => self.power_lost(),
                () = self.run() => return,
            }
        }
    }

    fn container(&self) -> String {
        format!(
            "{}x{}",
            self.spec.uid,
            self.sandboxes.load(Ordering::Relaxed)
        )
    }

    /// Nothing of the Pod runs any more, and nobody has called DEL.
    fn power_lost(&self) {
        for sandbox in 1..=self.sandboxes.load(Ordering::Relaxed) {
            let container = format!("{}x{sandbox}", self.spec.uid);
            self.node.nic.remove_netns(&netns(&container));
            self.world.check().usage_ends(&container);
        }
    }

    async fn run(&self) {
        // A runtime that has lost its power may call DEL for what it finds on its disk, or find nothing.
        let cut = self.sandboxes.load(Ordering::Relaxed) > 0;
        if cut && self.world.weather.roll(2) == 0 {
            self.del_all(&self.container()).await;
        }
        let pod = self.world.get(Kind::Pod, &self.spec.key);
        let mut begun = pod.as_ref().map_or(0, |pod| restarts(pod));
        while self.is_wanted() {
            self.sandboxes.fetch_add(1, Ordering::Relaxed);
            let container = self.container();
            self.node
                .nic
                .add_netns(&netns(&container), self.world.next_id() + 100);
            if self.add_all(&container).await {
                self.running();
                self.until_ending(begun).await;
                let pod = self.world.get(Kind::Pod, &self.spec.key);
                begun = pod.as_ref().map_or(begun, |pod| restarts(pod));
                self.stop(pod.as_deref()).await;
                self.world.check().usage_ends(&container);
                self.del_all(&container).await;
            } else {
                self.world.check().usage_ends(&container);
                self.del_all(&container).await;
                let pause = Duration::from_millis(2_000 + self.world.weather.roll(18_000));
                self.world.until(pause, |_| !self.is_wanted()).await;
            }
        }
        self.finish().await;
    }

    /// The containers of a Pod that is being deleted take their time, within its grace.
    async fn stop(&self, pod: Option<&Value>) {
        let own = pod.filter(|pod| pod["metadata"]["uid"] == self.spec.uid && !is_alive(pod));
        let end: Option<jiff::Timestamp> = own.and_then(grace_end);
        let left = end.map(|end| end.duration_since(self.world.clock.wall()));
        let left = left.and_then(|left| u64::try_from(left.as_millis()).ok());
        if let Some(left) = left.filter(|left| *left > 0) {
            let wait = Duration::from_millis(self.world.weather.roll(left));
            let gone = |world: &World| world.get(Kind::Pod, &self.spec.key).is_none();
            self.world.until(wait, gone).await;
        }
    }

    fn is_wanted(&self) -> bool {
        let pod = self.world.get(Kind::Pod, &self.spec.key);
        pod.is_some_and(|pod| pod["metadata"]["uid"] == self.spec.uid && is_alive(&pod))
    }

    async fn add_all(&self, container: &str) -> bool {
        for ifname in self.spec.wish.nics {
            if !self.add(container, ifname).await {
                return false;
            }
        }
        true
    }

    async fn add(&self, container: &str, ifname: &str) -> bool {
        {
            let api = self.world.api();
            self.world.check().add_begins(&api, &self.spec.uid);
        }
        let begun = Instant::now();
        let reply = self.node.cni(self.request("ADD", container, ifname)).await;
        let what = format!("ADD {} {ifname}", self.spec.uid);
        let api = self.world.api();
        let mut check = self.world.check();
        check.call_ends(&what, &self.spec.uid, begun);
        let result = match reply {
            Reply::Answer(Ok(result)) => result.unwrap(),
            Reply::Answer(Err(failure)) => {
                check.counts.failed_adds += 1;
                let text = format!("{} {}", failure.msg, failure.details);
                check.log(format!("{what} failed: {text}"));
                check.judge_failed(&api, &self.spec.uid, begun, &text);
                return false;
            }
            Reply::NoAgent => {
                check.log(format!("{what}: no agent"));
                return false;
            }
        };
        let result: CniResult = serde_json::from_value(result).unwrap();
        let eni = result.sub_eni.map(|eni| (eni.vlan, eni.mac, self.node.mac));
        let usage = Usage {
            pod: self.spec.key.clone(),
            records: self.spec.records.clone(),
            uid: self.spec.uid.clone(),
            ifname: ifname.to_owned(),
            addresses: result.ips.iter().map(|ip| ip.address.addr()).collect(),
            sub_eni: eni,
        };
        let cloud = Some(&**self.world.cloud());
        check.answered(&api, cloud, container, usage, self.spec.wish.promise);
        true
    }

    fn running(&self) {
        self.world.edit(Kind::Pod, &self.spec.key, |object| {
            if object["metadata"]["uid"] == self.spec.uid {
                object["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]});
            }
        });
    }

    async fn until_ending(&self, begun: u64) {
        let ends = |world: &World| {
            let pod = world.get(Kind::Pod, &self.spec.key);
            !self.is_wanted() || pod.is_some_and(|pod| restarts(&pod) > begun)
        };
        while !self.world.until(Duration::from_secs(3_600), ends).await {}
    }

    /// Repeats each DEL until it is accepted.
    async fn del_all(&self, container: &str) {
        let early = self.world.weather.roll(3) == 0;
        if early {
            self.node.nic.remove_netns(&netns(container));
        }
        for ifname in self.spec.wish.nics {
            while !self.del(container, ifname).await {
                sleep(Duration::from_millis(500 + self.world.weather.roll(10_000))).await;
            }
        }
        self.node.nic.remove_netns(&netns(container));
    }

    async fn del(&self, container: &str, ifname: &str) -> bool {
        self.world.check().counts.dels += 1;
        let reply = self.node.cni(self.request("DEL", container, ifname)).await;
        match reply {
            Reply::Answer(Ok(_)) => {
                self.world.log(format!("DEL {container} {ifname}"));
                true
            }
            Reply::Answer(Err(failure)) => {
                let text = format!("{} {}", failure.msg, failure.details);
                self.world
                    .log(format!("DEL {container} {ifname} failed: {text}"));
                false
            }
            Reply::NoAgent => false,
        }
    }

    /// The object goes; runtimes repeat a DEL at times; a successor takes the name.
    async fn finish(&self) {
        let pod = self.world.get(Kind::Pod, &self.spec.key);
        let pod = pod.filter(|pod| pod["metadata"]["uid"] == self.spec.uid);
        remove_object(&self.world, &self.spec.key, Some(&self.spec.uid));
        if self.world.weather.roll(4) == 0 {
            self.del_all(&self.container()).await;
        }
        let heir = pod.and_then(|pod| {
            let text = pod["metadata"]["annotations"][SUCCESSOR].as_str()?;
            let (node, wish) = text.split_once(' ')?;
            Some((node.parse().ok()?, wish.parse().ok()?))
        });
        if let (Some((node, wish)), Some(slot)) = (heir, self.spec.slot) {
            create(&self.world, &self.nodes, slot, node, wish);
        }
    }

    fn request(&self, command: &str, container: &str, ifname: &str) -> CniRequest {
        let name = self.spec.key.trim_start_matches("sim/");
        let path = match self.spec.wish.plugin {
            // The IPAM plugin looks whether the namespace is there, and no more.
            "spiderpool" => "/proc/self/ns/net".to_owned(),
            _ => netns(container),
        };
        let request = json!({"v": 1, "command": command, "plugin": self.spec.wish.plugin,
            "containerID": container, "netns": path, "ifname": ifname,
            "args": format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=sim;K8S_POD_NAME={name};K8S_POD_UID={}", self.spec.uid),
            "conf": {"cniVersion": "1.1.0", "name": "sim", "type": self.spec.wish.main, "master": "eth1",
                "ipam": {"type": "spiderpool", "default_ipv4_ippool": self.spec.wish.v4,
                    "default_ipv6_ippool": self.spec.wish.v6}}});
        serde_json::from_value(request).unwrap()
    }
}

fn netns(container: &str) -> String {
    format!("/ns/{container}")
}
