//! How foreign text and spans of time are shown to people. Knows nothing of terminals.

use lockwood_wire::{
    Blocker, LockState, SchemaReason, WireResource,
    documents::{BrokenLock, WireLock, WireValue},
};
use std::fmt::Write;

/// Text from elsewhere, such that it can neither steer the terminal it is shown in nor pretend to be two
/// lines.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if steers(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

/// Whether a character does something to the terminal or to the text around it.
pub fn steers(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

/// What changed since it was read, and by whom: `user/42, read at position 5, by the write at position 7 of ann
/// at 2026-01-01T00:00:00Z (moved house)`.
pub fn broken(broken: &BrokenLock) -> String {
    let mut out = format!("{}, read at position {}, ", target(&broken.lock), broken.lock.position);
    write!(out, "by the write at position {}", broken.position).expect("a string takes all");
    if let Some(user) = &broken.user {
        write!(out, " of {}", value(user)).expect("a string takes all");
    }
    if let Some(at) = &broken.at {
        write!(out, " at {}", plain(at)).expect("a string takes all");
    }
    if let Some(note) = &broken.note {
        write!(out, " ({})", value(note)).expect("a string takes all");
    }
    out
}

/// Why a schema does not go with an earlier one: `version 2: TYPE_CHANGED at #/properties/age: …`.
pub fn reason(reason: &SchemaReason) -> String {
    let SchemaReason { version, kind, path, direction, reason } = reason;
    let who = match direction.as_str() {
        "forward" => "that version cannot read every document of the new schema",
        _ => "the new schema cannot read every document of that version",
    };
    format!("version {version}: {} at {}: {who}: {}", plain(kind), plain(path), plain(reason))
}

fn target(lock: &WireLock) -> String {
    let collection = plain(&lock.collection);
    let field = lock.field.as_deref().map(|field| format!("the field {} of ", plain(field)));
    let document = match &lock.key {
        Some(key) => format!("{collection}/{}", plain(&key.0.to_string())),
        None if lock.filter.is_some() => format!("the documents of {collection} that match"),
        None => format!("all documents of {collection}"),
    };
    format!("{}{document}", field.unwrap_or_default())
}

/// A value in a sentence or a table: text without its quotes, all else as JSON.
pub fn value(value: &WireValue) -> String {
    match serde_json::from_str::<String>(value.as_str()) {
        Ok(text) => plain(&text),
        Err(_) => plain(value.as_str()),
    }
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
    fn what_broke_a_position_lock() {
        let check = |lock: &str, expected: &str| {
            let text = format!(
                r#"{{"lock":{{"collection":"user",{lock}"position":5}},"position":7,"user":"ann\u001b","note":{{"a":1}},"at":"2026"}}"#
            );
            assert_eq!(broken(&serde_json::from_str(&text).unwrap()), expected);
        };
        check(
            r#""key":42,"#,
            "user/42, read at position 5, by the write at position 7 of ann\\u{1b} at 2026 ({\"a\":1})",
        );
        let by = "read at position 5, by the write at position 7 of ann\\u{1b} at 2026 ({\"a\":1})";
        check(r#""key":42,"field":"age","#, &format!("the field age of user/42, {by}"));
        check(r#""field":"age","#, &format!("the field age of all documents of user, {by}"));
        check(
            r#""field":"age","filter":{"and":[]},"#,
            &format!("the field age of the documents of user that match, {by}"),
        );
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2J\nb\u{202e}é"), "a\\u{1b}[2J\\nb\\u{202e}é");
    }
}
