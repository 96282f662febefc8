//! Sets of JSON types, with whole numbers as a part of numbers. Knows nothing of schemas.

use serde_json::Value;
use std::fmt;

/// A set of JSON types, one bit each; `number` is whole numbers and those with a fraction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const NONE: Types = Types(0);
    pub(crate) const NULL: Types = Types(1);
    pub(crate) const BOOLEAN: Types = Types(2);
    pub(crate) const INTEGER: Types = Types(4);
    pub(crate) const NUMBER: Types = Types(4 | 8);
    pub(crate) const STRING: Types = Types(16);
    pub(crate) const ARRAY: Types = Types(32);
    pub(crate) const OBJECT: Types = Types(64);
    pub(crate) const ALL: Types = Types(127);

    /// Every name, the narrower before the wider.
    const NAMES: [(&str, Types); 7] = [
        ("null", Types::NULL),
        ("boolean", Types::BOOLEAN),
        ("integer", Types::INTEGER),
        ("number", Types::NUMBER),
        ("string", Types::STRING),
        ("array", Types::ARRAY),
        ("object", Types::OBJECT),
    ];

    /// What the keyword `type` says: one name or a list of them.
    pub(crate) fn read(value: &Value) -> Types {
        match value {
            Value::String(name) => Types::named(name),
            Value::Array(list) => list.iter().map(Types::read).fold(Types::NONE, Types::or),
            _ => Types::ALL,
        }
    }

    /// The type of a value; `1.0` is a whole number.
    pub(crate) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if is_whole(number) => Types::INTEGER,
            Value::Number(_) => Types(8),
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(crate) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn meets(self, other: Types) -> bool {
        !self.and(other).is_empty()
    }

    pub(crate) fn within(self, other: Types) -> bool {
        self.and(other) == self
    }

    /// The names that together are the set.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let whole_only = !Types::NUMBER.within(self);
        let is_named = |&(name, types): &(&str, Types)| match name {
            "integer" => whole_only && self.meets(types),
            "number" => self.meets(Types(8)),
            _ => self.meets(types),
        };
        Types::NAMES.iter().filter(|entry| is_named(entry)).map(|(name, _)| *name).collect()
    }

    fn named(name: &str) -> Types {
        Types::NAMES.iter().find(|(known, _)| *known == name).map_or(Types::NONE, |(_, types)| *types)
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names().as_slice() {
            [] => f.write_str("nothing"),
            _ if *self == Types::ALL => f.write_str("any type"),
            names => f.write_str(&names.join(" or ")),
        }
    }
}

impl fmt::Debug for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Types({self})")
    }
}
