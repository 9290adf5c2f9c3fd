//! Group commit: one writer per pool and agent (design section 3). All claims and releases that
//! wait when a write starts travel in it. After a conflict the writer sleeps with jitter, reads the
//! pool again, plans every member anew and takes late joiners along.
//!
//! Owns the pools' records as far as this agent writes them. Waiting ends at a member's deadline,
//! never at a number of tries; a caller that is gone before the write is dropped.

mod batch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spiderpool_api::cni::CniCode;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::pick::{PickError, Rules};
use spiderpool_ipam::pool::{Pool, PoolError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::clock::Jitter;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// A writer without work for this long ends; the next claim starts another.
const IDLE: Duration = Duration::from_secs(60);

/// One wanted change of one pool.
#[derive(Debug)]
pub struct Change {
    /// Pool name.
    pub pool: String,
    /// Pool of the other half, where `pool` is the IPv4 side of a pair in use.
    pub sibling: Option<String>,
    /// What to change.
    pub op: Op,
    /// What may not be given out.
    pub rules: Arc<Rules>,
    /// When waiting ends.
    pub deadline: Instant,
}

/// A change that is stored.
#[derive(Debug, Clone)]
pub struct Committed {
    /// What it came to.
    pub outcome: Outcome,
    /// The pool it was decided on.
    pub pool: Arc<Pool>,
}

/// Why a change was not made. The pool is as it was, as far as this change goes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The pool gives nothing.
    #[error("the pool gives no address")]
    Pick(#[source] PickError),
    /// There is no such pool.
    #[error("IPPool {0} does not exist")]
    NoPool(String),
    /// The pool object cannot be used.
    #[error("IPPool {pool} cannot be used")]
    Unusable {
        /// Pool name.
        pool: String,
        /// Why.
        source: Arc<PoolError>,
    },
    /// The API failed.
    #[error("IPPool {pool} could not be updated")]
    Store {
        /// Pool name.
        pool: String,
        /// What it said.
        source: Arc<StoreError>,
    },
    /// The deadline came while others kept changing the pool.
    #[error(
        "exhaust all retries: IPPool {0} was changed by others until the deadline; try again later"
    )]
    Conflicts(String),
    /// The deadline came.
    #[error("IPPool {0} could not be updated before the deadline; try again later")]
    Deadline(String),
    /// The caller left before the write.
    #[error("the caller left before IPPool {0} was updated")]
    CallerGone(String),
    /// The writer is gone: the agent stops, or it failed in the middle.
    #[error("the writer of IPPool {0} has stopped")]
    Stopped(String),
}

impl WriteError {
    /// The CNI code when a call fails because of this.
    #[must_use]
    pub fn cni_code(&self) -> CniCode {
        match self {
            Self::Pick(_) | Self::NoPool(_) | Self::Unusable { .. } => CniCode::Refused,
            Self::Store { source, .. } => source.cni_code(),
            Self::Conflicts(_) | Self::Deadline(_) | Self::CallerGone(_) | Self::Stopped(_) => {
                CniCode::TryAgain
            }
        }
    }

    /// Whether another pool may do where this one did not.
    #[must_use]
    pub const fn is_this_pool_only(&self) -> bool {
        matches!(
            self,
            Self::Pick(_) | Self::NoPool(_) | Self::Unusable { .. }
        )
    }
}

type Answer = Result<Committed, WriteError>;

/// Told what a change will come to when its write begins, if all but surely it will: the pool's
/// addresses need nobody but the record, and others have not changed it lately. Dropped otherwise.
pub type Promise = oneshot::Sender<Committed>;

/// A change on its way, and who waits for it.
struct Member {
    change: Change,
    met_conflict: Arc<AtomicBool>,
    promise: Option<Promise>,
    reply: oneshot::Sender<Answer>,
    since: Instant,
}

/// All writers of this agent.
pub struct Writers {
    store: Arc<dyn Store>,
    jitter: Arc<Jitter>,
    queues: Arc<Mutex<Queues>>,
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

type Queues = HashMap<String, mpsc::UnboundedSender<Member>>;

impl Writers {
    /// Writers over a store. `tasks` joins them at shutdown, which begins when this is dropped.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        jitter: Arc<Jitter>,
        tasks: TaskTracker,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store,
            jitter,
            queues: Arc::default(),
            tasks,
            metrics,
        }
    }

    /// Makes the change. Dropping the future before the write takes the change back.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn commit(&self, change: Change) -> Answer {
        self.commit_promised(change, None).await
    }

    /// The same; what may be relied on before the write is done goes to `promise`.
    ///
    /// # Errors
    /// [`WriteError`]; what was promised then does not hold.
    pub async fn commit_promised(&self, change: Change, promise: Option<Promise>) -> Answer {
        let (reply, answer) = oneshot::channel();
        let met_conflict = Arc::new(AtomicBool::new(false));
        let pool = change.pool.clone();
        let deadline = change.deadline;
        self.enqueue(Member {
            change,
            met_conflict: Arc::clone(&met_conflict),
            promise,
            reply,
            since: Instant::now(),
        });
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(WriteError::Stopped(pool)),
            Err(_) if met_conflict.load(Ordering::Relaxed) => Err(WriteError::Conflicts(pool)),
            Err(_) => Err(WriteError::Deadline(pool)),
        }
    }

    fn enqueue(&self, member: Member) {
        let pool = member.change.pool.clone();
        let mut queues = lock(&self.queues);
        let member = match queues.get(&pool) {
            None => member,
            Some(queue) => match queue.send(member) {
                Ok(()) => return,
                // That writer has failed: a new one takes over.
                Err(mpsc::error::SendError(member)) => member,
            },
        };
        let (queue, waiting) = mpsc::unbounded_channel();
        // The receiver is in our hands, so there is nobody who could have closed it.
        if queue.send(member).is_ok() {
            queues.insert(pool.clone(), queue);
            let writer = batch::Writer::new(
                pool.clone(),
                Arc::clone(&self.store),
                Arc::clone(&self.jitter),
                Arc::clone(&self.metrics),
            );
            self.tasks
                .spawn(run(writer, waiting, Arc::clone(&self.queues), pool));
        }
    }
}

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Writers {
    fn drop(&mut self) {
        // Ends every writer once its queue is empty.
        lock(&self.queues).clear();
    }
}

async fn run(
    mut writer: batch::Writer,
    mut waiting: mpsc::UnboundedReceiver<Member>,
    queues: Arc<Mutex<Queues>>,
    pool: String,
) {
    loop {
        match tokio::time::timeout(IDLE, waiting.recv()).await {
            Ok(Some(first)) => writer.commit(first, &mut waiting).await,
            Ok(None) => return,
            Err(_) => {
                let mut queues = lock(&queues);
                // Senders are used under this lock only: an empty queue stays empty.
                if waiting.is_empty() {
                    queues.remove(&pool);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
