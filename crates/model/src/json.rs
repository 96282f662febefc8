//! JSON values as they are kept: compact text, compared by type. Knows nothing of documents.

use std::{borrow::Cow, cmp::Ordering, fmt};

/// A JSON value as compact text. Numbers stay as they were written, so nothing is lost by keeping them.
///
/// Invariant: the text is valid JSON without white space between tokens, every string in it is valid
/// Unicode, and nothing in it is nested deeper than the limit it was read with. [`Json::read`] and
/// [`Json::trusted`] keep it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

/// The text is not a value that can be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all.
    #[error("{0}")]
    NotJson(String),
    /// Lists and objects inside each other, too many of them.
    #[error("the value is nested deeper than {0} levels")]
    TooDeep(usize),
    /// Half of a surrogate pair, which is no character.
    #[error("a string has the escape \\u{0:04x}, which is half of a character; write both halves")]
    LoneSurrogate(u16),
}

/// A value taken apart as far as comparing needs it.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number.
    Number(Number),
    /// A string, its escapes resolved.
    Text(Cow<'a, str>),
    /// A list or an object, as text.
    Compound(&'a str),
}

/// A number as exact as it was written, within reason.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// A whole number.
    Whole(i128),
    /// Any other, or one of more than 38 digits.
    Float(f64),
}

impl Json {
    /// The value that `text` is, without the white space, if it is nested at most `depth_max` levels deep.
    pub fn read(text: &str, depth_max: usize) -> Result<Json, JsonError> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(text).map_err(|error| JsonError::NotJson(error.to_string()))?;
        Json::compact(raw.get(), depth_max)
    }

    /// The same for text that is known to be JSON.
    pub fn compact(text: &str, depth_max: usize) -> Result<Json, JsonError> {
        Compactor { rest: text, out: String::with_capacity(text.len()), depth: 0, depth_max }.run()
    }

    /// Text that was a [`Json`] before.
    pub fn trusted(text: &str) -> Json {
        Json(text.into())
    }

    /// `null`.
    pub fn null() -> Json {
        Json("null".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Json {
        Json(value.to_string().into())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Copies tokens without the space between them.
struct Compactor<'a> {
    rest: &'a str,
    out: String,
    depth: usize,
    depth_max: usize,
}

impl Compactor<'_> {
    fn run(mut self) -> Result<Json, JsonError> {
        while let Some(&byte) = self.rest.as_bytes().first() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.rest = &self.rest[1..],
                b'"' => self.string()?,
                _ => self.token(byte)?,
            }
        }
        Ok(Json(self.out.into()))
    }

    fn token(&mut self, byte: u8) -> Result<(), JsonError> {
        match byte {
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if self.depth > self.depth_max {
            return Err(JsonError::TooDeep(self.depth_max));
        }
        self.take(1);
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        let len = string_len(self.rest);
        check_surrogates(&self.rest[..len])?;
        self.take(len);
        Ok(())
    }

    fn take(&mut self, len: usize) {
        self.out.push_str(&self.rest[..len]);
        self.rest = &self.rest[len..];
    }
}

/// How long the string is that `text` starts with, both quotes included.
pub(crate) fn string_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn check_surrogates(string: &str) -> Result<(), JsonError> {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        let unit = escaped_unit(&rest[at..]);
        let step = match unit {
            Some(first @ 0xD800..=0xDBFF) => match escaped_unit(&rest[at + 6..]) {
                Some(0xDC00..=0xDFFF) => 12,
                _ => return Err(JsonError::LoneSurrogate(first)),
            },
            Some(alone @ 0xDC00..=0xDFFF) => return Err(JsonError::LoneSurrogate(alone)),
            Some(_) => 6,
            None => 2,
        };
        rest = &rest[at + step..];
    }
    Ok(())
}

/// The number in the `\uXXXX` that `text` starts with, if it does.
fn escaped_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

impl<'a> Scalar<'a> {
    /// Takes compact JSON text apart.
    pub fn read(text: &'a str) -> Scalar<'a> {
        match text.as_bytes().first() {
            Some(b'n') | None => Scalar::Null,
            Some(b't') => Scalar::Bool(true),
            Some(b'f') => Scalar::Bool(false),
            Some(b'"') => Scalar::Text(unquoted(text)),
            Some(b'[' | b'{') => Scalar::Compound(text),
            Some(_) => Scalar::Number(Number::read(text)),
        }
    }

    /// Whether both are the same value; lists and objects are compared member by member.
    pub fn equals(&self, other: &Scalar<'_>) -> bool {
        match (self, other) {
            (Scalar::Compound(a), Scalar::Compound(b)) => a == b || same_compound(a, b),
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// Their order if they have one: numbers among numbers, text among text, truth values among theirs.
    pub fn compare(&self, other: &Scalar<'_>) -> Option<Ordering> {
        match (self, other) {
            (Scalar::Null, Scalar::Null) => Some(Ordering::Equal),
            (Scalar::Bool(a), Scalar::Bool(b)) => Some(a.cmp(b)),
            (Scalar::Number(a), Scalar::Number(b)) => Some(a.compare(*b)),
            (Scalar::Text(a), Scalar::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// An order over everything, for sorting: null, truth values, numbers, text, lists and objects.
    pub fn total_order(&self, other: &Scalar<'_>) -> Ordering {
        self.compare(other).unwrap_or_else(|| match (self, other) {
            (Scalar::Compound(a), Scalar::Compound(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        })
    }

    fn rank(&self) -> u8 {
        match self {
            Scalar::Null => 0,
            Scalar::Bool(_) => 1,
            Scalar::Number(_) => 2,
            Scalar::Text(_) => 3,
            Scalar::Compound(_) => 4,
        }
    }
}

/// Text nested too deeply to be taken apart is equal to nothing but itself.
fn same_compound(a: &str, b: &str) -> bool {
    match (serde_json::from_str(a), serde_json::from_str(b)) {
        (Ok(a), Ok(b)) => same_value(&a, &b),
        _ => false,
    }
}

fn same_value(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Number::read(&a.to_string()) == Number::read(&b.to_string()),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(name, a)| b.get(name).is_some_and(|b| same_value(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => a == b,
    }
}

pub(crate) fn unquoted(text: &str) -> Cow<'_, str> {
    let inner = text.get(1..text.len() - 1).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    Cow::Owned(serde_json::from_str(text).unwrap_or_else(|_| inner.to_owned()))
}

impl Number {
    fn read(text: &str) -> Number {
        match text.parse() {
            Ok(whole) => Number::Whole(whole),
            Err(_) => Number::Float(text.parse().unwrap_or_default()),
        }
    }

    /// As a float, for what needs no more.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Whole(whole) => whole as f64,
            Number::Float(float) => float,
        }
    }

    /// The exact order; there is no NaN in JSON.
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => a.cmp(&b),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Number::Whole(a), Number::Float(b)) => compare_mixed(a, b),
            (Number::Float(a), Number::Whole(b)) => compare_mixed(b, a).reverse(),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.compare(*other) == Ordering::Equal
    }
}

fn compare_mixed(whole: i128, float: f64) -> Ordering {
    /// 2¹²⁷, one more than the largest whole number there is; the smallest is exactly its negative.
    const EDGE: f64 = -(i128::MIN as f64);
    if float >= EDGE {
        return Ordering::Less;
    }
    if float < -EDGE {
        return Ordering::Greater;
    }
    let trunk = float.trunc();
    whole.cmp(&(trunk as i128)).then_with(|| 0.0.partial_cmp(&(float - trunk)).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &Result<&str, JsonError>) {
        let read = Json::read(text, 4);
        assert_eq!(read.as_ref().map(Json::as_str), expected.as_ref().copied(), "{text}");
    }

    #[test]
    fn white_space_goes_and_everything_else_stays() {
        check(" { \"a b\" : [ 1.0 , 2e3, \"x\\\" y\" ] } ", &Ok(r#"{"a b":[1.0,2e3,"x\" y"]}"#));
        check("123456789012345678901234567890", &Ok("123456789012345678901234567890"));
        check("\"\\ud83e\\udd91 \\\\u12\"", &Ok("\"\\ud83e\\udd91 \\\\u12\""));
        check("\"ab\u{e9}\"", &Ok("\"ab\u{e9}\""));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        check("[[[[1]]]]", &Ok("[[[[1]]]]"));
        check("[[[[[1]]]]]", &Err(JsonError::TooDeep(4)));
        check("\"\\ud83e\"", &Err(JsonError::LoneSurrogate(0xd83e)));
        check("\"\\ud83ex\\udd91\"", &Err(JsonError::LoneSurrogate(0xd83e)));
        check("\"\\udd91\"", &Err(JsonError::LoneSurrogate(0xdd91)));
        assert!(matches!(Json::read("{", 4), Err(JsonError::NotJson(_))));
        assert!(matches!(Json::read("1 2", 4), Err(JsonError::NotJson(_))));
    }

    #[test]
    fn values_compare_by_type() {
        let equal = |a, b| Scalar::read(a).equals(&Scalar::read(b));
        assert!(equal("1", "1.0"));
        assert!(equal("\"a\"", "\"\\u0061\""));
        assert!(equal("[1,{\"a\":2,\"b\":3}]", "[1.0,{\"b\":3,\"a\":2}]"));
        assert!(!equal("[1,2]", "[2,1]"));
        assert!(!equal("1", "\"1\""));
        assert!(!equal("true", "\"true\""));
        assert!(!equal("null", "0"));
    }

    #[test]
    fn numbers_are_ordered_exactly() {
        let numbers =
            ["-1e400", "-2", "-1.5", "-1", "0", "0.5", "1", "9007199254740992", "9007199254740993", "1e39"];
        for (i, a) in numbers.iter().enumerate() {
            for (j, b) in numbers.iter().enumerate() {
                assert_eq!(Number::read(a).compare(Number::read(b)), i.cmp(&j), "{a} {b}");
            }
        }
        let edge = ["1.7e38", "170141183460469231731687303715884105727", "1.7014118346046924e38"];
        for (i, a) in edge.iter().enumerate() {
            for (j, b) in edge.iter().enumerate() {
                assert_eq!(Number::read(a).compare(Number::read(b)), i.cmp(&j), "{a} {b}");
                let (a, b) = (format!("-{a}"), format!("-{b}"));
                assert_eq!(Number::read(&a).compare(Number::read(&b)), j.cmp(&i), "{a} {b}");
            }
        }
        assert_eq!(
            Number::read("-170141183460469231731687303715884105728"),
            Number::read("-1.7014118346046923e38")
        );
        assert_eq!(Number::read("1"), Number::read("1.0"));
        assert_eq!(Number::read("-0"), Number::read("0.0"));
    }
}
