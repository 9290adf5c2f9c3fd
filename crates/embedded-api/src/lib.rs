//! A small Kubernetes API server for nodes without a cluster.
//!
//! It serves our kinds, Pods, Nodes, Namespaces, Events, Leases and network attachment definitions
//! with the semantics clients rely on: optimistic concurrency, status subresource, generation,
//! finalizers, selectors, watches, Table output, discovery. State is one redb file; a write is
//! answered when it is on disk. A `kube::Client` can be built straight over [`EmbeddedApi::router`];
//! [`EmbeddedApi::serve`] adds TLS and a bearer token for everybody else.
//!
//! Not here: server-side apply, owner-reference garbage collection and Pod grace periods (there is
//! no kubelet to wait for, so a deleted Pod is gone at once), contents of deleted namespaces.
#![forbid(unsafe_code)]

pub mod admission;
mod apply;
mod batch;
mod clock;
mod columns;
mod creation;
mod decode;
mod deletion;
mod discovery;
mod durable_file;
mod events;
mod ipam_admission;
mod kind_table;
mod kinds;
mod kubeconfig;
mod listener;
mod mirror;
mod object;
mod object_key;
mod openapi;
mod params;
mod patch;
mod path;
mod request;
mod routes;
mod rules;
mod schema;
mod schemas;
mod selector;
mod server;
mod status;
mod store;
mod tls;
mod view;
mod watch;
mod writer;

pub use ipam_admission::IpamAdmission;
pub use kinds::Kind;
pub use kubeconfig::{KubeconfigError, write_kubeconfig};
pub use mirror::HistoryLimits;
pub use server::{EmbeddedApi, Listening, ServeError, TlsOptions};
pub use status::ApiError;
pub use store::OpenError;
pub use tls::TlsError;
