//! A controller from start to end. Wiring alone.

use crate::reconcile::ippool;
use crate::tasks::{Context, Tasks};

/// Everything that a controller does. Each task has one line here.
#[must_use]
pub fn tasks() -> Tasks {
    Tasks::new().on_leader("ippool", |context: Context, stop| async {
        ippool::run(context.client, stop).await;
        Ok(())
    })
}
