//! Finding partners by value: what equal values have in common, and who has which. Knows nothing of where
//! documents are kept.

use lockwood_model::{Number, Scalar};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Longer values are known by their digest, so that a table of many stays small.
const SHORT_BYTES_MAX: usize = 40;
/// 2¹²⁷: whole numbers go from its negative up to below it.
const EDGE: f64 = -(i128::MIN as f64);

/// What a value is told apart by: two values are equal, as filters compare them, if and only if these are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ValueKey {
    Bool(bool),
    Whole(i128),
    /// The bits of a number that is not whole, or too large to be known exactly.
    Float(u64),
    Text(Box<str>),
    Long([u8; 32]),
}

impl ValueKey {
    /// The key of compact JSON text; none for null, which equals nothing.
    pub(crate) fn of(text: &str) -> Option<ValueKey> {
        Some(match Scalar::read(text) {
            Scalar::Null => return None,
            Scalar::Bool(truth) => ValueKey::Bool(truth),
            Scalar::Number(number) => ValueKey::of_number(number),
            Scalar::Text(text) if text.len() <= SHORT_BYTES_MAX => ValueKey::Text(text.as_ref().into()),
            Scalar::Text(text) => ValueKey::digest(b't', &text),
            Scalar::Compound(text) => match serde_json::from_str(text) {
                Ok(value) => {
                    let mut canonical = String::with_capacity(text.len());
                    write_canonical(&value, &mut canonical);
                    ValueKey::digest(b'c', &canonical)
                }
                // What cannot be taken apart is equal to nothing but itself.
                Err(_) => ValueKey::digest(b'r', text),
            },
        })
    }

    fn of_number(number: Number) -> ValueKey {
        match number {
            Number::Whole(whole) => ValueKey::Whole(whole),
            Number::Float(float) if float.trunc() == float && (-EDGE..EDGE).contains(&float) => {
                ValueKey::Whole(float as i128)
            }
            Number::Float(float) => ValueKey::Float(float.to_bits()),
        }
    }

    fn digest(kind: u8, text: &str) -> ValueKey {
        let digest = Sha256::new().chain_update([kind]).chain_update(text).finalize();
        ValueKey::Long(digest.into())
    }
}

/// Members by name, numbers by what they are.
fn write_canonical(value: &serde_json::Value, out: &mut String) {
    use serde_json::Value;
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            if let Scalar::Number(number) = Scalar::read(&text) {
                out.push_str(&format!("{:?}", ValueKey::of_number(number)));
            }
        }
        Value::Array(elements) => {
            out.push('[');
            for element in elements {
                write_canonical(element, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in members {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Who has which value, in the order they were added.
#[derive(Debug)]
pub(crate) struct Partners<T> {
    by_value: HashMap<ValueKey, Vec<T>>,
    len: u64,
}

impl<T> Default for Partners<T> {
    fn default() -> Partners<T> {
        Partners { by_value: HashMap::new(), len: 0 }
    }
}

impl<T> Partners<T> {
    /// One more that can be found by its value; null and absent values find nobody.
    pub(crate) fn add(&mut self, value: Option<&str>, one: T) {
        if let Some(key) = value.and_then(ValueKey::of) {
            self.by_value.entry(key).or_default().push(one);
            self.len += 1;
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// All that have an equal value.
    pub(crate) fn of(&self, value: Option<&str>) -> &[T] {
        let found = value.and_then(ValueKey::of).and_then(|key| self.by_value.get(&key));
        found.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many ways to write equal and nearly equal values as come to mind.
    const VALUES: [&str; 40] = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1",
        "1.0",
        "1e0",
        "10e-1",
        "1.5",
        "15e-1",
        "9007199254740992",
        "9007199254740993",
        "9007199254740992.0",
        "1e39",
        "1000000000000000000000000000000000000000",
        "1e400",
        "-1e400",
        "170141183460469231731687303715884105727",
        "1.7014118346046923e38",
        "-170141183460469231731687303715884105728",
        "-1.7014118346046923e38",
        "\"\"",
        "\"1\"",
        "\"x\"",
        "\"\\u0078\"",
        "\"X\"",
        "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
        "\"\\u0078xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
        "[]",
        "{}",
        "[1,2]",
        "[1.0,2]",
        "[2,1]",
        "{\"a\":1,\"b\":[null]}",
        "{\"b\":[null],\"a\":1.0}",
        "{\"a\":1,\"b\":[]}",
        "[1e400]",
    ];

    #[test]
    fn keys_are_equal_when_values_are() {
        for a in VALUES {
            for b in VALUES {
                let equal = Scalar::read(a).equals(&Scalar::read(b)) && a != "null";
                let same = ValueKey::of(a).is_some() && ValueKey::of(a) == ValueKey::of(b);
                assert_eq!(same, equal, "{a} {b}");
            }
        }
    }

    /// A simple source of numbers that look random.
    fn next(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize
    }

    fn side(seed: &mut u64) -> Vec<Option<&'static str>> {
        let len = next(seed) % 30;
        (0..len)
            .map(|_| Some(VALUES[next(seed) % VALUES.len()]).filter(|_| !next(seed).is_multiple_of(9)))
            .collect()
    }

    #[test]
    fn a_join_finds_what_a_loop_in_a_loop_finds() {
        for mut seed in 0..500 {
            let (left, right) = (side(&mut seed), side(&mut seed));
            let mut partners = Partners::default();
            right.iter().enumerate().for_each(|(index, value)| partners.add(*value, index));
            for value in &left {
                let found = partners.of(*value);
                let are_equal =
                    |a: &str, b: &str| a != "null" && b != "null" && Scalar::read(a).equals(&Scalar::read(b));
                let wanted: Vec<usize> = right
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| value.is_some_and(|a| other.is_some_and(|b| are_equal(a, b))))
                    .map(|(index, _)| index)
                    .collect();
                assert_eq!(found, wanted, "seed {seed}: {value:?} in {right:?}");
            }
        }
    }
}
