use super::*;
use crate::one_line;

const GOOD: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}
pools:
  - {name: g, subnet: 10.72.0.0/24, ips: [10.72.0.10-10.72.0.19]}
  - {name: p4, subnet: 10.72.0.0/24, ips: [10.72.0.20-10.72.0.24], pair: p6}
  - {name: p6, subnet: "fd72::/64", ips: ["fd72::20-fd72::24"], pair: p4}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30-10.72.0.32], node: n1}
"#;

fn judged(text: &str, wanted: &[(&str, Option<&str>)]) -> Result<Target, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.yaml");
    std::fs::write(&path, text).unwrap();
    let wanted = wanted.iter();
    let wanted: Vec<_> = wanted
        .map(|(name, mac)| ((*name).to_owned(), mac.map(|mac| mac.parse().unwrap())))
        .collect();
    read(&path, &wanted).map_err(|error| {
        let text = one_line(&error);
        let named = format!("{} cannot be used: ", path.display());
        text.strip_prefix(&named).unwrap_or(&text).to_owned()
    })
}

#[test]
#[rustfmt::skip] // a case a line
fn each_contradiction_is_refused_with_both_sides() {
    assert!(judged(GOOD, &[]).is_ok());
    for (from, to, text) in [
        ("[10.72.0.10-10.72.0.19]", "[10.72.0.10-10.72.0.19, 11.0.0.9]", "pool g: 11.0.0.9 is not in its subnet 10.72.0.0/24"),
        ("[10.72.0.10-10.72.0.19]", "[10.71.255.254-10.72.0.3]", "pool g: 10.71.255.254-10.71.255.255 is not in its subnet 10.72.0.0/24"),
        ("[10.72.0.10-10.72.0.19]", "[]", "pool g has no ips"),
        ("[10.72.0.10-10.72.0.19]", "[10.72.0.x]", "IPPool g: spec.ips has a bad item: "),
        ("10.72.0.0/24, ips: [10.72.0.10-", "zz, ips: [10.72.0.10-", "IPPool g: spec.subnet \"zz\" is not a CIDR"),
        ("name: g,", "name: \"\",", "a pool has no name"),
        ("name: g,", "name: w,", "pool w is listed twice"),
        ("10.72.0.30-10.72.0.32", "10.72.0.19-10.72.0.32", "pools g and w both have 10.72.0.19"),
        ("pair: p6", "pair: p7", "pool p4: there is no pool p7 to be its pair"),
        (", pair: p4", "", "pool p4 names p6 as its pair, and p6 names none"),
        ("pair: p4", "pair: g", "pool p4 names p6 as its pair, and p6 names g"),
        ("10.72.0.19]", "10.72.0.19], pair: g", "pools g and g are a pair, and both are IPv4"),
        ("pair: p6", "pair: p6, node: n1", "pools p4 and p6 are a pair, and not of the same node"),
        ("node: n1}", "node: n9}", "pool w: its node \"n9\" has no parent NIC"),
        ("node: n2,", "node: \"\",", "a parent's node has no name"),
        ("01:00:02", "01:00:01", "nodes n1 and n2 have the same parent NIC fa:16:3e:01:00:01"),
        ("fa:16:3e:01:00:02", "01:00:5e:00:00:01", "node n2: no NIC has the MAC 01:00:5e:00:00:01"),
        ("fa:16:3e:01:00:02", "00:00:00:00:00:00", "node n2: no NIC has the MAC 00:00:00:00:00:00"),
        ("{name: g, subnet: 10.72.0.0/24", "{name: g, subnet: 10.72.0.5/24", "pool g: subnet 10.72.0.5/24 is not in canonical form: write 10.72.0.0/24"),
        ("{name: g, subnet: 10.72.0.0/24", "{name: g, subnet: 10.0.0.0/8", "pools g and p4 have the subnets 10.0.0.0/8 and 10.72.0.0/24, which overlap"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let told = judged(&GOOD.replacen(from, to, 1), &[]).unwrap_err();
        assert!(told.starts_with(text), "{to}: {told}");
    }
}

#[test]
fn nodes_are_those_of_the_file_or_come_with_a_mac() {
    let names = |wanted: &[(&str, Option<&str>)]| {
        let target = judged(GOOD, wanted)?;
        let nodes = target.global.unwrap().nodes.into_iter();
        Ok::<_, String>(nodes.map(|node| node.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).unwrap(), ["n1", "n2"]);
    assert_eq!(names(&[("n2", None)]).unwrap(), ["n2"]);
    let other = ("n3", Some("fa:16:3e:01:00:03"));
    assert_eq!(names(&[other]).unwrap(), ["n3"]);
    let text = names(&[("n1", Some("fa:16:3e:01:00:02"))]).unwrap_err();
    let both = "nodes n2 and n1 have the same parent NIC fa:16:3e:01:00:02";
    assert_eq!(text, both);
    let text = names(&[("n3", None)]).unwrap_err();
    assert!(text.contains("no parent NIC of node n3"), "{text}");
}

#[test]
fn a_file_of_another_form_is_told_in_a_line() {
    for (text, part) in [
        ("", "line 1"),
        ("pools: []", "missing field `parents`"),
        ("parents: [{node: n1, mac: zz}]\npools: []", "line 1"),
        ("parents: [", "line 1"),
        (
            "parents: []\npools: [{name: g, subnet: 10.72.0.0/24, ips: 10.72.0.9}]",
            "line 2",
        ),
    ] {
        let told = judged(text, &[]).unwrap_err();
        assert!(told.contains("is not valid, parents (node, mac)"), "{told}");
        assert!(told.contains(part) && !told.contains("-->"), "{told}");
    }
}
