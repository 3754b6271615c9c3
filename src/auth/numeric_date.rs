//! Times in a token (RFC 7519 2, NumericDate).

use std::time::Duration;

use serde_json::value::RawValue;
use task_broker_core::Timestamp;

/// Half a millisecond, to round to the nearest one.
const HALF: Duration = Duration::from_micros(500);

/// The time that a claim names, to the millisecond: a JSON number of seconds since 1970, not negative, with or
/// without a fraction, within what a [`Timestamp`] can hold. Anything else is `None`, strings first of all: a
/// wrong type must never count as "absent" (case C01).
pub(super) fn numeric_date(value: &RawValue) -> Option<Timestamp> {
    let text = value.get();
    // In JSON only a number begins with a digit; a negative one begins with a minus.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let millis = if let Ok(seconds) = text.parse::<u64>() {
        seconds.checked_mul(1000)?
    } else {
        // A double has at least microseconds for any date of this millennium. The conversion to a duration
        // refuses infinity (1e400) and what is too large.
        let seconds = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
        u64::try_from(seconds.checked_add(HALF)?.as_millis()).ok()?
    };
    Some(Timestamp::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<u64> {
        let json: Box<RawValue> = serde_json::from_str(text).expect("the tests write JSON");
        numeric_date(&json).map(Timestamp::as_millis)
    }

    #[test]
    fn numbers_are_read_to_the_millisecond() {
        for (text, millis) in [
            ("0", 0),
            ("1700000000", 1_700_000_000_000),
            ("1700000000.0", 1_700_000_000_000),
            ("1700000000.001", 1_700_000_000_001),
            ("1700000000.0004", 1_700_000_000_000),
            ("1700000000.9996", 1_700_000_001_000),
            ("1.7e9", 1_700_000_000_000),
            ("17E+8", 1_700_000_000_000),
            ("99999999999", 99_999_999_999_000),
            ("18446744073709551", 18_446_744_073_709_551_000),
        ] {
            assert_eq!(read(text), Some(millis), "{text}");
        }
    }

    #[test]
    fn everything_else_is_no_date() {
        for text in [
            r#""1700000000""#,
            r#""""#,
            "null",
            "true",
            "[1700000000]",
            r#"{"seconds":1}"#,
            "-1",
            "-0",
            "-1700000000.5",
            "18446744073709552",
            "18446744073709551616",
            "99999999999999999999",
            "1e300",
            "1e400",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
