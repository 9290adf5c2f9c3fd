use serde_json::{Value, json};

use super::*;
use crate::fixture::{entry, iaas, object, pool, who, with, with_records};
use crate::range_set::RangeSet;

mod adopt;
mod claims;
mod marks;
mod pins;
mod properties;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn claim(name: &str) -> Op {
    Op::Claim {
        who: who(name, "eth0", "n1"),
        pin: None,
    }
}

fn pin(name: &str, address: &str) -> Op {
    Op::Claim {
        who: who(name, "eth0", "n1"),
        pin: Some(ip(address)),
    }
}

fn free(uid: &str) -> Op {
    Op::Release {
        uid: uid.to_owned(),
        nic: None,
        addresses: None,
        by: None,
    }
}

fn small() -> Pool {
    pool(&object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.11"]))
}

fn addresses(batch: &Batch) -> Vec<Option<IpAddr>> {
    let claimed = |outcome: &Result<Outcome, PickError>| match outcome {
        Ok(Outcome::Claimed(pick)) => Some(pick.address),
        _ => None,
    };
    batch.outcomes.iter().map(claimed).collect()
}
