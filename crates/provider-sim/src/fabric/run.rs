//! Moves frames: a task for each wire, one more for delayed answers.
//!
//! Owns the sockets, the current table and the holds. A wire's task reads a frame, asks the table
//! and writes it to the other wire; nothing is allocated on that path. Receivers that can't keep
//! up lose frames, as on a wire, and never stop the others.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use nix::errno::Errno;
use serde::Serialize;
use spiderpool_netops::packet::Received;
use spiderpool_netops::packet::vnet::{VlanTag, VnetHdr};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, coop};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use super::counters::{Counters, DropRecord, Lost, Reason, Snapshot};
use super::frame::FrameView;
use super::packets::{Fate, Packet, PacketLog, Seen};
use super::ports::{PortError, Ports, Sockets, classify, errno};
use super::table::{Port, Table, TableError, Verdict};
use crate::topology::{Binding, Topology};

/// The largest thing a veth hands over: 64 KiB of segments with headers.
const FRAME_BUFFER_LEN: usize = 72 * 1024;

/// The fabric cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The topology contradicts itself.
    #[error("topology is inconsistent")]
    Table(#[source] TableError),
    /// A wire failed.
    #[error("cannot start the fabric's wires")]
    Port(#[source] PortError),
}

/// The fabric cannot take over a topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewireError {
    /// Other parent NICs or links.
    #[error(
        "the fabric's wires (parents' mac and ifname, gateway) are those of the start; restart with the other topology"
    )]
    Wires,
    /// The bindings there are do not fit.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The fabric as `admin` sees it: table, holds and counters. Frames are moved by [`Running`].
#[derive(Debug)]
pub struct Fabric {
    ports: Ports,
    table: RwLock<Arc<Table>>,
    plan: Mutex<Plan>,
    counters: Counters,
    packets: PacketLog,
    started: Instant,
    answer_delay: Duration,
}

/// What the table is built from.
#[derive(Debug)]
struct Plan {
    topology: Topology,
    held: BTreeSet<IpAddr>,
}

/// Topology, bindings and holds, as `GET /admin/fabric` shows them.
#[derive(Debug, Clone, Serialize)]
pub struct View {
    /// With the bindings of now.
    #[serde(flatten)]
    pub topology: Topology,
    /// Addresses held back.
    pub held: BTreeSet<IpAddr>,
}

/// The tasks that move frames; dropping it stops them.
#[derive(Debug)]
pub struct Running {
    /// Table, holds and counters.
    pub fabric: Arc<Fabric>,
    tasks: JoinSet<()>,
}

/// An answer on its way out.
struct Delayed {
    due: Instant,
    to: Port,
    tag: Option<VlanTag>,
    frame: Vec<u8>,
}

impl Running {
    /// Starts the tasks on the runtime of the caller.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(topology: Topology, sockets: Sockets) -> Result<Self, StartError> {
        let table = Table::build(&topology, &topology.bindings, BTreeSet::new());
        let fabric = Arc::new(Fabric {
            ports: Ports::register(sockets).map_err(StartError::Port)?,
            table: RwLock::new(Arc::new(table.map_err(StartError::Table)?)),
            counters: Counters::default(),
            packets: PacketLog::new(topology.packet_log),
            started: Instant::now(),
            answer_delay: Duration::from_millis(topology.answer_delay_ms),
            plan: Mutex::new(Plan {
                topology,
                held: BTreeSet::new(),
            }),
        });
        let (later, answers) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for port in fabric.ports.all() {
            tasks.spawn(move_frames(Arc::clone(&fabric), port, later.clone()));
        }
        tasks.spawn(send_answers(Arc::clone(&fabric), answers));
        Ok(Self { fabric, tasks })
    }

    /// Returns when a task has ended, which none does by itself: the fabric is broken then.
    pub async fn wait(&mut self) {
        if let Some(Err(cause)) = self.tasks.join_next().await {
            error!(%cause, "a fabric task panicked");
        }
    }
}

impl Fabric {
    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// The last frames, if the topology asked for them.
    #[must_use]
    pub fn packets(&self) -> Vec<Packet> {
        self.packets.all()
    }

    /// Takes over other subnets and rules for the bindings there are; the wires stay those of the
    /// start, and so do delay and packet log.
    ///
    /// # Errors
    /// [`RewireError`]; nothing changes then.
    pub fn rewire(&self, topology: &Topology) -> Result<(), RewireError> {
        let mut plan = self.plan();
        let wires = |topology: &Topology| -> Vec<_> {
            let parents = topology.parents.iter();
            parents.map(|p| (p.mac, p.ifname.clone())).collect()
        };
        let same = wires(&plan.topology) == wires(topology);
        if !same || plan.topology.gateway != topology.gateway {
            return Err(RewireError::Wires);
        }
        let bindings = plan.topology.bindings.clone();
        let table = Table::build(topology, &bindings, plan.held.clone())?;
        plan.topology = Topology {
            bindings,
            ..topology.clone()
        };
        self.publish(table);
        Ok(())
    }

    /// Bindings and holds as they are now.
    #[must_use]
    pub fn view(&self) -> View {
        let plan = self.plan();
        View {
            topology: plan.topology.clone(),
            held: plan.held.clone(),
        }
    }

    /// Replaces the bindings. Holds stay. Frames see the old table or the new one, nothing between.
    ///
    /// # Errors
    /// [`TableError`]; the old bindings stay in force then.
    pub fn replace_bindings(&self, bindings: Vec<Binding>) -> Result<(), TableError> {
        let mut plan = self.plan();
        let table = Table::build(&plan.topology, &bindings, plan.held.clone())?;
        info!(bindings = bindings.len(), "bindings replaced");
        plan.topology.bindings = bindings;
        self.publish(table);
        Ok(())
    }

    /// Holds an address back: no answer to it or for it, nothing forwarded from it or to it.
    ///
    /// # Errors
    /// As [`Fabric::replace_bindings`]; none in practice.
    pub fn hold(&self, ip: IpAddr) -> Result<BTreeSet<IpAddr>, TableError> {
        self.change_holds(|held| {
            held.insert(ip);
        })
    }

    /// Lets an address through again. Nothing happens if it was not held.
    ///
    /// # Errors
    /// As [`Fabric::replace_bindings`]; none in practice.
    pub fn unhold(&self, ip: IpAddr) -> Result<BTreeSet<IpAddr>, TableError> {
        self.change_holds(|held| {
            held.remove(&ip);
        })
    }

    fn change_holds(
        &self,
        change: impl FnOnce(&mut BTreeSet<IpAddr>),
    ) -> Result<BTreeSet<IpAddr>, TableError> {
        let mut plan = self.plan();
        let mut held = plan.held.clone();
        change(&mut held);
        let table = Table::build(&plan.topology, &plan.topology.bindings, held.clone())?;
        plan.held.clone_from(&held);
        self.publish(table);
        Ok(held)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called with the plan locked, so that tables appear in the order of the plans.
    fn publish(&self, table: Table) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One frame that came in on `from`; what is to be answered later is returned.
    fn take(&self, from: Port, received: &Received, frame: &[u8]) -> Option<Vec<u8>> {
        if received.truncated {
            self.counters.lost(Lost::TooLong);
            return None;
        }
        let view = FrameView::parse(frame);
        let verdict = match &view {
            Some(view) => self.table().judge(from, received.tag, view),
            None => Verdict::Drop(Reason::Malformed),
        };
        let seen = || Seen::new(self.name_of(from), received.tag, view.as_ref());
        let note = |fate: &dyn Fn() -> Fate| {
            if self.packets.is_on() {
                self.packets.note(self.started.elapsed(), seen(), fate());
            }
        };
        match verdict {
            Verdict::Forward { to, vlan } => {
                let tag = vlan.map(|vlan| VlanTag::customer(vlan.get()));
                if self.send(to, frame, tag, received.offload) {
                    self.counters.forwarded();
                    note(&|| Fate::Forwarded(self.name_of(to)));
                } else {
                    note(&|| Fate::Lost);
                }
            }
            Verdict::Answer(answer) => {
                note(&|| Fate::Answered);
                return Some(answer);
            }
            Verdict::Absorb(why) => {
                self.counters.absorbed(why);
                note(&|| Fate::Absorbed(why));
            }
            Verdict::Drop(reason) => {
                note(&|| Fate::Dropped(reason));
                let frame = seen();
                self.counters.dropped(DropRecord { reason, frame });
            }
        }
        None
    }

    fn answer(&self, to: Port, tag: Option<VlanTag>, frame: &[u8]) {
        if self.send(to, frame, tag, VnetHdr::default()) {
            self.counters.answered();
        }
    }

    /// Whether the frame went out; if not, it is counted as lost.
    fn send(&self, to: Port, frame: &[u8], tag: Option<VlanTag>, offload: VnetHdr) -> bool {
        let sent = self
            .ports
            .get(to)
            .map(|socket| socket.try_send(frame, tag, offload));
        match sent {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                self.counters.lost(classify(&error));
                false
            }
            None => false,
        }
    }

    fn name_of(&self, port: Port) -> String {
        match port {
            Port::Gateway => "gateway".to_owned(),
            Port::Parent(at) => {
                let plan = self.plan();
                let parent = plan.topology.parents.get(at);
                parent.map_or_else(|| at.to_string(), |parent| parent.mac.to_string())
            }
        }
    }
}

/// Reads one wire until the socket fails for good.
async fn move_frames(fabric: Arc<Fabric>, port: Port, later: mpsc::UnboundedSender<Delayed>) {
    let Some(socket) = fabric.ports.get(port) else {
        return;
    };
    let mut buffer = vec![0; FRAME_BUFFER_LEN];
    loop {
        coop::consume_budget().await;
        let received = match socket.recv(&mut buffer).await {
            Ok(received) => received,
            Err(cause) if is_passing(&cause) => {
                warn!(port = fabric.name_of(port), %cause, "fabric port lost a frame");
                fabric.counters.lost(classify(&cause));
                continue;
            }
            Err(cause) => {
                error!(port = fabric.name_of(port), %cause, "fabric port failed");
                return;
            }
        };
        let frame = buffer.get(..received.len).unwrap_or_default();
        let Some(answer) = fabric.take(port, &received, frame) else {
            continue;
        };
        // The fabric's own knowledge of bindings costs the gateway nothing; a Pod waits.
        if port == Port::Gateway || fabric.answer_delay.is_zero() {
            fabric.answer(port, received.tag, &answer);
            continue;
        }
        let delayed = Delayed {
            due: Instant::now() + fabric.answer_delay,
            to: port,
            tag: received.tag,
            frame: answer,
        };
        if later.send(delayed).is_err() {
            return;
        }
    }
}

/// Sends answers when they are due. The delay is one for all, so they are due in order.
async fn send_answers(fabric: Arc<Fabric>, mut answers: mpsc::UnboundedReceiver<Delayed>) {
    while let Some(answer) = answers.recv().await {
        sleep_until(answer.due).await;
        fabric.answer(answer.to, answer.tag, &answer.frame);
    }
}

/// Errors that concern a frame or a moment, not the socket: a link that went down may come back,
/// and a frame whose offload has no name in the header is skipped.
fn is_passing(error: &io::Error) -> bool {
    matches!(classify(error), Lost::LinkDown | Lost::Busy) || errno(error) == Some(Errno::EINVAL)
}
