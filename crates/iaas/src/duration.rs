//! Durations in Go's spelling (`1m40s`, `500ms`), because the settings and the error texts that
//! operators search for use it. Pure; nanoseconds in an `i64`, as there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A signed duration in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// The text is no duration. Worded as Go's `time.ParseDuration` does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a sequence of numbers with units, or more than 292 years.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit nobody knows.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// As written.
        unit: String,
        /// The whole text.
        text: String,
    },
}

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

impl GoDuration {
    /// So many seconds.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// As an unsigned duration; `None` below zero.
    #[must_use]
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

impl From<Duration> for GoDuration {
    /// What does not fit becomes the longest duration there is, 292 years.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (nanoseconds, left) = term(rest, text)?;
            total = total.checked_add(nanoseconds).ok_or_else(invalid)?;
            rest = left;
        }
        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| invalid())
    }
}

/// Reads one number with its unit; returns nanoseconds and what follows.
fn term<'a>(rest: &'a str, text: &str) -> Result<(i128, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, rest) = split_at_first(rest, |c| !c.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_at_first(rest, |c| !c.is_ascii_digit()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let (unit, rest) = split_at_first(rest, |c| c == '.' || c.is_ascii_digit());
    let scale = match unit {
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        "ns" => 1,
        // the micro sign and the Greek letter look alike
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        }
    };
    let whole: i64 = match whole {
        "" => 0,
        digits => digits.parse().map_err(|_| invalid())?,
    };
    let nanoseconds = i128::from(whole) * i128::from(scale) + below_one(fraction, scale);
    Ok((nanoseconds, rest))
}

/// `0.<digits>` of a unit. Digits that make no nanosecond are dropped.
fn below_one(digits: &str, scale: i64) -> i128 {
    let mut value = i128::from(scale);
    let mut total: i128 = 0;
    let mut divisor: i128 = 1;
    for digit in digits.chars().take(18).filter_map(|c| c.to_digit(10)) {
        divisor *= 10;
        total = total * 10 + i128::from(digit);
    }
    value *= total;
    value / divisor
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanoseconds = self.0.unsigned_abs();
        let second = SECOND.unsigned_abs();
        match nanoseconds {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanoseconds}ns"),
            1_000..1_000_000 => decimal(f, nanoseconds, MICROSECOND.unsigned_abs(), "\u{b5}s"),
            1_000_000..1_000_000_000 => decimal(f, nanoseconds, MILLISECOND.unsigned_abs(), "ms"),
            _ => {
                let minutes = nanoseconds / MINUTE.unsigned_abs();
                match (minutes / 60, minutes % 60) {
                    (0, 0) => {}
                    (0, minutes) => write!(f, "{minutes}m")?,
                    (hours, minutes) => write!(f, "{hours}h{minutes}m")?,
                }
                decimal(f, nanoseconds % MINUTE.unsigned_abs(), second, "s")
            }
        }
    }
}

/// `value / unit` without trailing zeros.
fn decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", value / unit)?;
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => {}
        digits => write!(f, ".{digits}")?,
    }
    f.write_str(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, nanoseconds, printed) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("-30s", -30 * SECOND, "-30s"),
            ("+5s", 5 * SECOND, "5s"),
            ("50s", 50 * SECOND, "50s"),
            ("99s", 99 * SECOND, "1m39s"),
            ("100s", 100 * SECOND, "1m40s"),
            ("2m", 2 * MINUTE, "2m0s"),
            ("1h", HOUR, "1h0m0s"),
            ("1h15m30.918s", 4_530_918_000_000, "1h15m30.918s"),
            ("500ms", 500 * MILLISECOND, "500ms"),
            ("1.5s", 1_500 * MILLISECOND, "1.5s"),
            (".5s", 500 * MILLISECOND, "500ms"),
            ("1.s", SECOND, "1s"),
            ("1s500ms", 1_500 * MILLISECOND, "1.5s"),
            ("2.2us", 2_200, "2.2\u{b5}s"),
            ("3\u{3bc}s", 3_000, "3\u{b5}s"),
            ("7ns", 7, "7ns"),
            (
                "9223372036854775807ns",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            let parsed: GoDuration = match text {
                // the most negative number has no positive twin to read
                "-9223372036854775808ns" => GoDuration(i64::MIN),
                text => text.parse().unwrap(),
            };
            assert_eq!(parsed, GoDuration(nanoseconds), "{text}");
            assert_eq!(parsed.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn refuses_as_go_does() {
        for (text, said) in [
            ("", r#"time: invalid duration """#),
            ("abc", r#"time: invalid duration "abc""#),
            ("-", r#"time: invalid duration "-""#),
            (".s", r#"time: invalid duration ".s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1s5", r#"time: missing unit in duration "1s5""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            (
                "99999999999999999999s",
                r#"time: invalid duration "99999999999999999999s""#,
            ),
        ] {
            let error = text.parse::<GoDuration>().unwrap_err();
            assert_eq!(error.to_string(), said);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanoseconds in -i64::MAX..i64::MAX) {
            let duration = GoDuration(nanoseconds);
            prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
        }
    }
}
