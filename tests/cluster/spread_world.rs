//! The same documents on several shards and on one server, and the same questions to both. Knows nothing of how
//! shards answer.

use crate::{
    cluster::Cluster,
    harness::{Server, eventually},
    http::Reply,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const COLLECTIONS: [&str; 2] = ["user", "order"];
const FIELDS: [&str; 4] = ["a", "b", "c", "d"];

/// A simple source of numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A seed that is told, so that what it led to can be made again; `SPREAD_SEED` sets it.
    pub(crate) fn new(what: &str) -> Dice {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let given = std::env::var("SPREAD_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or(time.as_nanos() as u64);
        println!("{what}: SPREAD_SEED={seed}");
        Dice(seed)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    pub(crate) fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Several shards, and one server that has the same.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) single: Server,
    pub(crate) dice: Dice,
    pub(crate) keys: BTreeSet<(String, String)>,
}

impl World {
    pub(crate) fn new(what: &str, shards: usize, curr: Value) -> World {
        let dice = Dice::new(what);
        let mut cluster = Cluster::start(shards, curr);
        // One more that has none of the documents.
        cluster.add();
        wait_for_maps(&cluster);
        World { cluster, single: Server::start(&[]), dice, keys: BTreeSet::new() }
    }

    pub(crate) fn alone(&self) -> Store {
        Store::new(&self.single, NAMESPACE)
    }

    pub(crate) fn any_node(&mut self) -> Store {
        let nodes = self.cluster.addresses.len();
        let node = 1 + self.dice.below(nodes);
        self.cluster.store(node, NAMESPACE)
    }

    /// Some writes, each to both.
    pub(crate) fn write(&mut self, len: usize) {
        for _ in 0..len {
            let event = self.event();
            let node = self.any_node();
            let body = json!({ "events": [event] }).to_string();
            let (ours, theirs) =
                (node.send("POST", "write", &body), self.alone().send("POST", "write", &body));
            assert_eq!(code(&ours), code(&theirs), "{body}: {} {}", ours.body, theirs.body);
        }
    }

    fn event(&mut self) -> Value {
        let collection = *self.dice.pick(&COLLECTIONS);
        let key = self.key();
        self.keys.insert((collection.to_owned(), key_text(&key)));
        match self.dice.below(8) {
            0 => json!({ "type": "delete", "collection": collection, "key": key }),
            1 => json!({ "type": "restore", "collection": collection, "key": key }),
            2 => json!({ "type": "update", "collection": collection, "key": key, "fields": self.fields() }),
            _ => json!({ "type": "put", "collection": collection, "key": key, "fields": self.fields() }),
        }
    }

    fn key(&mut self) -> Value {
        match self.dice.below(4) {
            0 => json!(format!("k{}", self.dice.below(40))),
            1 => json!([format!("g{}", self.dice.below(4)), self.dice.below(10)]),
            _ => json!(self.dice.below(80) + 1),
        }
    }

    fn fields(&mut self) -> Value {
        let mut fields = serde_json::Map::new();
        for name in FIELDS {
            if !self.dice.one_in(4) {
                let value = self.value();
                fields.insert(name.to_owned(), value);
            }
        }
        fields.insert("e".to_owned(), json!(1));
        Value::Object(fields)
    }

    pub(crate) fn value(&mut self) -> Value {
        match self.dice.below(8) {
            0 => json!(self.dice.below(2) == 0),
            1 => json!(["x", self.dice.below(3)]),
            2 => json!(self.dice.below(20) as f64 / 4.0),
            3 | 4 => json!(format!("t{}", self.dice.below(9))),
            _ => json!(self.dice.below(12)),
        }
    }

    fn filter(&mut self, depth: usize) -> Value {
        match self.dice.below(if depth > 2 { 1 } else { 5 }) {
            1 => json!({ "and": [self.filter(depth + 1), self.filter(depth + 1)] }),
            2 => json!({ "or": [self.filter(depth + 1), self.filter(depth + 1)] }),
            3 => json!({ "not": self.filter(depth + 1) }),
            _ => {
                let field = *self.dice.pick(&FIELDS);
                let op = *self.dice.pick(&["=", "!=", "<", "<=", ">", ">="]);
                json!({ "field": field, "op": op, "value": self.value() })
            }
        }
    }

    fn question(&mut self) -> Value {
        let mut question = json!({ "collection": self.dice.pick(&COLLECTIONS) });
        if !self.dice.one_in(4) {
            question["filter"] = self.filter(0);
        }
        if self.dice.one_in(3) {
            question["deleted"] = json!(self.dice.pick(&["without", "only", "with"]));
        }
        question
    }

    fn wanted_fields(&mut self) -> Option<Value> {
        self.dice.one_in(2).then(|| {
            let len = self.dice.below(3);
            (0..len).map(|_| *self.dice.pick(&FIELDS)).collect::<BTreeSet<_>>().into_iter().collect()
        })
    }

    /// Asks something of both, page by page, and compares.
    pub(crate) fn ask(&mut self) {
        match self.dice.below(8) {
            0 | 1 => self.ask_filter(),
            2 => self.ask_list(),
            3 => self.ask_join(),
            4 => self.ask_get(),
            5 => {
                let mut question = self.question();
                question["field"] = json!(self.dice.pick(&FIELDS));
                let word = *self.dice.pick(&["min", "max"]);
                self.compare("POST", word, &question);
            }
            6 => {
                let question = self.question();
                let word = *self.dice.pick(&["count", "exists"]);
                self.compare("POST", word, &question);
            }
            _ => drop(self.compare("GET", "collections", &Value::Null)),
        }
    }

    fn ask_filter(&mut self) {
        let mut question = self.question();
        if let Some(fields) = self.wanted_fields() {
            question["fields"] = fields;
        }
        if self.dice.one_in(2) {
            let sorts = 1 + self.dice.below(2);
            let sort = (0..sorts)
                .map(|_| json!({ "field": self.dice.pick(&FIELDS), "descending": self.dice.one_in(2) }));
            question["sort"] = sort.collect();
        }
        question["limit"] = json!(1 + self.dice.below(30));
        self.pages("filter", question);
    }

    fn ask_list(&mut self) {
        let collection = *self.dice.pick(&COLLECTIONS);
        let limit = 1 + self.dice.below(30);
        let mut cursor = String::new();
        for _ in 0..1000 {
            let page =
                self.compare("GET", &format!("documents/{collection}?limit={limit}{cursor}"), &Value::Null);
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return,
            }
        }
        panic!("endless");
    }

    fn ask_join(&mut self) {
        let mut side = |collection: &str| {
            let mut side = json!({ "collection": collection, "field": self.dice.pick(&FIELDS) });
            if self.dice.one_in(2) {
                side["filter"] = self.filter(1);
            }
            if let Some(fields) = self.wanted_fields() {
                side["fields"] = fields;
            }
            side
        };
        let (left, right) = (side("user"), side("order"));
        let kind = *self.dice.pick(&["inner", "left"]);
        let limit = 1 + self.dice.below(60);
        self.pages("join", json!({ "left": left, "right": right, "kind": kind, "limit": limit }));
    }

    fn ask_get(&mut self) {
        let keys: Vec<_> = self.keys.iter().cloned().collect();
        let len = self.dice.below(12);
        let documents: Vec<Value> = (0..len)
            .map(|_| {
                let (collection, key) = self.dice.pick(&keys);
                json!({ "collection": collection, "key": key })
            })
            .collect();
        let deleted = *self.dice.pick(&["without", "only", "with"]);
        self.compare("POST", "get", &json!({ "documents": documents, "deleted": deleted }));
    }

    /// All pages of a question, each of which must be the same.
    fn pages(&mut self, word: &str, mut question: Value) {
        for _ in 0..2000 {
            let page = self.compare("POST", word, &question);
            match page["next"].as_str() {
                Some(next) => question["cursor"] = json!(next),
                None => return,
            }
        }
        panic!("endless: {question}");
    }

    /// The same question to a node and to the one server; gives what the node said.
    pub(crate) fn compare(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let node = self.any_node();
        let (ours, theirs) = (node.send(method, path, &body), self.alone().send(method, path, &body));
        assert_eq!(ours.status, theirs.status, "{method} {path} {body}: {} {}", ours.body, theirs.body);
        assert_eq!(plain(ours.json()), plain(theirs.json()), "{method} {path} {body}");
        ours.json()
    }
}

/// Tells others to stop when it goes, also if that is because something is wrong.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nodes that the first map does not name learn of it a little later.
pub(crate) fn wait_for_maps(cluster: &Cluster) {
    for node in 1..=cluster.addresses.len() {
        eventually("the node has a map", || !cluster.store(node, "_system").get("shard/map").is_null());
    }
}

fn code(reply: &Reply) -> Value {
    reply.json()["code"].clone()
}

pub(crate) fn key_text(key: &Value) -> String {
    match key {
        Value::Array(parts) => {
            parts.iter().map(|part| part.to_string().replace('"', "")).collect::<Vec<_>>().join(":")
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Without positions, which differ, as each shard counts its own.
pub(crate) fn plain(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.retain(|name, _| name != "position" && name != "created");
            members.iter_mut().for_each(|(_, member)| *member = plain(member.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = plain(item.take())),
        // One and one point zero are the same to min and max.
        Value::Number(number) => value = json!(number.as_f64()),
        _ => {}
    }
    value
}
