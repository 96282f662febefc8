//! Unread answers and half-sent requests hold no more memory together than a limit allows, and not for ever.

use crate::{
    harness::{Server, eventually},
    http::{Reply, exchange, get, request},
    leaseholder::Leaseholder,
    store::Store,
};
use serde_json::json;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// What these tests cover; that of bodies from other nodes has its test beside the code that reads bodies.
pub(crate) const COVERED: &[&str] = &["held_bytes_max", "peer_body_bytes_max"];

const MIB: usize = 1024 * 1024;
/// Loopback keeps several megabytes of an answer that nobody reads, so answers are larger than that.
const DOCUMENTS: usize = 6;
const ANSWER_BYTES: usize = DOCUMENTS * 3 * MIB;

/// A server with an answer of [`ANSWER_BYTES`].
fn start(flags: &[&str]) -> (Server, Store) {
    let server = Server::start(flags);
    let store = Store::new(&server, "default");
    for key in 0..DOCUMENTS {
        store.create("large", key, json!({ "text": "x".repeat(3 * MIB) }));
    }
    (server, store)
}

/// Sends a request and reads nothing of what comes back but its status.
fn unread(address: SocketAddr, target: &str) -> (TcpStream, String) {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    tcp.write_all(format!("GET {target} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut status = [0; 12];
    tcp.read_exact(&mut status).unwrap();
    (tcp, String::from_utf8_lossy(&status).into_owned())
}

fn held_bytes(server: &Server) -> usize {
    let metrics = get(server, "/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("lockwood_held_bytes "));
    line.unwrap_or_else(|| panic!("no gauge in {metrics}")).parse().unwrap()
}

/// What needs no memory is answered whatever is held.
#[track_caller]
fn check_small_requests(server: &Server) {
    assert_eq!(get(server, "/healthz").status, 200);
    let ann = Leaseholder::new(server, "ann");
    let lease = ann.take("write a");
    let reply = ann.release(lease.lock, &json!({ "token": lease.token }));
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn unread_answers_use_up_the_account_and_small_requests_go_on() {
    let limit = (2 * ANSWER_BYTES + MIB).to_string();
    let (server, _) = start(&["--held-bytes-max", &limit]);
    let target = "/v1/default/documents/large";
    let first = unread(server.native, target);
    let second = unread(server.native, target);
    assert_eq!((first.1.as_str(), second.1.as_str()), ("HTTP/1.1 200", "HTTP/1.1 200"));
    eventually("both answers are held", || held_bytes(&server) >= 2 * ANSWER_BYTES);
    let refused = get(&server, target);
    refused.assert_problem(503, "memory_in_use");
    assert!(refused.body.contains("--held-bytes-max"), "{refused:?}");
    check_small_requests(&server);
    drop(first);
    eventually("an answer that nobody can read is let go", || held_bytes(&server) < 2 * ANSWER_BYTES);
    assert_eq!(get(&server, target).status, 200);
}

#[test]
fn a_connection_whose_peer_does_not_read_is_closed_after_the_write_timeout() {
    let (server, _) = start(&["--write-timeout", "300ms"]);
    let unread =
        [unread(server.native, "/v1/default/documents/large"), unread(server.native, "/v1/default/dump")];
    eventually("nothing is held any more", || held_bytes(&server) == 0);
    for (mut tcp, _) in unread {
        let mut rest = Vec::new();
        // It was cut off, by an end or by a reset.
        let _ = tcp.read_to_end(&mut rest);
        assert!(rest.len() < ANSWER_BYTES, "{} bytes arrived", rest.len());
    }
}

#[test]
fn unread_dumps_hold_no_more_than_the_account_has() {
    let (server, _) = start(&["--held-bytes-max", &(4 * MIB).to_string()]);
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..30 {
        let (tcp, status) = unread(server.native, "/v1/default/dump");
        match status.as_str() {
            "HTTP/1.1 200" => open.push(tcp),
            "HTTP/1.1 503" => refused += 1,
            other => panic!("{other}"),
        }
        // A dump is counted when its pieces are made.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(refused > 0, "none of {} dumps was refused", open.len());
    get(&server, "/v1/default/dump").assert_problem(503, "memory_in_use");
    // Each of those that were let in had a piece under way at most when the account was used up.
    let held = held_bytes(&server);
    assert!(held <= (4 + 4 * open.len()) * MIB, "{held} bytes for {} dumps", open.len());
    check_small_requests(&server);
    drop(open);
    eventually("all is let go", || held_bytes(&server) == 0);
    assert_eq!(get(&server, "/v1/default/dump").status, 200);
}

/// The most memory that a server had so far.
fn peak_bytes(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

/// What a piece of a dump takes while it is made is not known before; so few of them are made at the same time.
#[test]
fn unread_dumps_that_begin_together_take_no_more_memory_than_the_account_has() {
    const LIMIT: usize = 32 * MIB;
    let server = Server::start(&["--held-bytes-max", &LIMIT.to_string()]);
    let store = Store::new(&server, "default");
    for key in 0..4 {
        store.create("large", key, json!({ "text": "x".repeat(7 * MIB) }));
    }
    let before = peak_bytes(&server);
    let mut open: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(server.native).unwrap()).collect();
    let request = format!("GET /v1/default/dump HTTP/1.1\r\nhost: {}\r\n\r\n", server.native);
    open.iter_mut().for_each(|tcp| tcp.write_all(request.as_bytes()).unwrap());
    eventually("the account is used up", || held_bytes(&server) >= LIMIT);
    check_small_requests(&server);
    let taken = peak_bytes(&server).saturating_sub(before);
    assert!(taken < LIMIT + 400 * MIB, "{} MiB were taken", taken / MIB);
    drop(open);
    eventually("all is let go", || held_bytes(&server) == 0);
    assert_eq!(get(&server, "/v1/default/dump").status, 200);
}

/// Reads a little every now and then, for several times as long as the write timeout: the kernel has so much to send
/// that no write gets through meanwhile.
#[test]
fn a_reader_that_is_slow_but_alive_gets_everything() {
    let (server, _) = start(&["--write-timeout", "3s"]);
    let (mut tcp, status) = unread(server.native, "/v1/default/dump");
    assert_eq!(status, "HTTP/1.1 200");
    let mut some = vec![0; 25_000];
    let mut bytes = Vec::new();
    for _ in 0..100 {
        let len = tcp.read(&mut some).unwrap();
        bytes.extend_from_slice(&some[..len]);
        std::thread::sleep(Duration::from_millis(100));
    }
    while !bytes.ends_with(b"0\r\n\r\n") {
        let len = tcp.read(&mut some).unwrap();
        assert!(len > 0, "it was cut off after {} bytes", bytes.len());
        bytes.extend_from_slice(&some[..len]);
    }
    assert!(bytes.len() > ANSWER_BYTES);
}

/// To HTTP/1.0 a body ends with its connection, so one that is not complete must not end like one that is.
#[test]
fn a_stream_to_an_old_client_that_is_cut_off_does_not_look_complete() {
    let (server, _) = start(&["--write-timeout", "300ms"]);
    let mut tcp = TcpStream::connect(server.native).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    tcp.write_all(format!("GET /v1/default/dump HTTP/1.0\r\nhost: {}\r\n\r\n", server.native).as_bytes())
        .unwrap();
    eventually("the dump has begun", || held_bytes(&server) > 0);
    eventually("it is given up", || held_bytes(&server) == 0);
    let mut rest = Vec::new();
    let ended = tcp.read_to_end(&mut rest);
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

/// Begins a request whose body does not end.
fn half_sent(address: SocketAddr, target: &str, bytes: usize) -> TcpStream {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        8 * MIB
    );
    tcp.write_all(head.as_bytes()).unwrap();
    tcp.write_all(&vec![b' '; bytes]).unwrap();
    tcp
}

fn reply_to(mut tcp: TcpStream) -> Reply {
    let mut text = String::new();
    let _ = tcp.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not HTTP: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

#[test]
fn half_sent_bodies_use_up_the_account_and_small_requests_go_on() {
    let server = Server::start(&["--held-bytes-max", &(2 * MIB).to_string()]);
    let first = half_sent(server.native, "/v1/default/write", MIB);
    eventually("the body is counted", || held_bytes(&server) >= MIB);
    let second = half_sent(server.native, "/v1/default/write", 4 * MIB);
    reply_to(second).assert_problem(503, "memory_in_use");
    Store::new(&server, "default").create("a", 1, json!({ "n": 1 }));
    check_small_requests(&server);
    drop(first);
    eventually("all is let go", || held_bytes(&server) == 0);
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_refused_on_every_interface() {
    let flags = [
        "--body-timeout",
        "300ms",
        "--openslides",
        "127.0.0.1:0,127.0.0.1:0",
        "--elasticsearch",
        "127.0.0.1:0",
        "--schema-registry",
        "127.0.0.1:0",
    ];
    let server = Server::start(&flags);
    let asked = [
        (server.native, "/v1/default/write", 408),
        (server.native, "/v1/default/load", 408),
        (server.openslides_reader(), "/internal/datastore/reader/get", 400),
        (server.openslides_writer(), "/internal/datastore/writer/write", 400),
        (server.elasticsearch(), "/_bulk", 408),
        (server.schema_registry(), "/subjects/a/versions", 408),
    ];
    for (address, target, status) in asked {
        let kind = if target.ends_with("load") { "application/x-ndjson" } else { "application/json" };
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\nconnection: close\r\n\
             content-length: 100\r\n\r\n{{"
        );
        tcp.write_all(head.as_bytes()).unwrap();
        let reply = reply_to(tcp);
        assert_eq!(reply.status, status, "{target}: {reply:?}");
        assert!(reply.body.contains("took too long to arrive"), "{target}: {reply:?}");
        assert!(reply.body.contains("--body-timeout"), "{target}: {reply:?}");
    }
}

#[test]
fn a_half_sent_message_of_a_session_is_counted_too() {
    let server = Server::start(&["--held-bytes-max", &MIB.to_string()]);
    let mut tcp = TcpStream::connect(server.native).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let handshake = format!(
        "GET /v1/default/session HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.native
    );
    tcp.write_all(handshake.as_bytes()).unwrap();
    // A text frame of 8 MiB, masked with zeros, of which half arrives.
    let mut frame = vec![0x81, 0xFF];
    frame.extend_from_slice(&(8 * MIB as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(frame.len() + 4 * MIB, b' ');
    let _ = tcp.write_all(&frame);
    let mut said = Vec::new();
    let _ = tcp.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("memory_in_use"), "{said}");
    eventually("all is let go", || held_bytes(&server) == 0);
}

#[test]
fn a_body_above_its_limit_is_refused_before_it_is_read() {
    let server = Server::start(&["--body-bytes-max", "2000"]);
    let head = "POST /v1/default/write HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                connection: close\r\ncontent-length: 2147483648\r\n\r\n";
    let reply = exchange(server.native, head.as_bytes());
    reply.assert_problem(400, "over_limit");
    assert_eq!(request(server.native, "GET", "/healthz", &[]).status, 200);
}
