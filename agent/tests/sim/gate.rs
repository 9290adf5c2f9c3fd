//! A process as the world sees it: everything it does to the world goes through its gate. A dead
//! process's gate lets nothing through, whatever its tasks still want; so a crash can fall between
//! any two effects.

use std::sync::Mutex;

use tokio_util::sync::CancellationToken;

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    Agent(String),
    Controller,
    Gc,
    Operator,
    Provider,
}

/// Dies at an effect: before it, or after it and before its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fuse {
    pub(crate) left: u32,
    pub(crate) after: bool,
}

pub(crate) struct Gate {
    pub(crate) actor: Actor,
    /// Unique for each start.
    pub(crate) id: u64,
    fuse: Mutex<Option<Fuse>>,
    dead: CancellationToken,
}

impl Gate {
    pub(crate) fn new(actor: Actor, id: u64) -> Self {
        Self {
            actor,
            id,
            fuse: Mutex::new(None),
            dead: CancellationToken::new(),
        }
    }

    pub(crate) fn arm(&self, fuse: Fuse) {
        *self.fuse.lock().unwrap() = Some(fuse);
    }

    pub(crate) fn kill(&self) {
        self.dead.cancel();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Returns once the process is dead.
    pub(crate) async fn died(&self) {
        self.dead.cancelled().await;
    }

    /// Before a call leaves the process.
    pub(crate) async fn begin(&self, effect: bool) {
        if effect {
            self.burn(false);
        }
        self.alive().await;
    }

    /// The call has had its effect; the answer is not there yet.
    pub(crate) fn applied(&self, effect: bool) {
        if effect {
            self.burn(true);
        }
    }

    /// Never returns to a dead process.
    pub(crate) async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    fn burn(&self, after: bool) {
        let mut fuse = self.fuse.lock().unwrap();
        match &mut *fuse {
            Some(burning) if burning.after == after && burning.left == 0 => {
                *fuse = None;
                drop(fuse);
                self.kill();
            }
            Some(burning) if burning.after == after => burning.left -= 1,
            _ => {}
        }
    }
}
