//! How foreign text and spans of time are shown to people. Knows nothing of terminals.

use lockwood_wire::{Blocker, LockState, WireResource};
use std::fmt::Write;

/// Text from elsewhere, such that it can neither steer the terminal it is shown in nor pretend to be two
/// lines.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() || steers_direction(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

fn steers_direction(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A span of time in at most two units: `350ms`, `3.2s`, `2m 5s`, `4h 10m`, `3d 2h`.
pub fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// How a session is called: by its name, or else by its number.
pub fn owner(name: Option<&str>, session: &str) -> String {
    match name {
        Some(name) if !name.is_empty() => plain(name),
        _ => format!("session {}", plain(session)),
    }
}

/// What a lock covers, in short: `write user/42, read bill (depth 1)`.
pub fn resources(resources: &[WireResource]) -> String {
    /// A list of more than these helps nobody.
    const SHOWN_MAX: usize = 4;
    let mut out = String::new();
    for resource in resources.iter().take(SHOWN_MAX) {
        let comma = if out.is_empty() { "" } else { ", " };
        write!(out, "{comma}{} {}", plain(&resource.mode), resource.path.0).expect("a string takes all");
        if let Some(depth) = resource.depth {
            write!(out, " (depth {depth})").expect("a string takes all");
        }
    }
    if resources.len() > SHOWN_MAX {
        write!(out, " and {} more", resources.len() - SHOWN_MAX).expect("a string takes all");
    }
    out
}

/// Who is in the way: `alice holds write user/42 since 2026-01-01T00:00:00Z (3.2s), lock 12`.
pub fn blocker(blocker: &Blocker) -> String {
    let does = match blocker.state {
        LockState::Granted => "holds",
        LockState::Waiting => "waits for",
        LockState::Converting => "holds and converts",
    };
    format!(
        "{} {does} {} since {} ({}), lock {}",
        owner(blocker.name.as_deref(), &blocker.session),
        resources(&blocker.resources),
        plain(&blocker.since),
        span(blocker.age_ms),
        blocker.lock,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let expected = [
            (0, "0ms"),
            (999, "999ms"),
            (3_249, "3.2s"),
            (125_000, "2m 5s"),
            (15_000_000, "4h 10m"),
            (266_400_000, "3d 2h"),
        ];
        for (millis, text) in expected {
            assert_eq!(span(millis), text);
        }
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2J\nb\u{202e}é"), "a\\u{1b}[2J\\nb\\u{202e}é");
    }
}
