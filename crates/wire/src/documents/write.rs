//! What a writer says: events, position locks, and several requests in one call. Knows nothing of what becomes
//! of them.

use crate::{
    Code, WirePath,
    documents::{BodyError, Fields, FilterLimits, Named, WireFilter, WireKey, WireValue, read_field},
};
use lockwood_model::{DocumentKey, FieldPath, Filter};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// One write request, all of which is done, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    /// What to do, in order; each event sees what the ones before it did.
    pub events: Vec<WireEvent>,
    /// What must not have changed since it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<WireLock>,
    /// Who asks; any JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<WireValue>,
    /// Why; any JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<WireValue>,
}

/// The body of a write: one request with its members inline, or a list of them. All of them are done, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteCall {
    /// The requests; instead of a list of one its members can be given directly.
    pub requests: Vec<WriteRequest>,
    /// A name for this call: a call with the same name is answered with what the first one did.
    pub idempotency_key: Option<String>,
    /// Tokens of locks the writer holds, all of one owner. If one of them is over, nothing is done.
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    pub wait_ms: Option<u64>,
}

/// Something to be done to one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WireEvent {
    /// Brings it into being; it must never have been there.
    Create {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
        /// With these fields; those that are null are left out.
        #[schema(value_type = Object)]
        fields: Fields,
    },
    /// Writes some of its fields; it must be there.
    Update {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
        /// These get these values; null removes a field.
        #[serde(skip_serializing_if = "Named::is_empty")]
        #[schema(value_type = Object)]
        fields: Fields,
        /// These lists get these elements, unless they have them.
        #[serde(skip_serializing_if = "Named::is_empty")]
        #[schema(value_type = std::collections::HashMap<String, Vec<WireValue>>)]
        add: Named<Vec<WireValue>>,
        /// These lists lose these elements.
        #[serde(skip_serializing_if = "Named::is_empty")]
        #[schema(value_type = std::collections::HashMap<String, Vec<WireValue>>)]
        remove: Named<Vec<WireValue>>,
    },
    /// Makes it exactly this, be it there or not.
    Put {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
        /// All its fields; those that are null are left out.
        #[schema(value_type = Object)]
        fields: Fields,
    },
    /// Replaces one node of it, a field or something in a field, with all that is in it; it must be there, and
    /// so must be what the node is in.
    Set {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
        /// From the document down to the node; in lists the places count from 0, and the one behind the last
        /// makes the list longer.
        path: WirePath,
        /// What the node becomes.
        value: WireValue,
    },
    /// Removes one node of it; what comes after it in a list moves up.
    Unset {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
        /// From the document down to the node.
        path: WirePath,
    },
    /// Hides it; it must be there.
    Delete {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
    },
    /// Brings it back; it must be deleted.
    Restore {
        /// Where.
        collection: String,
        /// Under which key.
        key: WireKey,
    },
}

/// "What I read was valid at this position." A key alone is a document, a key and a field are that field, a
/// field alone is that field of every document of the collection, or of those that match the filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WireLock {
    /// The collection.
    pub collection: String,
    /// The document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<WireKey>,
    /// The field, or a path into it: `address.zip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Which documents of the collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WireFilter>,
    /// When it was read.
    pub position: u64,
}

/// What a position lock covers.
#[derive(Debug, Clone, PartialEq)]
pub enum LockTarget {
    /// A whole document.
    Document(DocumentKey),
    /// A field of a document.
    Field(DocumentKey, FieldPath),
    /// A field of every document of a collection, or of those that match a filter.
    CollectionField {
        /// The collection.
        collection: Box<str>,
        /// The field.
        field: FieldPath,
        /// Which documents.
        filter: Option<Filter>,
    },
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Written {
    /// The position of the last request.
    pub position: u64,
    /// The position of each request.
    pub positions: Vec<u64>,
    /// True if this was done before, by a call with the same idempotency key.
    pub replayed: bool,
}

/// A position lock that does not hold, and what broke it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokenLock {
    /// The lock as it was given.
    pub lock: WireLock,
    /// Where the write stands that broke it.
    pub position: u64,
    /// Who wrote, if that is known.
    #[serde(default)]
    pub user: Option<WireValue>,
    /// Why, if that is known.
    #[serde(default)]
    pub note: Option<WireValue>,
    /// When, if that is known.
    #[serde(default)]
    pub at: Option<String>,
}

impl From<WriteRequest> for WriteCall {
    fn from(request: WriteRequest) -> WriteCall {
        WriteCall { requests: vec![request], ..WriteCall::default() }
    }
}

impl WireEvent {
    /// The document it is about.
    pub fn at(&self) -> (&str, &WireKey) {
        match self {
            WireEvent::Create { collection, key, .. }
            | WireEvent::Update { collection, key, .. }
            | WireEvent::Put { collection, key, .. }
            | WireEvent::Set { collection, key, .. }
            | WireEvent::Unset { collection, key, .. }
            | WireEvent::Delete { collection, key }
            | WireEvent::Restore { collection, key } => (collection, key),
        }
    }
}

impl WireLock {
    /// What it covers.
    pub fn target(&self, limits: FilterLimits) -> Result<LockTarget, BodyError> {
        let collection: Box<str> = self.collection.as_str().into();
        let at = |key: &WireKey| DocumentKey { collection: collection.clone(), key: key.0.clone() };
        let field = self.field.as_deref().map(read_field).transpose()?;
        match (&self.key, field, &self.filter) {
            (Some(key), None, None) => Ok(LockTarget::Document(at(key))),
            (Some(key), Some(field), None) => Ok(LockTarget::Field(at(key), field)),
            (None, Some(field), filter) => {
                let filter = filter.as_ref().map(|filter| filter.read(limits)).transpose()?;
                Ok(LockTarget::CollectionField { collection, field, filter })
            }
            (Some(_), _, Some(_)) => Err(wrong("a position lock has a key or a filter, not both")),
            (None, None, _) => Err(wrong("a position lock needs a key, a field, or both")),
        }
    }
}

fn wrong(message: impl Into<String>) -> BodyError {
    BodyError::new(Code::BadBody, message)
}

impl Serialize for WriteCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Inline<'a> {
            #[serde(flatten)]
            request: &'a WriteRequest,
            #[serde(flatten)]
            terms: Terms<'a>,
        }
        #[derive(Serialize)]
        struct Listed<'a> {
            requests: &'a [WriteRequest],
            #[serde(flatten)]
            terms: Terms<'a>,
        }
        #[derive(Serialize)]
        struct Terms<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            idempotency_key: Option<&'a str>,
            #[serde(skip_serializing_if = "<[u64]>::is_empty")]
            tokens: &'a [u64],
            #[serde(skip_serializing_if = "Option::is_none")]
            wait_ms: Option<u64>,
        }
        let WriteCall { requests, idempotency_key, tokens, wait_ms } = self;
        let terms = Terms { idempotency_key: idempotency_key.as_deref(), tokens, wait_ms: *wait_ms };
        match &requests[..] {
            [request] => Inline { request, terms }.serialize(serializer),
            requests => Listed { requests, terms }.serialize(serializer),
        }
    }
}

impl utoipa::PartialSchema for WriteCall {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::{AllOfBuilder, Array, Object, ObjectBuilder, OneOfBuilder, Ref, Type};
        let request = || Ref::from_schema_name("WriteRequest");
        let terms = || {
            let number = || Object::with_type(Type::Integer);
            ObjectBuilder::new()
                .property("idempotency_key", Object::with_type(Type::String))
                .property("tokens", Array::new(number()))
                .property("wait_ms", number())
        };
        let list =
            terms().title(Some("WriteMany")).property("requests", Array::new(request())).required("requests");
        OneOfBuilder::new()
            .item(AllOfBuilder::new().title(Some("WriteOne")).item(request()).item(terms()))
            .item(list)
            .description(Some(
                "One request with its members inline, or a list of them, all of which are done, or none. A call \
                 with an idempotency key that was used before is answered with what the first one did. Tokens are of \
                 locks the writer holds: if one of them is over, nothing is done. wait_ms is how long to wait for \
                 others' locks.",
            ))
            .into()
    }
}

impl ToSchema for WriteCall {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        schemas.push((WriteRequest::name().into(), <WriteRequest as utoipa::PartialSchema>::schema()));
        WriteRequest::schemas(schemas);
    }
}

impl<'de> Deserialize<'de> for WriteCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WriteCall, D::Error> {
        CallMembers::deserialize(deserializer)?.into_call().map_err(BodyError::into_serde)
    }
}

/// The members of both forms of a call. The usual attributes for this would read values twice, and numbers
/// would not stay as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMembers {
    events: Option<Vec<WireEvent>>,
    locks: Option<Vec<WireLock>>,
    user: Option<WireValue>,
    note: Option<WireValue>,
    idempotency_key: Option<String>,
    #[serde(default)]
    tokens: Vec<u64>,
    wait_ms: Option<u64>,
    requests: Option<Vec<WriteRequest>>,
}

impl CallMembers {
    fn into_call(self) -> Result<WriteCall, BodyError> {
        let CallMembers { events, locks, user, note, idempotency_key, tokens, wait_ms, requests } = self;
        let requests = match (requests, events) {
            (None, None) => return Err(wrong("a write has events, or a list of requests that have them")),
            (None, Some(events)) => {
                vec![WriteRequest { events, locks: locks.unwrap_or_default(), user, note }]
            }
            (Some(requests), None) if locks.is_none() && user.is_none() && note.is_none() => requests,
            (Some(_), _) => {
                return Err(wrong(
                    "beside requests there are no events, locks, user or note; each request has its own",
                ));
            }
        };
        Ok(WriteCall { requests, idempotency_key, tokens, wait_ms })
    }
}

impl<'de> Deserialize<'de> for WireEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireEvent, D::Error> {
        EventMembers::deserialize(deserializer)?.into_event().map_err(BodyError::into_serde)
    }
}

/// The members of every kind of event.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventMembers {
    r#type: String,
    collection: String,
    key: WireKey,
    fields: Option<Fields>,
    add: Option<Named<Vec<WireValue>>>,
    remove: Option<Named<Vec<WireValue>>>,
    path: Option<WirePath>,
    #[serde(default, deserialize_with = "present")]
    value: Option<WireValue>,
}

/// Null is a value here.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WireValue>, D::Error> {
    WireValue::deserialize(deserializer).map(Some)
}

impl EventMembers {
    fn into_event(self) -> Result<WireEvent, BodyError> {
        let EventMembers { r#type, collection, key, fields, add, remove, path, value } = self;
        let wrong = |message: String| Err(BodyError::new(Code::BadEvents, message));
        let lists = add.is_some() || remove.is_some();
        let node = path.is_some() || value.is_some();
        match (r#type.as_str(), fields, path, value) {
            ("update", fields, None, None) => Ok(WireEvent::Update {
                collection,
                key,
                fields: fields.unwrap_or_default(),
                add: add.unwrap_or_default(),
                remove: remove.unwrap_or_default(),
            }),
            ("create", Some(fields), None, None) if !lists => {
                Ok(WireEvent::Create { collection, key, fields })
            }
            ("put", Some(fields), None, None) if !lists => Ok(WireEvent::Put { collection, key, fields }),
            ("set", None, Some(path), Some(value)) if !lists => {
                Ok(WireEvent::Set { collection, key, path, value })
            }
            ("unset", None, Some(path), None) if !lists => Ok(WireEvent::Unset { collection, key, path }),
            ("delete", None, None, None) if !lists => Ok(WireEvent::Delete { collection, key }),
            ("restore", None, None, None) if !lists => Ok(WireEvent::Restore { collection, key }),
            ("set", ..) => wrong("an event of the type set has a path and a value, and nothing else".into()),
            ("unset", ..) => wrong("an event of the type unset has a path, and nothing else".into()),
            ("create" | "put" | "update", ..) if node => {
                wrong(format!("an event of the type {} has no path and value; set has", r#type))
            }
            ("create" | "put", None, ..) => wrong(format!("an event of the type {} needs fields", r#type)),
            ("create" | "put", Some(_), ..) => {
                wrong(format!("an event of the type {} has no add or remove; update has", r#type))
            }
            ("delete" | "restore", ..) => {
                wrong(format!("an event of the type {} has no fields, add, remove, path or value", r#type))
            }
            _ => wrong(format!(
                "there is no event of the type {:?}; write create, update, put, set, unset, delete or restore",
                r#type
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::read_body;

    #[track_caller]
    fn check(text: &str) -> WriteCall {
        let call: WriteCall = read_body(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&call).unwrap(), text);
        call
    }

    #[test]
    fn nodes_are_named_by_paths() {
        let call = check(
            r#"{"events":[{"type":"set","collection":"u","key":"1","path":["a","0"],"value":null},{"type":"unset","collection":"u","key":"1","path":["a"]}]}"#,
        );
        let text = r#"{"events":[{"type":"set","collection":"u","key":1,"path":"/a/0","value":null},
            {"type":"unset","collection":"u","key":1,"path":"a"}]}"#;
        assert_eq!(read_body::<WriteCall>(text.as_bytes()).unwrap(), call);
        for event in [
            r#""type":"set","path":"a""#,
            r#""type":"set","value":1"#,
            r#""type":"set","path":"a","value":1,"fields":{}"#,
            r#""type":"unset","path":"a","value":1"#,
            r#""type":"unset""#,
            r#""type":"put","fields":{},"path":"a""#,
            r#""type":"update","value":1"#,
            r#""type":"delete","path":"a""#,
        ] {
            let text = format!(r#"{{"events":[{{"collection":"u","key":1,{event}}}]}}"#);
            assert_eq!(read_body::<WriteCall>(text.as_bytes()).unwrap_err().code, Code::BadEvents, "{event}");
        }
    }

    #[test]
    fn calls_are_read_and_written_alike() {
        check(
            r#"{"events":[{"type":"create","collection":"user","key":"42","fields":{"b":1.50,"a":null}}]}"#,
        );
        check(
            r#"{"events":[{"type":"update","collection":"u","key":"a:1","fields":{"b":1},"add":{"l":[1,"x"]},"remove":{"m":[]}}],"user":{"id":7},"note":"why","idempotency_key":"k1"}"#,
        );
        check(
            r#"{"events":[{"type":"put","collection":"u","key":"1","fields":{}},{"type":"delete","collection":"u","key":"2"},{"type":"restore","collection":"u","key":"3"}],"locks":[{"collection":"u","key":"1","position":5},{"collection":"u","field":"age","filter":{"field":"a","op":"=","value":1},"position":6}]}"#,
        );
        let call = check(r#"{"requests":[{"events":[]},{"events":[],"user":1}],"idempotency_key":"k"}"#);
        assert_eq!((call.requests.len(), call.idempotency_key.as_deref()), (2, Some("k")));
        check(r#"{"requests":[]}"#);
    }

    #[test]
    fn a_list_of_one_is_that_one() {
        let listed: WriteCall = read_body(br#"{"requests":[{"events":[]}],"idempotency_key":"k"}"#).unwrap();
        let inline: WriteCall = read_body(br#"{"events":[],"idempotency_key":"k"}"#).unwrap();
        assert_eq!(listed, inline);
    }

    #[track_caller]
    fn refused(text: &str, code: Code, part: &str) {
        let error = read_body::<WriteCall>(text.as_bytes()).unwrap_err();
        assert_eq!(error.code, code, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }

    #[test]
    fn mistakes_are_told() {
        refused("{}", Code::BadBody, "a write has events");
        refused(r#"{"events":[],"requests":[]}"#, Code::BadBody, "beside requests");
        refused(r#"{"requests":[],"user":1}"#, Code::BadBody, "beside requests");
        refused(
            r#"{"requests":[{"events":[],"idempotency_key":"k"}]}"#,
            Code::UnknownMember,
            "idempotency_key",
        );
        refused(r#"{"events":[],"lock":[]}"#, Code::UnknownMember, "`lock`");
        let event = |rest: &str| format!(r#"{{"events":[{{"collection":"a","key":1,{rest}}}]}}"#);
        refused(&event(r#""type":"upsert""#), Code::BadEvents, "there is no event of the type \"upsert\"");
        refused(&event(r#""type":"create""#), Code::BadEvents, "needs fields");
        refused(&event(r#""type":"delete","fields":{}"#), Code::BadEvents, "has no fields");
        refused(&event(r#""type":"put","fields":{},"add":{}"#), Code::BadEvents, "update has");
        refused(&event(r#""type":"put","fields":{},"if":1"#), Code::UnknownMember, "`if`");
        refused(&event(r#""type":"put","fields":{"a":1,"a":2}"#), Code::BadBody, "twice");
        refused(&event(r#""typ":"put","fields":{}"#), Code::UnknownMember, "`typ`");
    }

    #[test]
    fn what_a_lock_covers() {
        let limits = FilterLimits { filter_depth_max: 1, filter_conditions_max: 1, json_depth_max: 1 };
        let target = |rest: &str| {
            let text = format!(r#"{{"collection":"u",{rest}"position":1}}"#);
            read_body::<WireLock>(text.as_bytes()).unwrap().target(limits)
        };
        let at = DocumentKey::new("u", "1".parse().unwrap());
        assert_eq!(target(r#""key":1,"#), Ok(LockTarget::Document(at.clone())));
        assert_eq!(target(r#""key":1,"field":"f","#), Ok(LockTarget::Field(at, FieldPath::name("f"))));
        let all =
            LockTarget::CollectionField { collection: "u".into(), field: FieldPath::name("f"), filter: None };
        assert_eq!(target(r#""field":"f","#), Ok(all));
        assert!(target(r#""field":"f","filter":{"field":"a","op":"=","value":1},"#).is_ok());
        assert!(target("").is_err());
        assert!(target(r#""filter":{"and":[]},"#).is_err());
        assert!(target(r#""key":1,"filter":{"and":[]},"#).is_err());
        assert_eq!(target(r#""field":"f","filter":{},"#).unwrap_err().code, Code::BadFilter);
    }
}
