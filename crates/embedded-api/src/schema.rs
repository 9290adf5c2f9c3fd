//! Structural schemas of custom resources (OpenAPI v3 subset): pruning and naming of unknown
//! fields, defaults, validation. Pure. `pattern` is left to the admission rules, which parse the
//! values anyway.

use serde_json::{Map, Value};

use crate::admission::Cause;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// Part of every object, whatever its schema says.
const ENVELOPE: &[&str] = &["apiVersion", "kind", "metadata"];

/// Removes fields the schema does not have and returns their paths.
pub(crate) fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_at(schema, object, "", &mut unknown);
    unknown
}

fn prune_at(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => prune_map(schema, map, path, unknown),
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                for (index, item) in list.iter_mut().enumerate() {
                    prune_at(items, item, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

fn prune_map(schema: &Value, map: &mut Map<String, Value>, path: &str, unknown: &mut Vec<String>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    // `additionalProperties: true` is the same as a schema that allows anything
    let open =
        schema.get(PRESERVE) == Some(&Value::Bool(true)) || additional == Some(&Value::Bool(true));
    map.retain(|name, value| {
        let here = join(path, name);
        if let Some(child) = properties.and_then(|p| p.get(name)) {
            prune_at(child, value, &here, unknown);
        } else if let Some(child) = additional.filter(|a| a.is_object()) {
            prune_at(child, value, &here, unknown);
        } else if !(open || path.is_empty() && ENVELOPE.contains(&name.as_str())) {
            unknown.push(here);
            return false;
        }
        true
    });
}

/// Fills in defaults of absent fields. An explicit null of a field that is not nullable counts as
/// absent, as in Kubernetes.
pub(crate) fn apply_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, child) in children(schema, "properties") {
                let nullable = child.get("nullable") == Some(&Value::Bool(true));
                if !nullable && map.get(name).is_some_and(Value::is_null) {
                    map.remove(name);
                }
                let absent = !map.contains_key(name);
                if let Some(default) = child.get("default").filter(|d| absent && !d.is_null()) {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    apply_defaults(child, value);
                }
            }
            if let Some(child) = schema.get("additionalProperties").filter(|a| a.is_object()) {
                map.values_mut()
                    .for_each(|value| apply_defaults(child, value));
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                list.iter_mut().for_each(|item| apply_defaults(items, item));
            }
        }
        _ => {}
    }
}

fn children<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

/// All violations of the schema.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    validate_at(schema, object, "", &mut causes);
    causes
}

fn validate_at(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let nullable = schema.get("nullable") == Some(&Value::Bool(true));
    if value.is_null() && nullable {
        return;
    }
    if let Some(expected) = type_mismatch(schema, value) {
        causes.push(Cause::wrong_type(path, value, expected));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(|a| equal(a, value))
    {
        let shown: Vec<_> = allowed.iter().filter(|a| !a.is_null()).cloned().collect();
        causes.push(Cause::not_supported(path, value, &shown));
    }
    validate_limits(schema, value, path, causes);
    match value {
        Value::Object(map) => validate_map(schema, map, path, causes),
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                for (index, item) in list.iter().enumerate() {
                    validate_at(items, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn validate_map(schema: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            causes.push(Cause::required(&join(path, name), ""));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties").filter(|a| a.is_object());
    for (name, value) in map {
        if path.is_empty() && ENVELOPE.contains(&name.as_str()) {
            continue;
        }
        if let Some(child) = properties.and_then(|p| p.get(name)).or(additional) {
            validate_at(child, value, &join(path, name), causes);
        }
    }
}

fn validate_limits(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let mut check = |measured: Option<f64>, low: &str, high: &str, what: &str| {
        let Some(measured) = measured else {
            return;
        };
        if let Some(least) = limit(low).filter(|least| measured < *least) {
            let why = format!("{path} in body {what} be greater than or equal to {least}");
            causes.push(Cause::invalid(path, value, &why));
        }
        if let Some(most) = limit(high).filter(|most| measured > *most) {
            let why = format!("{path} in body {what} be less than or equal to {most}");
            causes.push(Cause::invalid(path, value, &why));
        }
    };
    let count = |n: usize| u32::try_from(n).map(f64::from).ok();
    check(value.as_f64(), "minimum", "maximum", "should");
    check(
        value.as_str().and_then(|s| count(s.chars().count())),
        "minLength",
        "maxLength",
        "length should",
    );
    check(
        value.as_array().and_then(|a| count(a.len())),
        "minItems",
        "maxItems",
        "items should",
    );
    check(
        value.as_object().and_then(|o| count(o.len())),
        "minProperties",
        "maxProperties",
        "properties should",
    );
}

/// The type the schema wants, if the value is of another.
fn type_mismatch<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    if schema.get(INT_OR_STRING) == Some(&Value::Bool(true)) {
        let fits = value.is_i64() || value.is_u64() || value.is_string();
        return (!fits).then_some("integer,string");
    }
    let expected = schema.get("type").and_then(Value::as_str)?;
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => integer_fits(schema, value),
        "number" => value.is_number(),
        _ => true,
    };
    (!fits).then_some(expected)
}

/// Clients decode int32 into 32 bits: a larger value would make the object unreadable for them.
fn integer_fits(schema: &Value, value: &Value) -> bool {
    let whole = value.as_f64().filter(|f| f.fract() == 0.0);
    match schema.get("format").and_then(Value::as_str) {
        Some("int32") => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        _ => value.is_i64() || whole.is_some_and(|_| value.is_f64()),
    }
}

/// JSON numbers are equal by value: schema generators write `4.0` for 4.
fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() < f64::EPSILON,
        _ => a == b,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object", "required": ["subnet"], "properties": {
                "subnet": {"type": "string"},
                "ipVersion": {"type": "integer", "format": "int64", "enum": [4, 6.0], "nullable": true},
                "mtu": {"type": "integer", "format": "int32", "minimum": 0, "default": 0},
                "ips": {"type": "array", "items": {"type": "string"}},
                "mode": {"type": "string", "default": "auto"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "routes": {"type": "array", "items": {"type": "object", "required": ["dst"],
                    "properties": {"dst": {"type": "string"}, "keep": {"type": "boolean", "default": true}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}})
    }

    #[test]
    fn unknown_fields_are_named_and_removed() {
        let mut object = json!({"apiVersion": "a", "kind": "k", "metadata": {"x": 1}, "extra": 1,
            "spec": {"subnet": "s", "gatewy": "g", "free": {"any": 1}, "labels": {"a": "b"},
                "routes": [{"dst": "d"}, {"dst": "d", "via": "v"}]}});
        let unknown = prune(&schema(), &mut object);
        assert_eq!(unknown, ["extra", "spec.gatewy", "spec.routes[1].via"]);
        assert_eq!(object["spec"]["free"], json!({"any": 1}));
        assert!(prune(&schema(), &mut object).is_empty());
    }

    #[test]
    fn defaults_fill_absent_fields_only() {
        let mut object = json!({"spec": {"mode": null, "mtu": 9, "ips": null, "ipVersion": null,
            "routes": [{"dst": "d"}]}});
        apply_defaults(&schema(), &mut object);
        let expected = json!({"spec": {"mode": "auto", "mtu": 9, "ipVersion": null,
            "routes": [{"dst": "d", "keep": true}]}});
        assert_eq!(object, expected);
    }

    #[test]
    fn violations_name_field_and_rule() {
        let cases = [
            (
                json!({"spec": {"subnet": "s", "ipVersion": 6, "mtu": 0, "ips": ["a"]}}),
                "",
            ),
            (json!({"spec": {"subnet": "s", "ipVersion": null}}), ""),
            (json!({}), "spec: Required value"),
            (json!({"spec": {}}), "spec.subnet: Required value"),
            (
                json!({"spec": {"subnet": "s", "ipVersion": 5}}),
                "spec.ipVersion: Unsupported value: 5: supported values: \"4\", \"6\"",
            ),
            (
                json!({"spec": {"subnet": "s", "ips": "a"}}),
                "spec.ips: Invalid value: \"string\": spec.ips in body must be of type array: \
                 \"string\"",
            ),
            (
                json!({"spec": {"subnet": "s", "mtu": -1}}),
                "spec.mtu: Invalid value: -1: spec.mtu in body should be greater than or equal to 0",
            ),
            (
                json!({"spec": {"subnet": "s", "mtu": 3_000_000_000_u32}}),
                "spec.mtu: Invalid value: \"integer\": spec.mtu in body must be of type integer: \
                 \"integer\"",
            ),
            (
                json!({"spec": {"subnet": "s", "routes": [{}]}}),
                "spec.routes[0].dst: Required value",
            ),
        ];
        for (object, expected) in cases {
            let causes = validate(&schema(), &object);
            let text = if causes.is_empty() {
                String::new()
            } else {
                Cause::list(&causes)
            };
            assert_eq!(text, expected, "{object}");
        }
    }
}
