//! Fields below fields: `address.zip` means the same in filters, orders, projections, indexes, joins and locks.

use crate::{
    harness::{self, Server, eventually},
    http,
    isolation::Held,
    store::Store,
};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

fn start(flags: &[&str]) -> (Server, Store) {
    let server = Server::start(flags);
    let shop = Store::new(&server, "shop");
    for (key, address) in [
        (1, json!({ "zip": "53111", "city": "Bonn", "geo": { "lat": 50.7, "lon": 7.1 } })),
        (2, json!({ "zip": "89073", "city": "Ulm", "geo": { "lat": 48.4 } })),
        (3, json!("Bonn")),
        (4, json!([{ "zip": "53111" }])),
        (5, json!({ "zip": null, "city": "Aachen" })),
    ] {
        shop.create("user", key, json!({ "name": format!("u{key}"), "address": address }));
    }
    (server, shop)
}

fn search(filter: &Value) -> Value {
    json!({ "collection": "user", "filter": filter })
}

fn is(field: &str, op: &str, value: impl Into<Value>) -> Value {
    json!({ "field": field, "op": op, "value": value.into() })
}

#[test]
fn members_of_objects_are_filtered_sorted_and_compared() {
    let (_server, shop) = start(&[]);
    let found = |field: &str, op: &str, value: Value| shop.found(&search(&is(field, op, value)));
    assert_eq!(found("address.zip", "=", json!("53111")), ["1"]);
    assert_eq!(found("address.zip", "!=", json!("53111")), ["2"]);
    assert_eq!(found("address.geo.lat", ">", json!(50)), ["1"]);
    assert_eq!(found("address.city", "%=", json!("%n")), ["1", "5"]);
    assert_eq!(found("address.geo", "=", json!({ "lat": 48.40 })), ["2"]);
    // Neither text, a list nor null has members.
    assert_eq!(found("address.zip", "=", json!(null)), ["3", "4", "5"]);
    assert_eq!(found("address.0.zip", "!=", json!(null)), Vec::<String>::new());
    let sort = json!([{ "field": "address.geo.lat", "descending": true }, { "field": "address.city" }]);
    let mut page = json!({ "collection": "user", "sort": sort, "fields": ["address.city"], "limit": 2 });
    assert_eq!(shop.found(&page), ["1", "2"]);
    page["cursor"] = shop.post("filter", &page)["next"].clone();
    assert_eq!(shop.found(&page), ["3", "4"]);
    page["cursor"] = shop.post("filter", &page)["next"].clone();
    assert_eq!(shop.found(&page), ["5"]);
    let most = json!({ "collection": "user", "field": "address.geo.lat" });
    assert_eq!(shop.post("max", &most)["max"], 50.7);
    assert_eq!(shop.post("min", &json!({ "collection": "user", "field": "address.zip" }))["min"], "53111");
}

#[test]
fn what_is_shown_has_the_shape_of_the_document() {
    let (_server, shop) = start(&[]);
    let value = |path: &str| shop.get(path)["document"]["value"].clone();
    let zip = json!({ "address": { "zip": "53111" } });
    assert_eq!(value("documents/user/1?fields=address.zip"), zip);
    let two = json!({ "name": "u1", "address": { "geo": { "lon": 7.1 }, "zip": "53111" } });
    assert_eq!(value("documents/user/1?fields=name,address.geo.lon,address.zip"), two);
    assert_eq!(value("documents/user/3?fields=address.zip"), json!({}));
    assert_eq!(value("documents/user/5?fields=address.zip"), json!({ "address": { "zip": null } }));
    let wanted = json!({ "documents": [{ "collection": "user", "key": 1 },
        { "collection": "user", "key": 2, "fields": ["address.city"] }], "fields": ["address.zip"] });
    let documents = &shop.post("get", &wanted)["documents"];
    assert_eq!(documents[0]["value"], zip);
    assert_eq!(documents[1]["value"], json!({ "address": { "city": "Ulm" } }));
    let listed = shop.get("documents/user?fields=address.city&limit=1");
    assert_eq!(listed["documents"][0]["value"], json!({ "address": { "city": "Bonn" } }));
}

#[test]
fn names_with_dots_are_written_in_quotes() {
    let (_server, shop) = start(&[]);
    shop.create("user", 6, json!({ "address.zip": "x", "a": { "b.c": 1, "": 2 } }));
    let found = |field: &str, value: Value| shop.found(&search(&is(field, "=", value)));
    assert_eq!(found("address.zip", json!("x")), Vec::<String>::new());
    assert_eq!(found("\"address.zip\"", json!("x")), ["6"]);
    assert_eq!(found("a.\"b.c\"", json!(1)), ["6"]);
    assert_eq!(found("a.\"\"", json!(2)), ["6"]);
    let shown = shop.get("documents/user/6?fields=%22address.zip%22,a.%22b.c%22");
    assert_eq!(shown["document"]["value"], json!({ "address.zip": "x", "a": { "b.c": 1 } }));
    for field in ["", ".", "a.", ".a", "a..b", "\"a", "a.\"b\"c"] {
        shop.refuses("POST", "count", &search(&is(field, "=", 1)), 400, "bad_field");
        let sort = json!({ "collection": "user", "sort": [{ "field": field }] });
        shop.refuses("POST", "filter", &sort, 400, "bad_field");
        shop.refuses("POST", "max", &json!({ "collection": "user", "field": field }), 400, "bad_field");
    }
    let deep = vec!["a"; 300].join(".");
    shop.refuses("POST", "count", &search(&is(&deep, "=", 1)), 400, "over_limit");
    shop.refuses("PUT", "indexes/user/meta_deleted.x", &json!(null), 400, "reserved_field");
}

/// Without it so many documents could not be looked at.
#[test]
fn an_index_inside_a_field_follows_every_change() {
    let (server, shop) = start(&["--looks-max", "3"]);
    let zip = search(&is("address.zip", "=", "53111"));
    shop.refuses("POST", "filter", &zip, 400, "over_limit");
    let index = shop.ask("PUT", "indexes/user/address.zip", &json!(null));
    assert_eq!(index["field"], "address.zip");
    eventually("it is built", || shop.get("indexes")["indexes"][0]["state"] == "ready");
    assert_eq!(shop.found(&zip), ["1"]);
    shop.update("user", 3, json!({ "address": { "zip": "53111" } }));
    assert_eq!(shop.send("PUT", "documents/user/2?path=/address/zip", "\"53111\"").status, 200);
    assert_eq!(shop.send("DELETE", "documents/user/1?path=/address/zip", "").status, 200);
    assert_eq!(shop.found(&zip), ["2", "3"]);
    shop.update("user", 2, json!({ "address": null }));
    shop.update("user", 3, json!({ "name": "other" }));
    assert_eq!(shop.found(&zip), ["3"]);
    // It is there after a restart and in a dump, and is no index of a field with a dot in its name.
    let server = server.stop().restart(&["--looks-max", "3"]);
    let shop = Store::new(&server, "shop");
    assert_eq!(shop.found(&zip), ["3"]);
    let dump = http::request(shop.native, "GET", &shop.target("dump"), &[]).body;
    assert!(dump.contains(r#"{"index":{"collection":"user","path":["address","zip"]}}"#), "{dump}");
    let copy = Store::new(&server, "copy");
    let ndjson = [("content-type", "application/x-ndjson")];
    assert_eq!(http::send(copy.native, "POST", &copy.target("load"), &ndjson, dump.as_bytes()).status, 200);
    eventually("it is built", || copy.get("indexes")["indexes"][0]["state"] == "ready");
    assert_eq!(copy.get("indexes"), shop.get("indexes"));
    assert_eq!(copy.found(&zip), ["3"]);
    shop.ask("PUT", "indexes/user/%22address.zip%22", &json!(null));
    assert_eq!(shop.get("indexes")["indexes"].as_array().unwrap().len(), 2);
    shop.ask("DELETE", "indexes/user/address.zip", &json!(null));
    shop.refuses("POST", "filter", &zip, 400, "over_limit");
    assert_eq!(shop.get("indexes")["indexes"][0]["field"], "\"address.zip\"");
    let data = server.data().to_owned();
    let _ended = server.stop();
    let mut verify = Command::new(harness::BINARY);
    let verified = verify.args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// The index of a field with a dot in its name, as dumps have had it before there were paths.
#[test]
fn dumps_from_before_paths_keep_their_indexes() {
    let (server, shop) = start(&[]);
    shop.create("user", 6, json!({ "address.zip": "x" }));
    shop.ask("PUT", "indexes/user/%22address.zip%22", &json!(null));
    let dump = http::request(shop.native, "GET", &shop.target("dump"), &[]).body;
    assert!(dump.contains(r#"{"index":{"collection":"user","field":"address.zip"}}"#), "{dump}");
    let copy = Store::new(&server, "copy");
    let ndjson = [("content-type", "application/x-ndjson")];
    assert_eq!(http::send(copy.native, "POST", &copy.target("load"), &ndjson, dump.as_bytes()).status, 200);
    assert_eq!(copy.get("indexes")["indexes"][0]["field"], "\"address.zip\"");
    assert_eq!(copy.found(&search(&is("\"address.zip\"", "=", "x"))), ["6"]);
}

#[test]
fn joins_compare_what_is_inside_fields() {
    let (_server, shop) = start(&[]);
    shop.create("branch", 1, json!({ "place": { "zip": "53111" }, "boss": { "name": "Ann", "age": 50 } }));
    let join = json!({ "left": { "collection": "user", "field": "address.zip", "fields": ["name"] },
        "right": { "collection": "branch", "field": "place.zip", "fields": ["boss.name"] } });
    let check = |join: &Value| {
        let rows = shop.post("join", join)["rows"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
        assert_eq!(rows[0]["left"]["value"], json!({ "name": "u1" }));
        assert_eq!(rows[0]["right"]["value"], json!({ "boss": { "name": "Ann" } }));
    };
    check(&join);
    shop.ask("PUT", "indexes/branch/place.zip", &json!(null));
    eventually("it is built", || shop.get("indexes")["indexes"][0]["state"] == "ready");
    check(&join);
    let mut locked = join;
    locked["isolation"] = "document".into();
    check(&locked);
}

#[test]
fn position_locks_on_members_notice_who_enters_and_leaves() {
    let (_server, shop) = start(&[]);
    let filter = is("address.city", "=", "Ulm");
    let lock = |position: u64| json!({ "collection": "user", "field": "address.zip", "filter": filter, "position": position });
    let holds = |lock: Value| {
        let write = json!({ "locks": [lock],
            "events": [{ "type": "put", "collection": "other", "key": 1, "fields": {} }] });
        let reply = shop.send("POST", "write", &write.to_string());
        if reply.status != 200 {
            assert_eq!(reply.assert_problem(409, "position_locked")["broken"][0]["lock"], lock);
        }
        reply.status == 200
    };
    let position = || shop.get("position")["position"].as_u64().unwrap();
    let (start, set) = (position(), |key: u64, city: &str| {
        let path = format!("documents/user/{key}?path=/address/city");
        assert_eq!(shop.send("PUT", &path, city).status, 200);
    });
    assert!(holds(lock(start)));
    shop.update("user", 2, json!({ "name": "touches nothing that is watched" }));
    set(1, "\"Köln\"");
    assert!(holds(lock(start)), "it neither was nor is one of those that match");
    set(1, "\"Ulm\"");
    assert!(!holds(lock(start)), "it entered");
    let start = position();
    assert!(holds(lock(start)));
    set(2, "\"Bonn\"");
    assert!(!holds(lock(start)), "it left");
    let start = position();
    shop.update("user", 1, json!({ "address": "Ulm" }));
    assert!(!holds(lock(start)), "it left with the whole field");
    // A lock on a member is one on its field.
    let of_one =
        |position| json!({ "collection": "user", "key": "5", "field": "address.zip", "position": position });
    let start = position();
    assert!(holds(of_one(start)));
    set(5, "\"Köln\"");
    assert!(!holds(of_one(start)));
}

#[test]
fn reads_wait_for_locks_on_the_members_they_look_at_only() {
    let (_server, shop) = start(&[]);
    let _held = Held::take(&shop, "other", "write user/1/address/city");
    let read = |fields: &str| {
        shop.send("GET", &format!("documents/user/1?isolation=locked&wait_ms=0&fields={fields}"), "").status
    };
    assert_eq!((read("address.zip"), read("name")), (200, 200));
    assert_eq!((read("address.city"), read("address"), read("address.city.x")), (423, 423, 423));
    let count = |field: &str| {
        let mut body = search(&is(field, "=", "x"));
        (body["isolation"], body["wait_ms"]) = ("document".into(), 0.into());
        shop.send("POST", "count", &body.to_string()).status
    };
    assert_eq!((count("address.zip"), count("address.city")), (200, 423));
}

#[test]
fn a_closed_schema_refuses_members_it_does_not_know_with_the_nearest() {
    let (_server, shop) = start(&["--looks-max", "3"]);
    let schema = json!({ "type": "object", "additionalProperties": false, "properties": {
        "name": { "type": "string" },
        "address": { "type": "object", "additionalProperties": false,
            "properties": { "zip": { "type": "string", "x-lockwood-index": true }, "city": { "type": "string" } } } } });
    let shop2 = Store { namespace: "closed".to_owned(), ..shop };
    shop2.post("schemas/user", &json!({ "schema": schema }));
    for key in 0..9 {
        shop2.create("user", key, json!({ "address": { "zip": key.to_string() } }));
    }
    assert_eq!(shop2.get("indexes")["indexes"][0]["field"], "address.zip");
    eventually("it is built", || shop2.get("indexes")["indexes"][0]["state"] == "ready");
    assert_eq!(shop2.found(&search(&is("address.zip", "=", "7"))), ["7"]);
    let unknown = |path: &str, body: &Value| {
        let problem = shop2.refuses("POST", path, body, 400, "unknown_field");
        let told = problem["detail"].as_str().unwrap();
        assert!(told.contains("zip"), "the nearest is told: {problem}");
    };
    unknown("count", &search(&is("address.zib", "=", 1)));
    unknown("filter", &json!({ "collection": "user", "sort": [{ "field": "address.zib" }] }));
    unknown("filter", &json!({ "collection": "user", "fields": ["address.zib"] }));
    let side = |field: &str| json!({ "collection": "user", "field": field });
    unknown("join", &json!({ "left": side("address.zip"), "right": side("address.zib") }));
    let lock = json!([{ "collection": "user", "key": 1, "field": "address.zib", "position": 1 }]);
    let event = json!([{ "type": "delete", "collection": "user", "key": 1 }]);
    unknown("write", &json!({ "locks": lock, "events": event }));
    // Without a schema what is not known is absent.
    assert_eq!(
        shop.post("count", &json!({ "collection": "none", "filter": is("a.b", "=", Value::Null) }))["count"],
        0
    );
}

#[test]
fn the_command_line_knows_members() {
    let (server, _shop) = start(&[]);
    let shown = |args: &[&str]| {
        let mut command = Command::new(harness::BINARY);
        command.args(args).args(["--namespace", "shop"]).stdin(Stdio::null());
        let output = command.env("LOCKWOOD_SERVER", server.native.to_string()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let table = shown(&[
        "filter",
        "user",
        "address.zip != null",
        "--fields",
        "name,address.zip",
        "--sort",
        "-address.zip",
    ]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["key", "position", "name", "address.zip"]);
    assert_eq!(rows[1], ["2", "2", "u2", "89073"]);
    assert_eq!(rows[2], ["1", "1", "u1", "53111"]);
    let one = shown(&["get", "user/1", "--fields", "address.geo.lat", "--json"]);
    assert!(one.contains(r#""value":{"address":{"geo":{"lat":50.7}}}"#), "{one}");
    assert!(shown(&["index", "add", "user", "address.zip"]).contains("user by address.zip"));
    assert_eq!(shown(&["count", "user", "address.city = \"Ulm\""]).trim(), "1");
    let joined =
        shown(&["join", "user.address.zip", "user.address.zip", "--fields", "address.city", "--json"]);
    assert_eq!(joined.lines().count(), 2, "{joined}");
}
