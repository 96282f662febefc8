//! Cursors: where a page ended, as text that only this server has to understand. Knows nothing of pages.

use lockwood_model::Key;
use lockwood_node::shard::{JoinPlace, Place, Sort};
use lockwood_wire::documents::JoinRequest;
use std::fmt::Write;

/// The text of a place in a list that is sorted so.
pub(super) fn write(collection: &str, sort: &[Sort], place: &Place) -> String {
    hex(&(query(collection, sort), place.key.to_string(), &place.values))
}

/// The place, if the text was made for the same list.
pub(super) fn read(collection: &str, sort: &[Sort], text: &str) -> Option<Place> {
    let content = unhex(text)?;
    let (made_for, key, values): (u32, String, Vec<String>) = serde_json::from_slice(&content).ok()?;
    let sorted = values.iter().all(|value| serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok());
    if made_for != query(collection, sort) || values.len() != sort.len() || !sorted {
        return None;
    }
    Some(Place { values, key: key.parse::<Key>().ok()? })
}

/// The text of a place in a join.
pub(super) fn write_join(request: &JoinRequest, place: &JoinPlace) -> String {
    let right = place.right.as_ref().map(ToString::to_string);
    hex(&(join_query(request), place.left.to_string(), right))
}

/// The place, if the text was made for the same join.
pub(super) fn read_join(request: &JoinRequest, text: &str) -> Option<JoinPlace> {
    let (made_for, left, right): (u32, String, Option<String>) =
        serde_json::from_slice(&unhex(text)?).ok()?;
    if made_for != join_query(request) {
        return None;
    }
    let right = right.map(|key| key.parse()).transpose().ok()?;
    Some(JoinPlace { left: left.parse().ok()?, right })
}

fn hex(content: &impl serde::Serialize) -> String {
    let content = serde_json::to_vec(content).expect("a cursor can be written");
    content.iter().fold(String::with_capacity(content.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text can be written");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = digits.chunks_exact(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    });
    pairs.collect()
}

/// A number that differs when what is listed differs.
fn query(collection: &str, sort: &[Sort]) -> u32 {
    let mut text = collection.to_owned();
    for Sort { field, descending } in sort {
        write!(text, "\0{field}\0{descending}").expect("text can be written");
    }
    fingerprint(&text)
}

/// The same for joins.
fn join_query(request: &JoinRequest) -> u32 {
    let JoinRequest { left, right, kind, .. } = request;
    let (a, b) = (&left.collection, &right.collection);
    fingerprint(&format!("join\0{a}\0{}\0{b}\0{}\0{kind:?}", left.field, right.field))
}

/// FNV-1a: cursors of one list in another are mistakes, not attacks.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::FieldPath;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let sort = [Sort { field: FieldPath::name("age"), descending: true }];
        let place = Place { values: vec!["\"é\"".to_owned()], key: "a:7".parse().unwrap() };
        let text = write("user", &sort, &place);
        assert_eq!(read("user", &sort, &text), Some(place));
        assert_eq!(read("users", &sort, &text), None);
        assert_eq!(read("user", &[], &text), None);
        for damaged in ["", "x", "0", "00", "zz", "é", &text[2..], &text[..text.len() - 2]] {
            assert_eq!(read("user", &sort, damaged), None, "{damaged:?}");
        }
    }
}
