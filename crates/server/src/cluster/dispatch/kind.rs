//! What kind of request an address stands for, as far as it matters who answers. Knows nothing of shards.

use crate::{limits::Limits, native::Decoder};
use hyper::{Method, Uri};
use lockwood_model::DocumentKey;

/// Who has to do with a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Any node: it is about the node itself, or makes no sense.
    Local,
    /// This node, if another one asks.
    Internal,
    /// The owner of one document.
    Document(DocumentKey),
    /// The owner of all documents that the body names.
    Write,
    /// Something about a whole namespace.
    Namespace(String),
}

impl Kind {
    pub(super) fn of(method: &Method, uri: &Uri, limits: &Limits) -> Kind {
        let segments: Vec<String> = uri.path().split('/').skip(1).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["internal", ..] => Kind::Internal,
            ["v1", super::super::SYSTEM, ..] => Kind::Local,
            ["v1", all @ ("namespaces" | "trim")] => Kind::Namespace(all.to_owned()),
            ["v1", _, "documents" | "history", collection, key] => {
                Decoder(limits).document_at(collection, key).map_or(Kind::Local, Kind::Document)
            }
            ["v1", _, "write"] if method == Method::POST => Kind::Write,
            // Whoever is asked asks the shards that have something to do with it.
            ["v1", _, "shard" | "locks" | "tree" | "waits" | "operator-log" | "session", ..] => Kind::Local,
            ["v1", _, other, ..] => Kind::Namespace(other.to_owned()),
            _ => Kind::Local,
        }
    }
}

/// The namespace that an address names.
pub(super) fn namespace(uri: &Uri) -> Option<String> {
    uri.path().strip_prefix("/v1/")?.split('/').next().map(decoded)
}

/// A segment of an address without its escapes.
pub(super) fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
