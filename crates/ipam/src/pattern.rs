//! Shell patterns over pool names, as Go's `filepath.Match` reads them: `*` any run, `?` one
//! character, `[a-c]`, `[^x]`, `\` escapes. A name has no `/`, so `*` needs no stop at one.

/// The pattern can match nothing: a bracket or escape is not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {0:?} is malformed: close its bracket or escape")]
pub struct PatternError(pub String);

/// Whether a pool name of an annotation or configuration is a pattern (spec ipam 3.2).
#[must_use]
pub fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?']) || (name.contains('[') && name.contains(']'))
}

/// One element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Run,
    Any,
    Literal(char),
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Part {
    fn admits(&self, found: char) -> bool {
        match self {
            Self::Run | Self::Any => true,
            Self::Literal(wanted) => *wanted == found,
            Self::Class { negated, ranges } => {
                let inside = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&found));
                inside != *negated
            }
        }
    }
}

/// A pattern ready to match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`PatternError`] when it is malformed.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let bad = || PatternError(text.to_owned());
        let mut chars = text.chars().peekable();
        let mut parts = Vec::new();
        while let Some(next) = chars.next() {
            parts.push(match next {
                '*' => Part::Run,
                '?' => Part::Any,
                '\\' => Part::Literal(chars.next().ok_or_else(bad)?),
                '[' => class(&mut chars).ok_or_else(bad)?,
                other => Part::Literal(other),
            });
        }
        Ok(Self(parts))
    }

    /// Whether the whole name matches. Takes time of pattern times name, never more.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut part) = (0, 0);
        // Where to go on after the last run if the rest does not fit: one character later.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(part), name.get(at)) {
                (Some(Part::Run), _) => {
                    retry = Some((part + 1, at + 1));
                    part += 1;
                    continue;
                }
                (Some(wanted), Some(found)) if wanted.admits(*found) => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            match retry {
                Some((after, from)) if from <= name.len() => {
                    (part, at) = (after, from);
                    retry = Some((after, from + 1));
                }
                _ => return false,
            }
        }
    }
}

/// The rest of `[...]`; `None` when malformed. At least one range; `-` and `]` need an escape.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Part> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
            return Some(Part::Class { negated, ranges });
        }
        let low = class_char(chars)?;
        let high = match chars.next_if_eq(&'-') {
            Some(_) => class_char(chars)?,
            None => low,
        };
        // The class is not over yet: Go calls a pattern that ends here malformed.
        chars.peek()?;
        ranges.push((low, high));
    }
}

fn class_char(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match chars.next()? {
        '-' | ']' => None,
        '\\' => chars.next(),
        other => Some(other),
    }
}

/// What a list of names and patterns stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Names, literals in place, matches of a pattern sorted by name, duplicates of a pattern merged.
    pub names: Vec<String>,
    /// Patterns that matched nothing.
    pub unmatched: Vec<String>,
}

/// Expands patterns over the names of `pools`. Literals stay, known or not, and repeat if
/// repeated: a literal typed twice is the caller's error to report.
///
/// # Errors
/// [`PatternError`] for the first malformed pattern.
pub fn expand<'a>(
    list: &[String],
    pools: impl Iterator<Item = &'a str> + Clone,
) -> Result<Expansion, PatternError> {
    let mut expansion = Expansion::default();
    let literal = |name: &str| list.iter().any(|item| item == name);
    for item in list {
        if !has_wildcard(item) {
            expansion.names.push(item.clone());
            continue;
        }
        let pattern = Pattern::new(item)?;
        let mut matched: Vec<&str> = pools.clone().filter(|name| pattern.matches(name)).collect();
        matched.sort_unstable();
        if matched.is_empty() {
            expansion.unmatched.push(item.clone());
        }
        for name in matched {
            // A literal keeps the place its author gave it.
            if !literal(name) && !expansion.names.iter().any(|known| known == name) {
                expansion.names.push(name.to_owned());
            }
        }
    }
    Ok(expansion)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn matching_follows_go() {
        // Rows of the table in Go's path/filepath/match_test.go, without those about '/'.
        for (pattern, name, want) in [
            ("abc", "abc", Some(true)),
            ("*", "abc", Some(true)),
            ("*c", "abc", Some(true)),
            ("a*", "a", Some(true)),
            ("a*", "abc", Some(true)),
            ("a*b*c*d*e*", "axbxcxdxe", Some(true)),
            ("a*b?c*x", "abxbbxdbxebxczzx", Some(true)),
            ("a*b?c*x", "abxbbxdbxebxczzy", Some(false)),
            ("ab[c]", "abc", Some(true)),
            ("ab[b-d]", "abc", Some(true)),
            ("ab[e-g]", "abc", Some(false)),
            ("ab[^c]", "abc", Some(false)),
            ("ab[^b-d]", "abc", Some(false)),
            ("ab[^e-g]", "abc", Some(true)),
            ("a\\*b", "a*b", Some(true)),
            ("a\\*b", "ab", Some(false)),
            ("a?b", "a☺b", Some(true)),
            ("a[^a]b", "a☺b", Some(true)),
            ("a???b", "a☺b", Some(false)),
            ("[a-ζ]*", "α", Some(true)),
            ("*[a-ζ]", "A", Some(false)),
            ("[\\]a]", "]", Some(true)),
            ("[\\-]", "-", Some(true)),
            ("[x\\-]", "x", Some(true)),
            ("[x\\-]", "z", Some(false)),
            ("[]a]", "]", None),
            ("[-]", "-", None),
            ("[x-]", "x", None),
            ("[-x]", "x", None),
            ("\\", "a", None),
            ("[a-b-c]", "a", None),
            ("[", "a", None),
            ("[^", "a", None),
            ("[^bc", "a", None),
            ("a[", "a", None),
            ("*x", "xxx", Some(true)),
            ("", "", Some(true)),
            ("", "x", Some(false)),
            ("**", "", Some(true)),
            ("rack7-*", "rack7-", Some(true)),
        ] {
            let found = Pattern::new(pattern)
                .ok()
                .map(|pattern| pattern.matches(name));
            assert_eq!(found, want, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn names_with_wildcards_are_recognised() {
        for (name, want) in [
            ("a", false),
            ("a*", true),
            ("a?", true),
            ("a[b", false),
            ("a[b]", true),
            ("a]b[", true),
        ] {
            assert_eq!(has_wildcard(name), want, "{name}");
        }
    }

    #[test]
    fn expansion_keeps_literals_and_merges_patterns() {
        let pools = ["b-2", "a-1", "b-1"];
        let run = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&item| item.to_owned()).collect();
            expand(&list, pools.iter().copied())
        };
        assert_eq!(run(&["b-*", "a-1"]).unwrap().names, ["b-1", "b-2", "a-1"]);
        assert_eq!(run(&["b-*", "b-1"]).unwrap().names, ["b-2", "b-1"]);
        assert_eq!(run(&["b-*", "*"]).unwrap().names, ["b-1", "b-2", "a-1"]);
        assert_eq!(run(&["a-1", "a-1"]).unwrap().names, ["a-1", "a-1"]);
        assert_eq!(
            run(&["none", "z*"]).unwrap(),
            Expansion {
                names: vec!["none".into()],
                unmatched: vec!["z*".into()],
            }
        );
        assert_eq!(run(&["[-]"]), Err(PatternError("[-]".into())));
    }

    proptest! {
        #[test]
        fn nothing_panics_or_hangs(pattern in r"[a-c*?\[\]^\\-]{0,20}", name in "[a-c]{0,40}") {
            let compiled = Pattern::new(&pattern);
            let found = compiled.map(|pattern| pattern.matches(&name)).unwrap_or(false);
            // A pattern without special characters matches itself alone.
            if !pattern.contains(['*', '?', '[', ']', '^', '\\']) {
                prop_assert_eq!(found, pattern == name);
            }
        }
    }
}
