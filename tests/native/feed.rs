//! The change feed: every commit once and in order, whatever happens to whoever follows it.

use crate::{
    harness::{Server, eventually},
    http,
    metrics::value,
    store::{Store, timeless},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::Duration,
};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

const PATIENCE: Duration = Duration::from_secs(20);

/// Somebody who reads server-sent events.
struct Events {
    lines: BufReader<Chunked>,
    /// What was in the last `id:`.
    id: Option<u64>,
}

/// Takes the chunks of a body off.
struct Chunked {
    tcp: BufReader<TcpStream>,
    left: usize,
    ended: bool,
}

impl Read for Chunked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let mut line = String::new();
            self.tcp.read_line(&mut line)?;
            if line.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.left = usize::from_str_radix(line.trim_end(), 16).unwrap();
            self.ended = self.left == 0;
            if self.ended {
                return Ok(0);
            }
        }
        let most = self.left.min(buffer.len());
        let len = self.tcp.read(&mut buffer[..most])?;
        self.left -= len;
        if self.left == 0 {
            self.tcp.read_line(&mut String::new())?;
        }
        Ok(len)
    }
}

impl Events {
    fn open(shop: &Store, query: &str, headers: &str) -> Events {
        let mut tcp = TcpStream::connect(shop.native).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let target = shop.target(&format!("changes{query}"));
        let head = format!(
            "GET {target} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{headers}\r\n",
            shop.native
        );
        tcp.write_all(head.as_bytes()).unwrap();
        let mut tcp = BufReader::new(tcp);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(tcp.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        let mut events = Events { lines: BufReader::new(Chunked { tcp, left: 0, ended: false }), id: None };
        // The first thing said is where it starts.
        let start = events.block().unwrap();
        assert!(start.len() == 1 && events.id.is_some(), "{start:?}");
        events
    }

    /// The lines up to the next empty one; nothing at the end.
    fn block(&mut self) -> Option<Vec<String>> {
        let mut block = Vec::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                assert!(block.is_empty(), "cut off: {block:?}");
                return None;
            }
            assert!(line.ends_with('\n') && !line.contains('\r'), "{line:?}");
            let line = line.trim_end_matches('\n');
            if line.is_empty() {
                return Some(block);
            }
            if let Some(id) = line.strip_prefix("id: ") {
                self.id = Some(id.parse().unwrap());
            }
            block.push(line.to_owned());
        }
    }

    /// The next commit; nothing at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let block = self.block()?;
            let Some(data) = block.iter().find_map(|line| line.strip_prefix("data: ")) else { continue };
            assert_eq!(block.len(), 3, "{block:?}");
            assert_eq!(block[1], "event: commit");
            let commit: Value = serde_json::from_str(data).unwrap();
            assert_eq!(Some(commit["position"].as_u64().unwrap()), self.id, "the id is the position");
            return Some(commit);
        }
    }

    fn position(&mut self) -> u64 {
        self.next().unwrap()["position"].as_u64().unwrap()
    }
}

/// Somebody who follows over a WebSocket.
fn open_socket(shop: &Store, query: &str) -> WebSocket<TcpStream> {
    let tcp = TcpStream::connect(shop.native).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let url = format!("ws://{}{}", shop.native, shop.target(&format!("changes{query}")));
    client(url, tcp).unwrap().0
}

fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("not a commit: {other:?}"),
        }
    }
}

fn start(flags: &[&str]) -> (Server, Store) {
    let server = Server::start(flags);
    let store = Store::new(&server, "shop");
    (server, store)
}

#[test]
fn all_three_ways_say_the_same() {
    let (_server, shop) = start(&[]);
    shop.post(
        "write",
        &json!({ "user": 7, "note": "line\nfeed",
        "events": [{ "type": "create", "collection": "a", "key": 1, "fields": { "x": "a\r\nb" } }] }),
    );
    let mut events = Events::open(&shop, "?after=0", "");
    let mut socket = open_socket(&shop, "?after=0");
    shop.update("a", 1, json!({ "x": null }));
    let page = shop.get("changes");
    for commit in page["commits"].as_array().unwrap() {
        assert_eq!(events.next().unwrap(), *commit);
        assert_eq!(hear(&mut socket), *commit);
    }
    let expected = json!({ "position": 1, "at": "T", "user": 7, "note": "line\nfeed",
        "events": [{ "type": "created", "collection": "a", "key": "1", "fields": { "x": "a\r\nb" } }] });
    assert_eq!(timeless(page["commits"][0].clone()), expected);
}

#[test]
fn a_stream_starts_with_what_comes_next() {
    let (_server, shop) = start(&[]);
    shop.create("a", 1, json!({}));
    let mut events = Events::open(&shop, "", "");
    let mut socket = open_socket(&shop, "");
    assert_eq!(events.id, Some(1));
    shop.create("a", 2, json!({}));
    assert_eq!(events.position(), 2);
    assert_eq!(hear(&mut socket)["position"], 2);
}

#[test]
fn a_namespace_can_be_followed_before_it_is_there() {
    let (_server, shop) = start(&[]);
    let mut events = Events::open(&shop, "", "");
    for key in 1..=3 {
        shop.create("a", key, json!({}));
    }
    assert_eq!((events.position(), events.position()), (1, 2));
}

#[test]
fn only_what_is_wanted_is_told() {
    let (_server, shop) = start(&[]);
    let mut events = Events::open(&shop, "?collection=b&field=x,y", "");
    let mut socket = open_socket(&shop, "?collection=b&field=x,y");
    shop.create("a", 1, json!({ "x": 1 }));
    shop.create("b", 1, json!({ "z": 1 }));
    shop.write(json!([{ "type": "create", "collection": "b", "key": 2, "fields": { "y": 1 } },
        { "type": "create", "collection": "a", "key": 2, "fields": { "y": 1 } }]));
    shop.update("b", 2, json!({ "z": 1 }));
    shop.update("b", 2, json!({ "y": null }));
    for expected in [3, 5] {
        let commit = events.next().unwrap();
        assert_eq!((&commit["position"], commit["events"].as_array().unwrap().len()), (&expected.into(), 1));
        assert_eq!(hear(&mut socket), commit);
    }
}

/// A feed tells of whole fields, so a part of one is wanted by what touches the field.
#[test]
fn a_part_of_a_field_is_wanted_with_its_field() {
    let (_server, shop) = start(&[]);
    let mut events = Events::open(&shop, "?collection=b&field=address.zip", "");
    let mut socket = open_socket(&shop, "?collection=b&field=address.zip");
    shop.create("b", 1, json!({ "zip": 1, "name": "Ann" }));
    shop.create("b", 2, json!({ "address": { "zip": "53113" } }));
    shop.update("b", 2, json!({ "name": "Bob" }));
    shop.update("b", 2, json!({ "address": { "zip": "53113", "city": "Bonn" } }));
    shop.ask("PUT", "documents/b/2/address/zip", &json!("53115"));
    shop.create("a", 2, json!({ "address": { "zip": "53113" } }));
    shop.update("b", 2, json!({ "address": null }));
    let expected = [2, 4, 5, 7];
    for position in expected {
        let commit = events.next().unwrap();
        assert_eq!(commit["position"], position);
        assert_eq!(hear(&mut socket), commit);
    }
    let page = shop.get("changes?after=0&collection=b&field=address.zip");
    let told: Vec<u64> = page["commits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|commit| commit["position"].as_u64().unwrap())
        .collect();
    assert_eq!(told, expected);
    shop.refuses("GET", "changes?field=address..zip", &Value::Null, 400, "bad_field");
}

/// Pieces of feeds and dumps are made in turns. A follower that found nothing for itself has none until the next write.
#[test]
fn followers_with_nothing_to_hear_keep_nobody_waiting() {
    let (_server, shop) = start(&[]);
    let followers: Vec<Events> = (0..12).map(|_| Events::open(&shop, "?collection=a", "")).collect();
    shop.create("b", 1, json!({ "x": 1 }));
    let (done, is_done) = mpsc::channel();
    let native = shop.native;
    // A follower that holds a turn would let go of it when it says that it is still there, after 15 s.
    thread::spawn(move || done.send(http::send(native, "GET", "/v1/shop/dump", &[], b"").status));
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(200));
    drop(followers);
}

/// Four write; one follower loses its connection again and again, one is slow, one uses a WebSocket.
#[test]
fn nothing_is_missed_and_nothing_comes_twice() {
    const EACH: u64 = 100;
    let (_server, shop) = start(&[]);
    let writers: Vec<_> = (0..4_u64)
        .map(|writer| {
            let shop = shop.clone();
            std::thread::spawn(move || {
                for n in 0..EACH {
                    shop.create("a", writer * EACH + n, json!({ "w": writer, "n": n }));
                }
            })
        })
        .collect();
    let all = 4 * EACH;
    let losing = {
        let shop = shop.clone();
        std::thread::spawn(move || {
            let mut seen: Vec<Value> = Vec::new();
            let mut last = 0;
            while (seen.len() as u64) < all {
                // A reader that comes back says what it saw last; that counts more than the address.
                let mut events = Events::open(&shop, "?after=0", &format!("last-event-id: {last}\r\n"));
                for _ in 0..(seen.len() % 37 + 1).min(all as usize - seen.len()) {
                    seen.push(events.next().unwrap());
                }
                last = events.id.unwrap();
            }
            seen
        })
    };
    let slow = {
        let shop = shop.clone();
        std::thread::spawn(move || {
            let mut events = Events::open(&shop, "?after=0", "");
            let next = |n| {
                if n % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(100));
                }
                events.next().unwrap()
            };
            (0..all).map(next).collect::<Vec<Value>>()
        })
    };
    let socket = {
        let shop = shop.clone();
        std::thread::spawn(move || {
            let mut seen: Vec<Value> = Vec::new();
            while (seen.len() as u64) < all {
                let mut socket = open_socket(&shop, &format!("?after={}", seen.len()));
                for _ in 0..(seen.len() % 53 + 1).min(all as usize - seen.len()) {
                    seen.push(hear(&mut socket));
                }
            }
            seen
        })
    };
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let mut pages = Vec::new();
    while (pages.len() as u64) < all {
        let page = shop.get(&format!("changes?limit=33&after={}", pages.len()));
        pages.extend(page["commits"].as_array().unwrap().iter().cloned());
        assert_eq!(page["next"], pages.len());
    }
    let positions: Vec<u64> = pages.iter().map(|commit| commit["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (1..=all).collect::<Vec<_>>());
    assert_eq!(losing.join().unwrap(), pages);
    assert_eq!(slow.join().unwrap(), pages);
    assert_eq!(socket.join().unwrap(), pages);
}

#[test]
fn a_feed_goes_on_after_the_server_was_killed() {
    let (server, shop) = start(&[]);
    let mut events = Events::open(&shop, "?after=0", "");
    shop.create("a", 1, json!({}));
    assert_eq!(events.position(), 1);
    shop.create("a", 2, json!({}));
    let server = server.kill().restart(&[]);
    let shop = Store::new(&server, "shop");
    let mut events = Events::open(&shop, "", "last-event-id: 1\r\n");
    shop.create("a", 3, json!({}));
    assert_eq!((events.position(), events.position()), (2, 3));
}

#[test]
fn who_was_away_for_too_long_is_told() {
    let (_server, shop) = start(&[]);
    for key in 1..=3 {
        shop.create("a", key, json!({}));
    }
    shop.trim(0);
    let accept = [("accept", "text/event-stream")];
    let target = shop.target("changes?after=2");
    http::request(shop.native, "GET", &target, &accept).assert_problem(410, "position_too_old");
    http::request(shop.native, "GET", &target, &[]).assert_problem(410, "position_too_old");
    let last = [("accept", "text/event-stream"), ("last-event-id", "2")];
    let changes = shop.target("changes");
    http::request(shop.native, "GET", &changes, &last).assert_problem(410, "position_too_old");
    let not_a_number = [("accept", "text/event-stream"), ("last-event-id", "x")];
    http::request(shop.native, "GET", &changes, &not_a_number).assert_problem(400, "bad_query");
    Events::open(&shop, "?after=3", "");
    // Without a position a page starts with what is kept.
    shop.create("a", 4, json!({}));
    assert_eq!(shop.get("changes")["commits"][0]["position"], 4);
}

/// Silence is broken now and then; and what was left out is not looked at again by who resumes.
#[test]
fn a_silent_stream_says_that_it_is_still_there() {
    let (_server, shop) = start(&[]);
    let mut events = Events::open(&shop, "?collection=b", "");
    shop.create("a", 1, json!({}));
    shop.create("a", 2, json!({}));
    assert_eq!(events.block().unwrap(), [": still here", "id: 2"]);
    shop.create("b", 1, json!({}));
    assert_eq!(events.position(), 3);
}

#[test]
fn feeds_end_when_the_server_stops() {
    let (server, shop) = start(&[]);
    let mut events = Events::open(&shop, "", "");
    let mut socket = open_socket(&shop, "");
    shop.create("a", 1, json!({}));
    server.signal("-TERM");
    assert_eq!(events.position(), 1);
    assert!(events.next().is_none(), "it ends, and properly");
    assert_eq!(hear(&mut socket)["position"], 1);
    match socket.read().unwrap() {
        Message::Close(Some(frame)) => assert_eq!(u16::from(frame.code), 1001),
        other => panic!("not the end: {other:?}"),
    }
    let _ = socket.flush();
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn followers_are_counted_in_and_out() {
    let (server, shop) = start(&[]);
    let events = Events::open(&shop, "", "");
    let socket = open_socket(&shop, "");
    assert_eq!(value(&server, "lockwood_feeds"), 2.0);
    drop((events, socket));
    shop.create("a", 1, json!({}));
    eventually("they are gone", || value(&server, "lockwood_feeds") == 0.0);
}

/// A follower that reads nothing must not hold up anybody, nor make the server remember everything.
#[test]
fn who_does_not_read_is_left_behind() {
    let (server, shop) = start(&["--write-timeout", "2s"]);
    let _stuck = Events::open(&shop, "", "");
    let _stuck_too = open_socket(&shop, "");
    let large = "x".repeat(500_000);
    for key in 0..40 {
        shop.create("a", key, json!({ "large": large }));
    }
    assert_eq!(shop.get("position")["position"], 40);
    eventually("they are given up", || value(&server, "lockwood_feeds") == 0.0);
}

#[test]
fn a_silent_follower_is_pinged_and_one_that_never_answers_given_up() {
    let (server, shop) = start(&["--ping-interval", "100ms", "--silence-max", "400ms"]);
    let mut socket = open_socket(&shop, "");
    for _ in 0..8 {
        match socket.read().unwrap() {
            Message::Ping(_) => {}
            other => panic!("not a ping: {other:?}"),
        }
        socket.flush().unwrap();
    }
    assert_eq!(value(&server, "lockwood_feeds"), 1.0);
    eventually("it is given up", || value(&server, "lockwood_feeds") == 0.0);
}

#[test]
fn what_a_follower_says_is_of_no_interest() {
    let (_server, shop) = start(&[]);
    let mut socket = open_socket(&shop, "");
    socket.send(Message::text("hello")).unwrap();
    socket.send(Message::Ping("x".into())).unwrap();
    assert!(matches!(socket.read().unwrap(), Message::Pong(_)));
    shop.create("a", 1, json!({}));
    assert_eq!(hear(&mut socket)["position"], 1);
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
}

#[test]
fn a_handshake_that_is_none_is_refused() {
    let (_server, shop) = start(&[]);
    let target = shop.target("changes");
    let headers = [("upgrade", "websocket"), ("connection", "upgrade")];
    http::request(shop.native, "GET", &target, &headers).assert_problem(400, "not_websocket");
    let headers = [("upgrade", "tea"), ("connection", "upgrade")];
    http::request(shop.native, "GET", &target, &headers).assert_problem(400, "not_websocket");
}
