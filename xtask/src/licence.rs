//! SPDX licence expressions, judged against the list of licences this project accepts.

/// Accepted as they stand.
const ACCEPTED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
];

/// Whether a crate under `expression` may be linked: one accepted way through every `OR`, all
/// parts of every `AND`. The old `/` means `OR`. Anything unreadable is not accepted.
pub(crate) fn accepted(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words };
    parser.any() == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.next();
        }
        found
    }

    fn any(&mut self) -> Option<bool> {
        let mut good = self.all()?;
        while self.take("OR") {
            good |= self.all()?;
        }
        Some(good)
    }

    fn all(&mut self) -> Option<bool> {
        let mut good = self.one()?;
        while self.take("AND") {
            good &= self.one()?;
        }
        Some(good)
    }

    fn one(&mut self) -> Option<bool> {
        let word = self.next()?;
        if word == "(" {
            let good = self.any()?;
            return self.take(")").then_some(good);
        }
        let name = if self.take("WITH") {
            format!("{word} WITH {}", self.next()?)
        } else {
            word.to_owned()
        };
        Some(ACCEPTED.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for (expression, good) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense OR MIT", true),
            ("GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND OpenSSL", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("ISC AND (Apache-2.0 OR ISC)", true),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT)", false),
            ("", false),
        ] {
            assert_eq!(accepted(expression), good, "{expression}");
        }
    }
}
