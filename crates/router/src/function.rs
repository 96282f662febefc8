//! Functions that give a key its shard. Knows nothing of maps, and leaves scripts to whoever can run them.

use crate::{MapError, MapProblem, ShardNo};
use lockwood_model::{Key, KeyPart};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use std::fmt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Which shard a key is on, counted from 1.
///
/// The answers are part of the stored data: a function that answered otherwise after an upgrade would lose
/// every document it places. The golden values in the tests hold them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "function", rename_all = "lowercase", deny_unknown_fields)]
pub enum Function {
    /// A hash, modulo the number of shards: even, but nearly every key moves when the number changes.
    Hash {
        /// How many shards it spreads over; left out, those of the list.
        #[serde(default, deserialize_with = "some_shards", skip_serializing_if = "is_zero")]
        shards: u32,
        /// What is hashed.
        #[serde(default)]
        by: By,
    },
    /// Jump consistent hash: even, and only the n-th part of the keys moves to an n-th shard.
    Jump {
        /// How many shards it spreads over; left out, those of the list.
        #[serde(default, deserialize_with = "some_shards", skip_serializing_if = "is_zero")]
        shards: u32,
        /// What is hashed.
        #[serde(default)]
        by: By,
    },
    /// The first part of the key, a number, modulo the number of shards; number 0 is on shard 1.
    Modulo {
        /// How many shards it spreads over; left out, those of the list.
        #[serde(default, deserialize_with = "some_shards", skip_serializing_if = "is_zero")]
        shards: u32,
    },
    /// By where the first part of the key stands in its order: numbers before text.
    Range {
        /// Ascending; the last one has no upper limit.
        bounds: Vec<Bound>,
    },
    /// One shard for every key.
    Constant {
        /// Which one.
        shard: u32,
    },
    /// A function of the user's own, run by [`Scripts`].
    Script {
        /// What it is called.
        name: String,
        /// Which version of it.
        version: u32,
        /// The text.
        source: String,
        /// The hex XXH3-128 of the source; left out, it is computed.
        #[serde(default)]
        hash: String,
    },
}

/// What a hash is taken of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The whole key without the collection, so that equal keys of different collections are together.
    #[default]
    Key,
    /// The first part of the key, so that `order:1` and `order:2` are together.
    First,
    /// Collection and key, so that equal keys of different collections are spread.
    Collection,
}

/// Keys below an upper limit, and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The first key part that is not below any more; none: everything.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "part")]
    pub below: Option<KeyPart>,
    /// Their shard.
    pub shard: u32,
}

/// Runs the functions that are scripts.
pub trait Scripts {
    /// What `function`, a [`Function::Script`], answers; or why it does not.
    fn shard(&self, function: &Function, collection: &str, key: &Key) -> Result<i64, String>;
}

/// Runs none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoScripts;

impl Scripts for NoScripts {
    fn shard(&self, _: &Function, _: &str, _: &Key) -> Result<i64, String> {
        Err("scripts are not run here".to_owned())
    }
}

impl Function {
    /// The shard of a key, not yet held against the number of shards; or why there is none.
    pub(crate) fn shard(&self, collection: &str, key: &Key, scripts: &dyn Scripts) -> Result<i64, String> {
        match self {
            Function::Hash { shards: 0, .. }
            | Function::Jump { shards: 0, .. }
            | Function::Modulo { shards: 0 } => Err("it has no shards".to_owned()),
            Function::Hash { shards, by } => Ok((hash(*by, collection, key) % u64::from(*shards)) as i64 + 1),
            Function::Jump { shards, by } => Ok(jump(hash(*by, collection, key), *shards) + 1),
            Function::Modulo { shards } => modulo(key, *shards),
            Function::Range { bounds } => range(bounds, key),
            Function::Constant { shard } => Ok(i64::from(*shard)),
            Function::Script { .. } => scripts.shard(self, collection, key),
        }
    }

    /// The highest shard it can answer; none if only running it can tell.
    pub fn shard_max(&self) -> Option<u32> {
        match self {
            Function::Hash { shards, .. } | Function::Jump { shards, .. } | Function::Modulo { shards } => {
                Some(*shards)
            }
            Function::Range { bounds } => bounds.iter().map(|bound| bound.shard).max(),
            Function::Constant { shard } => Some(*shard),
            Function::Script { .. } => None,
        }
    }

    /// The same with what was left out filled in: the number of shards, the hash of a script.
    pub fn filled(&self, len: usize) -> Function {
        let mut function = self.clone();
        match &mut function {
            Function::Hash { shards, .. } | Function::Jump { shards, .. } | Function::Modulo { shards } => {
                if *shards == 0 {
                    *shards = u32::try_from(len).unwrap_or(u32::MAX);
                }
            }
            Function::Script { source, hash, .. } if hash.is_empty() => *hash = script_hash(source),
            Function::Script { .. } | Function::Range { .. } | Function::Constant { .. } => {}
        }
        function
    }

    /// Whether it is well formed and stays within a list of `len` shards; `entry` is its name in errors.
    pub(crate) fn validate(&self, entry: &str, len: usize) -> Result<(), MapError> {
        match self {
            Function::Hash { shards, .. } | Function::Jump { shards, .. } | Function::Modulo { shards } => {
                within(&format!("{entry}.shards"), *shards, len)
            }
            Function::Range { bounds } => validate_bounds(&format!("{entry}.bounds"), bounds, len),
            Function::Constant { shard } => within(&format!("{entry}.shard"), *shard, len),
            Function::Script { source, hash, .. } => validate_script(entry, source, hash),
        }
    }

    pub(crate) fn from_json(entry: &str, value: &Value) -> Result<Function, MapError> {
        Function::deserialize(value).map_err(|error| MapError::json(entry, error))
    }
}

fn within(entry: &str, shard: u32, len: usize) -> Result<(), MapError> {
    if shard >= 1 && shard as usize <= len {
        return Ok(());
    }
    Err(MapError::new(entry, MapProblem::OutsideList { found: u64::from(shard), len }))
}

fn validate_bounds(entry: &str, bounds: &[Bound], len: usize) -> Result<(), MapError> {
    let Some(last) = bounds.last() else {
        return Err(MapError::new(entry, MapProblem::Empty("a last bound without an upper limit")));
    };
    let mut before: Option<&KeyPart> = None;
    for (index, bound) in bounds.iter().enumerate() {
        let entry = format!("{entry}[{index}]");
        within(&format!("{entry}.shard"), bound.shard, len)?;
        match &bound.below {
            None if index + 1 < bounds.len() => return Err(MapError::new(entry, MapProblem::BoundOpen)),
            Some(below) if before.is_some_and(|before| before >= below) => {
                return Err(MapError::new(entry, MapProblem::BoundOrder(part::text(below))));
            }
            below => before = below.as_ref(),
        }
    }
    if last.below.is_some() {
        return Err(MapError::new(format!("{entry}[{}]", bounds.len() - 1), MapProblem::BoundClosed));
    }
    Ok(())
}

fn validate_script(entry: &str, source: &str, hash: &str) -> Result<(), MapError> {
    let found = script_hash(source);
    if found == hash {
        return Ok(());
    }
    Err(MapError::new(format!("{entry}.hash"), MapProblem::ScriptHash { found, written: hash.to_owned() }))
}

fn script_hash(source: &str) -> String {
    format!("{:032x}", xxh3_128(source.as_bytes()))
}

/// The shard on which a namespace gets its home: the same for all that know the same shards, and seldom another one when
/// there are more. None if there are no shards.
pub fn pick_home(namespace: &str, shards: &[ShardNo]) -> Option<ShardNo> {
    let buckets = u32::try_from(shards.len()).unwrap_or(u32::MAX);
    let bucket = jump(xxh3_64(namespace.as_bytes()), buckets);
    shards.get(usize::try_from(bucket).ok()?).copied()
}

/// The hash of the canonical bytes of a key; equal keys have equal bytes, however they were written.
fn hash(by: By, collection: &str, key: &Key) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    match by {
        By::Key => key.parts().iter().for_each(|part| push_part(&mut bytes, part)),
        By::First => push_part(&mut bytes, first(key)),
        By::Collection => {
            push_text(&mut bytes, b'c', collection);
            key.parts().iter().for_each(|part| push_part(&mut bytes, part));
        }
    }
    xxh3_64(&bytes)
}

/// Tagged, and text with its length, so that no two lists of parts have the same bytes.
fn push_part(bytes: &mut Vec<u8>, part: &KeyPart) {
    match part {
        KeyPart::Number(number) => {
            bytes.push(b'n');
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        KeyPart::Text(text) => push_text(bytes, b't', text),
    }
}

fn push_text(bytes: &mut Vec<u8>, tag: u8, text: &str) {
    bytes.push(tag);
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Lamping and Veach, "A fast, minimal memory, consistent hash algorithm": the bucket, counted from 0.
pub(crate) fn jump(mut hash: u64, buckets: u32) -> i64 {
    let (mut bucket, mut next) = (-1_i64, 0_i64);
    while next < i64::from(buckets) {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((hash >> 33) + 1) as f64)) as i64;
    }
    bucket
}

fn modulo(key: &Key, shards: u32) -> Result<i64, String> {
    match first(key) {
        KeyPart::Number(number) => Ok(number.rem_euclid(i64::from(shards)) + 1),
        KeyPart::Text(text) => Err(format!("{text:?} is not a number")),
    }
}

fn range(bounds: &[Bound], key: &Key) -> Result<i64, String> {
    let part = first(key);
    let above = |bound: &Bound| bound.below.as_ref().is_some_and(|below| below <= part);
    let bound = bounds.get(bounds.partition_point(above));
    bound.map(|bound| i64::from(bound.shard)).ok_or_else(|| "it is above the last bound".to_owned())
}

fn first(key: &Key) -> &KeyPart {
    key.parts().first().expect("a key has at least one part")
}

fn is_zero(shards: &u32) -> bool {
    *shards == 0
}

/// Left out is 0 and filled in later; a 0 that was written is a mistake.
fn some_shards<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("shards: 0; leave it out for as many as the list has")),
        shards => Ok(shards),
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Hash { shards, by: By::Key } => write!(f, "hash over {shards}"),
            Function::Hash { shards, by } => write!(f, "hash of {by} over {shards}"),
            Function::Jump { shards, by: By::Key } => write!(f, "jump over {shards}"),
            Function::Jump { shards, by } => write!(f, "jump of {by} over {shards}"),
            Function::Modulo { shards } => write!(f, "modulo {shards}"),
            Function::Range { bounds } => write!(f, "range of {} bounds", bounds.len()),
            Function::Constant { shard } => write!(f, "constant {shard}"),
            Function::Script { name, version, .. } => write!(f, "script {name} version {version}"),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Key => "key",
            By::First => "first",
            By::Collection => "collection",
        })
    }
}

/// How a key part is written in JSON: a number, or text.
mod part {
    use super::*;

    pub(super) fn text(part: &KeyPart) -> String {
        match part {
            KeyPart::Number(number) => number.to_string(),
            KeyPart::Text(text) => format!("{text:?}"),
        }
    }

    pub(super) fn serialize<S: Serializer>(part: &Option<KeyPart>, serializer: S) -> Result<S::Ok, S::Error> {
        match part {
            None => serializer.serialize_none(),
            Some(KeyPart::Number(number)) => serializer.serialize_i64(*number),
            Some(KeyPart::Text(text)) => serializer.serialize_str(text),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<KeyPart>, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(KeyPart::new(&text))),
            Value::Number(number) if number.is_i64() => Ok(number.as_i64().map(KeyPart::Number)),
            other => Err(de::Error::custom(format!("below: {other} is neither a whole number nor text"))),
        }
    }
}
