//! Spans of time and waits as they are written on the command line. Knows nothing of clocks.

use lockwood_model::Wait;
use std::time::Duration;

/// `500ms`, `10s`, `5m`, `2h`, `7d`, or `0`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("write a number and a unit: 500ms, 10s, 5m, 2h or 7d, not {text:?}");
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[digits..] {
        "" if number == 0 => 1,
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// A span, `0` for not at all, or `forever`.
pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    let span = parse_span(text).map_err(|error| format!("{error}; or forever"))?;
    Ok(match span.as_millis() {
        0 => Wait::Never,
        millis => Wait::Millis(u64::try_from(millis).unwrap_or(u64::MAX)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits() {
        let good = [
            ("0", Wait::Never),
            ("0s", Wait::Never),
            ("500ms", Wait::Millis(500)),
            ("10s", Wait::Millis(10_000)),
            ("5m", Wait::Millis(300_000)),
            ("2h", Wait::Millis(7_200_000)),
            ("30d", Wait::Millis(2_592_000_000)),
            ("forever", Wait::Forever),
        ];
        for (text, wait) in good {
            assert_eq!(parse_wait(text), Ok(wait), "{text}");
        }
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "1w",
            "s10",
            "10 s",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(parse_wait(text).is_err(), "{text}");
        }
    }
}
