//! The text of a schema without white space, with its members as they stand or sorted. Knows nothing of what a schema
//! means. Numbers stay as they are spelled.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, fmt};

/// Which order members are written in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    AsTheyStand,
    /// By the 16-bit units of their names, as the registries of others sort them.
    Sorted,
}

/// A JSON text without white space; none if it is not JSON. Each level is read once more, so the text must not be
/// nested without a limit.
pub(crate) fn compact(text: &str) -> Option<String> {
    spelled(text, Members::AsTheyStand)
}

/// The same with sorted members: the texts of schemas that only differ in order and white space are equal.
pub(crate) fn normalized(text: &str) -> Option<String> {
    spelled(text, Members::Sorted)
}

fn spelled(text: &str, members: Members) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    write(serde_json::from_str(text).ok()?, members, &mut out)?;
    Some(out)
}

fn write(raw: &RawValue, members: Members, out: &mut String) -> Option<()> {
    match raw.get().as_bytes().first()? {
        b'{' => write_object(serde_json::from_str(raw.get()).ok()?, members, out),
        b'[' => write_list(&serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok()?, members, out),
        b'"' => write_text(&serde_json::from_str::<String>(raw.get()).ok()?, out),
        _ => {
            out.push_str(raw.get());
            Some(())
        }
    }
}

fn write_object(Object(mut list): Object<'_>, members: Members, out: &mut String) -> Option<()> {
    if members == Members::Sorted {
        list.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    }
    out.push('{');
    for (index, (name, value)) in list.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(name, out)?;
        out.push(':');
        write(value, members, out)?;
    }
    out.push('}');
    Some(())
}

fn write_list(list: &[&RawValue], members: Members, out: &mut String) -> Option<()> {
    out.push('[');
    for (index, value) in list.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(value, members, out)?;
    }
    out.push(']');
    Some(())
}

/// With as few escapes as JSON allows.
fn write_text(text: &str, out: &mut String) -> Option<()> {
    out.push_str(&serde_json::to_string(text).ok()?);
    Some(())
}

/// An object with its members in the order they stand in; of two with the same name the last one counts.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<'a>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut list: Vec<(String, &'de RawValue)> = Vec::new();
                let mut places: BTreeMap<String, usize> = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    match places.get(&name) {
                        Some(place) => list[*place].1 = value,
                        None => {
                            places.insert(name.clone(), list.len());
                            list.push((name, value));
                        }
                    }
                }
                Ok(Object(list))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_or_sorted_and_numbers_stay_as_they_are() {
        let text = " { \"b\" : [ 1.0 , 1e400, {\"y\":\"\\u0041\\/\",\"x\":null} ] ,\n\"a\" : \"ä\\n\", \"b\" : true, \"c\":2} ";
        assert_eq!(compact(text).unwrap(), r#"{"b":true,"a":"ä\n","c":2}"#);
        let text = r#"{"b":[1.0, 1e400,{"y":"\u0041\/","x":null}], "a":1}"#;
        assert_eq!(compact(text).unwrap(), r#"{"b":[1.0,1e400,{"y":"A/","x":null}],"a":1}"#);
        assert_eq!(normalized(text).unwrap(), r#"{"a":1,"b":[1.0,1e400,{"x":null,"y":"A/"}]}"#);
        assert_eq!(normalized("true").unwrap(), "true");
        assert_eq!(compact("{"), None);
    }

    /// As UTF-8 it is the other way round.
    #[test]
    fn names_are_sorted_by_their_16_bit_units() {
        assert_eq!(normalized(r#"{"\uffff":1,"😀":2}"#).unwrap(), "{\"😀\":2,\"\u{ffff}\":1}");
    }
}
