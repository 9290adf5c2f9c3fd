//! Users' manifests through the rules, for the provider they were written for. Those of generation 2
//! are applied to a real API server by the suite `api_webhook`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spiderpool_ipam::admission::pod::{self, NetworkView, PodRequest, PodSettings};
use spiderpool_ipam::admission::{Kind, Op, Settings, World, mutate, validate};

const FILE: &str = include_str!("../../crates/api/testdata/manifests/generation-1.yaml");

#[test]
fn a_provider_of_generation_1_has_its_sub_enis_injected() {
    let settings = Settings {
        generation_1: true,
        ..Settings::default()
    };
    let world = World::default();
    let mut networks = Vec::new();
    for document in FILE.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document).unwrap();
        let Some(kind) = Kind::from_name(object["kind"].as_str().unwrap()) else {
            let known: Vec<&NetworkView> = networks.iter().collect();
            let request = PodRequest {
                namespace: "default",
                namespace_annotations: &BTreeMap::new(),
                networks: &known,
                settings: PodSettings {
                    master_nics: true,
                    sub_enis: true,
                },
            };
            pod::mutate(&mut object, &request).unwrap();
            let resources = &object["spec"]["containers"][0]["resources"];
            let both = json!({"spidernet.io/sub-eni": "1", "spidernet.io/eth1-nic": "1"});
            assert_eq!(*resources, json!({"requests": both, "limits": both}));
            return;
        };
        let warnings = mutate(kind, &mut object, None, &world, &settings);
        assert_eq!(warnings, Vec::<String>::new());
        let judged = validate(Op::Create, kind, Some(&object), None, &world, &settings);
        assert_eq!(judged, Ok(()), "{object}");
        if kind == Kind::MultusConfig {
            networks.push(NetworkView::read(&object).unwrap());
        }
    }
    panic!("the file has no Pod");
}
