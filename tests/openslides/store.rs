//! A server with the OpenSlides facade, and the words the tests use for its requests and answers. Knows the
//! routes and the shape of errors; what is right in which case is the tests' business.

use crate::{
    harness::Server,
    http::{Connection, JSON, Reply},
};
use serde_json::{Map, Value, json};

pub(crate) const READER: &str = "/internal/datastore/reader";
pub(crate) const WRITER: &str = "/internal/datastore/writer";

/// The types of errors that carry a message.
pub(crate) const INVALID_FORMAT: u64 = 1;
pub(crate) const INVALID_REQUEST: u64 = 2;
pub(crate) const DATASTORE_NOT_EMPTY: u64 = 8;

const FACADE: [&str; 2] = ["--openslides", "127.0.0.1:0,127.0.0.1:0"];

/// A server of the test's own and a connection to each of its sides.
pub(crate) struct Store {
    pub(crate) reader: Connection,
    pub(crate) writer: Connection,
    pub(crate) server: Server,
}

impl Store {
    pub(crate) fn start() -> Store {
        Store::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Store {
        Store::on(Server::start(&[&FACADE, flags].concat()))
    }

    fn on(server: Server) -> Store {
        let reader = Connection::open(server.openslides_reader());
        let writer = Connection::open(server.openslides_writer());
        Store { reader, writer, server }
    }

    /// Stops it and starts it again on the same data.
    pub(crate) fn restarted(self) -> Store {
        let Store { reader, writer, server } = self;
        drop((reader, writer));
        Store::on(server.stop().restart(&FACADE))
    }

    /// Kills it and starts it again on the same data.
    pub(crate) fn crashed(self, flags: &[&str]) -> Store {
        Store::on(self.server.kill().restart(&[&FACADE, flags].concat()))
    }

    pub(crate) fn ask_reader(&mut self, route: &str, body: &Value) -> Reply {
        self.reader.send("POST", &format!("{READER}/{route}"), Some(JSON), &body.to_string())
    }

    pub(crate) fn ask_writer(&mut self, route: &str, body: &Value) -> Reply {
        self.writer.send("POST", &format!("{WRITER}/{route}"), Some(JSON), &body.to_string())
    }

    /// The answer of the reader to a request that must succeed.
    #[track_caller]
    pub(crate) fn read(&mut self, route: &str, body: &Value) -> Value {
        let reply = self.ask_reader(route, body);
        assert_eq!(reply.status, 200, "{route} {body}: {reply:?}");
        reply.json()
    }

    pub(crate) fn write(&mut self, body: &Value) -> Reply {
        self.ask_writer("write", body)
    }

    /// Writes what must succeed; returns the last position.
    #[track_caller]
    pub(crate) fn written(&mut self, body: &Value) -> u64 {
        let reply = self.write(body);
        position(&reply).unwrap_or_else(|| panic!("{body}: {reply:?}"))
    }

    /// The same for events without locks.
    #[track_caller]
    pub(crate) fn apply(&mut self, events: &[Value]) -> u64 {
        self.written(&request(events))
    }

    pub(crate) fn get(&mut self, fqid: &str) -> Reply {
        self.ask_reader("get", &json!({ "fqid": fqid }))
    }

    /// That a model is live and exactly this.
    #[track_caller]
    pub(crate) fn has(&mut self, fqid: &str, fields: &Value, position: u64) {
        assert_is(&self.get(fqid), 200, &model(fields, position));
    }

    #[track_caller]
    pub(crate) fn lacks(&mut self, fqid: &str) {
        assert_is(&self.get(fqid), 400, &missing(fqid));
    }

    /// That nothing was ever stored.
    #[track_caller]
    pub(crate) fn is_empty(&mut self) {
        assert_eq!(self.read("get_everything", &json!({ "get_deleted_models": 3 })), json!({}));
        assert_eq!(self.position(), Value::Null);
    }

    /// The global position.
    #[track_caller]
    pub(crate) fn position(&mut self) -> Value {
        let body = json!({ "collection": "nothing", "filter": equals("f", &json!(1)) });
        self.read("count", &body)["position"].clone()
    }

    #[track_caller]
    pub(crate) fn reserve(&mut self, collection: &str, amount: u64) -> Value {
        let reply = self.ask_writer("reserve_ids", &json!({ "collection": collection, "amount": amount }));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }
}

/// What a successful write says in its header; its body is empty.
pub(crate) fn position(reply: &Reply) -> Option<u64> {
    let position = reply.header("x-lockwood-position")?.parse().ok()?;
    ((reply.status, reply.body.as_str()) == (201, "")).then_some(position)
}

pub(crate) fn request(events: &[Value]) -> Value {
    locking(events, &json!({}))
}

pub(crate) fn locking(events: &[Value], locks: &Value) -> Value {
    json!({ "user_id": 1, "information": {}, "locked_fields": locks, "events": events })
}

pub(crate) fn create(fqid: &str, fields: &Value) -> Value {
    json!({ "type": "create", "fqid": fqid, "fields": fields })
}

pub(crate) fn update(fqid: &str, fields: &Value) -> Value {
    json!({ "type": "update", "fqid": fqid, "fields": fields })
}

pub(crate) fn update_lists(fqid: &str, list_fields: &Value) -> Value {
    json!({ "type": "update", "fqid": fqid, "list_fields": list_fields })
}

pub(crate) fn delete(fqid: &str) -> Value {
    json!({ "type": "delete", "fqid": fqid })
}

pub(crate) fn restore(fqid: &str) -> Value {
    json!({ "type": "restore", "fqid": fqid })
}

/// The same object with one member more, or another value for it.
pub(crate) fn with(object: &Value, member: &str, value: &Value) -> Value {
    let mut object = object.clone();
    object[member] = value.clone();
    object
}

/// The same object with one member less.
pub(crate) fn without(object: &Value, member: &str) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove(member).unwrap_or_else(|| panic!("no {member} in {object}"));
    object
}

pub(crate) fn compare(field: &str, operator: &str, value: &Value) -> Value {
    json!({ "field": field, "operator": operator, "value": value })
}

pub(crate) fn equals(field: &str, value: &Value) -> Value {
    compare(field, "=", value)
}

/// A live model as it is read.
pub(crate) fn model(fields: &Value, position: u64) -> Value {
    read_as(fields, position, false)
}

/// A deleted model as it is read.
pub(crate) fn deleted_model(fields: &Value, position: u64) -> Value {
    read_as(fields, position, true)
}

fn read_as(fields: &Value, position: u64, deleted: bool) -> Value {
    with(&with(fields, "meta_position", &json!(position)), "meta_deleted", &json!(deleted))
}

pub(crate) fn missing(fqid: &str) -> Value {
    json!({ "error": { "type": 3, "type_verbose": "MODEL_DOES_NOT_EXIST", "fqid": fqid } })
}

pub(crate) fn exists(fqid: &str) -> Value {
    json!({ "error": { "type": 4, "type_verbose": "MODEL_EXISTS", "fqid": fqid } })
}

pub(crate) fn not_deleted(fqid: &str) -> Value {
    json!({ "error": { "type": 5, "type_verbose": "MODEL_NOT_DELETED", "fqid": fqid } })
}

pub(crate) fn locked(keys: &[&str]) -> Value {
    json!({ "error": { "type": 6, "type_verbose": "MODEL_LOCKED", "keys": keys } })
}

/// That the whole answer is this.
#[track_caller]
pub(crate) fn assert_is(reply: &Reply, status: u16, body: &Value) {
    assert_eq!(reply.status, status, "{reply:?} is not {body}");
    assert_eq!(reply.json(), *body);
}

/// That it is an error of this type with a message, and nothing more.
#[track_caller]
pub(crate) fn assert_refused(reply: &Reply, kind: u64, what: &str) {
    assert_eq!(reply.status, 400, "{what}: {reply:?}");
    let name = match kind {
        INVALID_FORMAT => "INVALID_FORMAT",
        INVALID_REQUEST => "INVALID_REQUEST",
        DATASTORE_NOT_EMPTY => "DATASTORE_NOT_EMPTY",
        _ => panic!("{kind} has no message"),
    };
    let answer = reply.json();
    let message = &answer["error"]["msg"];
    assert!(message.as_str().is_some_and(|text| !text.is_empty()), "{what}: {reply:?}");
    let whole = json!({ "error": { "type": kind, "type_verbose": name, "msg": message } });
    assert_eq!(answer, whole, "{what}");
}

/// That it is this status and nothing else.
#[track_caller]
pub(crate) fn assert_silent(reply: &Reply, status: u16) {
    assert_eq!((reply.status, reply.body.as_str()), (status, ""), "{reply:?}");
}

/// An object of the given members.
pub(crate) fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(members.into_iter().collect::<Map<String, Value>>())
}
