//! An error and what led to it, as one line.

use std::error::Error;

/// The error and all its causes, outermost first, with `: ` between.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    one_line(&text)
}

/// The text in one line: a record of the log is one, whatever a parser or an API server wrote.
#[must_use]
pub fn one_line(text: &str) -> String {
    if !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    let lines = text.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_in_one_line() {
        let inner = std::io::Error::other("line 3:\n  |\n3 | [\r\n\n");
        let outer = std::io::Error::other(inner);
        assert_eq!(with_causes(&outer), "line 3: | 3 | [");
        assert_eq!(one_line("as it is "), "as it is ");
    }
}
