//! The plain HTTP interface: who holds what, who waits for whom.

use crate::{
    harness::{Server, eventually, repository},
    http::{get, get_json, request},
    peer::Peer,
};
use serde_json::{Value, json};

/// The numbers of the locks a listing shows.
#[track_caller]
fn listed(server: &Server, query: &str) -> Vec<u64> {
    numbers(&get_json(server, &format!("/v1/default/locks{query}")))
}

fn numbers(list: &Value) -> Vec<u64> {
    list["locks"].as_array().unwrap().iter().map(|lock| lock["lock"].as_u64().unwrap()).collect()
}

// Namespaces.

#[test]
fn namespaces_are_listed_while_they_are_used() {
    let server = Server::start(&[]);
    assert_eq!(get_json(&server, "/v1/namespaces"), json!({ "namespaces": [] }));
    let mut shop = Peer::open_with(&server, "shop", json!({}));
    let mut other = Peer::open_with(&server, "shop", json!({}));
    let zoo = Peer::open_with(&server, "zoo", json!({}));
    shop.hold("write a");
    other.queue("write a");
    let expected = json!({ "namespaces": [
        { "namespace": "shop", "sessions": 2, "locks_granted": 1, "locks_waiting": 1 },
        { "namespace": "zoo", "sessions": 1, "locks_granted": 0, "locks_waiting": 0 },
    ] });
    assert_eq!(get_json(&server, "/v1/namespaces"), expected);
    zoo.bye();
    assert_eq!(get_json(&server, "/v1/namespaces")["namespaces"].as_array().unwrap().len(), 1);
}

#[test]
fn a_namespace_whose_last_session_is_given_up_disappears() {
    let server = Server::start(&[]);
    drop(Peer::open_for(&server, "ann", 50));
    eventually("it disappears", || {
        get_json(&server, "/v1/namespaces")["namespaces"].as_array().unwrap().is_empty()
    });
}

#[test]
fn a_namespace_may_have_any_name() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_with(&server, "a%2Fb%20%C3%BC", json!({}));
    ann.hold("write a");
    assert_eq!(get_json(&server, "/v1/namespaces")["namespaces"][0]["namespace"], "a/b ü");
    assert_eq!(numbers(&get_json(&server, "/v1/a%2Fb%20%C3%BC/locks")).len(), 1);
    assert_eq!(numbers(&get_json(&server, "/v1/a/locks")).len(), 0);
}

// Locks.

#[test]
fn a_held_lock_is_shown_with_everything_about_it() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write user/42:2, read bill");
    let list = get_json(&server, "/v1/default/locks");
    assert_eq!(list["next"], Value::Null);
    let lock = &list["locks"][0];
    assert_eq!((&lock["lock"], &lock["token"]), (&json!(held.lock), &json!(held.token)));
    assert_eq!(lock["state"], "granted");
    let owner = &lock["owner"];
    assert_eq!((&owner["session"], &owner["name"]), (&json!(ann.session), &json!("ann")));
    assert_eq!((&owner["via"], &owner["connected"]), (&json!("native"), &json!(true)));
    assert!(owner["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{owner}");
    let expected = json!([
        { "path": ["bill"], "mode": "read" },
        { "path": ["user", "42"], "mode": "write", "depth": 2 },
    ]);
    assert_eq!(lock["resources"], expected);
    assert!(lock["granted_at"].as_str() >= lock["requested_at"].as_str(), "{lock}");
    assert!(lock["age_ms"].is_u64());
    for absent in ["place", "blockers", "wait_left_ms", "abandoned_in_ms", "converting_to"] {
        assert_eq!(lock[absent], Value::Null, "{absent} in {lock}");
    }
}

#[test]
fn a_waiting_lock_is_shown_with_what_it_waits_for() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.lock("write a", 600_000);
    let lock = &get_json(&server, "/v1/default/locks")["locks"][1];
    assert_eq!((&lock["lock"], &lock["state"]), (&queued["lock"], &json!("waiting")));
    assert_eq!((&lock["place"], &lock["blockers_len"]), (&json!(1), &json!(1)));
    assert_eq!(lock["blockers"], json!([held.lock]));
    assert!(lock["wait_left_ms"].as_u64().unwrap() <= 600_000, "{lock}");
    assert_eq!((&lock["token"], &lock["granted_at"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_converting_lock_is_shown_with_what_it_wants_to_become() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("read a");
    let other = bob.hold("read a");
    ann.convert(&held, "write", "forever");
    let lock = get_json(&server, &format!("/v1/default/locks/{}", held.lock));
    assert_eq!((&lock["state"], &lock["token"]), (&json!("converting"), &json!(held.token)));
    assert_eq!(lock["resources"], json!([{ "path": ["a"], "mode": "read" }]));
    assert_eq!(lock["converting_to"], json!([{ "path": ["a"], "mode": "write" }]));
    assert_eq!(lock["blockers"], json!([other.lock]));
    assert_eq!(listed(&server, "?state=converting"), [held.lock]);
}

#[test]
fn a_lock_whose_connection_is_lost_shows_how_long_it_will_stay() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 60_000);
    let held = ann.hold("write a");
    drop(ann);
    let target = format!("/v1/default/locks/{}", held.lock);
    eventually("it is away", || get_json(&server, &target)["owner"]["connected"] == false);
    let left = get_json(&server, &target)["abandoned_in_ms"].as_u64().unwrap();
    assert!(0 < left && left <= 60_000, "{left}");
}

#[test]
fn locks_are_listed_by_owner() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann b"), Peer::open(&server, "bob"));
    let (a, b) = (ann.hold("write a").lock, bob.hold("write b").lock);
    assert_eq!(listed(&server, "?owner=ann%20b"), [a]);
    assert_eq!(listed(&server, "?owner=ann+b"), [a]);
    assert_eq!(listed(&server, &format!("?owner={}", bob.session)), [b]);
    assert_eq!(listed(&server, "?owner=nobody"), [0; 0]);
}

#[test]
fn locks_are_listed_by_path() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let top = ann.hold("write user").lock;
    let below = ann.hold("write user/42/name, write x").lock;
    let escaped = ann.hold("write user%2F42").lock;
    let beside = ann.hold("write user2").lock;
    assert_eq!(listed(&server, "?path=user"), [top, below]);
    assert_eq!(listed(&server, "?path=user/42"), [below]);
    assert_eq!(listed(&server, "?path=/user/42/name"), [below]);
    assert_eq!(listed(&server, "?path=user%252F42"), [escaped]);
    assert_eq!(listed(&server, "?path=/"), [top, below, escaped, beside]);
    assert_eq!(listed(&server, "?path=y"), [0; 0]);
}

#[test]
fn locks_are_listed_by_state() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a").lock;
    let waiting = bob.queue("write a")["lock"].as_u64().unwrap();
    assert_eq!(listed(&server, "?state=granted"), [held]);
    assert_eq!(listed(&server, "?state=waiting"), [waiting]);
    assert_eq!(listed(&server, "?state=waiting&owner=ann"), [0; 0]);
    assert_eq!(listed(&server, "?state=waiting&owner=bob&path=a&limit=1"), [waiting]);
}

#[test]
fn a_long_list_comes_in_pages() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let all: Vec<u64> = (0..250)
        .map(|n| if n % 3 == 0 { &mut bob } else { &mut ann }.hold(&format!("write a/{n}")).lock)
        .collect();
    let pages = |query: &str| {
        let (mut found, mut lens, mut after) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = get_json(&server, &format!("/v1/default/locks?{query}{after}"));
            let locks = numbers(&page);
            lens.push(locks.len());
            found.extend(locks);
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => return (found, lens),
            }
        }
    };
    assert_eq!(pages(""), (all.clone(), vec![100, 100, 50]));
    assert_eq!(pages("limit=249").0, all);
    assert_eq!(pages("limit=250"), (all.clone(), vec![250]));
    assert_eq!(pages("limit=1000"), (all.clone(), vec![250]));
    let bobs: Vec<u64> = all.iter().copied().step_by(3).collect();
    assert_eq!(pages("owner=bob&limit=10").0, bobs);
}

#[test]
fn a_namespace_nobody_uses_has_empty_listings() {
    let server = Server::start(&[]);
    assert_eq!(get_json(&server, "/v1/none/locks"), json!({ "locks": [] }));
    assert_eq!(get_json(&server, "/v1/none/tree"), json!({ "nodes": [], "truncated": false }));
    assert_eq!(get_json(&server, "/v1/none/waits"), json!({ "edges": [], "truncated": false }));
    assert_eq!(get_json(&server, "/v1/none/operator-log"), json!({ "actions": [] }));
    get(&server, "/v1/none/locks/1").assert_problem(404, "unknown_namespace");
}

#[test]
fn a_query_that_cannot_be_is_refused() {
    let server = Server::start(&[]);
    for query in [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=",
        "after=x",
        "state=held",
        "stat=granted",
        "limit=1&limit=2",
    ] {
        get(&server, &format!("/v1/default/locks?{query}")).assert_problem(400, "bad_query");
    }
    for query in ["path=a//b", "path=a%25zz", "path=%25FF"] {
        get(&server, &format!("/v1/default/locks?{query}")).assert_problem(400, "bad_path");
        get(&server, &format!("/v1/default/tree?{query}")).assert_problem(400, "bad_path");
    }
    get(&server, "/v1/default/tree?depth=1").assert_problem(400, "bad_query");
    get(&server, "/v1/default/locks?limit=100000").assert_problem(400, "over_limit");
}

#[test]
fn one_lock_can_be_looked_at() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let lock = get_json(&server, &format!("/v1/default/locks/{}", held.lock));
    assert_eq!((&lock["lock"], &lock["token"]), (&json!(held.lock), &json!(held.token)));
    get(&server, "/v1/default/locks/999999999").assert_problem(404, "unknown_lock");
    get(&server, "/v1/default/locks/first").assert_problem(404, "unknown_lock");
    get(&server, "/v1/default/locks/99999999999999999999999").assert_problem(404, "unknown_lock");
}

// The tree and the graph.

#[test]
fn the_tree_shows_claims_and_the_intents_above_them() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let writing = ann.hold("write user/42");
    let reading = bob.hold("read user/7/name:1");
    let waiting = bob.queue("read user/42");
    let nodes = get_json(&server, "/v1/default/tree")["nodes"].clone();
    let claim = |peer: &Peer, name: &str, lock: &Value, mode: &str, sign: &str, granted: bool| json!({ "lock": lock, "session": peer.session, "name": name, "mode": mode, "sign": sign, "granted": granted });
    let mut deep = claim(&bob, "bob", &json!(reading.lock), "read", "S", true);
    deep["depth"] = 1.into();
    let expected = json!([
        { "path": [], "claims": [], "intents": { "read": 1, "change": 1 } },
        { "path": ["user"], "claims": [], "intents": { "read": 1, "change": 1 } },
        { "path": ["user", "42"], "intents": { "read": 0, "change": 0 }, "claims": [
            claim(&ann, "ann", &json!(writing.lock), "write", "X", true),
            claim(&bob, "bob", &waiting["lock"], "read", "IS", false),
        ] },
        { "path": ["user", "7"], "claims": [], "intents": { "read": 1, "change": 0 } },
        { "path": ["user", "7", "name"], "claims": [deep], "intents": { "read": 0, "change": 0 } },
    ]);
    assert_eq!(nodes, expected);
}

#[test]
fn a_waiting_writer_shows_its_pending_intent() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("update a");
    bob.queue("write a");
    let claims =
        get_json(&server, "/v1/default/tree?path=a")["nodes"].as_array().unwrap().last().unwrap()["claims"]
            .clone();
    let signs: Vec<_> = claims.as_array().unwrap().iter().map(|claim| &claim["sign"]).collect();
    assert_eq!(signs, ["U", "IX"]);
}

#[test]
fn the_tree_can_be_asked_for_a_part() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    ann.hold("write user/42/name");
    ann.hold("write bill/1");
    let tree = get_json(&server, "/v1/default/tree?path=user/42");
    let paths: Vec<_> = tree["nodes"].as_array().unwrap().iter().map(|node| node["path"].clone()).collect();
    assert!(paths.contains(&json!(["user", "42", "name"])), "{tree}");
    assert!(!paths.contains(&json!(["bill", "1"])), "{tree}");
    assert_eq!(
        get_json(&server, "/v1/default/tree?path=nowhere"),
        json!({ "nodes": [], "truncated": false })
    );
}

#[test]
fn child_lists_have_signs_of_their_own() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    ann.hold("list user");
    ann.hold("link bill");
    let tree = get_json(&server, "/v1/default/tree").to_string();
    assert!(tree.contains("\"sign\":\"CS\"") && tree.contains("\"sign\":\"CX\""), "{tree}");
}

#[test]
fn the_graph_shows_who_waits_for_whom() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    let held = ann.hold("write a");
    let first = bob.queue("write a");
    let second = eve.queue("write a");
    let graph = get_json(&server, "/v1/default/waits");
    assert_eq!(graph["truncated"], false);
    let mut edges: Vec<(u64, u64)> = graph["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| (edge["waiter"].as_u64().unwrap(), edge["blocker"].as_u64().unwrap()))
        .collect();
    edges.sort_unstable();
    let (first, second) = (first["lock"].as_u64().unwrap(), second["lock"].as_u64().unwrap());
    assert_eq!(edges, [(first, held.lock), (second, held.lock), (second, first)]);
    let edge = graph["edges"].as_array().unwrap().iter().find(|edge| edge["waiter"] == first).unwrap();
    assert_eq!(
        (&edge["waiter_session"], &edge["blocker_session"]),
        (&json!(bob.session), &json!(ann.session))
    );
}

// The rest.

#[test]
fn a_server_is_healthy_and_ready() {
    let server = Server::start(&[]);
    let reply = get(&server, "/healthz");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    assert_eq!(get_json(&server, "/readyz"), json!({ "status": "ready" }));
}

#[test]
fn the_description_served_is_the_one_in_the_repository() {
    let server = Server::start(&[]);
    let golden = std::fs::read_to_string(repository().join("docs/openapi.json")).unwrap();
    let reply = get(&server, "/openapi.json");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.body == golden, "docs/openapi.json is not what is served");
}

#[test]
fn every_route_in_the_description_answers() {
    let server = Server::start(&[]);
    let paths = get_json(&server, "/openapi.json")["paths"].as_object().unwrap().clone();
    assert!(paths.len() > 8, "{paths:?}");
    for (path, methods) in paths {
        let target = path.replace("{namespace}", "default").replace("{lock}", "1");
        for method in methods.as_object().unwrap().keys() {
            if target == "/v1/backup" {
                continue; // Its answer is no text; the tests of backups have it.
            }
            let reply = request(server.native, &method.to_uppercase(), &target, &[]);
            let answer = if reply.status >= 400 { reply.json() } else { Value::Null };
            assert_ne!(answer["code"], "not_found", "{path}");
            assert_ne!(reply.status, 405, "{path}");
            assert!(reply.status < 500, "{path}: {reply:?}");
        }
    }
}

#[test]
fn an_address_without_anything_is_a_problem() {
    let server = Server::start(&[]);
    for target in ["/", "/v1", "/v1/default", "/v1/default/lock", "/v2/namespaces", "/%00"] {
        get(&server, target).assert_problem(404, "not_found");
    }
}

#[test]
fn a_method_that_is_not_taken_is_a_problem() {
    let server = Server::start(&[]);
    for (method, target) in [
        ("PUT", "/v1/default/locks"),
        ("DELETE", "/v1/namespaces"),
        ("PUT", "/v1/default/locks/1"),
        ("DELETE", "/healthz"),
        ("PATCH", "/metrics"),
    ] {
        request(server.native, method, target, &[]).assert_problem(405, "method_not_allowed");
    }
}
