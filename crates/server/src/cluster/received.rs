//! Checks records that another shard sent as a client's input is checked: names, keys, JSON and positions. A node that is
//! broken or taken over must not make this one store what no client could have written. Knows nothing of who sent them.
//!
//! Sizes are held against the widest limits there are, not against those of this node: nodes may be configured
//! differently, and documents stay when limits are lowered.

use crate::native::Decoder;
use lockwood_model::{Document, DocumentKey, Json, Position};
use lockwood_node::{limits::Limits, shard::POSITION_MAX, trouble::Trouble};
use lockwood_storage::{Entry, Moved, MovedStep, StoreError, undo_fields};
use lockwood_wire::{Code, documents::WireKey};
use std::sync::LazyLock;

static WIDEST: LazyLock<Limits> = LazyLock::new(Limits::widest);

/// A record as another shard sent it.
pub(crate) fn read_entry(bytes: &[u8]) -> Result<Entry, Trouble> {
    let bad = |_: StoreError| Trouble::new(Code::BadBody, "the record is not what nodes send each other");
    let entry = Entry::decode(0, bytes).map_err(bad)?;
    check_entry(&entry)?;
    Ok(entry)
}

/// Whether a namespace may be called so.
pub(crate) fn check_namespace(name: &str) -> Result<(), Trouble> {
    let limit = WIDEST.namespace_bytes_max;
    if name.is_empty() || name.len() as u64 > limit {
        let message = format!("the name of a namespace has 1 to {limit} bytes, not {}", name.len());
        return Err(Trouble::new(Code::BadNamespace, message));
    }
    Ok(())
}

/// Whether an index may be on this field, or on what is inside it.
pub(crate) fn check_index(namespace: &str, collection: &str, field: &str) -> Result<(), Trouble> {
    check_namespace(namespace)?;
    decoder().collection(collection)?;
    decoder().path(field).map(drop)
}

fn check_entry(entry: &Entry) -> Result<(), Trouble> {
    match entry {
        Entry::Installed { namespace, horizon, documents, .. } => {
            check_namespace(namespace)?;
            check_position(*horizon)?;
            documents.iter().try_for_each(check_moved)
        }
        Entry::Unmarked { namespace, documents } => {
            check_namespace(namespace)?;
            documents.iter().try_for_each(check_at)
        }
        Entry::Leased { namespace, .. } => check_namespace(namespace),
        _ => Err(Trouble::new(Code::BadBody, "the record is not one that shards send each other")),
    }
}

fn decoder() -> Decoder<'static> {
    Decoder(&WIDEST)
}

fn check_position(position: Position) -> Result<(), Trouble> {
    if position.0 > POSITION_MAX {
        let message = format!("{position} is too large; positions are at most {POSITION_MAX}");
        return Err(Trouble::new(Code::BadBody, message));
    }
    Ok(())
}

fn check_moved(moved: &Moved) -> Result<(), Trouble> {
    check_at(&moved.at)?;
    moved.document.iter().try_for_each(check_document)?;
    moved.steps.iter().try_for_each(check_step)?;
    for answer in &moved.answers {
        check_idempotency_key(&answer.key)?;
        check_position(answer.first)?;
        check_position(answer.last)?;
    }
    Ok(())
}

fn check_step(step: &MovedStep) -> Result<(), Trouble> {
    check_position(step.position)?;
    check_notes(step.user.as_ref(), step.note.as_ref())?;
    let Some(undo) = &step.undo else { return Ok(()) };
    let bad = |_: StoreError| Trouble::new(Code::BadBody, "a step of a history cannot be read");
    let (position, fields) = undo_fields(undo).map_err(bad)?;
    check_position(position)?;
    for (name, value) in fields {
        decoder().field(name)?;
        value.map_or(Ok(()), check_json)?;
    }
    Ok(())
}

fn check_document(document: &Document) -> Result<(), Trouble> {
    check_position(document.position)?;
    check_position(document.created)?;
    for field in &document.fields {
        decoder().field(&field.name)?;
        check_position(field.position)?;
        field.value.as_ref().map_or(Ok(()), |value| check_json(value.as_str()))?;
    }
    // Fields are looked up by halving.
    if !document.fields.is_sorted_by(|a, b| a.name < b.name) {
        return Err(Trouble::new(Code::BadBody, "the fields of a document are not in order"));
    }
    Ok(())
}

fn check_at(at: &DocumentKey) -> Result<(), Trouble> {
    decoder().document(&at.collection, &WireKey(at.key.clone())).map(drop)
}

fn check_notes(user: Option<&Json>, note: Option<&Json>) -> Result<(), Trouble> {
    user.into_iter().chain(note).try_for_each(|json| check_json(json.as_str()))
}

fn check_json(text: &str) -> Result<(), Trouble> {
    match Json::read(text, WIDEST.json_depth_max as usize) {
        Ok(_) => Ok(()),
        Err(error) => Err(Trouble::new(Code::BadBody, format!("a value cannot be read: {error}"))),
    }
}

fn check_idempotency_key(key: &str) -> Result<(), Trouble> {
    let limit = WIDEST.idempotency_key_bytes_max;
    if key.len() as u64 > limit {
        return Err(Trouble::over("idempotency_key_bytes_max", limit, "the idempotency key is too long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::Change;

    fn moved(key: &str, fields: &[(&str, &str)], position: u64) -> Entry {
        let mut document = Document::unborn();
        let fields = fields.iter().map(|(name, value)| ((*name).into(), Json::trusted(value))).collect();
        document.apply(&Change::Created { fields }, Position(position));
        let at = DocumentKey::new("user", key.parse().unwrap());
        let moved = Moved { document: Some(document), ..Moved::nothing(&at) };
        let (namespace, horizon) = ("default".into(), Position::START);
        Entry::Installed { namespace, transition: 1, horizon, documents: vec![moved] }
    }

    #[track_caller]
    fn check_refused(entry: &Entry, code: Code) {
        assert_eq!(read_entry(&entry.encode()).unwrap_err().code, code, "{entry:?}");
    }

    #[test]
    fn records_that_a_client_could_have_written_are_taken() {
        let entry = moved("42", &[("a", "1"), ("b", "{\"c\":[null]}")], 7);
        assert_eq!(read_entry(&entry.encode()).unwrap(), entry);
    }

    #[test]
    fn invalid_json_names_keys_and_positions_are_refused() {
        check_refused(&moved("42", &[("a", "{\"c\":")], 7), Code::BadBody);
        check_refused(&moved("42", &[("a", &"[".repeat(200))], 7), Code::BadBody);
        check_refused(&moved("42", &[("", "1")], 7), Code::BadField);
        check_refused(&moved(&"k".repeat(5000), &[("a", "1")], 7), Code::OverLimit);
        check_refused(&moved("42", &[("a", "1")], u64::MAX), Code::BadBody);
        check_refused(&Entry::Raised { floor: Position(7) }, Code::BadBody);
        check_refused(&Entry::Unmarked { namespace: "".into(), documents: Vec::new() }, Code::BadNamespace);
        assert_eq!(read_entry(b"no record").unwrap_err().code, Code::BadBody);
    }

    #[test]
    fn a_history_that_cannot_be_read_is_refused() {
        let Entry::Installed { namespace, transition, horizon, mut documents } = moved("1", &[("a", "1")], 7)
        else {
            unreachable!("it was just made")
        };
        let (at, user, note) = (lockwood_model::Timestamp(1), None, None);
        documents[0].steps =
            vec![MovedStep { position: Position(7), undo: Some(b"x".to_vec()), at, user, note }];
        check_refused(&Entry::Installed { namespace, transition, horizon, documents }, Code::BadBody);
    }
}
