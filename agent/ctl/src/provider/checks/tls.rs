//! The way to the provider.

use std::future::ready;

use super::boxed;
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::{Stop, Verified};

pub(crate) const CHECKS: &[Check] = &[Check {
    id: "tls.verified",
    holds: "the certificate is one of the CA's and carries the Service's name; no client certificate is asked for",
    openapi: "servers",
    section: "TLS",
    run: |ctx| boxed(ready(verified(ctx))),
}];

/// The first request of the run went the same way; here it is only told.
fn verified(ctx: &Ctx) -> Result<(), Stop> {
    match &ctx.kit.verified {
        Verified::By(whom) => {
            ctx.note("TLS handshake", whom);
            Ok(())
        }
        Verified::Refused(why) => Err(Stop::Fail(why.clone())),
        Verified::Not(why) => Err(Stop::Skip((*why).to_owned())),
    }
}
