//! Position locks: a write goes through only if what its writer has read is still so.

use crate::{
    harness::Server,
    store::{Store, timeless},
};
use serde_json::{Value, json};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "shop");
    (server, store)
}

/// A write that touches nothing the locks look at.
fn guarded(locks: Value) -> Value {
    json!({ "locks": locks,
        "events": [{ "type": "put", "collection": "guarded", "key": 1, "fields": {} }] })
}

/// Whether the lock holds.
#[track_caller]
fn holds(shop: &Store, lock: &Value) -> bool {
    let reply = shop.send("POST", "write", &guarded(json!([lock])).to_string());
    match reply.status {
        200 => true,
        _ => {
            let problem = reply.assert_problem(409, "position_locked");
            assert_eq!(problem["broken"].as_array().unwrap().len(), 1, "{problem}");
            assert_eq!(problem["broken"][0]["lock"], *lock, "as it was given");
            false
        }
    }
}

#[test]
fn a_document_is_locked_by_its_position() {
    let (_server, shop) = start();
    let lock = |position: u64| json!({ "collection": "a", "key": "1", "position": position });
    assert!(holds(&shop, &lock(0)), "there is nothing yet");
    let created = shop.create("a", 1, json!({ "x": 1, "y": 1 }));
    assert!(!holds(&shop, &lock(created - 1)));
    assert!(holds(&shop, &lock(created)));
    shop.create("a", 2, json!({}));
    assert!(holds(&shop, &lock(created)), "another document");
    let deleted = shop.delete("a", 1);
    assert!(!holds(&shop, &lock(deleted - 1)));
    assert!(holds(&shop, &lock(deleted)));
}

#[test]
fn a_field_is_locked_apart_from_others() {
    let (_server, shop) = start();
    let created = shop.create("a", 1, json!({ "x": 1, "y": 1 }));
    let lock = |field: &str, position: u64| json!({ "collection": "a", "key": "1", "field": field, "position": position });
    let updated = shop.update("a", 1, json!({ "x": 2 }));
    assert!(!holds(&shop, &lock("x", created)));
    assert!(holds(&shop, &lock("x", updated)));
    assert!(holds(&shop, &lock("y", created)));
    assert!(holds(&shop, &lock("z", created)));
    let removed = shop.update("a", 1, json!({ "y": null }));
    assert!(!holds(&shop, &lock("y", removed - 1)));
    let deleted = shop.delete("a", 1);
    assert!(!holds(&shop, &lock("x", deleted - 1)), "what a deleted document had is touched");
    assert!(!holds(&shop, &lock("meta_deleted", deleted - 1)));
    assert!(holds(&shop, &lock("meta_deleted", deleted)));
}

#[test]
fn a_field_of_a_collection_is_locked_in_every_document() {
    let (_server, shop) = start();
    let last = shop.create("a", 1, json!({ "x": 1 }));
    let lock =
        |field: &str, position: u64| json!({ "collection": "a", "field": field, "position": position });
    assert!(holds(&shop, &lock("x", last)));
    let other = shop.create("a", 2, json!({ "y": 1 }));
    assert!(holds(&shop, &lock("x", last)), "another field");
    shop.create("b", 1, json!({ "x": 1 }));
    assert!(holds(&shop, &lock("x", last)), "another collection");
    shop.create("a", 3, json!({ "x": 1 }));
    assert!(!holds(&shop, &lock("x", other)));
}

/// Someone reads who is red, and how old they are. What breaks that?
#[test]
fn a_filter_notices_who_enters_stays_and_leaves() {
    let (_server, shop) = start();
    let red = json!({ "field": "color", "op": "=", "value": "red" });
    let lock =
        |position: u64| json!({ "collection": "a", "field": "age", "filter": red, "position": position });
    let person = |color: &str| json!({ "color": color, "age": 1, "name": "n" });
    shop.create("a", 1, person("red"));
    let mut seen = shop.create("a", 2, person("blue"));
    // What has nothing to do with it.
    shop.update("a", 2, json!({ "age": 2 }));
    shop.update("a", 1, json!({ "name": "m" }));
    shop.create("a", 3, person("blue"));
    assert!(holds(&shop, &lock(seen)));
    let mut breaks = |what: &str, write: &dyn Fn() -> u64| {
        let position = write();
        assert!(!holds(&shop, &lock(seen)), "{what}");
        assert!(holds(&shop, &lock(position)), "{what}");
        seen = position;
    };
    breaks("it stays and changes", &|| shop.update("a", 1, json!({ "age": 5 })));
    breaks("it enters by a change", &|| shop.update("a", 2, json!({ "color": "red" })));
    breaks("it leaves by a change", &|| shop.update("a", 1, json!({ "color": "blue" })));
    breaks("it enters by being created", &|| shop.create("a", 4, person("red")));
    breaks("it leaves by being deleted", &|| shop.delete("a", 4));
    breaks("it enters by being restored", &|| {
        shop.write(json!([{ "type": "restore", "collection": "a", "key": 4 }]))
    });
    breaks("it leaves because the field goes", &|| shop.update("a", 4, json!({ "color": null })));
    // In and out again between two looks.
    let before = shop.get("position")["position"].as_u64().unwrap();
    shop.update("a", 4, json!({ "color": "red" }));
    shop.update("a", 4, json!({ "color": "blue" }));
    assert!(!holds(&shop, &lock(before)));
}

#[test]
fn each_lock_is_judged_by_its_own_position() {
    let (_server, shop) = start();
    let one = shop.create("a", 1, json!({}));
    let two = shop.create("a", 2, json!({}));
    let lock = |key: &str, position: u64| json!({ "collection": "a", "key": key, "position": position });
    shop.post("write", &guarded(json!([lock("1", one), lock("2", two)])));
    shop.refuses("POST", "write", &guarded(json!([lock("1", one), lock("2", one)])), 409, "position_locked");
    // An old position for something that has not changed is as good as a new one.
    let three = shop.update("a", 2, json!({ "x": 1 }));
    shop.post("write", &guarded(json!([lock("1", one), lock("2", three)])));
    let problem = shop.refuses(
        "POST",
        "write",
        &guarded(json!([lock("1", 0), lock("2", two), lock("3", 0)])),
        409,
        "position_locked",
    );
    let broken: Vec<&Value> =
        problem["broken"].as_array().unwrap().iter().map(|broken| &broken["lock"]["key"]).collect();
    assert_eq!(broken, ["1", "2"], "all of them are named, in order");
}

#[test]
fn what_broke_a_lock_is_told() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({ "x": 1 }));
    shop.post(
        "write",
        &json!({ "user": { "id": 7 }, "note": "because",
        "events": [{ "type": "update", "collection": "a", "key": 1, "fields": { "x": 2 } }] }),
    );
    let lock = json!({ "collection": "a", "key": "1", "field": "x", "position": 1 });
    let problem = shop.refuses("POST", "write", &guarded(json!([lock])), 409, "position_locked");
    let broken = timeless(problem["broken"].clone());
    let expected =
        json!([{ "lock": lock, "position": 2, "user": { "id": 7 }, "note": "because", "at": "T" }]);
    assert_eq!(broken, expected);
    assert!(problem["detail"].as_str().unwrap().contains("a/1"), "{problem}");
    let filter = json!({ "and": [{ "field": "x", "op": ">=", "value": 1.50 }] });
    let lock = json!({ "collection": "a", "field": "x", "filter": filter, "position": 1 });
    let problem = shop.refuses("POST", "write", &guarded(json!([lock])), 409, "position_locked");
    assert_eq!((&problem["broken"][0]["lock"], &problem["broken"][0]["position"]), (&lock, &2.into()));
}

#[test]
fn a_lock_older_than_history_is_too_old() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({}));
    shop.create("a", 2, json!({}));
    assert_eq!(shop.trim(0), json!({ "trimmed": 2 }));
    let lock = |key: &str, position: u64| json!({ "collection": "a", "key": key, "position": position });
    let problem = shop.refuses("POST", "write", &guarded(json!([lock("1", 1)])), 410, "position_too_old");
    assert_eq!(problem["broken"][0]["lock"], lock("1", 1));
    shop.post("write", &guarded(json!([lock("1", 2), lock("2", 2)])));
    for path in ["changes?after=1", "documents/a/1?at=1", "documents/a?at=1"] {
        shop.send("GET", path, "").assert_problem(410, "position_too_old");
    }
    for path in ["count", "filter", "exists"] {
        shop.refuses("POST", path, &json!({ "collection": "a", "at": 1 }), 410, "position_too_old");
    }
    let commits = shop.get("changes")["commits"].clone();
    assert_eq!(commits.as_array().unwrap().len(), 1, "only what is kept: {commits}");
    assert_eq!(shop.get("history/a/1")["entries"], json!([]));
}

#[test]
fn requests_of_one_call_see_each_other() {
    let (_server, shop) = start();
    let create = json!({ "events": [{ "type": "create", "collection": "a", "key": 1, "fields": {} }] });
    let lock = |position: u64| json!([{ "collection": "a", "key": "1", "position": position }]);
    let mut update = guarded(lock(0));
    shop.refuses("POST", "write", &json!({ "requests": [create, update] }), 409, "position_locked");
    assert_eq!(shop.get("position")["position"], 0);
    update = guarded(lock(1));
    let answer = shop.post("write", &json!({ "requests": [create, update] }));
    assert_eq!(answer["positions"], json!([1, 2]));
    // A filter has to look at what the requests before it did, change by change.
    let person = |key: u64, color: &str| json!({ "user": color, "events": [{ "type": "create", "collection": "p", "key": key, "fields": { "color": color } }] });
    let red = json!({ "field": "color", "op": ">=", "value": "red" });
    let search = guarded(json!([{ "collection": "p", "field": "color", "filter": red, "position": 2 }]));
    shop.post("write", &json!({ "requests": [person(1, "blue"), person(2, "green"), search] }));
    let call = json!({ "requests": [person(3, "blue"), person(4, "red"), search] });
    let problem = shop.refuses("POST", "write", &call, 409, "position_locked");
    assert_eq!(
        (&problem["broken"][0]["position"], &problem["broken"][0]["user"]),
        (&7.into(), &"red".into())
    );
    assert_eq!(shop.get("position")["position"], 5);
}

/// Many write to one document with its position; every write that was answered is in the sum.
#[test]
fn nothing_is_lost_between_read_and_write() {
    let (_server, shop) = start();
    shop.create("sum", 1, json!({ "n": 0 }));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let shop = shop.clone();
            std::thread::spawn(move || {
                let mut done = 0;
                while done < 25 {
                    let document = shop.get("documents/sum/1");
                    let (position, n) =
                        (&document["document"]["position"], &document["document"]["value"]["n"]);
                    let n = n.as_u64().unwrap() + 1;
                    let body = json!({ "n": n }).to_string();
                    match shop.send("PUT", &format!("documents/sum/1?position={position}"), &body) {
                        reply if reply.status == 200 => done += 1,
                        reply => drop(reply.assert_problem(409, "position_locked")),
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(shop.get("documents/sum/1")["document"]["value"]["n"], 100);
}
