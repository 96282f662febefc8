//! Updates by format string, as box.shard had them: one operation after the other on the fields of a document.
//! Knows nothing of who asks, or of how the outcome is written.
//!
//! A format is a pair of characters for each operation, the operation and `p`; each has two arguments, the name
//! of a field and a value. `"+p:p"` with `"n", 1, "text", [0, 2, "He"]` adds 1 to `n` and puts `He` in place of
//! the first two characters of `text`.
//!
//! | | does | the field must be | value |
//! | --- | --- | --- | --- |
//! | `=` | sets it | anything, or not there | anything; null removes |
//! | `+` `-` | adds, subtracts | a number | a number |
//! | `&` `\|` `^` | and, or, exclusive or | a whole number | a whole number |
//! | `:` | splices | text | `[offset, length, text]`, counted in characters from 0; below 0 from the end |
//! | `!` | inserts it | not there | anything |
//! | `#` | deletes it | there | ignored |

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use lockwood_model::{Document, FieldValue, Json, Number, Scalar};
use std::fmt;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `=`
    Set,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `:`
    Splice,
    /// `!`
    Insert,
    /// `#`
    Delete,
}

/// Why nothing is updated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no operation.
    #[error("there is no format; write two characters for each operation, for example =p or +p")]
    NoFormat,
    /// An operation without its second character, or with another.
    #[error("the format {format:?} does not go on with p after {operation}; write {operation}p")]
    NoType {
        /// All of it.
        format: String,
        /// Before which something is missing.
        operation: Operation,
    },
    /// A character that is no operation.
    #[error("{found:?} is no operation of a format; there are = + - & | ^ : ! #, each followed by p")]
    UnknownOperation {
        /// The character.
        found: char,
    },
    /// Arguments are pairs.
    #[error(
        "an odd number of arguments ({len}) follows the format; give a field and a value for each operation"
    )]
    OddArguments {
        /// How many there are.
        len: usize,
    },
    /// Not as many pairs as operations.
    #[error(
        "{len} arguments follow the format; its operations ({operations}) need {}, a field and a value for each",
        .operations * 2
    )]
    WrongLen {
        /// How many operations there are.
        operations: usize,
        /// How many arguments.
        len: usize,
    },
    /// A field is named by text.
    #[error("argument {index} after the format must be the name of a field, found {found}")]
    NoName {
        /// Which argument, counted from 1.
        index: usize,
        /// What it is.
        found: Kind,
    },
    /// The field is not what the operation works on.
    #[error("{operation} works on {expected}, the field {field:?} is {found}")]
    WrongField {
        /// The operation.
        operation: Operation,
        /// The field.
        field: Box<str>,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: Kind,
    },
    /// The value is not what the operation takes.
    #[error("{operation} on the field {field:?} takes {expected}, found {found}")]
    WrongValue {
        /// The operation.
        operation: Operation,
        /// The field.
        field: Box<str>,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: Kind,
    },
    /// There is such a field already.
    #[error("! inserts a field, and there is {field:?} already; use = to replace it")]
    FieldExists {
        /// The field.
        field: Box<str>,
    },
    /// The outcome is no number of 64 bits.
    #[error("{operation} on the field {field:?} gives a number that 64 bits do not hold")]
    Overflow {
        /// The operation.
        operation: Operation,
        /// The field.
        field: Box<str>,
    },
    /// Counted from the end, the text does not reach so far.
    #[error("the offset {offset} is before the start of the field {field:?}, which has {len} characters")]
    BeforeStart {
        /// The field.
        field: Box<str>,
        /// From the end.
        offset: i128,
        /// Characters of the field.
        len: usize,
    },
}

/// What something is, for sentences about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Not there.
    Missing,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number without fraction.
    Whole,
    /// A number without fraction that 64 bits do not hold.
    Large,
    /// Another number.
    Float,
    /// A string.
    Text,
    /// A list or an object.
    Compound,
}

const NUMBER: &str = "a number";
const WHOLE: &str = "a whole number of 64 bits";
const TEXT: &str = "text";
const SPLICE: &str = "a list of offset, length and text, as in [0, 2, \"ab\"]";

/// What the fields that the operations touch become, each once; null removes it. An operation sees what the
/// ones before it did.
pub fn apply(format: &str, arguments: &[Json], document: &Document) -> Result<Vec<FieldValue>, FormatError> {
    let operations = read(format)?;
    if !arguments.len().is_multiple_of(2) {
        return Err(FormatError::OddArguments { len: arguments.len() });
    }
    if arguments.len() != operations.len() * 2 {
        return Err(FormatError::WrongLen { operations: operations.len(), len: arguments.len() });
    }
    let mut after: Vec<FieldValue> = Vec::with_capacity(operations.len());
    let mut places: HashMap<Box<str>, usize, FixedState> = HashMap::default();
    for (index, (operation, pair)) in operations.into_iter().zip(arguments.chunks_exact(2)).enumerate() {
        let field = name(index * 2 + 1, &pair[0])?;
        let known = places.get(&field).copied();
        let stored = match known {
            Some(known) => Some(&after[known].1).filter(|value| !value.is_null()),
            None => document.get(&field),
        };
        let value = Step { operation, field: &field, value: &pair[1] }.done(stored)?;
        match known {
            Some(known) => after[known].1 = value,
            None => {
                places.insert(field.clone(), after.len());
                after.push((field, value));
            }
        }
    }
    Ok(after)
}

fn read(format: &str) -> Result<Vec<Operation>, FormatError> {
    if format.is_empty() {
        return Err(FormatError::NoFormat);
    }
    let mut chars = format.chars();
    let mut operations = Vec::with_capacity(format.len() / 2);
    while let Some(found) = chars.next() {
        let operation = Operation::read(found).ok_or(FormatError::UnknownOperation { found })?;
        if chars.next() != Some('p') {
            return Err(FormatError::NoType { format: format.to_owned(), operation });
        }
        operations.push(operation);
    }
    Ok(operations)
}

fn name(index: usize, argument: &Json) -> Result<Box<str>, FormatError> {
    match Scalar::read(argument.as_str()) {
        Scalar::Text(name) => Ok(name.into()),
        other => Err(FormatError::NoName { index, found: Kind::of(&other) }),
    }
}

/// One operation with its arguments.
struct Step<'a> {
    operation: Operation,
    field: &'a str,
    value: &'a Json,
}

impl Step<'_> {
    /// What the field becomes.
    fn done(&self, stored: Option<&Json>) -> Result<Json, FormatError> {
        match (self.operation, stored) {
            (Operation::Set, _) | (Operation::Insert, None) => Ok(self.value.clone()),
            (Operation::Insert, Some(_)) => Err(FormatError::FieldExists { field: self.field.into() }),
            (Operation::Delete, Some(_)) => Ok(Json::null()),
            (Operation::Delete, None) => Err(self.wrong_field("a field that is there", Kind::Missing)),
            (Operation::Add | Operation::Subtract, _) => self.sum(stored),
            (Operation::And | Operation::Or | Operation::Xor, _) => self.bits(stored),
            (Operation::Splice, _) => self.spliced(stored),
        }
    }

    fn sum(&self, stored: Option<&Json>) -> Result<Json, FormatError> {
        let one = number(stored).map_err(|found| self.wrong_field(NUMBER, found))?;
        let other = number(Some(self.value)).map_err(|found| self.wrong_value(NUMBER, found))?;
        let is_minus = self.operation == Operation::Subtract;
        match (one, other) {
            (Number::Whole(one), Number::Whole(other)) => {
                let sum = if is_minus { one.checked_sub(other) } else { one.checked_add(other) };
                self.whole(sum)
            }
            (one, other) => {
                let (one, other) = (one.as_f64(), other.as_f64());
                let sum = serde_json::Number::from_f64(if is_minus { one - other } else { one + other });
                sum.map(|sum| Json::trusted(&sum.to_string())).ok_or_else(|| self.overflow())
            }
        }
    }

    fn bits(&self, stored: Option<&Json>) -> Result<Json, FormatError> {
        let one = whole(stored).map_err(|found| self.wrong_field(WHOLE, found))?;
        let other = whole(Some(self.value)).map_err(|found| self.wrong_value(WHOLE, found))?;
        self.whole(Some(match self.operation {
            Operation::And => one & other,
            Operation::Or => one | other,
            _ => one ^ other,
        }))
    }

    fn whole(&self, number: Option<i128>) -> Result<Json, FormatError> {
        let number = number.filter(|number| is_64_bits(*number)).ok_or_else(|| self.overflow())?;
        Ok(Json::trusted(&number.to_string()))
    }

    fn spliced(&self, stored: Option<&Json>) -> Result<Json, FormatError> {
        let text = match stored.map(|stored| Scalar::read(stored.as_str())) {
            Some(Scalar::Text(text)) => text,
            other => {
                return Err(self.wrong_field(TEXT, other.map_or(Kind::Missing, |found| Kind::of(&found))));
            }
        };
        let (offset, length, insert) = self.splice_value()?;
        let len = text.chars().count();
        let start = from_end(offset, len as i128).ok_or_else(|| FormatError::BeforeStart {
            field: self.field.into(),
            offset,
            len,
        })?;
        // A length below 0 leaves so many characters at the end; there may be fewer.
        let left = len as i128 - start;
        let cut = from_end(length, left).unwrap_or(0);
        let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
        let after = format!("{}{insert}{}", &text[..byte(start)], &text[byte(start + cut)..]);
        Ok(Json::from(serde_json::Value::from(after)))
    }

    fn splice_value(&self) -> Result<(i128, i128, String), FormatError> {
        let parts: Option<[serde_json::Value; 3]> = serde_json::from_str(self.value.as_str()).ok();
        let read = parts.and_then(|[offset, length, text]| {
            let whole = |value: &serde_json::Value| whole(Some(&Json::from(value.clone()))).ok();
            Some((whole(&offset)?, whole(&length)?, text.as_str()?.to_owned()))
        });
        read.ok_or_else(|| self.wrong_value(SPLICE, Kind::of(&Scalar::read(self.value.as_str()))))
    }

    fn wrong_field(&self, expected: &'static str, found: Kind) -> FormatError {
        FormatError::WrongField { operation: self.operation, field: self.field.into(), expected, found }
    }

    fn wrong_value(&self, expected: &'static str, found: Kind) -> FormatError {
        FormatError::WrongValue { operation: self.operation, field: self.field.into(), expected, found }
    }

    fn overflow(&self) -> FormatError {
        FormatError::Overflow { operation: self.operation, field: self.field.into() }
    }
}

/// A place among `len`, counted from the end if it is below 0; none if that is before the start, and never
/// after the end.
fn from_end(place: i128, len: i128) -> Option<i128> {
    let place = if place < 0 { len + place } else { place.min(len) };
    (place >= 0).then_some(place)
}

fn number(value: Option<&Json>) -> Result<Number, Kind> {
    match value.map(|value| Scalar::read(value.as_str())) {
        Some(Scalar::Number(number)) => Ok(number),
        Some(other) => Err(Kind::of(&other)),
        None => Err(Kind::Missing),
    }
}

fn whole(value: Option<&Json>) -> Result<i128, Kind> {
    match number(value)? {
        Number::Whole(number) if is_64_bits(number) => Ok(number),
        Number::Whole(_) => Err(Kind::Large),
        other => Err(Kind::of(&Scalar::Number(other))),
    }
}

/// Signed or not.
fn is_64_bits(number: i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number)
}

impl Operation {
    fn read(char: char) -> Option<Operation> {
        Some(match char {
            '=' => Operation::Set,
            '+' => Operation::Add,
            '-' => Operation::Subtract,
            '&' => Operation::And,
            '|' => Operation::Or,
            '^' => Operation::Xor,
            ':' => Operation::Splice,
            '!' => Operation::Insert,
            '#' => Operation::Delete,
            _ => return None,
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Set => "=",
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::And => "&",
            Operation::Or => "|",
            Operation::Xor => "^",
            Operation::Splice => ":",
            Operation::Insert => "!",
            Operation::Delete => "#",
        })
    }
}

impl Kind {
    fn of(value: &Scalar<'_>) -> Kind {
        match value {
            Scalar::Null => Kind::Null,
            Scalar::Bool(_) => Kind::Bool,
            Scalar::Number(Number::Whole(_)) => Kind::Whole,
            Scalar::Number(Number::Float(_)) => Kind::Float,
            Scalar::Text(_) => Kind::Text,
            Scalar::Compound(_) => Kind::Compound,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Missing => "not there",
            Kind::Null => "null",
            Kind::Bool => "a truth value",
            Kind::Whole => "a whole number",
            Kind::Large => "a number of more than 64 bits",
            Kind::Float => "a number with a fraction",
            Kind::Text => "text",
            Kind::Compound => "a list or an object",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Random;
    use lockwood_model::{Change, Position};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    type Plain = BTreeMap<String, Value>;

    fn document(fields: &Plain) -> Document {
        let mut document = Document::unborn();
        let fields = fields.iter().map(|(name, value)| (name.as_str().into(), Json::from(value.clone())));
        document.apply(&Change::Created { fields: fields.collect() }, Position(1));
        document
    }

    fn json(values: &Value) -> Vec<Json> {
        values.as_array().unwrap().iter().cloned().map(Json::from).collect()
    }

    /// A document with something of every kind.
    fn stored() -> Document {
        let fields = json!({
            "n": 5, "f": 1.5, "t": "Grüße", "b": true, "l": [1], "max": i64::MAX, "umax": u64::MAX, "min": i64::MIN,
        });
        document(&serde_json::from_value(fields).unwrap())
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn check(format: &str, arguments: Value, expected: &[(&str, &str)]) {
        let after = apply(format, &json(&arguments), &stored()).unwrap();
        let after: Vec<_> = after.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        assert_eq!(after, expected, "{format} {arguments}");
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn refuse(format: &str, arguments: Value, sentence: &str) {
        let refused = apply(format, &json(&arguments), &stored()).unwrap_err();
        assert_eq!(refused.to_string(), sentence, "{format} {arguments}");
    }

    #[test]
    fn setting_inserting_deleting() {
        check("=p", json!(["n", 7]), &[("n", "7")]);
        check("=p", json!(["new", [1, null]]), &[("new", "[1,null]")]);
        check("=p", json!(["n", null]), &[("n", "null")]);
        check("!p", json!(["new", "x"]), &[("new", "\"x\"")]);
        check("#p", json!(["n", "ignored"]), &[("n", "null")]);
        refuse("!p", json!(["n", 1]), "! inserts a field, and there is \"n\" already; use = to replace it");
        refuse("#p", json!(["x", 1]), "# works on a field that is there, the field \"x\" is not there");
    }

    #[test]
    fn sums() {
        check("+p", json!(["n", 3]), &[("n", "8")]);
        check("-p", json!(["n", 8]), &[("n", "-3")]);
        check("+p", json!(["n", -8]), &[("n", "-3")]);
        check("+p", json!(["n", 0.5]), &[("n", "5.5")]);
        check("-p", json!(["f", 1]), &[("f", "0.5")]);
        check("+p", json!(["max", 1]), &[("max", "9223372036854775808")]);
        check("-p", json!(["umax", u64::MAX]), &[("umax", "0")]);
        check("-p", json!(["max", -1]), &[("max", "9223372036854775808")]);
        refuse("+p", json!(["t", 1]), "+ works on a number, the field \"t\" is text");
        refuse("+p", json!(["x", 1]), "+ works on a number, the field \"x\" is not there");
        refuse("-p", json!(["n", "1"]), "- on the field \"n\" takes a number, found text");
        refuse("+p", json!(["n", null]), "+ on the field \"n\" takes a number, found null");
        refuse("+p", json!(["umax", 1]), "+ on the field \"umax\" gives a number that 64 bits do not hold");
        refuse("-p", json!(["min", 1]), "- on the field \"min\" gives a number that 64 bits do not hold");
        refuse(
            "+p+p",
            json!(["f", 1.7e308, "f", 1.7e308]),
            "+ on the field \"f\" gives a number that 64 bits do not hold",
        );
    }

    #[test]
    fn bits() {
        check("&p", json!(["n", 4]), &[("n", "4")]);
        check("|p", json!(["n", 2]), &[("n", "7")]);
        check("^p", json!(["n", 7]), &[("n", "2")]);
        check("&p", json!(["umax", -1]), &[("umax", "18446744073709551615")]);
        check("|p", json!(["umax", 1]), &[("umax", "18446744073709551615")]);
        refuse(
            "&p",
            json!(["f", 1]),
            "& works on a whole number of 64 bits, the field \"f\" is a number with a fraction",
        );
        refuse(
            "|p",
            json!(["n", 1.5]),
            "| on the field \"n\" takes a whole number of 64 bits, found a number with a fraction",
        );
        refuse(
            "^p",
            json!(["b", 1]),
            "^ works on a whole number of 64 bits, the field \"b\" is a truth value",
        );
        refuse("^p", json!(["umax", -1]), "^ on the field \"umax\" gives a number that 64 bits do not hold");
        let long = [Json::trusted("\"n\""), Json::trusted("123456789012345678901234567890")];
        let refused = apply("&p", &long, &stored()).unwrap_err();
        assert!(matches!(refused, FormatError::WrongValue { found: Kind::Large, .. }), "{refused}");
    }

    #[test]
    fn splices() {
        for (splice, after) in [
            (json!([0, 2, "He"]), "Heüße"),
            (json!([2, 1, ""]), "Grße"),
            (json!([5, 0, "!"]), "Grüße!"),
            (json!([99, 99, "!"]), "Grüße!"),
            (json!([-1, 1, "e?"]), "Grüße?"),
            (json!([-5, 99, "x"]), "x"),
            (json!([1, -1, "-"]), "G-e"),
            (json!([3, -9, "+"]), "Grü+ße"),
        ] {
            check(":p", json!(["t", splice]), &[("t", &Value::from(after).to_string())]);
        }
        refuse(
            ":p",
            json!(["t", [-6, 1, ""]]),
            "the offset -6 is before the start of the field \"t\", which has 5 characters",
        );
        refuse(":p", json!(["n", [0, 1, ""]]), ": works on text, the field \"n\" is a whole number");
        refuse(":p", json!(["x", [0, 1, ""]]), ": works on text, the field \"x\" is not there");
        for bad in
            [json!([0, 1]), json!([0, 1, "", ""]), json!([0.5, 1, ""]), json!([0, "1", ""]), json!([0, 1, 2])]
        {
            refuse(
                ":p",
                json!(["t", bad]),
                ": on the field \"t\" takes a list of offset, length and text, as in [0, 2, \"ab\"], found a list or an object",
            );
        }
        refuse(
            ":p",
            json!(["t", "x"]),
            ": on the field \"t\" takes a list of offset, length and text, as in [0, 2, \"ab\"], found text",
        );
    }

    #[test]
    fn operations_see_what_was_done_before_them() {
        check("+p+p-p", json!(["n", 1, "f", 1, "n", 3]), &[("n", "3"), ("f", "2.5")]);
        check("!p+p", json!(["new", 1, "new", 2]), &[("new", "3")]);
        check("#p!p", json!(["n", 0, "n", "x"]), &[("n", "\"x\"")]);
        check("!p#p", json!(["new", 1, "new", 0]), &[("new", "null")]);
        check("=p:p", json!(["n", "abc", "n", [1, 1, "B"]]), &[("n", "\"aBc\"")]);
        // Only the end counts for what is written, but every step must be possible.
        refuse(
            "+p-p",
            json!(["umax", 1, "umax", 1]),
            "+ on the field \"umax\" gives a number that 64 bits do not hold",
        );
        refuse("#p+p", json!(["n", 0, "n", 1]), "+ works on a number, the field \"n\" is not there");
        refuse(
            "=p#p",
            json!(["n", null, "n", 0]),
            "# works on a field that is there, the field \"n\" is not there",
        );
    }

    #[test]
    fn formats_that_cannot_be() {
        refuse(
            "",
            json!([]),
            "there is no format; write two characters for each operation, for example =p or +p",
        );
        refuse("=", json!(["n", 1]), "the format \"=\" does not go on with p after =; write =p");
        refuse("=p+", json!(["n", 1]), "the format \"=p+\" does not go on with p after +; write +p");
        refuse("=s", json!(["n", 1]), "the format \"=s\" does not go on with p after =; write =p");
        refuse(
            "*p",
            json!(["n", 1]),
            "'*' is no operation of a format; there are = + - & | ^ : ! #, each followed by p",
        );
        refuse(
            "=p",
            json!(["n"]),
            "an odd number of arguments (1) follows the format; give a field and a value for each operation",
        );
        refuse(
            "=p=p",
            json!(["n", 1]),
            "2 arguments follow the format; its operations (2) need 4, a field and a value for each",
        );
        refuse(
            "=p",
            json!(["n", 1, "t", 2]),
            "4 arguments follow the format; its operations (1) need 2, a field and a value for each",
        );
        refuse(
            "=p=p",
            json!(["n", 1, 5, 2]),
            "argument 3 after the format must be the name of a field, found a whole number",
        );
    }

    /// The same by hand: one field after the other in a plain map, in numbers that never overflow.
    fn by_hand(operation: char, field: &str, value: &Value, fields: &mut Plain) -> Option<()> {
        let whole = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
        let fit = |number: i128| {
            u64::try_from(number).map(Value::from).or(i64::try_from(number).map(Value::from)).ok()
        };
        let stored = fields.get(field).cloned();
        let after = match operation {
            '=' => value.clone(),
            '!' => stored.is_none().then(|| value.clone())?,
            '#' => stored.map(|_| Value::Null)?,
            '+' | '-' => {
                let stored = stored?;
                let sign = if operation == '+' { 1 } else { -1 };
                match (whole(&stored), whole(value)) {
                    (Some(one), Some(other)) => fit(one + sign * other)?,
                    _ => json!(stored.as_f64()? + sign as f64 * value.as_f64()?),
                }
            }
            ':' => {
                let chars: Vec<char> = stored?.as_str()?.chars().collect();
                let [offset, length, text] = value.as_array()?.as_slice() else { return None };
                let (offset, length) = (offset.as_i64()?, length.as_i64()?);
                let len = chars.len() as i64;
                let start = if offset < 0 { len + offset } else { offset.min(len) };
                let end = if length < 0 { (len + length).max(start) } else { (start + length).min(len) };
                let head = chars.get(..usize::try_from(start).ok()?)?.iter();
                let tail = chars[end as usize..].iter();
                json!(head.collect::<String>() + text.as_str()? + &tail.collect::<String>())
            }
            _ => {
                let (one, other) = (whole(&stored?)?, whole(value)?);
                fit(match operation {
                    '&' => one & other,
                    '|' => one | other,
                    _ => one ^ other,
                })?
            }
        };
        match after {
            Value::Null => drop(fields.remove(field)),
            after => drop(fields.insert(field.to_owned(), after)),
        }
        Some(())
    }

    fn random_value(random: &mut Random, operation: char) -> Value {
        let number = |random: &mut Random| match random.below(5) {
            0 => json!(random.below(9) as f64 / 4.0),
            1 => json!(u64::MAX - random.below(3)),
            2 => json!(i64::MIN + random.below(3) as i64),
            _ => json!(random.below(40) as i64 - 20),
        };
        let text = |random: &mut Random| json!(["", "a", "ßx", "abc\"𝄞"][random.below(4) as usize]);
        match (operation, random.below(8)) {
            (_, 0) => {
                [json!(null), json!(true), json!([1, {}]), json!("5")][random.below(4) as usize].clone()
            }
            (':', _) => json!([random.below(12) as i64 - 5, random.below(12) as i64 - 5, text(random)]),
            ('=' | '!', 1..=3) => text(random),
            _ => number(random),
        }
    }

    #[test]
    fn random_updates_are_what_they_are_by_hand() {
        let names = ["a", "b", "c"];
        let (mut done, mut refused) = (0, 0);
        for seed in 0..20_000 {
            let mut random = Random(seed);
            let mut fields = Plain::new();
            for name in names {
                let value = random_value(&mut random, '=');
                if !value.is_null() {
                    fields.insert(name.to_owned(), value);
                }
            }
            let before = document(&fields);
            let (mut format, mut arguments, mut outcome) = (String::new(), Vec::new(), Some(()));
            for _ in 0..=random.below(4) {
                let operation = b"=+-&|^:!#"[random.below(9) as usize] as char;
                let (name, value) = (names[random.below(3) as usize], random_value(&mut random, operation));
                format.extend([operation, 'p']);
                arguments.extend([Json::from(json!(name)), Json::from(value.clone())]);
                outcome = outcome.and_then(|()| by_hand(operation, name, &value, &mut fields));
            }
            let after = apply(&format, &arguments, &before);
            assert_eq!(after.is_ok(), outcome.is_some(), "seed {seed}: {format} {arguments:?} {after:?}");
            let Ok(after) = after else {
                refused += 1;
                continue;
            };
            done += 1;
            let mut document = before;
            let (removed, set): (Vec<_>, Vec<_>) = after.into_iter().partition(|(_, value)| value.is_null());
            let removed = removed.into_iter().map(|(name, _)| name).collect();
            document.apply(&Change::Updated { set, removed }, Position(2));
            let written: Plain = document
                .present()
                .map(|(name, value)| (name.to_owned(), serde_json::from_str(value.as_str()).unwrap()))
                .collect();
            assert_eq!(written, fields, "seed {seed}: {format} {arguments:?}");
        }
        assert!(done > 2000 && refused > 2000, "{done} done, {refused} refused");
    }
}
