//! What kind of request an address stands for, as far as it matters who answers. Knows nothing of shards.

use crate::native::Decoder;
use hyper::{Method, Uri};
use lockwood_model::DocumentKey;
use lockwood_node::{limits::Limits, territory::SYSTEM};
use lockwood_wire::documents::WireKey;
use serde::Deserialize;

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
    /// Whoever is needed for the one document that the body names; [`Kind::with_body`] says who that is.
    Operation(String),
    /// The shard of one document.
    Keyed(DocumentKey, Need),
    /// The home of the namespace, which decides what is registered there.
    Registered,
    /// Something about a whole namespace.
    Namespace(String),
}

/// What an operation on one key needs of the shard that carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The shard has the key, at least for reading.
    Read,
    /// That it is the owner, though nothing is written.
    Owner,
    /// That it is the owner, and writes.
    Write,
    /// That it is the owner, who finds out itself what is to be known before it answers.
    Call,
}

/// As much of the body of an operation as tells who carries it out.
#[derive(Deserialize)]
struct Addressed {
    collection: String,
    key: WireKey,
    mode: Option<String>,
}

impl Kind {
    pub(super) fn of(method: &Method, uri: &Uri, limits: &Limits) -> Kind {
        let segments: Vec<String> = uri.path().split('/').skip(1).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["internal", ..] => Kind::Internal,
            ["v1", SYSTEM, ..] => Kind::Local,
            // Every node says that it does not purge.
            ["v1", "purges"] | ["v1", _, "purge"] => Kind::Local,
            ["v1", all @ ("namespaces" | "trim")] => Kind::Namespace(all.to_owned()),
            ["v1", _, "documents" | "history" | "restore", collection, key, ..] => {
                Decoder(limits).document_at(collection, key).map_or(Kind::Local, Kind::Document)
            }
            ["v1", _, "write"] if method == Method::POST => Kind::Write,
            [
                "v1",
                _,
                "shard",
                name @ ("select" | "eselect" | "insert" | "replace" | "delete" | "update" | "call"),
            ] if method == Method::POST => Kind::Operation(name.to_owned()),
            ["v1", _, "shard", "procedures", ..] | ["v1", _, "schemas" | "schema-settings", ..] => {
                Kind::Registered
            }
            ["v1", _, "indexes", _, _] => Kind::Registered,
            // Whoever is asked asks the shards that have something to do with it.
            ["v1", _, "shard" | "locks" | "tree" | "waits" | "operator-log" | "session" | "grace", ..] => {
                Kind::Local
            }
            ["v1", _, other, ..] => Kind::Namespace(other.to_owned()),
            _ => Kind::Local,
        }
    }

    /// The same, once there is a body. If it makes no sense, any node can say so.
    pub(super) fn with_body(self, body: &[u8], limits: &Limits) -> Kind {
        let Kind::Operation(name) = &self else { return self };
        let Ok(Addressed { collection, key, mode }) = serde_json::from_slice(body) else {
            return Kind::Local;
        };
        let Ok(at) = Decoder(limits).document(&collection, &key) else { return Kind::Local };
        let need = match (name.as_str(), mode.as_deref()) {
            ("select", _) | ("eselect", Some("ro" | "r")) => Need::Read,
            ("eselect", Some("rw")) => Need::Owner,
            ("call", Some("ro" | "r")) => Need::Call,
            ("call", Some("rw")) | ("insert" | "replace" | "delete" | "update", _) => Need::Write,
            _ => return Kind::Local,
        };
        Kind::Keyed(at, need)
    }

    /// Whether it changes something, so that it must not be done twice.
    pub(super) fn writes(&self, method: &Method) -> bool {
        match self {
            Kind::Write | Kind::Keyed(_, Need::Write) => true,
            Kind::Document(_) | Kind::Registered => method != Method::GET,
            _ => false,
        }
    }

    /// The document that it reads, if that is all it does.
    pub(super) fn read_only(&self, method: &Method) -> Option<&DocumentKey> {
        match self {
            Kind::Document(at) => (method == Method::GET).then_some(at),
            Kind::Keyed(at, Need::Read | Need::Owner) => Some(at),
            _ => None,
        }
    }
}

/// The namespace that an address names.
pub(crate) fn namespace(uri: &Uri) -> Option<String> {
    uri.path().strip_prefix("/v1/")?.split('/').next().map(decoded)
}

/// A segment of an address without its escapes.
pub(crate) fn decoded(segment: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(target: &str, body: &str) -> Kind {
        let limits = Limits::default();
        Kind::of(&Method::POST, &target.parse().unwrap(), &limits).with_body(body.as_bytes(), &limits)
    }

    #[track_caller]
    fn check(operation: &str, body: &str, need: Option<Need>) {
        let at = DocumentKey::new("a", "x:7".parse().unwrap());
        let expected = need.map_or(Kind::Local, |need| Kind::Keyed(at, need));
        assert_eq!(kind(&format!("/v1/shop/shard/{operation}"), body), expected, "{operation} {body}");
    }

    #[test]
    fn who_carries_an_operation_out() {
        let body = r#"{"collection":"a","key":["x",7]}"#;
        let with = |mode: &str| format!(r#"{{"collection":"a","key":"x:7","mode":"{mode}","more":[{{}}]}}"#);
        check("select", body, Some(Need::Read));
        check("eselect", &with("ro"), Some(Need::Read));
        check("eselect", &with("r"), Some(Need::Read));
        check("eselect", &with("rw"), Some(Need::Owner));
        check("eselect", &with("w"), None);
        check("eselect", body, None);
        check("delete", body, Some(Need::Write));
        check("call", &with("rw"), Some(Need::Write));
        check("call", &with("ro"), Some(Need::Call));
        check("insert", r#"{"collection":"a","key":[]}"#, None);
        check("insert", "{", None);
        assert_eq!(kind("/v1/_system/shard/insert", body), Kind::Local);
        assert_eq!(kind("/v1/shop/shard/copy", ""), Kind::Local);
        for path in ["shard/procedures/f", "schemas/user", "schema-settings", "indexes/user/name"] {
            assert_eq!(kind(&format!("/v1/shop/{path}"), ""), Kind::Registered, "{path}");
        }
        assert_eq!(kind("/v1/shop/indexes", ""), Kind::Namespace("indexes".to_owned()));
    }
}
