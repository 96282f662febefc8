//! Reading a node down to a depth (seed 000, R7) and writing one value or subtree (R14 to R17).

use crate::{
    harness::Server,
    isolation::{Held, assert_no_locks},
    store::Store,
};
use serde_json::{Value, json};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    shop.create(
        "user",
        1,
        json!({ "name": "Ann", "a/b": 7, "address": { "city": "Ulm", "geo": { "lat": [48, 4] } },
            "tags": ["x", { "y": 1 }, []] }),
    );
    (server, shop)
}

fn whole(shop: &Store) -> Value {
    shop.get("documents/user/1")["document"]["value"].clone()
}

#[test]
fn r7_a_node_is_read_down_to_a_depth() {
    let (_server, shop) = start();
    let check = |query: &str, value: Value, cut: Value| {
        let answer = shop.get(&format!("documents/user/1?{query}"));
        assert_eq!((&answer["node"]["value"], &answer["cut"]), (&value, &cut), "{query}: {answer}");
    };
    let address = json!({ "city": "Ulm", "geo": { "lat": [48, 4] } });
    check("path=/address/city", json!("Ulm"), json!([]));
    check("path=address", address, json!([]));
    check("path=address&depth=1", json!({}), json!([["address"]]));
    check("path=address&depth=2", json!({ "city": "Ulm", "geo": {} }), json!([["address", "geo"]]));
    check(
        "path=address&depth=3",
        json!({ "city": "Ulm", "geo": { "lat": [] } }),
        json!([["address", "geo", "lat"]]),
    );
    check("path=name&depth=1", json!("Ann"), json!([]));
    check("path=tags/1/y", json!(1), json!([]));
    check("path=tags&depth=2", json!(["x", {}, []]), json!([["tags", "1"]]));
    check("path=a%252Fb", json!(7), json!([]));
    check(
        "path=/&depth=2",
        json!({ "a/b": 7, "address": {}, "name": "Ann", "tags": [] }),
        json!([["address"], ["tags"]]),
    );
    check("depth=1", json!({}), json!([[]]));
    let answer = shop.get("documents/user/1?path=/address/city&depth=1");
    let node = json!({ "collection": "user", "key": "1", "path": ["address", "city"], "position": 1,
        "value": "Ulm" });
    assert_eq!(answer, json!({ "position": 1, "node": node, "cut": [] }));
}

#[test]
fn r7_what_cannot_be_read_says_so_and_leaves_no_lock() {
    let (_server, shop) = start();
    let check = |query: &str, status, code: &str| {
        let path = format!("documents/user/1?isolation=locked&{query}");
        shop.send("GET", &path, "").assert_problem(status, code);
    };
    for absent in ["none", "address/none", "name/x", "tags/3", "tags/01", "address/geo/lat/2"] {
        check(&format!("path={absent}"), 404, "no_node");
    }
    check("path=a//b", 400, "bad_path");
    check("depth=0", 400, "bad_depth");
    check("depth=1&fields=name", 400, "bad_query");
    check(&format!("path={}", "a/".repeat(200) + "a"), 400, "over_limit");
    shop.send("GET", "documents/user/2?path=name&isolation=locked", "").assert_problem(404, "no_document");
    shop.update("user", 1, json!({ "name": "Eve" }));
    assert_eq!(shop.get("documents/user/1?path=name&at=1")["node"]["value"], "Ann");
    assert_no_locks(&shop);
}

#[test]
fn r7_the_lock_of_a_read_is_as_deep_as_the_read() {
    let (_server, shop) = start();
    let held = Held::take(&shop, "ann", "write user/1/address/geo");
    let get = |query: &str| {
        shop.send("GET", &format!("documents/user/1?isolation=locked&wait_ms=0&{query}"), "").status
    };
    assert_eq!([get("depth=1"), get("depth=2"), get("depth=3"), get("path=name")], [200, 200, 423, 200]);
    assert_eq!([get("path=address&depth=1"), get("path=address&depth=2")], [200, 423]);
    assert_eq!([get("path=address/city"), get("path=address/geo/lat/0")], [200, 423]);
    held.release();
    let held = Held::take(&shop, "ann", "write user/1/address 1");
    assert_eq!([get("path=address&depth=1"), get("path=address/geo"), get("depth=1")], [423, 200, 200]);
    held.release();
    assert_no_locks(&shop);
}

#[test]
fn r16_one_value_or_subtree_is_written() {
    let (_server, shop) = start();
    let path = |path: &str| format!("documents/user/1?path={path}");
    shop.ask("PUT", &path("/address/city"), &json!("Bonn"));
    shop.ask("PUT", &path("address/geo/lat/1"), &json!({ "min": 5 }));
    shop.ask("PUT", &path("tags/3"), &json!("new"));
    shop.ask("DELETE", &path("tags/0"), &json!(null));
    shop.ask("PUT", &path("address/zip"), &json!(null));
    shop.ask("PUT", &format!("{}&user=u&note=why&position=6", path("email")), &json!("a@b"));
    shop.ask("DELETE", &path("name"), &json!(null));
    assert_eq!(
        whole(&shop),
        json!({ "a/b": 7, "email": "a@b", "tags": [{ "y": 1 }, [], "new"],
        "address": { "city": "Bonn", "zip": null, "geo": { "lat": [48, { "min": 5 }] } } })
    );
    let events = json!([
        { "type": "set", "collection": "user", "key": 1, "path": "/address/geo", "value": [1] },
        { "type": "set", "collection": "user", "key": 1, "path": ["address", "geo", "0"], "value": 2 },
        { "type": "unset", "collection": "user", "key": 1, "path": "tags" }]);
    let position = shop.write(events);
    assert_eq!(whole(&shop)["address"]["geo"], json!([2]));
    // Whoever follows the changes hears of whole fields.
    let page = shop.get(&format!("changes?after={}", position - 1));
    let events = page["commits"][0]["events"].as_array().unwrap();
    assert_eq!(events[1]["fields"], json!({ "address": { "city": "Bonn", "geo": [2], "zip": null } }));
    assert_eq!(events[2]["removed"], json!(["tags"]));
}

#[test]
fn r17_what_cannot_be_written_leaves_the_old_value_and_no_lock() {
    let (_server, shop) = start();
    let before = whole(&shop);
    let put = |path: &str, status, code: &str| {
        shop.refuses("PUT", &format!("documents/user/1?path={path}"), &json!(1), status, code)
    };
    let problem = put("address/street/name", 404, "no_node");
    assert!(problem["detail"].as_str().unwrap().contains("address/street"), "{problem}");
    put("none/x", 404, "no_node");
    put("tags/4", 404, "no_node");
    put("name/x", 400, "no_container");
    put("/", 400, "bad_path");
    put("meta_position", 400, "reserved_field");
    put("x&if=absent", 400, "bad_query");
    shop.refuses("PUT", "documents/user/2?path=x", &json!(1), 404, "no_document");
    shop.refuses("DELETE", "documents/user/1?path=address/none", &json!(null), 404, "no_node");
    let deep = format!("{}1{}", "[".repeat(99), "]".repeat(99));
    let reply = shop.send("PUT", "documents/user/1?path=address/geo/lat/0", &deep);
    reply.assert_problem(400, "json_too_deep");
    let events = json!({ "events": [
        { "type": "set", "collection": "user", "key": 1, "path": "name", "value": "Eve" },
        { "type": "set", "collection": "user", "key": 1, "path": "none/x", "value": 1 }] });
    shop.refuses("POST", "write", &events, 404, "no_node");
    assert_eq!((whole(&shop), shop.get("position")["position"].as_u64()), (before, Some(1)));
    assert_no_locks(&shop);
}

#[test]
fn r15_r16_a_write_of_a_node_locks_exactly_that_node() {
    let (_server, shop) = start();
    let put = |path: &str, more: &str| {
        shop.send("PUT", &format!("documents/user/1?path={path}&wait_ms=0{more}"), "1").status
    };
    // Somebody reads the city: it stays, and so does all it is in.
    let held = Held::take(&shop, "ann", "read user/1/address/city");
    assert_eq!([put("address/city", ""), put("address", "")], [423, 423]);
    assert_eq!([put("address/geo/lat/0", ""), put("name", "")], [200, 200]);
    assert_eq!(put("address/city", &format!("&token={}", held.token)), 200);
    let token = held.release();
    assert_eq!(put("address/city", &format!("&token={token}")), 409);
    // Removing an element moves the others.
    let held = Held::take(&shop, "ann", "read user/1/tags/1");
    assert_eq!([put("tags/0", ""), put("tags/1", "")], [200, 423]);
    shop.send("DELETE", "documents/user/1?path=tags/0&wait_ms=0", "").assert_problem(423, "locked");
    held.release();
    assert_no_locks(&shop);
}
