//! Answers, written straight into bytes. Knows nothing of routes.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use hyper::header;
use lockwood_model::{Depth, DocumentKey, META_DELETED, META_POSITION, Path, Position, Projection, node};
use lockwood_node::{refusals::no_node, shard::Found, trouble::Trouble};
use lockwood_storage::{DocumentRef, StoreError};
use lockwood_wire::{Code, WirePath};
use std::io::Write as _;

/// A body that is complete already.
pub(super) fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(body)).into_response()
}

/// Any answer that is small enough to be made of parts.
pub(crate) fn json_of<T: serde::Serialize>(answer: &T) -> Response {
    json(serde_json::to_vec(answer).expect("answers can be written"))
}

/// An answer with a document, or with null for none.
pub(in crate::native) fn document_or_null(
    position: Position,
    found: Option<&Found>,
) -> Result<Response, StoreError> {
    let mut body = open(position);
    body.extend_from_slice(b"\"document\":");
    match found {
        Some(found) => write_found(&mut body, found, None)?,
        None => body.extend_from_slice(b"null"),
    }
    body.push(b'}');
    Ok(json(body))
}

/// Writes a document as the interface shows it.
pub(super) fn write_found(
    out: &mut Vec<u8>,
    found: &Found,
    fields: Option<&Projection>,
) -> Result<(), StoreError> {
    write_document(out, &found.at, &found.document()?, fields);
    Ok(())
}

pub(super) fn write_document(
    out: &mut Vec<u8>,
    at: &DocumentKey,
    document: &DocumentRef<'_>,
    fields: Option<&Projection>,
) {
    out.extend_from_slice(b"{\"collection\":");
    write_text(out, &at.collection);
    out.extend_from_slice(b",\"key\":");
    write_text(out, &at.key.to_string());
    let (position, created, deleted) = (document.position(), document.created(), document.deleted());
    write!(out, ",\"position\":{position},\"created\":{created},\"deleted\":{deleted},\"value\":{{")
        .expect("memory can be written");
    match fields {
        None => write_members(out, document.fields()),
        Some(fields) => write_members(out, fields.fields(|name| document.get(name))),
    }
    out.extend_from_slice(b"}}");
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a str, impl AsRef<str>)>) {
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_ref().as_bytes());
    }
}

/// Writes a node of a document, and what of it is cut off.
pub(super) fn write_node(
    out: &mut Vec<u8>,
    at: &DocumentKey,
    document: &DocumentRef<'_>,
    (path, depth): (&Path, Depth),
) -> Result<(), Trouble> {
    let mut segments = path.segments();
    let whole;
    let node = match segments.next() {
        Some(field) => document.get(field).and_then(|value| node::find(value, segments)),
        None => {
            whole = whole_value(document);
            Some(whole.as_str())
        }
    };
    let node = node.ok_or_else(|| no_node(at, path))?;
    let (mut value, mut cut) = (String::new(), Vec::new());
    let levels = depth.limit().map_or(u64::MAX, u64::from);
    node::write_to_depth(node, levels, path, &mut value, &mut cut);
    out.extend_from_slice(b"\"node\":{\"collection\":");
    write_text(out, &at.collection);
    out.extend_from_slice(b",\"key\":");
    write_text(out, &at.key.to_string());
    out.extend_from_slice(b",\"path\":");
    write_parts(out, &WirePath(path.clone()));
    write!(out, ",\"position\":{},\"value\":{value}}},\"cut\":", document.position())
        .expect("memory can be written");
    write_parts(out, &cut.into_iter().map(WirePath).collect::<Vec<_>>());
    Ok(())
}

fn whole_value(document: &DocumentRef<'_>) -> String {
    let mut value = vec![b'{'];
    write_members(&mut value, document.fields());
    value.push(b'}');
    String::from_utf8(value).expect("names and values are text")
}

fn write_parts<T: serde::Serialize>(out: &mut Vec<u8>, parts: &T) {
    serde_json::to_writer(out, parts).expect("memory can be written");
}

/// A JSON string.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("memory can be written");
}

/// Starts an answer with the position of its snapshot.
pub(super) fn open(position: Position) -> Vec<u8> {
    format!("{{\"position\":{position},").into_bytes()
}

/// A purge of a namespace takes all history with it, and its positions go on.
pub(super) fn before_purge(namespace: &str, position: Position, purged: Position) -> Trouble {
    let message = format!(
        "the namespace {namespace:?} was purged at position {purged}, and nothing from before, such as position {position}, \
         is left; forget what you have of it, and follow it from position {purged}"
    );
    Trouble::new(Code::PositionTooOld, message)
}

/// The reserved fields are no part of a document's value, but can be asked for.
pub(super) fn is_reserved(field: &str) -> bool {
    field == META_DELETED || field == META_POSITION
}
