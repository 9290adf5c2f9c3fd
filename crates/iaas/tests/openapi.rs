//! The bodies we read and write are those of docs/iaas-provider.openapi.yaml: names, required fields,
//! paths, header, and every example.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test states what must hold by them, in its shared code too"
)]

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spiderpool_api::provider::{
    ALLOCATE_PATH, AllocateRequest, AllocateResponse, RELEASE_PATH, ReleaseRequest, SubEniRequest,
    SubEniResponse, TIMEOUT_HEADER,
};
use spiderpool_iaas::check::accept;
use spiderpool_iaas::wire_v1::{
    AllocateRequestV1, AllocateResponseV1, AllocationItemV1, AllocationResultV1,
};

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/iaas-provider.openapi.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Names of a schema's properties, and those that are required, with those of the schemas it is made of.
fn fields(document: &Value, name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let schema = &document["components"]["schemas"][name];
    assert!(!schema.is_null(), "no schema {name}");
    let mut all = (BTreeSet::new(), BTreeSet::new());
    let parts = schema["allOf"].as_array().cloned().unwrap_or_default();
    for part in parts.iter().chain([schema]) {
        if let Some(other) = part["$ref"].as_str() {
            let (names, required) = fields(document, other.rsplit('/').next().unwrap());
            all.0.extend(names);
            all.1.extend(required);
        }
        let names = part["properties"].as_object().into_iter().flatten();
        all.0.extend(names.map(|(name, _)| name.clone()));
        let required = part["required"].as_array().into_iter().flatten();
        all.1
            .extend(required.map(|name| name.as_str().unwrap().to_owned()));
    }
    all
}

/// A full body has exactly the schema's properties; each that is required is missed, no other is.
fn agrees<T: Serialize + DeserializeOwned>(document: &Value, name: &str, full: Value) {
    let (names, required) = fields(document, name);
    let read: T = serde_json::from_value(full.clone()).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    let keys: BTreeSet<String> = written.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, names, "{name}");
    assert_eq!(written, full, "{name}");
    for key in &names {
        let mut less = full.clone();
        less.as_object_mut().unwrap().remove(key);
        let read = serde_json::from_value::<T>(less).is_err();
        assert_eq!(read, required.contains(key), "{name} without {key}");
    }
}

/// The same of an answer's item: whatever is missing the client judges by itself.
fn agrees_leniently<T: Serialize + DeserializeOwned>(document: &Value, name: &str, full: Value) {
    let (names, _) = fields(document, name);
    let read: T = serde_json::from_value(full).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    let keys: BTreeSet<String> = written.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, names, "{name}");
    assert!(serde_json::from_value::<T>(json!({})).is_ok(), "{name}");
}

#[test]
fn requests_have_the_fields_of_the_document() {
    let document = document();
    let pod = json!({ "podName": "p", "podNamespace": "n", "podUID": "u", "nodeName": "w" });
    let with = |more: Value| {
        let mut all = pod.clone();
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let item = json!({ "parentNicMac": "fa:16:3e:30:00:03", "subnet": "172.92.0.0/24",
        "ipv4Address": "172.92.0.117", "ipv6Address": "fd93::15", "ipv4PoolName": "a", "ipv6PoolName": "b" });
    agrees::<SubEniRequest>(&document, "SubEniRequest", item.clone());
    agrees::<AllocateRequest>(
        &document,
        "AllocateRequest",
        with(json!({ "subEniRequests": [item] })),
    );
    let release = with(
        json!({ "parentNicMac": "fa:16:3e:30:00:03", "subnet": "172.92.0.0/24",
        "ipAddress": "172.92.0.117", "poolName": "a" }),
    );
    agrees::<ReleaseRequest>(&document, "ReleaseRequest", release);
    let item = json!({ "ipAddress": "172.91.0.130", "subnet": "172.91.0.0/24", "parentNicMac": "fa:16:3e:30:00:01" });
    agrees::<AllocationItemV1>(&document, "AllocationItemV1", item.clone());
    agrees::<AllocateRequestV1>(
        &document,
        "AllocateRequestV1",
        with(json!({ "iaasIPsAllocationRequest": [item] })),
    );
}

#[test]
fn answers_have_the_fields_of_the_document() {
    let document = document();
    let item = json!({ "ipv4Address": "172.92.0.117", "ipv6Address": "fd93::15",
        "ipv4PoolName": "a", "ipv6PoolName": "b" });
    agrees_leniently::<SubEniResponse>(&document, "SubEniResponse", item);
    agrees_leniently::<AllocationResultV1>(&document, "AllocationResultV1", json!({}));
    let (names, required) = fields(&document, "AllocateResponse");
    let items = BTreeSet::from(["subEniResponses".to_owned()]);
    assert!(required == items && names.is_superset(&items));
    let (names, required) = fields(&document, "AllocateResponseV1");
    let full = json!({ "podName": "", "podNamespace": "", "nodeName": "", "iaasIPsAllocationResponse": [] });
    let read: AllocateResponseV1 = serde_json::from_value(full).unwrap();
    let written = serde_json::to_value(read).unwrap();
    assert_eq!(
        written
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>(),
        names
    );
    assert_eq!(required, ["iaasIPsAllocationResponse".to_owned()].into());
}

/// The client would send each example request, and accept each example answer to it.
#[test]
fn the_examples_are_calls_and_answers() {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let allocate = &paths[ALLOCATE_PATH]["post"];
    let asked = &allocate["requestBody"]["content"]["application/json"]["examples"];
    let answered = &allocate["responses"]["200"]["content"]["application/json"]["examples"];
    let mut seen = 0;
    for (name, example) in asked.as_object().unwrap() {
        let value = example["value"].clone();
        let request: AllocateRequest = match name.as_str() {
            "deprecatedV1" => serde_json::from_value::<AllocateRequestV1>(value)
                .unwrap()
                .into(),
            _ => serde_json::from_value(value).unwrap(),
        };
        let Some(value) = answered.get(name).map(|example| example["value"].clone()) else {
            continue;
        };
        let response: AllocateResponse = match name.as_str() {
            "deprecatedV1" => serde_json::from_value::<AllocateResponseV1>(value)
                .unwrap()
                .into(),
            _ => serde_json::from_value(value).unwrap(),
        };
        let bound = accept(&request, &response).unwrap();
        assert!(bound[0].vlan.is_some() && bound[0].mac.is_some(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 3);
    let release = &paths[RELEASE_PATH]["post"]["requestBody"]["content"]["application/json"];
    for (_, example) in release["examples"].as_object().unwrap() {
        serde_json::from_value::<ReleaseRequest>(example["value"].clone()).unwrap();
    }
}

#[test]
fn every_call_has_the_header() {
    let document = document();
    let header = &document["components"]["parameters"]["RequestTimeoutMs"];
    assert_eq!(header["name"], TIMEOUT_HEADER);
    assert_eq!(
        (&header["required"], &header["schema"]["minimum"]),
        (&json!(true), &json!(1))
    );
    for path in [ALLOCATE_PATH, RELEASE_PATH] {
        let parameters = &document["paths"][path]["post"]["parameters"];
        assert_eq!(
            parameters[0]["$ref"], "#/components/parameters/RequestTimeoutMs",
            "{path}"
        );
    }
}
