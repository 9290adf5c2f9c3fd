//! What comes next for the stored certificate. Pure: time, and what is trusted, are told.

use jiff::{SignedDuration, Timestamp};

use super::issue::{Facts, Pair, is_trusted, split};
use super::served;
use super::stored::{Next, Stored};

/// Validity of a certificate that the controller makes.
pub const DAYS: i64 = 365;
/// How long the old authority stays trusted after the switch: by then every replica serves the new
/// certificate.
const FORGET_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What is known besides the Secret.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// Wall time.
    pub at: Timestamp,
    /// Names the certificate must be for.
    pub names: &'a [String],
    /// The webhook configurations have carried the stored authorities for long enough.
    pub trusted: bool,
}

/// The Secret as it should be, or nothing to change. `fresh` is asked only when it is needed.
///
/// # Errors
/// Those of `fresh`.
pub fn next<E>(
    stored: &Stored,
    now: &Now<'_>,
    fresh: impl FnOnce() -> Result<Pair, E>,
) -> Result<Option<Stored>, E> {
    let Some(facts) = usable(&stored.cert, &stored.key, &stored.ca, now) else {
        // Nothing that could be kept: calls fail until this one is trusted.
        return Ok(Some(Stored::first(fresh()?, &stored.ca, now.at)));
    };
    if let Some(next) = &stored.next {
        if usable(&next.cert, &next.key, &next.ca, now).is_none() {
            return Ok(Some(Stored {
                next: None,
                ..stored.clone()
            }));
        }
        return Ok(now.trusted.then(|| switched(stored, next, now.at)));
    }
    if facts.is_due(now.at) || stored.asked != stored.answered {
        let pair = fresh()?;
        return Ok(Some(Stored {
            ca: format!("{}{}", bundle(&stored.ca), pair.ca),
            next: Some(Next {
                ca: pair.ca,
                cert: pair.cert,
                key: pair.key,
            }),
            answered: stored.asked.clone(),
            ..stored.clone()
        }));
    }
    let old = stored
        .switched
        .is_none_or(|then| now.at.duration_since(then) > FORGET_AFTER);
    let authorities = split(&stored.ca);
    Ok(match authorities.as_slice() {
        // Somebody else's bundle has an order of its own.
        [first, _, ..] if old && stored.switched.is_some() => Some(Stored {
            ca: first.clone(),
            ..stored.clone()
        }),
        _ => None,
    })
}

/// What is written in a certificate that can be served and is believed: it is for all names, the key is
/// its own, and the authorities have signed it. A Secret may be half restored, or edited by hand.
fn usable(cert: &str, key: &str, ca: &str, now: &Now<'_>) -> Option<Facts> {
    let facts = Facts::read(cert).filter(|facts| facts.serves(now.names, now.at))?;
    let whole = served::check(cert, key).is_ok() && is_trusted(cert, ca, now.at);
    whole.then_some(facts)
}

/// The next certificate is served, its authority first; the old one is trusted for a while.
fn switched(stored: &Stored, next: &Next, at: Timestamp) -> Stored {
    let old = split(&stored.ca);
    let newest = split(&next.ca);
    let others = old
        .into_iter()
        .filter(|known| !newest.contains(known))
        .take(1);
    Stored {
        ca: newest.iter().cloned().chain(others).collect(),
        cert: next.cert.clone(),
        key: next.key.clone(),
        next: None,
        switched: Some(at),
        ..stored.clone()
    }
}

fn bundle(ca: &str) -> String {
    split(ca).concat()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::issue::issue;
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn step(stored: &Stored, now: &str, trusted: bool) -> Option<Stored> {
        let names = ["a.b.svc".to_owned()];
        let now = Now {
            at: at(now),
            names: &names,
            trusted,
        };
        let fresh = || Ok::<_, Infallible>(issue(&names, now.at, DAYS).unwrap());
        let Ok(next) = next(stored, &now, fresh);
        next
    }

    fn first(now: &str) -> Stored {
        let pair = issue(&["a.b.svc".to_owned()], at(now), DAYS).unwrap();
        Stored::first(pair, "", at(now))
    }

    /// At every moment the served certificate's authority is trusted, also by who is a step behind.
    #[test]
    fn a_certificate_is_replaced_without_a_gap() {
        let begin = first("2027-01-01T00:00:00Z");
        assert_eq!(step(&begin, "2027-06-01T00:00:00Z", true), None);
        let due = "2027-09-15T00:00:00Z";
        let announced = step(&begin, due, true).unwrap();
        assert_eq!((&announced.cert, &announced.key), (&begin.cert, &begin.key));
        assert_eq!(split(&announced.ca).len(), 2);
        // Until everybody trusts it, nothing happens.
        assert_eq!(step(&announced, due, false), None);
        let switched = step(&announced, due, true).unwrap();
        let next = announced.next.unwrap();
        assert_eq!((&switched.cert, &switched.next), (&next.cert, &None));
        let trusted = split(&switched.ca);
        assert_eq!(trusted.len(), 2);
        assert_eq!(trusted[0].trim(), next.ca.trim());
        assert_eq!(step(&switched, "2027-09-15T00:09:00Z", true), None);
        let forgotten = step(&switched, "2027-09-15T00:11:00Z", true).unwrap();
        assert_eq!(split(&forgotten.ca).len(), 1);
        assert_eq!(split(&forgotten.ca)[0], trusted[0]);
        assert_eq!(step(&forgotten, "2027-09-15T00:12:00Z", true), None);
    }

    #[test]
    fn one_that_is_asked_for_is_made_once() {
        let mut stored = first("2027-01-01T00:00:00Z");
        stored.asked = Some("1".to_owned());
        let now = "2027-01-02T00:00:00Z";
        let announced = step(&stored, now, true).unwrap();
        assert!(announced.next.is_some());
        let switched = step(&announced, now, true).unwrap();
        assert_eq!(step(&switched, now, true), None);
        assert_ne!(switched.cert, stored.cert);
    }

    #[test]
    fn what_cannot_be_served_is_replaced_at_once() {
        let good = first("2027-01-01T00:00:00Z");
        let late = step(&good, "2029-01-01T00:00:00Z", false).unwrap();
        assert_ne!(late.cert, good.cert);
        assert_eq!(
            split(&late.ca).len(),
            2,
            "who still serves the old one is trusted"
        );
        let other = first("2027-01-01T00:00:00Z");
        for (part, cert, key, ca) in [
            ("cert", "x", good.key.as_str(), good.ca.as_str()),
            ("key", &good.cert, "x", &good.ca),
            ("key of another", &good.cert, &other.key, &good.ca),
            ("authority", &good.cert, &good.key, "x"),
            ("authority of another", &good.cert, &good.key, &other.ca),
        ] {
            let broken = Stored {
                cert: cert.to_owned(),
                key: key.to_owned(),
                ca: ca.to_owned(),
                ..good.clone()
            };
            let now = "2027-01-01T00:00:00Z";
            let next = step(&broken, now, false).unwrap_or_else(|| panic!("bad {part} is kept"));
            assert_ne!(next.cert, good.cert, "{part}");
            assert_eq!(step(&next, now, false), None, "{part}");
        }
    }

    #[test]
    fn what_is_announced_and_cannot_be_served_is_withdrawn() {
        let mut stored = first("2027-01-01T00:00:00Z");
        stored.asked = Some("1".to_owned());
        let now = "2027-01-02T00:00:00Z";
        let mut announced = step(&stored, now, false).unwrap();
        if let Some(next) = &mut announced.next {
            next.key.clone_from(&stored.key);
        }
        let withdrawn = step(&announced, now, true).unwrap();
        assert_eq!((&withdrawn.cert, &withdrawn.next), (&stored.cert, &None));
    }
}
