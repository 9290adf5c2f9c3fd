//! The certificate the webhooks serve, and what the API server trusts.
//!
//! Without files of somebody else the controller makes its own: a Secret holds certificate, key and
//! the authorities to trust, every replica serves what the Secret says, and the webhook
//! configurations are kept in line with it. All writes are conditional, so replicas need no leader to
//! agree. A new certificate is served only after its authority has been trusted for a while, and the
//! old authority is forgotten only after that: no call is refused in between.
//!
//! An authority signs one certificate and its key is thrown away: nothing else can ever be signed.

pub mod files;
pub mod issue;
pub mod plan;
pub mod probe;
pub mod served;
pub mod stored;
pub mod task;
pub mod trust;
