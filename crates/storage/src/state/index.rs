//! Secondary indexes: where documents with a value in a field, or inside one, are found. Knows nothing of filters.

use super::{keys, read::State, record};
use crate::store::{Batch, Order, Range, Space, StoreError, after_prefix, with_prefix};
use lockwood_model::{Condition, Document, FieldPath, Operator};
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// So many documents are put into a new index at a time.
const FILL_LEN: usize = 1000;

/// Whether an index can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexState {
    /// Older documents are still being put into it.
    Building,
    /// It has every document.
    Ready,
}

/// A declared index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexInfo {
    /// Of which field, or of what inside one.
    pub field: FieldPath,
    /// Whether it can be used.
    pub state: IndexState,
    pub(crate) number: u32,
}

/// The indexes of a collection as they were kept before there were any of what is inside fields, and still are if
/// there is none: a rebuilt state has the same bytes.
type StoredFields<'a> = Vec<(&'a str, IndexState, u32)>;
/// The same with the names from the field down.
type StoredPaths<'a> = Vec<(Vec<&'a str>, IndexState, u32)>;

/// Tells lists with paths from those without.
const FORMAT_PATHS: u8 = 2;

pub(crate) fn encode_list(indexes: &[IndexInfo]) -> Vec<u8> {
    if indexes.iter().all(|index| index.field.is_top_level()) {
        let stored = indexes.iter().map(|index| (index.field.root(), index.state, index.number));
        return record::encode(&stored.collect::<StoredFields<'_>>());
    }
    let stored = indexes.iter().map(|index| (index.field.names().collect(), index.state, index.number));
    let stored = stored.collect::<StoredPaths<'_>>();
    postcard::to_extend(&stored, vec![FORMAT_PATHS]).expect("records can be encoded")
}

pub(crate) fn decode_list(bytes: &[u8]) -> Option<Vec<IndexInfo>> {
    if let Some((&FORMAT_PATHS, body)) = bytes.split_first() {
        let stored: StoredPaths<'_> = postcard::from_bytes(body).ok()?;
        let info = |(names, state, number): (Vec<&str>, _, _)| {
            Some(IndexInfo { field: FieldPath::from_names(names)?, state, number })
        };
        return stored.into_iter().map(info).collect();
    }
    let stored: StoredFields<'_> = record::decode(bytes)?;
    let info =
        |(field, state, number): (&str, _, _)| IndexInfo { field: FieldPath::name(field), state, number };
    Some(stored.into_iter().map(info).collect())
}

/// Moves a document from where it was to where it is now.
pub(crate) fn update(
    batch: &mut Batch,
    indexes: &[IndexInfo],
    key: &[u8],
    before: Option<&Document>,
    after: Option<&Document>,
) {
    for index in indexes {
        let place = |document: Option<&Document>| {
            let value = index.field.find(document?.get(index.field.root())?.as_str())?;
            Some(place(index.number, value, key))
        };
        let (old, new) = (place(before), place(after));
        if old == new {
            continue;
        }
        if let Some(old) = old {
            batch.remove(Space::Indexes, old);
        }
        if let Some(new) = new {
            batch.put(Space::Indexes, new, []);
        }
    }
}

fn place(number: u32, value: &str, key: &[u8]) -> Vec<u8> {
    let mut bytes = keys::index_value(number, value);
    // How long the value is, so that the document can be told from it again.
    let len = u32::try_from(bytes.len()).expect("values in an index are cut");
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// The key of the document at a place.
pub(crate) fn document_at(place: &[u8]) -> Option<&[u8]> {
    let (rest, len) = place.split_last_chunk::<4>()?;
    rest.get(u32::from_be_bytes(*len) as usize..)
}

/// Where everything lies that can fulfil a condition, if an index helps with it.
pub(crate) fn range(index: &IndexInfo, condition: &Condition) -> Option<Range> {
    if condition.value().is_null() {
        return None;
    }
    let value = keys::index_value(index.number, condition.value().as_str());
    let kind = keys::index_type(index.number, condition.value());
    let (least, most) = (Bound::Included(kind.clone()), after_prefix(&kind));
    Some(match condition.operator() {
        Operator::Equal => with_prefix(&value),
        Operator::Less | Operator::LessOrEqual => (least, after_prefix(&value)),
        Operator::Greater | Operator::GreaterOrEqual => (Bound::Included(value), most),
        Operator::Different | Operator::EqualFolded | Operator::Like => return None,
    })
}

/// Puts some more documents into an index that is being built. Gives what to pass next time, or nothing when
/// it is done.
pub(crate) fn fill(
    state: &State<'_>,
    batch: &mut Batch,
    (namespace, collection): (u32, &str),
    index: &IndexInfo,
    after: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let (_, end) = with_prefix(&keys::collection(namespace, collection));
    let start = match after {
        None => Bound::Included(keys::collection(namespace, collection)),
        Some(key) => Bound::Excluded(key),
    };
    let mut last = None;
    for pair in state.snapshot.scan(Space::Documents, (start, end), Order::Forward).take(FILL_LEN) {
        let (key, value) = pair?;
        let document = record::DocumentRef::read(&value)?;
        if let Some(value) = document.get(index.field.root()).and_then(|value| index.field.find(value)) {
            batch.put(Space::Indexes, place(index.number, value, &key), []);
        }
        last = Some(key.to_vec());
    }
    Ok(last)
}
