//! Nodes trust each other, and call each other, for a reason: an address that no node has is not called, and what one node said
//! to another is worth nothing when it is said again.

use crate::{
    harness::eventually,
    http,
    nodes::Nodes,
    spread_nodes::{Spread, modulo},
};
use serde_json::json;
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

/// The hosts of a map are preferences of an operator, who may err, and maps come from clients.
#[test]
fn an_address_in_a_map_that_no_node_has_is_never_called() {
    let strangers = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let host = |mode: &str, stranger: &TcpListener| {
        stranger.set_nonblocking(true).unwrap();
        json!([mode, 100, "127.0.0.1", stranger.local_addr().unwrap().port()])
    };
    let spread = Spread::without_map(2, 2, &[]);
    let list = strangers.chunks(2).map(|pair| json!([host("rw", &pair[0]), host("ro", &pair[1])]));
    let change = json!({ "list": list.collect::<Vec<_>>(), "curr": modulo(2) });
    eventually("the map is in force", || {
        spread.keeper().send("POST", "shard/config", &change.to_string()).status == 200
    });
    // All nodes read it.
    thread::sleep(Duration::from_secs(2));
    for (node, key) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let store = spread.store(node, "shop");
        let user = json!({ "collection": "user", "key": key });
        let read = json!({ "collection": "user", "key": key, "mode": "ro" });
        assert_eq!(store.send("PUT", &format!("documents/user/{key}"), r#"{"v":1}"#).status, 200);
        for _ in 0..5 {
            let stale = store.send("GET", &format!("documents/user/{key}?max_lag_ms=60000"), "");
            // A copy may not have it yet.
            assert!([200, 404].contains(&stale.status), "{}", stale.body);
            for (path, body) in [
                ("shard/select", &user),
                ("shard/eselect", &read),
                ("count", &json!({ "collection": "user" })),
            ] {
                let reply = store.send("POST", path, &body.to_string());
                assert_eq!(reply.status, 200, "{path}: {}", reply.body);
            }
        }
        spread.nodes.status(node);
    }
    // Followers and preferences are looked after every second.
    thread::sleep(Duration::from_secs(2));
    for stranger in &strangers {
        assert_eq!(stranger.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it was called");
    }
}

#[test]
fn a_call_that_was_recorded_is_refused_when_it_is_made_again() {
    let (nodes, proxies) = Nodes::start_apart(2, 1);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    // By then the two nodes know each other, and one call is enough.
    eventually("the owner serves", || {
        nodes.store(other).send("PUT", "documents/user/2", r#"{"v":1}"#).status == 200
    });
    proxies[owner - 1].record();
    assert_eq!(nodes.store(other).send("PUT", "documents/user/1", r#"{"v":1}"#).status, 200);
    let recorded = proxies[owner - 1].recorded();
    let calls = recorded.iter().filter_map(|bytes| call(bytes, "PUT ", "/documents/user/1"));
    let calls: Vec<Vec<u8>> = calls.collect();
    assert_eq!(calls.len(), 1, "{} connections", recorded.len());
    assert_eq!(nodes.store(other).send("PUT", "documents/user/1", r#"{"v":2}"#).status, 200);
    let door: SocketAddr = nodes.peer(owner).parse().unwrap();
    let refused = http::exchange(door, &calls[0]);
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(refused.json()["code"], "not_a_peer", "{refused:?}");
    // The other node is another receiver.
    let other_door: SocketAddr = nodes.peer(other).parse().unwrap();
    assert_eq!(http::exchange(other_door, &calls[0]).status, 401);
    let found = nodes.store(other).get("documents/user/1");
    assert_eq!(found["document"]["value"]["v"], 2, "{found}");
}

/// The last request in recorded bytes whose first line begins and goes on like this, whole.
fn call(recorded: &[u8], method: &str, path: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(recorded);
    let starts = text.match_indices(method).map(|(at, _)| at);
    let is_it = |at: &usize| text[*at..].lines().next().is_some_and(|line| line.contains(path));
    let request = &text[starts.filter(is_it).last()?..];
    let (head, body) = request.split_once("\r\n\r\n")?;
    let lowercase = head.to_ascii_lowercase();
    let length = lowercase.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length?.parse().ok()?;
    Some(format!("{head}\r\n\r\n{}", &body[..length]).into_bytes())
}
