//! Label and field selectors: parsing and matching. Pure. Grammar as in the Kubernetes docs,
//! "Labels and Selectors" and "Field Selectors".

use crate::kinds::{Facts, Kind};
use crate::object_key::ObjectKey;

/// What a list or watch is limited to.
#[derive(Debug, Default, Clone)]
pub(crate) struct Selector {
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelTerm {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    Other(&'static str),
}

/// Why a selector text is wrong.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SelectorError {
    /// Not in the grammar.
    #[error(
        "unable to parse requirement: {0:?} is none of key, !key, key=value, key!=value, key in (a,b), key notin (a,b), key>1, key<1"
    )]
    Label(String),
    /// `<` and `>` compare integers.
    #[error("unable to parse requirement: {0:?} compares with something that is no integer")]
    Number(String),
    /// No operator.
    #[error("invalid selector: {0:?}; can't understand it: use field=value or field!=value")]
    Field(String),
    /// The kind has no such selectable field.
    #[error("field label not supported: {0}")]
    UnknownField(String),
}

impl Selector {
    /// Parses the two query parameters; empty texts select everything.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, SelectorError> {
        let labels = split_terms(labels)
            .map(label_term)
            .collect::<Result<_, _>>()?;
        let fields = split_terms(fields)
            .map(|term| field_term(kind, term))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, key: &ObjectKey, facts: &Facts) -> bool {
        let labels = self
            .labels
            .iter()
            .all(|term| term.matches(facts.labels.get(&term.key)));
        labels && self.fields.iter().all(|term| term.matches(key, facts))
    }
}

impl LabelTerm {
    fn matches(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(allowed) => value.is_some_and(|v| allowed.contains(v)),
            Test::NotIn(refused) => value.is_none_or(|v| !refused.contains(v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(limit) => number().is_some_and(|n| n > *limit),
            Test::Less(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

impl FieldTerm {
    fn matches(&self, key: &ObjectKey, facts: &Facts) -> bool {
        let actual = match self.field {
            Field::Name => key.name(),
            Field::Namespace => key.namespace(),
            Field::Other(label) => facts
                .fields
                .iter()
                .find(|(l, _)| *l == label)
                .map_or("", |(_, v)| v.as_str()),
        };
        (actual == self.value) == self.equal
    }
}

/// Splits at commas outside parentheses.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let split = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(split)
        .map(str::trim)
        .filter(|term| !term.is_empty())
}

fn label_term(text: &str) -> Result<LabelTerm, SelectorError> {
    let wrong = || SelectorError::Label(text.to_owned());
    let term = |key: &str, test| {
        let key = key.trim();
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || "()=!<>".contains(c)) {
            return Err(wrong());
        }
        Ok(LabelTerm {
            key: key.to_owned(),
            test,
        })
    };
    if let Some(body) = text.strip_suffix(')') {
        let (head, list) = body.split_once('(').ok_or_else(wrong)?;
        let values: Vec<_> = list.split(',').map(|v| v.trim().to_owned()).collect();
        let (key, operator) = head
            .trim()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(wrong)?;
        return match operator {
            "in" => term(key, Test::In(values)),
            "notin" => term(key, Test::NotIn(values)),
            _ => Err(wrong()),
        };
    }
    let number = |value: &str| {
        value
            .trim()
            .parse::<i64>()
            .map_err(|_| SelectorError::Number(text.to_owned()))
    };
    if let Some((key, value)) = text.split_once("!=") {
        return term(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return term(key, Test::In(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once('>') {
        return term(key, Test::Greater(number(value)?));
    }
    if let Some((key, value)) = text.split_once('<') {
        return term(key, Test::Less(number(value)?));
    }
    match text.strip_prefix('!') {
        Some(key) => term(key, Test::Absent),
        None => term(text, Test::Exists),
    }
}

fn field_term(kind: &Kind, text: &str) -> Result<FieldTerm, SelectorError> {
    let (label, value, equal) = if let Some((label, value)) = text.split_once("!=") {
        (label, value, false)
    } else if let Some((label, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (label, value, true)
    } else {
        return Err(SelectorError::Field(text.to_owned()));
    };
    let label = label.trim();
    let field = match label {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        _ => Field::Other(selectable(kind, label)?),
    };
    Ok(FieldTerm {
        field,
        value: value.trim().to_owned(),
        equal,
    })
}

/// The events.k8s.io API calls the same fields by other names.
fn selectable(kind: &Kind, label: &str) -> Result<&'static str, SelectorError> {
    let renamed = match label.split_once('.') {
        Some(("regarding", rest)) if kind.converts() => format!("involvedObject.{rest}"),
        None if kind.converts() && label == "reportingController" => {
            "reportingComponent".to_owned()
        }
        _ => label.to_owned(),
    };
    let found = kind.fields.iter().find(|field| field.label == renamed);
    found
        .map(|field| field.label)
        .ok_or_else(|| SelectorError::UnknownField(label.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn selects(labels: &str, fields: &str) -> Result<bool, SelectorError> {
        let kind = kinds::by_kind("Pod").unwrap();
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "3", "empty": ""}},
            "spec": {"nodeName": "node-a"}});
        let key = ObjectKey::new("pods", "shop", "web-0");
        Ok(Selector::parse(kind, labels, fields)?.matches(&key, &kind.facts(&pod)))
    }

    #[test]
    fn label_operators() {
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web,tier", true),
            ("app!=web", false),
            ("other!=x", true),
            ("app in (db, web),tier notin (1,2)", true),
            ("app notin (web)", false),
            ("other notin (web)", true),
            ("other in (web)", false),
            ("!other", true),
            ("!app", false),
            ("tier>2,tier<4", true),
            ("tier>3", false),
            ("app>1", false),
            ("empty=", true),
            ("app=", false),
        ];
        for (text, expected) in cases {
            assert_eq!(selects(text, ""), Ok(expected), "{text}");
        }
    }

    #[test]
    fn field_operators() {
        let cases = [
            ("metadata.name=web-0,metadata.namespace==shop", true),
            ("metadata.name!=web-0", false),
            ("spec.nodeName=node-a", true),
            ("spec.nodeName=node-b", false),
            ("status.phase!=Running", true),
        ];
        for (text, expected) in cases {
            assert_eq!(selects("", text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn wrong_selectors_are_refused_by_name() {
        for text in ["a b", "in (x)", "a within (b)", "a in (b", "=x", "a>b", "!"] {
            assert!(selects(text, "").is_err(), "{text}");
        }
        let unknown = selects("", "spec.image=x").unwrap_err();
        assert_eq!(unknown.to_string(), "field label not supported: spec.image");
        assert!(selects("", "metadata.name").is_err());
    }

    #[test]
    fn events_answer_to_the_field_names_of_both_apis() {
        let kind = kinds::by_plural("events.k8s.io", "v1", "events").unwrap();
        assert!(Selector::parse(kind, "", "regarding.name=a,reportingController=b").is_ok());
        assert!(Selector::parse(kind, "", "involvedObject.name=a").is_ok());
        let core = kinds::by_plural("", "v1", "events").unwrap();
        assert!(Selector::parse(core, "", "regarding.name=a").is_err());
    }
}
