//! Documents as they were. The current content is undone step by step; every so many steps there is a record
//! of the whole, so the way is short however old the document is. Knows nothing of collections.

use super::{
    keys,
    read::State,
    record::{Undo, encode_undo, read_undo},
};
use crate::store::{Order, Slice, Space, StoreError, after_prefix};
use lockwood_model::{Document, Field, Json, Position};
use std::{collections::BTreeSet, ops::Bound};

/// Every so many changes the whole document is kept.
const WHOLE_EVERY: u64 = 16;

/// How to get from what a document became back to what it was, if there was something.
pub(crate) fn undo(before: &Document, after: &Document) -> Vec<u8> {
    let whole = after.version.is_multiple_of(WHOLE_EVERY);
    let fields = if whole {
        before.present().map(|(name, value)| (name, Some(value.as_str()))).collect()
    } else {
        changed(before, after)
    };
    encode_undo(&Undo {
        position: before.position.0,
        deleted: before.deleted,
        version: before.version,
        whole,
        fields,
    })
}

/// The fields whose values differ, with the value each had.
fn changed<'a>(before: &'a Document, after: &'a Document) -> Vec<(&'a str, Option<&'a str>)> {
    let touched = after.fields.iter().filter(|field| field.position == after.position);
    let names: BTreeSet<&str> = touched.map(|field| &*field.name).collect();
    // A removed field may be forgotten at once, if there are many.
    let gone = before.present().map(|(name, _)| name).filter(|name| after.get(name).is_none());
    let names = names.into_iter().chain(gone).collect::<BTreeSet<&str>>().into_iter();
    names
        .map(|name| (name, before.get(name).map(Json::as_str)))
        .filter(|(name, value)| after.get(name).map(Json::as_str) != *value)
        .collect()
}

/// A document as it was after `position`, deleted or not; none if it was not there yet.
pub(crate) fn document_at(
    state: &State<'_>,
    key: &[u8],
    current: &Document,
    position: Position,
) -> Result<Option<Document>, StoreError> {
    if current.created > position {
        return Ok(None);
    }
    if current.position <= position {
        return Ok(Some(current.clone()));
    }
    let mut steps: Vec<Slice> = Vec::new();
    let range = (Bound::Included(keys::history(key, position.next())), after_prefix(key));
    for pair in state.snapshot.scan(Space::History, range, Order::Forward) {
        let (_, value) = pair?;
        let whole = read_undo(&value)?.whole;
        steps.push(value);
        if whole {
            break;
        }
    }
    let mut document = current.clone();
    for step in steps.iter().rev() {
        undo_step(&mut document, &read_undo(step)?);
    }
    Ok(Some(document))
}

/// Takes a document one change back. When each field was touched is not known of the past.
pub(crate) fn undo_step(document: &mut Document, undo: &Undo<'_>) {
    if undo.whole {
        document.fields.clear();
    }
    for (name, value) in &undo.fields {
        let found = document.fields.binary_search_by(|field| (*field.name).cmp(name));
        let value = value.map(Json::trusted);
        match found {
            Ok(index) => document.fields[index].value = value,
            Err(index) => {
                let field = Field { name: (*name).into(), position: Position::START, value };
                document.fields.insert(index, field);
            }
        }
    }
    document.fields.retain(|field| field.value.is_some());
    document.fields.iter_mut().for_each(|field| field.position = Position(undo.position));
    document.position = Position(undo.position);
    document.deleted = undo.deleted;
    document.version = undo.version;
    document.existence = document.created;
    document.hidden = Position::START;
}
