//! What clients may say and what they are answered, byte for byte.

use crate::{
    client::{Client, check_usable, groups, lock, reply},
    harness::Server,
    raw::{BINARY, CLOSE, FIN, PING, Seen, TEXT, frame},
};

const RELEASE: &str = r#"{"action":"release"}"#;

#[test]
fn the_four_replies() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    holder.send(&lock("write a"));
    assert_eq!(holder.text(), "{\"id\":\"1\",\"action\":\"lock\",\"state\":\"acquired\"}\n");
    waiter.send(&lock("write a"));
    assert_eq!(waiter.text(), "{\"id\":\"2\",\"action\":\"lock\",\"state\":\"enqueued\"}\n");
    holder.send(RELEASE);
    assert_eq!(holder.text(), "{\"id\":\"1\",\"action\":\"release\",\"state\":\"ready\"}\n");
    assert_eq!(waiter.text(), "{\"id\":\"2\",\"action\":\"lock\",\"state\":\"acquired\"}\n");
    waiter.send(RELEASE);
    assert_eq!(waiter.text(), "{\"id\":\"2\",\"action\":\"release\",\"state\":\"ready\"}\n");
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = Server::start(&[]);
    let mut client = Client::connect(&server, "n");
    let pair = [lock("w a/b"), RELEASE.to_owned()].map(|text| frame(FIN | TEXT, text.as_bytes())).concat();
    client.send_bytes(&pair.repeat(100));
    for id in 1..=100 {
        // Free before it is answered: the same path is never seen as taken by the lock before.
        assert_eq!(client.text(), reply(id, "lock", "acquired"));
        assert_eq!(client.text(), reply(id, "release", "ready"));
    }
}

#[test]
fn a_pipelined_release_ends_a_wait() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a"), "acquired");
    let commands = [&lock("w a"), RELEASE, &lock("w b"), RELEASE, &lock("r a")];
    waiter.send_bytes(&commands.map(|text| frame(FIN | TEXT, text.as_bytes())).concat());
    assert_eq!(waiter.text(), reply(2, "lock", "enqueued"));
    assert_eq!(waiter.text(), reply(2, "release", "ready"));
    assert_eq!(waiter.text(), reply(3, "lock", "acquired"));
    assert_eq!(waiter.text(), reply(3, "release", "ready"));
    assert_eq!(waiter.text(), reply(4, "lock", "enqueued"));
    holder.release();
    assert_eq!(waiter.text(), reply(4, "lock", "acquired"));
}

#[test]
fn commands_may_follow_the_handshake_in_the_same_write() {
    use std::io::{Read, Write};
    let server = Server::start(&[]);
    let mut stream = std::net::TcpStream::connect(server.locktopus).unwrap();
    let mut bytes = format!(
        "GET /v1?namespace=n HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n{}\r\n",
        crate::raw::UPGRADE
    )
    .into_bytes();
    bytes.extend(frame(FIN | TEXT, lock("w a").as_bytes()));
    bytes.extend(frame(FIN | TEXT, RELEASE.as_bytes()));
    bytes.extend(frame(FIN | CLOSE, &1000u16.to_be_bytes()));
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains(&reply(1, "lock", "acquired")), "{answer}");
    assert!(answer.contains(&reply(1, "release", "ready")), "{answer}");
}

/// Each of these is a lock, and means the same as the resources beside it.
const TOLERATED: &[(&str, &str)] = &[
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"W","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"wRiTe","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"r","path":["a"]}]}"#, "r a"),
    (r#"{"action":"lock","resources":[{"type":"R","path":["a"]}]}"#, "r a"),
    (r#"{"action":"lock","resources":[{"type":"READ","path":["a"]}]}"#, "r a"),
    (r#"{"ACTION":"lock","Resources":[{"tYPE":"w","PATH":["a"]}]}"#, "w a"),
    (r#" { "resources" : [ { "path" : [ "a" ] , "type" : "w" } ] , "action" : "lock" } "#, "w a"),
    (r#"{"id":7,"action":"lock","x":{"y":[1,{}]},"resources":[{"z":null,"type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"release","action":"lock","resources":[{"type":"r","type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["x"],"path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[],"resources":[{"type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]}]}{"action":"release"}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]}]} and then some"#, "w a"),
    (r#"{"action":"lo\u0063k","resources":[{"type":"w","path":["\u0061"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"w"}]}"#, "w /"),
    (r#"{"action":"lock","resources":[{"type":"w","path":null}]}"#, "w /"),
    (r#"{"action":"lock","resources":[{"type":"w","path":[]}]}"#, "w /"),
    (r#"{"action":"lock","resources":[{"type":"r"}]}"#, "r /"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]},{"type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"r","path":["a"]},{"type":"w","path":["a"]}]}"#, "w a"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]},{"type":"w","path":["a","b"]}]}"#, "w a"),
];

#[test]
fn whatever_the_original_tolerates() {
    let server = Server::start(&[]);
    // Each probe is in the way of some of the meanings above and not of others.
    let probes = ["r a", "w a", "r a/b", "w a/b", "r b", "w b", "w /"];
    for (message, meaning) in TOLERATED {
        for first in [FIN | TEXT, FIN | BINARY] {
            let answers = |lock: &dyn Fn(&mut Client)| {
                let mut client = Client::connect(&server, "n");
                let mut other = Client::connect(&server, "n");
                lock(&mut client);
                let answers = probes.map(|probe| {
                    let answer = other.lock(probe);
                    other.release();
                    answer
                });
                client.release();
                answers
            };
            let said = answers(&|client| {
                client.send_bytes(&frame(first, message.as_bytes()));
                assert_eq!(client.locked(), "acquired", "{message}");
            });
            let meant = answers(&|client| assert_eq!(client.lock(meaning), "acquired"));
            assert_eq!(said, meant, "{message}");
        }
    }
    check_usable(&server, "n");
}

#[test]
fn an_empty_set_is_a_lock_that_blocks_nothing() {
    let server = Server::start(&[]);
    let messages = [
        r#"{"action":"lock","resources":[]}"#,
        r#"{"action":"lock","resources":null}"#,
        r#"{"action":"lock"}"#,
    ];
    for (index, message) in messages.iter().enumerate() {
        let namespace = format!("n{index}");
        let mut holder = Client::connect(&server, &namespace);
        let mut empty = Client::connect(&server, &namespace);
        let mut other = Client::connect(&server, &namespace);
        assert_eq!(holder.lock("w /"), "acquired");
        assert_eq!(empty.say_lock(message), "acquired", "{message}");
        assert_eq!(empty.id(), 2);
        holder.release();
        assert_eq!(other.lock("w /"), "acquired");
        assert_eq!(other.id(), 3);
        empty.release();
        assert_eq!(empty.lock("r a"), "enqueued");
    }
}

#[test]
fn segments_are_opaque() {
    let server = Server::start(&[]);
    let mut all = Client::connect(&server, "n");
    let segments = [
        "",
        " ",
        "/",
        "a",
        "A",
        "a/b",
        "%2F",
        "..",
        "*",
        "\0",
        "\u{1f991}",
        "é",
        "e\u{301}",
        "null",
        "\\",
        "\"",
    ];
    let resources: Vec<_> =
        segments.iter().map(|segment| serde_json::json!({ "type": "w", "path": [segment] })).collect();
    let message = serde_json::json!({ "action": "lock", "resources": resources }).to_string();
    assert_eq!(all.say_lock(&message), "acquired");
    let mut other = Client::connect(&server, "n");
    for segment in segments {
        let message = |path: &[&str]| {
            let resource = serde_json::json!({ "type": "r", "path": path });
            serde_json::json!({ "action": "lock", "resources": [resource] }).to_string()
        };
        assert_eq!(other.say_lock(&message(&[segment])), "enqueued", "{segment:?}");
        other.release();
        assert_eq!(other.say_lock(&message(&[segment, "x"])), "enqueued", "{segment:?}");
        other.release();
        assert_eq!(other.say_lock(&message(&["b", segment])), "acquired", "{segment:?}");
        other.release();
    }
    // A null segment is an empty one.
    let null = r#"{"action":"lock","resources":[{"type":"r","path":[null]}]}"#;
    assert_eq!(other.say_lock(null), "enqueued");
    all.release();
    other.granted();
}

#[test]
fn invalid_utf8_in_a_binary_message_is_replaced() {
    let server = Server::start(&[]);
    let message = |segment: &[u8]| {
        [br#"{"action":"lock","resources":[{"type":"w","path":[""#.as_slice(), segment, br#""]}]}"#].concat()
    };
    let mut one = Client::connect(&server, "n");
    one.send_bytes(&frame(FIN | BINARY, &message(b"\xff")));
    assert_eq!(one.locked(), "acquired");
    // Another invalid byte becomes the same replacement character.
    let mut other = Client::connect(&server, "n");
    other.send_bytes(&frame(FIN | BINARY, &message(b"\xfe")));
    assert_eq!(other.locked(), "enqueued");
    other.release();
    assert_eq!(other.lock("w \u{fffd}"), "enqueued");
    one.release();
    other.granted();
}

#[test]
fn fragmented_messages() {
    let server = Server::start(&[]);
    for opcode in [TEXT, BINARY] {
        let mut client = Client::connect(&server, "n");
        let message = lock("w a/b/🦑");
        // One byte per frame splits characters too; a ping may stand between the pieces.
        let (last, most) = message.as_bytes().split_last().unwrap();
        for (index, byte) in most.iter().enumerate() {
            client.send_bytes(&frame(if index == 0 { opcode } else { 0 }, &[*byte]));
        }
        client.send_bytes(&frame(FIN | PING, b"between"));
        client.send_bytes(&frame(FIN, &[*last]));
        assert_eq!(client.next(), Seen::Pong(b"between".to_vec()));
        assert_eq!(client.locked(), "acquired");
        client.release();
        client.close(1000);
    }
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let server = Server::start(&[]);
    let mut client = Client::connect(&server, "n");
    for byte in frame(FIN | TEXT, lock("w a").as_bytes()) {
        client.send_bytes(&[byte]);
    }
    assert_eq!(client.locked(), "acquired");
    client.release();
}

#[test]
fn pings_get_pongs_in_every_state() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    let ping = |client: &mut Client| {
        for payload in [&b""[..], b"x", &[0xff; 125]] {
            client.send_bytes(&frame(FIN | PING, payload));
            assert_eq!(client.next(), Seen::Pong(payload.to_vec()));
        }
    };
    ping(&mut holder);
    assert_eq!(holder.lock("w a"), "acquired");
    ping(&mut holder);
    assert_eq!(waiter.lock("w a"), "enqueued");
    ping(&mut waiter);
    // A pong nobody asked for is ignored.
    waiter.send_bytes(&frame(FIN | 0xa, b"unasked"));
    holder.release();
    waiter.granted();
}

#[test]
fn a_close_is_echoed_at_once_in_every_state() {
    let server = Server::start(&[]);
    // So long that an echo that waits for it would never come.
    const HOUR_MS: u64 = 3_600_000;
    for code in [1000, 1001, 3000, 4999] {
        let namespace = format!("n{code}");
        Client::connect_for(&server, &namespace, HOUR_MS).close(code);
        let mut holder = Client::connect_for(&server, &namespace, HOUR_MS);
        let mut waiter = Client::connect_for(&server, &namespace, HOUR_MS);
        assert_eq!(holder.lock("w a"), "acquired");
        assert_eq!(waiter.lock("w a"), "enqueued");
        waiter.close(code);
        holder.close(code);
        assert_eq!(groups(&server, &namespace), (1, 1));
        check_usable(&server, &namespace);
    }
    // A reason makes no difference to the code.
    let mut client = Client::connect(&server, "n");
    client.send_bytes(&frame(FIN | CLOSE, b"\x0b\xb8reason"));
    assert!(matches!(client.next(), Seen::Close(Some(3000), _)));
    assert_eq!(client.next(), Seen::End);
    // Without a code there is none to echo.
    let mut client = Client::connect(&server, "n");
    client.send_bytes(&frame(FIN | CLOSE, b""));
    assert!(matches!(client.next(), Seen::Close(None | Some(1000 | 1005), _)));
    assert_eq!(client.next(), Seen::End);
}

#[test]
fn numbers_start_at_1_in_every_namespace() {
    let server = Server::start(&[]);
    for namespace in ["one", "two"] {
        let mut clients = [0; 3].map(|_| Client::connect(&server, namespace));
        for id in 1..=30 {
            let client = &mut clients[id as usize % 3];
            client.lock("w a");
            assert_eq!(client.id(), id);
            client.release();
        }
    }
}
