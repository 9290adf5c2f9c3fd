//! Plugins that users chain behind the main one: their own JSON, without its blanks and otherwise
//! untouched, as numbers and key order may mean something to a plugin.

use serde_json::Value;
use spiderpool_api::multus_config::SpiderMultusConfigSpec;

use super::RenderError;

/// All items of `spec.chainCNIJsonData`.
pub(super) fn items(spec: &SpiderMultusConfigSpec) -> Result<Vec<String>, RenderError> {
    let items = spec.chain_cni_json_data.as_deref().unwrap_or_default();
    let rendered = items.iter().enumerate().map(|(index, text)| {
        check(text).map_err(|why| RenderError::Chain { index, why })?;
        Ok(compact(text))
    });
    rendered.collect()
}

fn check(text: &str) -> Result<(), String> {
    let item: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let plugin = item.get("type").and_then(Value::as_str);
    match plugin.unwrap_or_default() {
        "" => Err("it has no type".to_owned()),
        _ => Ok(()),
    }
}

/// Valid JSON without the blanks between its tokens.
fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            in_string = c == '"';
        }
        compact.push(c);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_all_but_their_blanks() {
        for (text, compacted) in [
            (
                "{ \"type\": \"tuning\",\n\t\"sysctl\": {\"a b\": \"1 \\\" 2\"} }\r\n",
                r#"{"type":"tuning","sysctl":{"a b":"1 \" 2"}}"#,
            ),
            (
                r#"{"type":"x", "n": 123456789012345678901234567890, "s": "\\" }"#,
                r#"{"type":"x","n":123456789012345678901234567890,"s":"\\"}"#,
            ),
        ] {
            assert_eq!(check(text), Ok(()));
            assert_eq!(compact(text), compacted);
        }
        for bad in ["", "{", "[]", "7", "{}", r#"{"type":""}"#, r#"{"type":7}"#] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
