//! What the tests of functions share: documents in memory, short ways to compile and call, and chance. Knows
//! nothing of what is tested.

use crate::{Documents, Invocation, Procedure, ScriptError, ScriptLimits, ShardFunction};
use lockwood_model::{DocumentKey, FieldValue, Json, Key};
use std::collections::BTreeMap;

/// Documents in memory, and the writes that came.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) documents: BTreeMap<DocumentKey, Vec<FieldValue>>,
    pub(crate) writes: Vec<String>,
    /// What every write is refused with, if it is.
    pub(crate) broken: Option<String>,
}

impl Shelf {
    pub(crate) fn with(at: &str, fields: &str) -> Shelf {
        let (collection, key) = at.split_once('/').unwrap();
        let at = DocumentKey::new(collection, key.parse().unwrap());
        Shelf { documents: BTreeMap::from([(at, fields_of(fields))]), ..Shelf::default() }
    }

    fn note(&mut self, what: &str, at: (&str, &Key), fields: &[FieldValue]) -> Result<(), String> {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.writes.push(format!("{what} {}/{} {}", at.0, at.1, fields.join(" ")).trim_end().to_owned());
        self.broken.clone().map_or(Ok(()), Err)
    }
}

fn fields_of(text: &str) -> Vec<FieldValue> {
    let members: BTreeMap<String, &serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
    members.into_iter().map(|(name, raw)| (name.into(), Json::read(raw.get(), 200).unwrap())).collect()
}

impl Documents for Shelf {
    fn get(&mut self, collection: &str, key: &Key) -> Result<Option<Vec<FieldValue>>, String> {
        Ok(self.documents.get(&DocumentKey::new(collection, key.clone())).cloned())
    }

    fn put(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        self.note("put", (collection, key), &fields)
    }

    fn insert(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        self.note("insert", (collection, key), &fields)
    }

    fn update(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        self.note("update", (collection, key), &fields)
    }

    fn delete(&mut self, collection: &str, key: &Key) -> Result<(), String> {
        self.note("delete", (collection, key), &[])
    }
}

/// A shard function whose body is this; it has `collection` and `key`.
pub(crate) fn shard_function(body: &str) -> Result<ShardFunction, ScriptError> {
    let source = format!("return function(collection, key) {body} end");
    ShardFunction::compile("test", &source, ScriptLimits::SHARD_FUNCTION)
}

/// What it answers for the key 7.
pub(crate) fn shard(body: &str) -> Result<i64, ScriptError> {
    shard_function(body)?.shard("orders", &Key::number(7))
}

/// A procedure whose body is this; it has `db`, `key` and `argument`.
pub(crate) fn procedure(body: &str) -> Result<Procedure, ScriptError> {
    procedure_within(body, ScriptLimits::PROCEDURE)
}

pub(crate) fn procedure_within(body: &str, limits: ScriptLimits) -> Result<Procedure, ScriptError> {
    Procedure::compile("test", &format!("return function(db, key, argument) {body} end"), limits)
}

/// What it answers for the key 7 without an argument.
pub(crate) fn run(body: &str, shelf: &mut Shelf) -> Result<String, ScriptError> {
    let key = Key::number(7);
    let call = Invocation { key: Some(&key), arguments: &[] };
    procedure(body)?.run(&call, shelf).map(|json| json.to_string())
}

/// What it answers where there are no documents.
pub(crate) fn answer(body: &str) -> Result<String, ScriptError> {
    run(body, &mut Shelf::default())
}

/// What it answers when it is given this.
pub(crate) fn given(body: &str, argument: &str) -> Result<String, ScriptError> {
    let arguments = [Json::read(argument, 200).unwrap()];
    let call = Invocation { key: None, arguments: &arguments };
    procedure(body)?.run(&call, &mut Shelf::default()).map(|json| json.to_string())
}

/// xorshift64*, the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
