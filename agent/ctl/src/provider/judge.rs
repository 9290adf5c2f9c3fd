//! What is wrong with an answer to allocate, rule by rule, and what of it can be used nevertheless.
//! The client's own checks decide ([`spiderpool_iaas::check`]); here they go on after the first
//! fault, so that each rule is judged by itself. Pure.

use spiderpool_api::provider::{AllocateRequest, AllocateResponse, SubEniRequest, SubEniResponse};
use spiderpool_api::value::{Mac, ValueError, VlanId};
use spiderpool_iaas::check::{self, ResponseError};

/// A rule of answers; its word is the check's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Json,
    Unknown,
    Missing,
    Duplicate,
    Ipv6,
    Pool,
    Vlan,
    Mac,
    ParentMac,
    Binding,
    Echo,
}

impl Rule {
    /// The check that reports it.
    pub(crate) const fn check(self) -> &'static str {
        match self {
            Self::Json => "answer.json",
            Self::Unknown => "answer.unknown",
            Self::Missing => "answer.missing",
            Self::Duplicate => "answer.duplicate",
            Self::Ipv6 => "answer.ipv6",
            Self::Pool => "answer.pool",
            Self::Vlan => "answer.vlan",
            Self::Mac => "answer.mac",
            Self::ParentMac => "answer.parent-mac",
            Self::Binding => "answer.binding",
            Self::Echo => "answer.echo",
        }
    }

    /// Whether an answer that breaks it breaks the contract; else it is only odd.
    pub(crate) const fn breaks_the_contract(self) -> bool {
        !matches!(self, Self::Echo)
    }
}

/// What a sub-ENI sends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) mac: Mac,
    pub(crate) vlan: VlanId,
}

/// An answer, judged.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Broken rules, with what broke them.
    pub(crate) faults: Vec<(Rule, String)>,
    /// For each requested item its binding, or the rule that keeps it from being known.
    pub(crate) bindings: Vec<Result<Binding, Rule>>,
}

/// Judges a 2xx answer. `known` tells what the client has of an item already: that part need not
/// be answered again.
pub(crate) fn judge(
    request: &AllocateRequest,
    answer: Result<AllocateResponse, serde_json::Error>,
    known: impl Fn(&SubEniRequest) -> Option<Binding>,
) -> Judged {
    let mut judged = Judged::default();
    let wanted = &request.sub_eni_requests;
    let mut response = match answer {
        Ok(response) => response,
        Err(error) => {
            judged.faults.push((Rule::Json, error.to_string()));
            judged.bindings = vec![Err(Rule::Json); wanted.len()];
            return judged;
        }
    };
    for odd in echoes(request, &response) {
        judged.faults.push((Rule::Echo, odd));
    }
    let mut fitting = Vec::new();
    for mut item in std::mem::take(&mut response.sub_eni_responses) {
        let faults = cleanse(request, &mut item);
        let fits = faults.iter().all(|(rule, _)| *rule != Rule::Unknown);
        let unusable = faults.iter().map(|(rule, _)| *rule).find(is_of_binding);
        judged.faults.extend(faults);
        if fits {
            fitting.push((item, unusable));
        }
    }
    duplicates(request, &fitting, &mut judged.faults);
    for (index, asked) in wanted.iter().enumerate() {
        let of_it = fitting
            .iter()
            .find(|(item, _)| place(request, item) == Some(index));
        let binding = match of_it {
            None => Err((Rule::Missing, "the item is not answered")),
            Some((_, Some(rule))) => Err((*rule, "")),
            Some((item, None)) => {
                complete(item, known(asked)).ok_or((Rule::Binding, "VLAN or MAC is not told"))
            }
        };
        if let Err((rule @ (Rule::Missing | Rule::Binding), why)) = binding {
            judged
                .faults
                .push((rule, format!("{}: {why}", name(asked))));
        }
        judged.bindings.push(binding.map_err(|(rule, _)| rule));
    }
    judged
}

const fn is_of_binding(rule: &Rule) -> bool {
    matches!(rule, Rule::Vlan | Rule::Mac | Rule::ParentMac)
}

/// Takes out of an item what the client would refuse, one fault after the other.
fn cleanse(request: &AllocateRequest, item: &mut SubEniResponse) -> Vec<(Rule, String)> {
    let mut faults = Vec::new();
    loop {
        let alone = AllocateResponse {
            sub_eni_responses: vec![item.clone()],
        };
        let error = match check::accept(request, &alone) {
            Ok(_) | Err(ResponseError::Missing { .. } | ResponseError::Duplicate { .. }) => {
                return faults;
            }
            Err(error) => error,
        };
        let rule = match &error {
            ResponseError::WrongIpv6 { .. } => {
                item.ipv6_address.clear();
                Rule::Ipv6
            }
            ResponseError::WrongPool { .. } => {
                item.ipv4_pool_name.clear();
                item.ipv6_pool_name.clear();
                Rule::Pool
            }
            ResponseError::ParentMac { .. } => {
                item.mac_address.clear();
                Rule::ParentMac
            }
            ResponseError::Binding(binding) => match binding.reason {
                ValueError::MacSyntax(_) | ValueError::MacNotUnicast(_) => {
                    item.mac_address.clear();
                    Rule::Mac
                }
                _ => {
                    item.vlan_id = 0;
                    Rule::Vlan
                }
            },
            _ => Rule::Unknown,
        };
        faults.push((rule, error.to_string()));
        if rule == Rule::Unknown {
            return faults;
        }
    }
}

/// Of what fits by itself, the same item twice with different values.
fn duplicates(
    request: &AllocateRequest,
    fitting: &[(SubEniResponse, Option<Rule>)],
    faults: &mut Vec<(Rule, String)>,
) {
    let together = AllocateResponse {
        sub_eni_responses: fitting.iter().map(|(item, _)| item.clone()).collect(),
    };
    if let Err(error @ ResponseError::Duplicate { .. }) = check::accept(request, &together) {
        faults.push((Rule::Duplicate, error.to_string()));
    }
}

/// Which item of the request it answers.
fn place(request: &AllocateRequest, item: &SubEniResponse) -> Option<usize> {
    let of = |text: &str| text.parse::<std::net::IpAddr>().ok();
    let v4 = of(&item.ipv4_address);
    let v6 = of(&item.ipv6_address);
    let mut wanted = request.sub_eni_requests.iter();
    wanted.position(|asked| match v4 {
        Some(ip) => asked.ipv4_address.map(Into::into) == Some(ip),
        None => v6.is_some() && asked.ipv6_address.map(Into::into) == v6,
    })
}

fn complete(item: &SubEniResponse, known: Option<Binding>) -> Option<Binding> {
    let (vlan, mac) = item.binding().ok()?;
    Some(Binding {
        mac: mac.or(known.map(|known| known.mac))?,
        vlan: vlan.or(known.map(|known| known.vlan))?,
    })
}

/// Fields that are answered otherwise than asked, or not at all; the client only warns.
fn echoes(request: &AllocateRequest, response: &AllocateResponse) -> Vec<String> {
    let mut odd = check::oddities(request, response);
    for item in &response.sub_eni_responses {
        let fields = [
            ("parentNicMac", &item.parent_nic_mac),
            ("subnet", &item.subnet),
        ];
        let absent = fields.into_iter().filter(|(_, value)| value.is_empty());
        odd.extend(absent.map(|(key, _)| format!("{}: no {key}", item.ipv4_address)));
    }
    odd
}

/// The address an item is known by.
pub(crate) fn name(asked: &SubEniRequest) -> String {
    match (asked.ipv4_address, asked.ipv6_address) {
        (Some(ip), _) => ip.to_string(),
        (None, Some(ip)) => ip.to_string(),
        (None, None) => "(no address)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request() -> AllocateRequest {
        serde_json::from_value(json!({ "nodeName": "n1", "subEniRequests": [
            { "parentNicMac": "fa:16:3e:30:00:03", "subnet": "10.72.0.0/24", "ipv4Address": "10.72.0.10",
              "ipv6Address": "fd72::a", "ipv4PoolName": "p4", "ipv6PoolName": "p6" },
            { "parentNicMac": "fa:16:3e:30:00:03", "subnet": "10.72.0.0/24", "ipv4Address": "10.72.0.11",
              "ipv4PoolName": "g" }]}))
        .unwrap()
    }

    fn item(last: u8) -> Value {
        json!({ "parentNicMac": "fa:16:3e:30:00:03", "subnet": "10.72.0.0/24", "vlanId": 100 + i32::from(last),
            "ipv4Address": format!("10.72.0.{last}"), "macAddress": format!("fa:16:3e:00:00:{last}") })
    }

    fn with(key: &str, value: impl Into<Value>) -> Value {
        let mut item = item(10);
        item[key] = value.into();
        item
    }

    fn rules(items: &[Value]) -> (Vec<Rule>, Vec<Result<u16, Rule>>) {
        let body = json!({ "subEniResponses": items }).to_string();
        let judged = judge(&request(), serde_json::from_str(&body), |_| None);
        let rules = judged.faults.into_iter().map(|(rule, _)| rule).collect();
        let vlans = judged.bindings.into_iter();
        (
            rules,
            vlans
                .map(|binding| binding.map(|one| one.vlan.get()))
                .collect(),
        )
    }

    /// One fault breaks one rule, and what can be used stays usable.
    #[test]
    #[rustfmt::skip] // a case a line
    fn each_fault_breaks_its_rule_alone() {
        let good = || vec![Ok(110), Ok(111)];
        let unusable = |rule| vec![Err(rule), Ok(111)];
        for (items, broken, bindings) in [
            (vec![item(11), item(10)], vec![], good()),
            (vec![item(10), item(11), item(12)], vec![Rule::Unknown], good()),
            (vec![item(11)], vec![Rule::Missing], unusable(Rule::Missing)),
            (vec![item(10), with("vlanId", 7), item(11)], vec![Rule::Duplicate], good()),
            (vec![with("ipv6Address", "fd72::b"), item(11)], vec![Rule::Ipv6], good()),
            (vec![with("ipv4PoolName", "x"), item(11)], vec![Rule::Pool], good()),
            (vec![with("vlanId", 70_000), item(11)], vec![Rule::Vlan], unusable(Rule::Vlan)),
            (vec![with("vlanId", 0), item(11)], vec![Rule::Binding], unusable(Rule::Binding)),
            (vec![with("macAddress", "01:00:5e:00:00:01"), item(11)], vec![Rule::Mac], unusable(Rule::Mac)),
            (vec![with("macAddress", "fa:16:3e:30:00:03"), item(11)], vec![Rule::ParentMac], unusable(Rule::ParentMac)),
            (vec![with("subnet", "10.0.0.0/8"), item(11)], vec![Rule::Echo], good()),
            (vec![with("parentNicMac", ""), item(11)], vec![Rule::Echo], good()),
        ] {
            assert_eq!(rules(&items), (broken, bindings), "{items:?}");
        }
    }

    #[test]
    fn two_faults_of_one_item_break_two_rules() {
        let mut item = with("ipv4PoolName", "x");
        item["vlanId"] = (-1).into();
        assert_eq!(rules(&[item, self::item(11)]).0, [Rule::Pool, Rule::Vlan]);
    }

    #[test]
    fn what_the_client_knows_need_not_be_told_again() {
        let body = json!({ "subEniResponses": [with("vlanId", 0), item(11)] }).to_string();
        let known = Binding {
            mac: "fa:16:3e:00:00:10".parse().unwrap(),
            vlan: VlanId::try_from(9).unwrap(),
        };
        let judged = judge(&request(), serde_json::from_str(&body), |_| Some(known));
        assert_eq!((judged.faults, judged.bindings[0]), (vec![], Ok(known)));
        let judged = judge(&request(), serde_json::from_str("{"), |_| Some(known));
        assert_eq!(judged.bindings, [Err(Rule::Json), Err(Rule::Json)]);
    }
}
