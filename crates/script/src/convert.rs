//! Keys and JSON values in Luau, and back. Knows nothing of documents or of who asks.
//!
//! | JSON | Luau |
//! | --- | --- |
//! | null | `db.null`; nil too on the way back |
//! | number | number; whole numbers beyond 2⁵³ are refused, because they would not come back the same |
//! | text | text; what is not UTF-8 is refused on the way back |
//! | list | table marked as a list; on the way back also any table whose keys are 1, 2, … n |
//! | object | table; on the way back its keys must be text, and an empty table is an object |

use crate::error::ScriptError;
use lockwood_model::{FieldValue, Json, Key, KeyPart};
use mlua::{Lua, LuaString, Table, Value};
use serde_json::Value as Parsed;

/// Lists and objects inside each other in a value.
pub const VALUE_DEPTH_MAX: usize = 120;

/// Every whole number up to this one is a Luau number, and no two are the same.
const EXACT_MAX: i64 = 1 << 53;

/// Why a value has no counterpart.
pub(crate) enum Misfit {
    /// In words, for whoever wrote the function.
    Said(String),
    /// The sandbox fails.
    Lua(mlua::Error),
    /// The call is over.
    Over(ScriptError),
}

impl From<mlua::Error> for Misfit {
    fn from(error: mlua::Error) -> Misfit {
        Misfit::Lua(error)
    }
}

fn said<T>(text: impl Into<String>) -> Result<T, Misfit> {
    Err(Misfit::Said(text.into()))
}

/// A key of one part as this part, others as a list.
pub(crate) fn key_to_lua(lua: &Lua, key: &Key) -> mlua::Result<Value> {
    match key.parts() {
        [part] => part_to_lua(lua, part),
        parts => {
            let list = lua.create_table_with_capacity(parts.len(), 0)?;
            for part in parts {
                list.raw_push(part_to_lua(lua, part)?)?;
            }
            Ok(Value::Table(list))
        }
    }
}

/// A number and its text name the same document, so a large number comes back the same as text.
fn part_to_lua(lua: &Lua, part: &KeyPart) -> mlua::Result<Value> {
    match part {
        KeyPart::Number(number) if is_exact(i128::from(*number)) => Ok(Value::Integer(*number)),
        KeyPart::Number(number) => lua.create_string(number.to_string()).map(Value::String),
        KeyPart::Text(text) => lua.create_string(&**text).map(Value::String),
    }
}

fn is_exact(number: i128) -> bool {
    number.unsigned_abs() <= EXACT_MAX.unsigned_abs().into()
}

/// The key that a function names: a whole number, text, or a list of them.
pub(crate) fn key_from_lua(value: &Value) -> Result<Key, Misfit> {
    let Value::Table(list) = value else {
        return Ok(Key::new([part_from_lua(value)?]).expect("there is a part"));
    };
    let parts = list.sequence_values().map(|part: mlua::Result<Value>| part_from_lua(&part?));
    match Key::new(parts.collect::<Result<Vec<_>, Misfit>>()?) {
        Some(key) => Ok(key),
        None => said("a key must have a part: give a number, text, or a list of them"),
    }
}

fn part_from_lua(value: &Value) -> Result<KeyPart, Misfit> {
    match value {
        Value::Integer(number) if is_exact(i128::from(*number)) => Ok(KeyPart::Number(*number)),
        Value::Integer(number) => {
            said(format!("the number {number} in a key may have been rounded; beyond 2^53 give it as text"))
        }
        Value::String(text) => Ok(KeyPart::new(&text_from_lua(text)?)),
        Value::Number(number) => said(format!("a part of a key is a whole number or text, not {number}")),
        other => said(format!("a part of a key is a whole number or text, not {}", kind(other))),
    }
}

/// Text as a function gives it.
pub(crate) fn text_from_lua(text: &LuaString) -> Result<String, Misfit> {
    match text.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => said(format!("the text {:?} is not UTF-8; only UTF-8 can be kept", text.to_string_lossy())),
    }
}

/// What the value is, in a word.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::LightUserData(_) => "db.null",
        other => other.type_name(),
    }
}

/// A value as a function sees it. `place` says where it is from.
pub(crate) fn to_lua(lua: &Lua, list: &Table, place: &str, value: &Json) -> Result<Value, Misfit> {
    if let Some(number) = inexact_number(value.as_str()) {
        return said(format!(
            "{place} has the number {number}, which a function cannot hold exactly; keep such numbers as text"
        ));
    }
    let parsed: Parsed = match serde_json::from_str(value.as_str()) {
        Ok(parsed) => parsed,
        Err(error) => return said(format!("{place} cannot be given to a function: {error}")),
    };
    Ok(build(lua, list, &parsed)?)
}

/// The first whole number that a Luau number would round.
fn inexact_number(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(start) = rest.find(|char: char| char == '"' || char == '-' || char.is_ascii_digit()) {
        rest = &rest[start..];
        let end = if rest.starts_with('"') { string_end(rest) } else { number_end(rest) };
        let token = &rest[..end];
        let is_whole = !token.contains(['"', '.', 'e', 'E']);
        if is_whole && !token.parse().is_ok_and(is_exact) {
            return Some(token);
        }
        rest = &rest[end..];
    }
    None
}

fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn number_end(text: &str) -> usize {
    let is_over = |char: char| !matches!(char, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    text.find(is_over).unwrap_or(text.len())
}

fn build(lua: &Lua, list: &Table, value: &Parsed) -> mlua::Result<Value> {
    Ok(match value {
        Parsed::Null => Value::NULL,
        Parsed::Bool(bool) => Value::Boolean(*bool),
        Parsed::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Parsed::String(text) => Value::String(lua.create_string(text)?),
        Parsed::Array(elements) => {
            let table = lua.create_table_with_capacity(elements.len(), 0)?;
            for element in elements {
                table.raw_push(build(lua, list, element)?)?;
            }
            table.set_metatable(Some(list.clone()))?;
            Value::Table(table)
        }
        Parsed::Object(members) => {
            let table = lua.create_table_with_capacity(0, members.len())?;
            for (name, member) in members {
                table.raw_set(name.as_str(), build(lua, list, member)?)?;
            }
            Value::Table(table)
        }
    })
}

/// Writes what functions give as JSON, at most so many bytes in one call.
pub(crate) struct Writer {
    bytes_left: u64,
    bytes_max: u64,
}

/// One value on its way.
struct Draft<'a> {
    writer: &'a mut Writer,
    list: &'a Table,
    out: String,
    /// Where in the value we are, `.lines[3]`, for what is said of it.
    path: String,
    depth: usize,
}

impl Writer {
    pub(crate) fn new(bytes_max: u64) -> Writer {
        Writer { bytes_left: bytes_max, bytes_max }
    }

    /// A value that a function gives as `place`.
    pub(crate) fn value(&mut self, list: &Table, place: &str, value: &Value) -> Result<Json, Misfit> {
        let mut draft = Draft { writer: self, list, out: String::new(), path: place.to_owned(), depth: 0 };
        draft.value(value)?;
        Ok(Json::trusted(&draft.out))
    }

    /// The fields of a document, by name.
    pub(crate) fn fields(&mut self, list: &Table, value: &Value) -> Result<Vec<FieldValue>, Misfit> {
        let Value::Table(table) = value else {
            return said(format!("a document is a table of fields, not {}", kind(value)));
        };
        let Shape::Object(names) = shape(list, "the document", table)? else {
            return said("a document is a table of fields with names, not a list");
        };
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            let member: Value = table.raw_get(name.as_str())?;
            self.take(name.len())?;
            let json = self.value(list, &name, &member)?;
            fields.push((name.into(), json));
        }
        Ok(fields)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Misfit> {
        match self.bytes_left.checked_sub(bytes as u64) {
            Some(left) => self.bytes_left = left,
            None => {
                let (what, name) = ("what the function answers and writes", "result_bytes_max");
                return Err(Misfit::Over(ScriptError::TooLarge { what, name, limit: self.bytes_max }));
            }
        }
        Ok(())
    }
}

impl Draft<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Misfit> {
        match value {
            Value::Nil => self.push("null"),
            Value::LightUserData(light) if light.0.is_null() => self.push("null"),
            Value::Boolean(bool) => self.push(if *bool { "true" } else { "false" }),
            Value::Integer(number) if is_exact(i128::from(*number)) => self.push(&number.to_string()),
            Value::Integer(number) => self.float(*number as f64),
            Value::Number(number) => self.float(*number),
            Value::String(text) => {
                let text = text_from_lua(text)?;
                self.text(&text)
            }
            Value::Table(table) => self.table(table),
            other => said(format!("{} is a {}, which JSON does not have", self.path, kind(other))),
        }
    }

    fn float(&mut self, number: f64) -> Result<(), Misfit> {
        match serde_json::Number::from_f64(number) {
            Some(_) if number == 0.0 => self.push("0"),
            Some(number) => self.push(&number.to_string()),
            None => said(format!("{} is {number}, which JSON does not have; keep it as text", self.path)),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Misfit> {
        self.push(&Parsed::from(text).to_string())
    }

    fn table(&mut self, table: &Table) -> Result<(), Misfit> {
        self.depth += 1;
        if self.depth > VALUE_DEPTH_MAX {
            return said(format!(
                "tables are nested deeper than {VALUE_DEPTH_MAX} levels; perhaps one holds itself"
            ));
        }
        match shape(self.list, &self.path, table)? {
            Shape::List(len) => self.elements(table, len)?,
            Shape::Object(names) => self.members(table, &names)?,
        }
        self.depth -= 1;
        Ok(())
    }

    fn elements(&mut self, table: &Table, len: usize) -> Result<(), Misfit> {
        let path_len = self.path.len();
        for index in 1..=len {
            self.push(if index == 1 { "[" } else { "," })?;
            self.path.push_str(&format!("[{index}]"));
            self.value(&table.raw_get(index)?)?;
            self.path.truncate(path_len);
        }
        self.push(if len == 0 { "[]" } else { "]" })
    }

    fn members(&mut self, table: &Table, names: &[String]) -> Result<(), Misfit> {
        let path_len = self.path.len();
        for (index, name) in names.iter().enumerate() {
            self.push(if index == 0 { "{" } else { "," })?;
            self.text(name)?;
            self.push(":")?;
            self.path.push('.');
            self.path.push_str(name);
            self.value(&table.raw_get(name.as_str())?)?;
            self.path.truncate(path_len);
        }
        self.push(if names.is_empty() { "{}" } else { "}" })
    }

    fn push(&mut self, text: &str) -> Result<(), Misfit> {
        self.writer.take(text.len())?;
        self.out.push_str(text);
        Ok(())
    }
}

/// What a table is in JSON.
enum Shape {
    /// Of so many elements.
    List(usize),
    /// With these members, in their order.
    Object(Vec<String>),
}

fn shape(list: &Table, path: &str, table: &Table) -> Result<Shape, Misfit> {
    let is_marked = table.metatable().is_some_and(|found| found.to_pointer() == list.to_pointer());
    let (len, mut numbers, mut names) = (table.raw_len(), 0, Vec::new());
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            Value::Integer(index) if (1..=len as i64).contains(&index) => numbers += 1,
            Value::Integer(index) => {
                return said(format!("{path} is a list with a hole before {index}; put db.null there"));
            }
            Value::String(name) => names.push(text_from_lua(&name)?),
            other => {
                return said(format!(
                    "{path} has a key that is neither a name nor a place in a list: {}",
                    kind(&other)
                ));
            }
        }
    }
    names.sort_unstable();
    match (numbers, names.is_empty()) {
        (0, true) if is_marked => Ok(Shape::List(0)),
        (0, _) if !is_marked => Ok(Shape::Object(names)),
        (_, true) if numbers == len => Ok(Shape::List(len)),
        (_, true) => said(format!("{path} is a list with a hole; put db.null there")),
        _ => said(format!("{path} is both a list and an object: it has the name {:?} too", names[0])),
    }
}
