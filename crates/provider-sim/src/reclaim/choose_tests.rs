//! Choices of rounds, by what the pools say and by time.

use std::sync::Arc;

use super::*;
use crate::service::Service;
use crate::settings::Settings;
use spiderpool_api::ip_meta::Metadata;

const SECOND: Duration = Duration::from_secs(1);

/// Ten addresses; the first `bound` attached, the next `unbound` not.
fn provider(bound: u8, unbound: u8, limit: usize) -> Arc<Service> {
    let mut text = format!(
        r#"
parents: [{{node: n1, mac: "fa:16:3e:01:00:01", ifname: p1, subEniLimit: {limit}}}]
subnets: [{{ipv4: 10.72.0.0/24, gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}}]
gateway: {{ifname: gw0}}
pools:
  - {{name: g, subnet: 10.72.0.0/24, ips: [10.72.0.10-10.72.0.19]}}
  - {{name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30-10.72.0.31], node: n1}}
bindings:
  - {{parent: "fa:16:3e:01:00:01", vlan: 200, mac: "fa:16:3e:00:00:30", ipv4: 10.72.0.30, pool: w}}
"#
    );
    for host in 0..bound + unbound {
        let state = if host < bound { "bound" } else { "unbound" };
        let (mac, vlan) = (format!("fa:16:3e:00:00:{:02x}", host + 10), host + 100);
        text += &format!(
            "  - {{parent: \"fa:16:3e:01:00:01\", vlan: {vlan}, mac: \"{mac}\", ipv4: 10.72.0.{}, pool: g, state: {state}}}\n",
            host + 10
        );
    }
    let topology = serde_saphyr::from_str(&text).unwrap();
    Service::new(topology, Settings::default(), None, None, None).unwrap()
}

fn ip(host: u8) -> IpAddr {
    IpAddr::from([10, 72, 0, host])
}

/// A claim that is seen at a time, and its end at another.
fn claim(world: &mut World, host: u8, now: Duration) {
    let pool = world.memory.pools.get_mut("g").unwrap();
    pool.claims.insert(ip(host), "u".to_owned());
    world.memory.note_rest(now);
}

fn free(world: &mut World, host: u8, now: Duration) {
    let pool = world.memory.pools.get_mut("g").unwrap();
    pool.claims.remove(&ip(host));
    world.memory.note_rest(now);
}

fn detach(world: &mut World, now: Duration) -> Vec<IpAddr> {
    world.choose(Mode::Watermark, now).detach
}

#[test]
fn from_the_watermark_on_the_coldest_go_and_the_rest_stays() {
    provider(7, 0, 256).with(|world| {
        for host in 10..17 {
            claim(world, host, SECOND);
        }
        let all_in_use = world.choose(Mode::Watermark, SECOND);
        assert_eq!(all_in_use, Round::default());
        for (at, host) in [(5, 12), (6, 10), (4, 14)] {
            free(world, host, SECOND * at);
        }
        // 7 of 10 attached: two too many, and 14 has been idle the longest
        assert_eq!(detach(world, SECOND * 7), [ip(14), ip(12)]);
    });
    provider(5, 0, 256).with(|world| assert!(detach(world, SECOND).is_empty()));
    provider(6, 0, 256).with(|world| assert_eq!(detach(world, SECOND), [ip(10)]));
}

#[test]
fn what_is_made_in_plenty_is_deleted_the_longest_detached_first() {
    provider(3, 5, 256).with(|world| {
        assert!(world.choose(Mode::Watermark, SECOND).delete.is_empty());
    });
    provider(3, 7, 256).with(|world| {
        claim(world, 13, SECOND);
        free(world, 13, SECOND * 2);
        claim(world, 14, SECOND * 3);
        let delete = world.choose(Mode::Watermark, SECOND * 4).delete;
        assert_eq!(delete, [ip(15), ip(16)], "13 rests shorter, 14 is claimed");
    });
}

#[test]
fn idle_time_alone_may_decide() {
    provider(3, 0, 256).with(|world| {
        claim(world, 10, SECOND);
        free(world, 10, SECOND * 30);
        let round = world.choose(Mode::IdleTtl, SECOND * 31);
        assert_eq!((round.detach, round.next), (vec![], Some(SECOND * 61)));
        let round = world.choose(Mode::IdleTtl, SECOND * 61);
        assert_eq!(round.detach, [ip(11), ip(12)]);
        assert_eq!(round.next, Some(SECOND * 90));
    });
}

#[test]
fn with_a_grace_it_is_published_and_a_claim_ends_it() {
    provider(6, 0, 256).with(|world| {
        world.memory.epoch = jiff::Timestamp::UNIX_EPOCH;
        world.settings.reclaim.grace_ms = 10_000;
        let round = world.choose(Mode::Watermark, SECOND);
        assert_eq!((round.detach, round.next), (vec![], Some(SECOND * 11)));
        let read = |world: &World| {
            let text = world
                .memory
                .envelope(&world.memory.pools["g"], &world.cloud)
                .1;
            Metadata::decode(&text).unwrap().entries[&ip(10)].clone()
        };
        let entry = read(world);
        assert_eq!(entry.detach_time.as_deref(), Some("1970-01-01T00:00:01Z"));
        assert!(matches!(
            entry.state,
            spiderpool_api::ip_meta::EntryState::Attached { .. }
        ));
        claim(world, 10, SECOND * 2);
        assert_eq!(read(world).detach_time, None);
        let next = world.choose(Mode::Watermark, SECOND * 3).next;
        assert_eq!(next, Some(SECOND * 13), "another one is chosen");
        assert_eq!(detach(world, SECOND * 13), [ip(11)]);
    });
}

#[test]
fn a_crowded_parent_gives_up_idle_cache_whatever_the_share() {
    // one more is attached for the prewarm pool: 4 of 32, of which 4 are to be free
    let crowded = |limit| {
        let service = provider(3, 0, limit);
        service.with(|world| detach(world, SECOND))
    };
    assert_eq!(crowded(32), Vec::<IpAddr>::new());
    let service = provider(5, 0, 8);
    service.with(|world| {
        assert!(
            detach(world, SECOND).is_empty(),
            "6 of 8, one is to be free"
        );
        world.topology.parents[0].sub_eni_limit = 6;
        assert!(detach(world, SECOND).is_empty(), "an eighth of 6 is none");
        world.topology.parents[0].sub_eni_limit = 8;
        world.settings.reclaim.guard = 100;
        assert!(
            detach(world, SECOND).is_empty(),
            "never more than an eighth"
        );
    });
    let full = provider(7, 0, 8);
    full.with(|world| {
        world.settings.reclaim.bound = 1.0;
        claim(world, 10, SECOND);
        assert_eq!(detach(world, SECOND), [ip(11)], "8 of 8");
    });
}

#[test]
fn a_round_is_bounded_and_the_next_one_goes_on() {
    provider(10, 0, 256).with(|world| {
        world.settings.reclaim.batch = 3;
        let round = world.choose(Mode::Watermark, SECOND);
        assert_eq!(round.detach, [ip(10), ip(11), ip(12)]);
        assert_eq!(round.next, Some(SECOND * 2));
    });
}
