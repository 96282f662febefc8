//! What a purge means for others: those who follow a namespace are told, procedures go with it, and purges that wait for
//! each other are completed together.

use crate::{
    harness::Server,
    harness::eventually,
    http,
    purge::{begin, purge, purges, verify},
    store::Store,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const ADD: &str = "
return function(db, key, amount)
    local account = db.get('account', key) or { balance = 0 }
    db.put('account', key, { balance = account.balance + amount })
    return account.balance + amount
end";

fn fill(shop: &Store) -> u64 {
    shop.create("user", 1, json!({ "name": "Ann" }));
    shop.create("order", 1, json!({ "n": 1 }));
    shop.get("position")["position"].as_u64().unwrap()
}

/// That who was at a position before the purge is told of it, wherever that position is used.
#[track_caller]
fn assert_told(shop: &Store, before: u64, purged: u64) {
    let says = format!("was purged at position {purged}");
    let lock = json!({ "collection": "user", "key": 1, "position": before });
    let write =
        json!({ "events": [{ "type": "put", "collection": "x", "key": 1, "fields": {} }], "locks": [lock] });
    let typed = [("accept", "text/event-stream"), ("last-event-id", &before.to_string())];
    let told = [
        shop.send("GET", &format!("changes?after={before}"), ""),
        shop.send("GET", "changes?after=0", ""),
        http::request(shop.native, "GET", &shop.target("changes"), &typed),
        shop.send("GET", &format!("documents/user/1?at={before}"), ""),
        shop.send("POST", "filter", &json!({ "collection": "user", "at": before }).to_string()),
    ];
    for reply in told {
        let problem = reply.assert_problem(410, "position_too_old");
        assert!(problem["detail"].as_str().unwrap().contains(&says), "{problem}");
    }
    shop.refuses("POST", "write", &write, 410, "position_too_old");
}

#[test]
fn who_follows_a_namespace_is_told_that_it_was_purged_and_where_to_go_on() {
    let mut server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    let before = fill(&shop);
    let purged = purge(&shop, json!({ "confirm": "shop" }))["position"].as_u64().unwrap();
    assert_eq!(purged, before + 1);
    for restart in [false, true] {
        if restart {
            server = verify(server.stop()).restart(&[]);
        }
        let shop = Store::new(&server, "shop");
        assert_eq!(shop.get("position"), json!({ "position": purged, "horizon": purged }));
        let empty = json!({ "position": purged, "commits": [], "next": purged });
        assert_eq!(shop.get(&format!("changes?after={purged}")), empty);
        assert_eq!(shop.get("changes"), empty);
        assert_eq!(shop.get("collections"), json!({ "position": purged, "collections": [] }));
        shop.send("GET", &format!("changes?after={}", purged + 1), "").assert_problem(409, "position_ahead");
        assert_told(&shop, before, purged);
        let refused = shop.refuses(
            "POST",
            "purge",
            &json!({ "confirm": "shop", "user": "ann" }),
            404,
            "unknown_namespace",
        );
        let says = format!("it was purged at position {purged}, and nothing was written to it since");
        assert!(refused["detail"].as_str().unwrap().contains(&says), "{refused}");
        let refused = shop.send("GET", "dump", "").assert_problem(404, "unknown_namespace");
        assert!(refused["detail"].as_str().unwrap().contains(&says), "{refused}");
    }
    let shop = Store::new(&server, "shop");
    assert_eq!(shop.create("user", 1, json!({ "name": "Eve" })), purged + 1);
    assert_eq!(shop.get(&format!("changes?after={purged}"))["commits"][0]["position"], purged + 1);
    assert_told(&shop, before, purged);
    // Where history is forgotten for another reason, that is what is said.
    shop.update("user", 1, json!({ "name": "Eva" }));
    shop.trim(0);
    let refused =
        shop.send("GET", &format!("changes?after={purged}"), "").assert_problem(410, "position_too_old");
    assert!(!refused["detail"].as_str().unwrap().contains("purged"), "{refused}");
    let never = Store::new(&server, "never");
    assert_eq!(never.get("position"), json!({ "position": 0, "horizon": 0 }));
    let refused = never.refuses(
        "POST",
        "purge",
        &json!({ "confirm": "never", "user": "ann" }),
        404,
        "unknown_namespace",
    );
    assert!(refused["detail"].as_str().unwrap().contains("nothing was ever written to it"), "{refused}");
}

/// A reader that is fast enough hears of the purge as of any commit; one that is not is told and ends.
#[test]
fn a_stream_of_changes_tells_of_the_purge_of_its_namespace() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    let mut reader = TcpStream::connect(server.native).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "GET /v1/shop/changes HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
        server.native
    );
    reader.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("id: ")), "where it starts");
    let purged = purge(&shop, json!({ "confirm": "shop" }))["position"].as_u64().unwrap();
    shop.create("user", 1, json!({ "name": "later" }));
    let data = lines.find(|line| line.starts_with("data: ")).unwrap();
    if data.contains("urn:lockwood:position_too_old") {
        assert!(data.contains(&format!("was purged at position {purged}")), "{data}");
    } else {
        assert!(
            data.contains(r#""purged":{}"#) && data.contains(&format!(r#""position":{purged}"#)),
            "{data}"
        );
        let next = lines.find(|line| line.starts_with("data: ")).unwrap();
        assert!(next.contains("later") && next.contains(&format!(r#""position":{}"#, purged + 1)), "{next}");
    }
}

fn register(shop: &Store) {
    let typed = [("content-type", "text/plain")];
    let reply = http::send(shop.native, "PUT", &shop.target("shard/procedures/add"), &typed, ADD.as_bytes());
    assert_eq!(reply.status, 200, "{reply:?}");
}

fn call(shop: &Store) -> http::Reply {
    let body = json!({ "mode": "rw", "procedure": "add", "collection": "account", "key": "a", "arguments": [5],
        "wait_ms": 10_000 });
    shop.send("POST", "shard/call", &body.to_string())
}

#[test]
fn procedures_stay_when_their_collection_is_purged_and_go_with_their_namespace() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    register(&shop);
    assert_eq!(call(&shop).json()["answer"], 5);
    assert_eq!(call(&shop).json()["answer"], 10);
    purge(&shop, json!({ "collection": "account", "confirm": "account" }));
    assert_eq!(call(&shop).json()["answer"], 5, "what it wrote is gone");
    purge(&shop, json!({ "confirm": "shop" }));
    assert_eq!(shop.get("shard/procedures"), json!({ "procedures": [] }));
    call(&shop).assert_problem(404, "no_procedure");
    let server = verify(server.stop()).restart(&[]);
    let shop = Store::new(&server, "shop");
    call(&shop).assert_problem(404, "no_procedure");
    register(&shop);
    assert_eq!(call(&shop).json()["answer"], 5);
}

#[test]
fn calls_of_procedures_during_purges_are_done_whole_or_refused() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    register(&shop);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let reply = call(&shop);
                assert!(matches!(reply.status, 200 | 404 | 409 | 423), "{reply:?}");
                if reply.status == 404 {
                    let typed = [("content-type", "text/plain")];
                    let target = shop.target("shard/procedures/add");
                    let put = http::send(shop.native, "PUT", &target, &typed, ADD.as_bytes());
                    assert!(put.status < 500, "{put:?}");
                }
            }
        });
        for round in 0..6 {
            let body = match round % 2 {
                0 => {
                    json!({ "collection": "account", "confirm": "account", "user": "ann", "wait_ms": 10_000 })
                }
                _ => json!({ "confirm": "shop", "user": "ann", "wait_ms": 10_000 }),
            };
            let reply = shop.send("POST", "purge", &body.to_string());
            assert!(matches!(reply.status, 202 | 404 | 409 | 423), "{reply:?}");
        }
        stop.store(true, Ordering::Relaxed);
        calls.join().unwrap();
    });
    eventually("the purges are complete", || purges(&shop).is_empty());
    let ended = verify(server.stop());
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
}

/// The first waits for a reader, the others for the first; of those, the last takes the records of the others with it.
#[test]
fn purges_that_wait_are_completed_together() {
    let server = Server::start(&[]);
    let (shop, other) = (Store::new(&server, "shop"), Store::new(&server, "other"));
    for key in 0..40 {
        shop.create("large", key, json!({ "text": "x".repeat(400_000) }));
    }
    for key in 0..5 {
        other.create("user", key, json!({ "name": format!("secret {key}") }));
    }
    let mut reader = TcpStream::connect(server.native).unwrap();
    write!(reader, "GET /v1/shop/dump HTTP/1.1\r\nhost: {}\r\n\r\n", server.native).unwrap();
    reader.read_exact(&mut [0; 64]).unwrap();
    begin(&other, json!({ "collection": "user", "keys": [0], "user": "ann" }));
    eventually("the first purge waits for the reader", || {
        purges(&other).first().is_some_and(|purge| purge["step"] == "readers")
    });
    for key in 1..4 {
        begin(&other, json!({ "collection": "user", "keys": [key], "user": "ann" }));
    }
    begin(&shop, json!({ "collection": "large", "confirm": "large", "user": "ann" }));
    begin(&other, json!({ "confirm": "other", "user": "ann" }));
    assert_eq!(purges(&other).len(), 6);
    drop(reader);
    eventually("the purges are complete", || purges(&other).is_empty());
    let ended = verify(server.stop());
    let written: Vec<&str> =
        ended.log.lines().filter(|line| line.contains("the files are written anew")).collect();
    let counts: Vec<bool> = ["purges=1", "purges=4", "purges=1"]
        .iter()
        .zip(&written)
        .map(|(count, line)| line.contains(count))
        .collect();
    assert_eq!(counts, [true; 3], "{written:?}");
    let found: Value = json!(String::from_utf8_lossy(
        &std::process::Command::new("grep")
            .args(["-r", "-a", "-o", "secret [0-9]"])
            .arg(ended.data())
            .output()
            .unwrap()
            .stdout
    ));
    assert_eq!(found, "", "in the files");
}
