//! The operator's side of the simulation: HTTP on loopback or a Unix socket, no authentication.
//!
//! Reads and changes the fabric; moves no frame. Spec: iaas 15.4.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};

use crate::fabric::counters::Snapshot;
use crate::fabric::packets::Packet;
use crate::fabric::run::{Fabric, View};
use crate::fabric::table::TableError;
use crate::topology::Binding;

/// Where the listener is: `127.0.0.1:8081`, `unix:/run/sim.sock`, or `0` for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// A loopback address and port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// Path of a Unix socket; a stale file there is replaced.
    Unix(PathBuf),
    /// No listener.
    Off,
}

/// The text is no place to listen at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminAddressError {
    /// Neither form.
    #[error("admin address {0:?} is not like 127.0.0.1:8081, unix:/path or 0")]
    Syntax(String),
    /// Whoever reaches the listener owns the cloud.
    #[error("admin address {0} is not a loopback address; the listener has no authentication")]
    NotLoopback(SocketAddr),
}

impl FromStr for AdminAddress {
    type Err = AdminAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            Ok(address) => Err(AdminAddressError::NotLoopback(address)),
            Err(_) => Err(AdminAddressError::Syntax(text.to_owned())),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Off => f.write_str("0"),
        }
    }
}

/// The listener could not be opened or broke.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Taken, or not allowed.
    #[error("cannot listen at {address}")]
    Bind {
        /// Where.
        address: AdminAddress,
        /// The system's answer.
        source: io::Error,
    },
    /// Accepting failed for good.
    #[error("admin listener at {address} failed")]
    Serve {
        /// Where.
        address: AdminAddress,
        /// The system's answer.
        source: io::Error,
    },
}

/// A listener that is bound and waits.
#[derive(Debug)]
pub struct Admin {
    address: AdminAddress,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Off,
}

impl Admin {
    /// Binds the listener; requests wait until [`Admin::serve`].
    ///
    /// # Errors
    /// [`AdminError::Bind`].
    pub async fn bind(address: AdminAddress) -> Result<Self, AdminError> {
        let bound = match &address {
            AdminAddress::Off => Ok((address.clone(), Listener::Off)),
            AdminAddress::Unix(path) => {
                bind_unix(path).map(|listener| (address.clone(), Listener::Unix(listener)))
            }
            AdminAddress::Tcp(wanted) => TcpListener::bind(wanted).await.and_then(|listener| {
                Ok((
                    AdminAddress::Tcp(listener.local_addr()?),
                    Listener::Tcp(listener),
                ))
            }),
        };
        match bound {
            Ok((address, listener)) => Ok(Self { address, listener }),
            Err(source) => Err(AdminError::Bind { address, source }),
        }
    }

    /// Where it listens, with the port the kernel chose.
    #[must_use]
    pub const fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Serves until it fails; without a listener it waits for ever.
    ///
    /// # Errors
    /// [`AdminError::Serve`].
    pub async fn serve(self, fabric: Arc<Fabric>) -> Result<(), AdminError> {
        self.serve_routes(router(fabric)).await
    }

    /// As [`Self::serve`], with other routes.
    ///
    /// # Errors
    /// [`AdminError::Serve`].
    pub async fn serve_routes(self, router: Router) -> Result<(), AdminError> {
        let served = match self.listener {
            Listener::Tcp(listener) => axum::serve(listener, router).await,
            Listener::Unix(listener) => axum::serve(listener, router).await,
            Listener::Off => std::future::pending().await,
        };
        served.map_err(|source| AdminError::Serve {
            address: self.address,
            source,
        })
    }
}

/// An older run's socket is taken away, and nothing else.
fn bind_unix(path: &PathBuf) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            let text = "there is something that is no socket; it stays";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(path)
}

/// The routes, for whoever serves them.
pub fn router(fabric: Arc<Fabric>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/admin/fabric", get(show_fabric))
        .route("/admin/drops", get(show_drops))
        .route("/admin/packets", get(show_packets))
        .route("/admin/hold", post(hold))
        .route("/admin/unhold", post(unhold))
        .route("/admin/bindings", put(replace_bindings))
        .with_state(fabric)
}

/// Body of hold and unhold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    ip: IpAddr,
}

/// Answer to hold and unhold.
#[derive(Debug, Serialize)]
struct Holds {
    held: std::collections::BTreeSet<IpAddr>,
}

/// A refused change.
struct Refused(TableError);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.0.to_string() });
        (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn show_fabric(State(fabric): State<Arc<Fabric>>) -> Json<View> {
    Json(fabric.view())
}

async fn show_drops(State(fabric): State<Arc<Fabric>>) -> Json<Snapshot> {
    Json(fabric.counters())
}

async fn show_packets(State(fabric): State<Arc<Fabric>>) -> Json<Vec<Packet>> {
    Json(fabric.packets())
}

async fn hold(
    State(fabric): State<Arc<Fabric>>,
    Json(address): Json<Address>,
) -> Result<Json<Holds>, Refused> {
    let held = fabric.hold(address.ip).map_err(Refused)?;
    Ok(Json(Holds { held }))
}

async fn unhold(
    State(fabric): State<Arc<Fabric>>,
    Json(address): Json<Address>,
) -> Result<Json<Holds>, Refused> {
    let held = fabric.unhold(address.ip).map_err(Refused)?;
    Ok(Json(Holds { held }))
}

async fn replace_bindings(
    State(fabric): State<Arc<Fabric>>,
    Json(bindings): Json<Vec<Binding>>,
) -> Result<StatusCode, Refused> {
    fabric.replace_bindings(bindings).map_err(Refused)?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print() {
        for (text, printed) in [
            ("127.0.0.1:8081", "http://127.0.0.1:8081"),
            ("[::1]:0", "http://[::1]:0"),
            ("unix:/run/sim.sock", "unix:/run/sim.sock"),
            ("0", "0"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), printed);
        }
        assert!(matches!(
            "0.0.0.0:8081".parse::<AdminAddress>(),
            Err(AdminAddressError::NotLoopback(_))
        ));
        for bad in ["", "localhost:8081", "8081", "/run/sim.sock"] {
            assert!(bad.parse::<AdminAddress>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_a_socket_gives_way_to_the_listener() {
        let dir = tempfile::tempdir().unwrap();
        let (file, socket) = (dir.path().join("topology.yaml"), dir.path().join("a.sock"));
        std::fs::write(&file, "nodes: []").unwrap();
        assert!(bind_unix(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "nodes: []");
        drop(bind_unix(&socket).unwrap());
        assert!(bind_unix(&socket).is_ok(), "left by an older run");
    }
}
