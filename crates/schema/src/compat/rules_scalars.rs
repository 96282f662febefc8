//! Rules for types, listed values, numbers, text and everything that is counted. Knows no schemas inside
//! schemas.
//!
//! | keyword | is read without loss when the writing side … |
//! | --- | --- |
//! | `type` | has only types of it; `integer` is part of `number` |
//! | `enum`, `const` | lists its values, and all of them are in it |
//! | `maximum`, `exclusiveMaximum`, … | has a bound that is as tight, or lists values within it |
//! | `maxLength`, `minItems`, … | has a count that is as tight, or lists values within it |
//! | `minProperties` | also: requires as many properties |
//! | `multipleOf` | has a whole multiple of it, or lists multiples |
//! | `pattern` | has the same pattern, or lists matching values |
//! | `uniqueItems` | has it too |

use super::{
    compare::{Comparison, Difference},
    kind::Kind,
    written::{End, Written, bounds, key_of, order, tighter},
};
use crate::{failure::shown, node::Node, types::Types};
use serde_json::Value;
use std::{cmp::Ordering, collections::BTreeSet};

/// A keyword that counts something.
struct Count {
    keyword: &'static str,
    types: Types,
    end: End,
    added: Kind,
    tightened: Kind,
}

const COUNTS: [Count; 6] = [
    Count {
        keyword: "maxLength",
        types: Types::STRING,
        end: End::Upper,
        added: Kind::MaxLengthAdded,
        tightened: Kind::MaxLengthDecreased,
    },
    Count {
        keyword: "minLength",
        types: Types::STRING,
        end: End::Lower,
        added: Kind::MinLengthAdded,
        tightened: Kind::MinLengthIncreased,
    },
    Count {
        keyword: "maxItems",
        types: Types::ARRAY,
        end: End::Upper,
        added: Kind::MaxItemsAdded,
        tightened: Kind::MaxItemsDecreased,
    },
    Count {
        keyword: "minItems",
        types: Types::ARRAY,
        end: End::Lower,
        added: Kind::MinItemsAdded,
        tightened: Kind::MinItemsIncreased,
    },
    Count {
        keyword: "maxProperties",
        types: Types::OBJECT,
        end: End::Upper,
        added: Kind::MaxPropertiesAdded,
        tightened: Kind::MaxPropertiesDecreased,
    },
    Count {
        keyword: "minProperties",
        types: Types::OBJECT,
        end: End::Lower,
        added: Kind::MinPropertiesAdded,
        tightened: Kind::MinPropertiesIncreased,
    },
];

impl Comparison {
    /// Everything that can be said without looking into lists and objects.
    pub(super) fn scalars<'a>(&self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        types(reader, written, found);
        listed(reader, written, found);
        for count in &COUNTS {
            counted(count, reader, written, found);
        }
        for end in [End::Upper, End::Lower] {
            ranged(end, reader, written, found);
        }
        multiple(reader, written, found);
        pattern(reader, written, found);
        unique(reader, written, found);
    }
}

fn types(reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let allowed = reader.types();
    if written.types.within(allowed) {
        return;
    }
    let kind = if written.types.meets(allowed) { Kind::TypeNarrowed } else { Kind::TypeChanged };
    let reason = format!("only {allowed} is allowed here, and {} may have been written", written.types);
    found.push(Difference::new(kind, &reader.at, reason));
}

fn listed(reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let single = reader.get("const").map(std::slice::from_ref);
    let several = reader.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let rules = [
        ("enum", several, Kind::EnumAdded, Kind::EnumNarrowed),
        ("const", single, Kind::ConstAdded, Kind::ConstChanged),
    ];
    for (keyword, allowed, added, narrowed) in rules {
        let Some(allowed) = allowed else { continue };
        let keys: BTreeSet<String> = allowed.iter().map(key_of).collect();
        let at = reader.place(&[keyword]);
        match &written.values {
            None => found.push(Difference::new(
                added,
                at,
                "only listed values are allowed here, which was not so",
            )),
            Some(values) => {
                if let Some(value) = values.iter().find(|value| !keys.contains(&key_of(value))) {
                    let reason = format!("{} may have been written and is not allowed here", shown(value));
                    found.push(Difference::new(narrowed, at, reason));
                }
            }
        }
    }
}

fn counted(count: &Count, reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let Some(limit) = reader.get(count.keyword).filter(|limit| limit.is_number()) else { return };
    let asks_nothing = count.end == End::Lower && limit.as_f64() == Some(0.0);
    if asks_nothing || !written.types.meets(count.types) {
        return;
    }
    let theirs = written.count(count.keyword, count.end);
    let has_reason = theirs.is_some_and(|theirs| !tighter(limit, theirs, count.end))
        || all_values(written, |value| sizes_fit(value, limit, count))
        || (count.keyword == "minProperties" && requires_as_many(written, limit));
    if has_reason {
        return;
    }
    found.push(limited(count.keyword, limit, theirs, (count.added, count.tightened), reader));
}

fn sizes_fit(value: &Value, limit: &Value, count: &Count) -> bool {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(list) => list.len(),
        Value::Object(object) => object.len(),
        _ => return true,
    };
    !Types::of(value).meets(count.types) || !tighter(limit, &Value::from(size), count.end)
}

fn requires_as_many(written: &Written<'_>, limit: &Value) -> bool {
    let len = written.parts.iter().map(|node| node.strings("required").len()).max().unwrap_or(0);
    order(&Value::from(len), limit) != Ordering::Less
}

fn ranged(end: End, reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    if !written.types.meets(Types::NUMBER) {
        return;
    }
    for (keyword, bound) in bounds(reader, end) {
        let theirs = written.bound(end);
        let has_reason = theirs.is_some_and(|theirs| theirs.implies(bound, end))
            || all_values(written, |value| !value.is_number() || bound.admits(value, end));
        if has_reason {
            continue;
        }
        let kinds = match keyword {
            "maximum" => (Kind::MaximumAdded, Kind::MaximumDecreased),
            "minimum" => (Kind::MinimumAdded, Kind::MinimumIncreased),
            "exclusiveMaximum" => (Kind::ExclusiveMaximumAdded, Kind::ExclusiveMaximumDecreased),
            _ => (Kind::ExclusiveMinimumAdded, Kind::ExclusiveMinimumIncreased),
        };
        found.push(limited(keyword, bound.limit, theirs.map(|theirs| theirs.limit), kinds, reader));
    }
}

fn limited(
    keyword: &str,
    limit: &Value,
    theirs: Option<&Value>,
    (added, tightened): (Kind, Kind),
    reader: &Node<'_>,
) -> Difference {
    let at = reader.place(&[keyword]);
    match theirs {
        None => Difference::new(
            added,
            at,
            format!("{keyword} is {limit} here, and nothing limited what was written"),
        ),
        Some(theirs) => {
            let reason = format!("{keyword} is {limit} here, and {theirs} was the limit of what was written");
            Difference::new(tightened, at, reason)
        }
    }
}

fn multiple(reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let Some(step) = reader.get("multipleOf") else { return };
    let is_one = written.types.and(Types::NUMBER).within(Types::INTEGER) && key_of(step) == "1";
    let theirs: Vec<&Value> = written.parts.iter().filter_map(|node| node.get("multipleOf")).collect();
    let has_reason = is_one
        || !written.types.meets(Types::NUMBER)
        || theirs.iter().any(|theirs| is_multiple(theirs, step))
        || all_values(written, |value| !value.is_number() || is_multiple(value, step));
    if has_reason {
        return;
    }
    let kind = if theirs.is_empty() { Kind::MultipleOfAdded } else { Kind::MultipleOfChanged };
    let reason = format!("only multiples of {step} are allowed here, and others may have been written");
    found.push(Difference::new(kind, reader.place(&["multipleOf"]), reason));
}

/// Only what is certain: whole numbers, or the same number. Fractions are not exact.
fn is_multiple(value: &Value, step: &Value) -> bool {
    match (value.as_i64(), step.as_i64()) {
        (Some(value), Some(step)) if step != 0 => value.checked_rem(step) == Some(0),
        _ => key_of(value) == key_of(step),
    }
}

fn pattern(reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let Some(pattern) = reader.string("pattern") else { return };
    let theirs: Vec<&str> = written.parts.iter().filter_map(|node| node.string("pattern")).collect();
    let matches = |value: &Value| value.as_str().is_none_or(|text| reader.source.matches(pattern, text));
    if !written.types.meets(Types::STRING) || theirs.contains(&pattern) || all_values(written, matches) {
        return;
    }
    let kind = if theirs.is_empty() { Kind::PatternAdded } else { Kind::PatternChanged };
    let reason = format!("only text that matches {pattern:?} is allowed here, which was not so");
    found.push(Difference::new(kind, reader.place(&["pattern"]), reason));
}

fn unique(reader: &Node<'_>, written: &Written<'_>, found: &mut Vec<Difference>) {
    let asks = |node: &Node<'_>| node.get("uniqueItems") == Some(&Value::Bool(true));
    let has_reason = !written.types.meets(Types::ARRAY) || written.parts.iter().any(asks);
    if asks(reader) && !has_reason {
        let reason = "elements must all be different here, which was not so";
        found.push(Difference::new(Kind::UniqueItemsAdded, reader.place(&["uniqueItems"]), reason));
    }
}

fn all_values(written: &Written<'_>, fits: impl Fn(&Value) -> bool) -> bool {
    written.values.as_ref().is_some_and(|values| values.iter().all(|value| fits(value)))
}
