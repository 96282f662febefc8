//! The visible behaviours of box.shard, one by one, as its own tests had them: two nodes, text keys, an odd first
//! byte belongs to shard 2 and an even one to shard 1; `prev` is the mirror image. Only the second one is another: the number
//! that a node is given is a preference, so it cannot be in the way of requests.

use crate::{
    cluster::{Cluster, at_shard},
    harness::{Server, eventually},
    store::Store,
};
use serde_json::{Value, json};

/// `a` has an odd first byte, `b` an even one.
const KEYS: [(&str, usize); 2] = [("a", 2), ("b", 1)];

fn curr() -> Value {
    script("odd_second", "return function(collection, key) return string.byte(key, 1) % 2 + 1 end")
}

fn prev() -> Value {
    script("odd_first", "return function(collection, key) return 2 - string.byte(key, 1) % 2 end")
}

fn script(name: &str, source: &str) -> Value {
    json!({ "function": "script", "name": name, "version": 1, "source": source })
}

/// Two nodes with a map.
struct Pair(Cluster);

impl Pair {
    fn start() -> Pair {
        let pair = Pair(Cluster::nodes(2));
        let list: Vec<Value> = pair.0.addresses.iter().map(|address| host(address)).collect();
        pair.config(json!({ "list": list, "curr": curr() }));
        pair
    }

    /// The same with a record of each shard on the other one, as if they had been there before.
    fn start_mirrored() -> Pair {
        let pair = Pair::start();
        pair.place_mirrored();
        pair
    }

    fn place_mirrored(&self) {
        for (key, owner) in KEYS {
            let body = json!({ "collection": "user", "key": key, "fields": { "from": "prev" } });
            let path = at_shard("raw/insert?operator=test", 3 - owner);
            self.node(3 - owner).post(&format!("shard/{path}"), &body);
        }
    }

    fn node(&self, number: usize) -> Store {
        self.0.store(number, "shop")
    }

    #[track_caller]
    fn config(&self, change: Value) -> Value {
        self.node(1).post("shard/config", &change)
    }

    /// An operation through a node; its document.
    #[track_caller]
    fn ask(&self, node: usize, operation: &str, key: &str, more: Value) -> Value {
        let mut body = json!({ "collection": "user", "key": key });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.node(node).post(&format!("shard/{operation}"), &body)["document"].clone()
    }

    /// The fields of a document through a node.
    #[track_caller]
    fn select(&self, node: usize, key: &str) -> Value {
        self.ask(node, "select", key, json!({}))["value"].clone()
    }

    /// The fields of a document as a shard has it, whether it owns its key or not.
    #[track_caller]
    fn raw(&self, shard: usize, key: &str) -> Value {
        self.raw_by(shard, shard, key)
    }

    #[track_caller]
    fn raw_by(&self, node: usize, shard: usize, key: &str) -> Value {
        self.ask(node, &at_shard("raw/select?operator=test", shard), key, json!({}))["value"].clone()
    }

    /// Tells a node which shard it prefers to own. A shard that moves at once may take the answer with it.
    fn prefers(&self, node: usize, this: usize) {
        let change = json!({ "this": this }).to_string();
        eventually("it is noted", || {
            let reply = self.node(node).send("POST", "shard/config", &change);
            assert!([200, 503].contains(&reply.status), "{}", reply.body);
            reply.status == 200 && reply.json()["node"] == format!("n{node}") && reply.json()["this"] == this
        });
    }

    fn len(&self, node: usize) -> Value {
        let path = at_shard("raw/len?operator=test", node);
        self.node(node).post(&format!("shard/{path}"), &json!({ "collection": "user" }))["len"].clone()
    }

    fn is_valid(&self, node: usize) -> bool {
        self.node(node).get("shard/is_valid")["valid"] == true
    }

    /// What a step by hand reports on a node.
    #[track_caller]
    fn step(&self, node: usize, step: &str) -> Value {
        self.node(node).post(&format!("shard/{}", at_shard(step, node)), &json!({}))
    }
}

fn host(address: &str) -> Value {
    json!([{ "mode": "rw", "weight": 1, "address": address }])
}

#[test]
fn behaviour_01_the_schema_is_valid_once_it_is_configured() {
    let pair = Pair(Cluster::nodes(2));
    assert!(!pair.is_valid(1) && !pair.is_valid(2));
    // A namespace that is used before there is a map is whole, on one shard, which has all of its keys.
    let whole = pair.0.store(1, "early");
    let body = json!({ "collection": "user", "key": "a" });
    assert_eq!(whole.post("shard/select", &body)["document"], Value::Null);
    let list: Vec<Value> = pair.0.addresses.iter().map(|address| host(address)).collect();
    let done = pair.config(json!({ "list": list, "curr": curr() }));
    assert_eq!(done["ok"], 1, "{done}");
    assert!(pair.is_valid(1) && pair.is_valid(2));
}

#[test]
fn behaviour_02_this_is_what_a_node_prefers_and_a_wrong_one_is_refused() {
    let mut pair = Pair::start();
    for (wrong, said) in [(json!(3), "this: 3: there are shards 1 to 2"), (json!("a"), "this: the number of")]
    {
        let problem = pair.node(1).refuses("POST", "shard/config", &json!({ "this": wrong }), 400, "bad_map");
        assert!(problem["detail"].as_str().unwrap().starts_with(said), "{problem}");
    }
    // Whatever a node prefers, any node answers for any shard.
    for (first, second) in [(2, 1), (1, 2), (1, 0)] {
        pair.prefers(1, first);
        pair.prefers(2, second);
        eventually("nodes own what they prefer", || {
            pair.0.owner(first) == 1 && (second == 0 || pair.0.owner(second) == 2)
        });
        for (key, owner) in KEYS {
            let fields = json!({ "fields": { "this": first } });
            pair.ask(2, "replace", key, fields);
            assert_eq!(pair.raw(owner, key), json!({ "this": first }));
        }
    }
    // A proxy owns nothing, so nothing is lost with it.
    eventually("a proxy owns nothing", || (1..=2).all(|shard| pair.0.owner(shard) == 1));
    pair.0.kill(2);
    for (key, owner) in KEYS {
        pair.ask(1, "delete", key, json!({}));
        pair.ask(1, "insert", key, json!({ "fields": { "k": key } }));
        assert_eq!(pair.raw_by(1, owner, key), json!({ "k": key }));
        assert_eq!(pair.raw_by(1, 3 - owner, key), Value::Null);
    }
}

/// It is shard 1, whatever it is told.
#[test]
fn behaviour_02_of_a_single_server() {
    let server = Server::start(&[]);
    let alone = Store::new(&server, "shop");
    let done = alone.post("shard/config", &json!({ "this": 1 }));
    assert_eq!((&done["ok"], &done["this"], &done["epoch"]), (&json!(1), &json!(1), &json!(0)), "{done}");
    for number in [0, 2] {
        let problem = alone.refuses("POST", "shard/config", &json!({ "this": number }), 400, "bad_map");
        let said = problem["detail"].as_str().unwrap();
        assert!(said.contains("a single server is shard 1") && said.contains("--cluster"), "{said}");
    }
    let mapped = json!({ "this": 1, "list": [host("a:1")], "curr": curr() });
    alone.refuses("POST", "shard/config", &mapped, 409, "not_sharded");
}

#[test]
fn behaviour_03_inserts_and_replaces_answer_the_record_and_put_it_on_its_shard() {
    let pair = Pair::start();
    for (operation, value) in [("insert", 1), ("replace", 2)] {
        for (node, (key, owner)) in [(1, KEYS[0]), (1, KEYS[1])] {
            let fields = json!({ "fields": { "v": value } });
            let document = pair.ask(node, operation, key, fields);
            assert_eq!(document["value"], json!({ "v": value }), "{document}");
            assert_eq!(pair.raw(owner, key), json!({ "v": value }));
            assert_eq!(pair.raw(3 - owner, key), Value::Null);
        }
    }
    let body = json!({ "collection": "user", "key": "a", "fields": {} });
    pair.node(1).refuses("POST", "shard/insert", &body, 409, "document_exists");
}

#[test]
fn behaviour_04_both_nodes_find_the_keys_of_both_shards() {
    let pair = Pair::start();
    for (key, _) in KEYS {
        pair.ask(1, "insert", key, json!({ "fields": { "k": key } }));
        for node in [1, 2] {
            assert_eq!(pair.select(node, key), json!({ "k": key }));
        }
    }
    assert_eq!(pair.select(1, "c"), Value::Null);
}

#[test]
fn behaviour_05_a_delete_answers_the_record_and_then_nothing() {
    let pair = Pair::start();
    for (key, _) in KEYS {
        pair.ask(1, "insert", key, json!({ "fields": { "k": key } }));
        assert_eq!(pair.ask(2, "delete", key, json!({}))["value"], json!({ "k": key }));
        assert_eq!(pair.ask(2, "delete", key, json!({})), Value::Null);
        assert_eq!(pair.select(1, key), Value::Null);
        pair.ask(1, "insert", key, json!({ "fields": { "k": "again" } }));
    }
}

#[test]
fn behaviour_06_an_update_answers_the_new_record_and_changes_the_owners_only() {
    let pair = Pair::start_mirrored();
    for (key, owner) in KEYS {
        pair.ask(1, "insert", key, json!({ "fields": { "n": 1 } }));
        let update = json!({ "format": "+p=p", "arguments": ["n", 5, "t", "x"] });
        assert_eq!(pair.ask(2, "update", key, update)["value"], json!({ "n": 6, "t": "x" }));
        assert_eq!(pair.raw(owner, key), json!({ "n": 6, "t": "x" }));
        assert_eq!(pair.raw(3 - owner, key), json!({ "from": "prev" }));
    }
}

#[test]
fn behaviour_07_when_everything_is_deleted_both_shards_are_empty() {
    let pair = Pair::start();
    let keys: Vec<String> = ('a'..='z').map(String::from).collect();
    for key in &keys {
        pair.ask(1, "insert", key, json!({ "fields": {} }));
    }
    assert_eq!((pair.len(1), pair.len(2)), (json!(13), json!(13)));
    for key in &keys {
        pair.ask(2, "delete", key, json!({}));
    }
    assert_eq!((pair.len(1), pair.len(2)), (json!(0), json!(0)));
}

#[test]
fn behaviour_08_without_prev_records_on_the_old_shard_are_not_seen() {
    let pair = Pair::start_mirrored();
    for (key, owner) in KEYS {
        assert_eq!(pair.select(1, key), Value::Null);
        assert_eq!(pair.raw(3 - owner, key), json!({ "from": "prev" }), "though they are there");
    }
}

#[test]
fn behaviour_09_with_prev_they_are() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for node in [1, 2] {
        assert!(pair.is_valid(node));
        for (key, _) in KEYS {
            assert_eq!(pair.select(node, key), json!({ "from": "prev" }));
        }
    }
}

#[test]
fn behaviour_10_what_is_on_prev_only_cannot_be_inserted() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for (key, _) in KEYS {
        let body = json!({ "collection": "user", "key": key, "fields": {} });
        pair.node(1).refuses("POST", "shard/insert", &body, 409, "document_exists");
    }
    pair.ask(1, "insert", "c", json!({ "fields": {} }));
}

#[test]
fn behaviour_11_a_replace_does_not_touch_prev() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for (key, owner) in KEYS {
        let document = pair.ask(1, "replace", key, json!({ "fields": { "from": "curr" } }));
        assert_eq!(document["value"], json!({ "from": "curr" }));
        assert_eq!(pair.select(2, key), json!({ "from": "curr" }));
        assert_eq!(pair.raw(3 - owner, key), json!({ "from": "prev" }));
    }
}

#[test]
fn behaviour_12_without_the_new_copy_the_old_one_is_seen_again() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for (key, owner) in KEYS {
        pair.ask(1, "replace", key, json!({ "fields": { "from": "curr" } }));
        assert_eq!(
            pair.ask(owner, &at_shard("raw/delete?operator=test", owner), key, json!({}))["value"],
            json!({ "from": "curr" })
        );
        assert_eq!(pair.select(1, key), json!({ "from": "prev" }));
        // A delete that is not raw is remembered.
        assert_eq!(pair.ask(1, "delete", key, json!({}))["value"], json!({ "from": "prev" }));
        assert_eq!(pair.select(1, key), Value::Null);
    }
}

#[test]
fn behaviour_13_an_update_brings_a_record_over_from_prev() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for (key, owner) in KEYS {
        let update = json!({ "format": "!p", "arguments": ["more", 1] });
        let updated = json!({ "from": "prev", "more": 1 });
        assert_eq!(pair.ask(1, "update", key, update)["value"], updated);
        assert_eq!(pair.raw(3 - owner, key), json!({ "from": "prev" }));
        assert_eq!(pair.select(2, key), updated);
    }
    let none = json!({ "format": "=p", "arguments": ["more", 1] });
    assert_eq!(pair.ask(1, "update", "z", none), Value::Null);
}

#[test]
fn behaviour_14_cleanup_has_to_wait_until_prev_is_gone() {
    let pair = Pair::start_mirrored();
    pair.config(json!({ "prev": prev() }));
    for (key, _) in KEYS {
        pair.ask(1, "update", key, json!({ "format": "!p", "arguments": ["more", 1] }));
    }
    for node in [1, 2] {
        let problem = pair.node(node).refuses(
            "POST",
            &format!("shard/{}", at_shard("cleanup", node)),
            &json!({}),
            409,
            "resharding",
        );
        assert!(problem["detail"].as_str().unwrap().contains("resharding is not done"), "{problem}");
    }
    let problem = pair.node(1).refuses("POST", "shard/config", &json!({ "prev": false }), 409, "not_copied");
    assert!(problem["detail"].as_str().unwrap().contains("shard 1 has not finished copying"), "{problem}");
    pair.config(json!({ "prev": false, "force": true }));
    for node in [1, 2] {
        let row = json!({ "namespace": "shop", "collection": "user", "removed": 1 });
        assert_eq!(pair.step(node, "cleanup"), json!([row]));
    }
    for (key, _) in KEYS {
        assert_eq!(pair.select(1, key), json!({ "from": "prev", "more": 1 }));
    }
}

#[test]
fn behaviour_15_copy_reports_what_it_copied_and_then_nothing() {
    let pair = Pair::start_mirrored();
    let problem = pair.node(1).refuses("POST", "shard/copy", &json!({}), 409, "resharding");
    assert!(problem["detail"].as_str().unwrap().contains("resharding is done already"), "{problem}");
    pair.config(json!({ "prev": prev() }));
    for node in [1, 2] {
        for copied in [1, 0] {
            let row = json!({ "namespace": "shop", "collection": "user", "copied": copied });
            assert_eq!(pair.step(node, "copy"), json!([row]));
        }
    }
}

#[test]
fn behaviour_16_in_the_end_records_are_on_their_new_shards_only() {
    let pair = Pair::start_mirrored();
    // Twice, because a second time must not be held up by what is left of the first.
    for _ in 0..2 {
        pair.config(json!({ "prev": prev() }));
        for node in [1, 2] {
            pair.step(node, "copy");
        }
        pair.config(json!({ "prev": false }));
        for (key, owner) in KEYS {
            assert_eq!(pair.raw(3 - owner, key), json!({ "from": "prev" }), "not yet cleaned up");
        }
        for node in [1, 2] {
            pair.step(node, "cleanup");
        }
        for (key, owner) in KEYS {
            assert_eq!(pair.raw(3 - owner, key), Value::Null);
            assert_eq!(pair.raw(owner, key), json!({ "from": "prev" }));
            assert_eq!(pair.select(1, key), json!({ "from": "prev" }));
            assert_eq!(pair.select(2, key), json!({ "from": "prev" }));
            pair.ask(owner, &at_shard("raw/delete?operator=test", owner), key, json!({}));
        }
        pair.place_mirrored();
    }
}

#[test]
fn what_owners_have_counts_when_prev_is_given_later() {
    let pair = Pair::start_mirrored();
    for (key, _) in KEYS {
        pair.ask(1, "insert", key, json!({ "fields": { "from": "curr" } }));
    }
    pair.ask(1, "insert", "c", json!({ "fields": { "from": "curr" } }));
    pair.config(json!({ "prev": prev() }));
    for key in ["a", "b", "c"] {
        assert_eq!(pair.select(2, key), json!({ "from": "curr" }));
    }
    for node in [1, 2] {
        assert_eq!(pair.step(node, "copy")[0]["copied"], 0);
    }
    pair.config(json!({ "prev": false }));
    for node in [1, 2] {
        pair.step(node, "cleanup");
    }
    for key in ["a", "b", "c"] {
        assert_eq!(pair.select(1, key), json!({ "from": "curr" }));
    }
}

#[test]
fn errors_of_another_shard_reach_the_caller_with_their_words() {
    let pair = Pair::start();
    for (key, owner) in KEYS {
        pair.ask(1, "insert", key, json!({ "fields": { "t": "text" } }));
        let body = json!({ "collection": "user", "key": key, "format": "+p", "arguments": ["t", 1] });
        for node in [owner, 3 - owner] {
            let problem = pair.node(node).refuses("POST", "shard/update", &body, 400, "bad_update");
            assert!(problem["detail"].as_str().unwrap().contains("works on a number"), "{problem}");
        }
    }
}
