//! Connections on the agent socket: HTTP/1.1, each in a task of its own. Owns how long a caller
//! may take to say what it wants, the end at shutdown, and the socket's return when somebody
//! removed its file.

use std::time::Duration;

use axum::Router;
use spiderpool_controller::complaints::Complaints;
use spiderpool_controller::http::serve;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::socket::Socket;

/// Between two looks whether the socket's file is still there.
const LOOK: Duration = Duration::from_secs(2);
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then answers what is under way and takes the socket away.
pub(super) async fn run(mut socket: Socket, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let mut complaints = Complaints::default();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = look.tick() => {
                socket = socket.restored();
                continue;
            }
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok(stream) => {
                connections.spawn(serve(stream, router.clone(), stop.clone()));
            }
            Err(error) => {
                complaints.of_accept("the agent socket", &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Callers from here on are refused, and come again to the next agent.
    let claim = socket.close();
    connections.close();
    connections.wait().await;
    claim.release();
}
