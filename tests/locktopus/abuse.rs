//! Messages and frames that are wrong, in every state of a connection: one error text, the close, and nobody
//! else is the worse for it.

use crate::{
    client::{Client, check_usable, groups, lock, reply},
    harness::{Server, eventually},
    raw::{BINARY, CLOSE, FIN, PING, Seen, TEXT, frame, get, unmasked_frame},
};
use std::time::{Duration, Instant};

/// So long that what waits for it would never come.
const HOUR_MS: u64 = 3_600_000;
/// The server counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// Wrong in every state, with a part of the reason given.
const WRONG: &[(&str, &str)] = &[
    ("", "cannot read the message"),
    (" ", "cannot read the message"),
    ("x", "cannot read the message"),
    ("{", "cannot read the message"),
    (r#"{"action":"lock""#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a"]"#, "cannot read the message"),
    (r#"{action:"lock"}"#, "cannot read the message"),
    ("{'action':'lock'}", "cannot read the message"),
    ("\u{feff}{}", "cannot read the message"),
    ("{\"action\":\"lock\",\"resources\":[{\"type\":\"w\",\"path\":[\"\n\"]}]}", "cannot read the message"),
    ("[]", "cannot read the message"),
    ("3", "cannot read the message"),
    ("true", "cannot read the message"),
    (r#""lock""#, "cannot read the message"),
    (r#"[{"action":"lock"}]"#, "cannot read the message"),
    (r#"{"action":3}"#, "cannot read the message"),
    (r#"{"action":["lock"]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":{}}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":"a"}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[3]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[["w","a"]]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":1,"path":["a"]}]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":"w","path":"a"}]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":"w","path":{}}]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":"w","path":["a",3]}]}"#, "cannot read the message"),
    (r#"{"action":"lock","resources":[{"type":"w","path":[["a"]]}]}"#, "cannot read the message"),
    ("null", "invalid action: "),
    ("{}", "invalid action: "),
    (r#"{"action":null}"#, "invalid action: "),
    (r#"{"action":""}"#, "invalid action: "),
    (r#"{"action":"unlock"}"#, "invalid action: unlock"),
    (r#"{"action":"Lock"}"#, "invalid action: Lock"),
    (r#"{"action":"LOCK","resources":[{"type":"w","path":["a"]}]}"#, "invalid action: LOCK"),
    (r#"{"action":"RELEASE"}"#, "invalid action: RELEASE"),
    (r#"{"action":" lock"}"#, "invalid action:  lock"),
    (r#"{"action":"lock\n"}"#, r"invalid action: lock\n"),
];

/// Wrong only where a lock is legal.
const WRONG_IN_READY: &[(&str, &str)] = &[
    (r#"{"action":"release"}"#, "invalid action: release [ready]"),
    (r#"{"action":"lock","resources":[{}]}"#, "invalid lock type: "),
    (r#"{"action":"lock","resources":[null]}"#, "invalid lock type: "),
    (r#"{"action":"lock","resources":[{"path":["a"]}]}"#, "invalid lock type: "),
    (r#"{"action":"lock","resources":[{"type":null,"path":["a"]}]}"#, "invalid lock type: "),
    (r#"{"action":"lock","resources":[{"type":"","path":["a"]}]}"#, "invalid lock type: "),
    (r#"{"action":"lock","resources":[{"type":"x","path":["a"]}]}"#, "invalid lock type: x"),
    (r#"{"action":"lock","resources":[{"type":"rw","path":["a"]}]}"#, "invalid lock type: rw"),
    (r#"{"action":"lock","resources":[{"type":"update","path":["a"]}]}"#, "invalid lock type: update"),
    (
        r#"{"action":"lock","resources":[{"type":"w","path":["a"]},{"type":"x","path":["b"]}]}"#,
        "invalid lock type: x",
    ),
];

#[track_caller]
fn check_given_up(client: &mut Client, message: &str, expected: &str) {
    client.send(message);
    let reason = client.given_up();
    assert!(reason.contains(expected), "{message:?} was answered {reason:?}, without {expected:?}");
}

#[test]
fn wrong_messages_in_ready() {
    let server = Server::start(&[]);
    for (message, expected) in WRONG.iter().chain(WRONG_IN_READY) {
        let mut client = Client::connect_for(&server, "n", HOUR_MS);
        check_given_up(&mut client, message, expected);
        check_usable(&server, "n");
    }
    // Nothing wrong left anything behind.
    let mut client = Client::connect(&server, "n");
    assert_eq!(client.lock("w /"), "acquired");
}

#[test]
fn wrong_messages_while_holding_and_waiting() {
    let server = Server::start(&[]);
    let wrong = WRONG.iter().map(|(message, expected)| (*message, *expected, *expected));
    let again = [(
        r#"{"action":"lock","resources":[{"type":"w","path":["b"]}]}"#,
        "invalid action: lock [acquired]",
        "invalid action: lock [enqueued]",
    )];
    for (index, (message, holding, waiting)) in wrong.chain(again).enumerate() {
        let namespace = format!("n{index}");
        let mut holder = Client::connect_for(&server, &namespace, HOUR_MS);
        let mut waiter = Client::connect_for(&server, &namespace, HOUR_MS);
        assert_eq!(holder.lock("w a"), "acquired");
        assert_eq!(waiter.lock("w a"), "enqueued");
        check_given_up(&mut waiter, message, waiting);
        check_given_up(&mut holder, message, holding);
        // Both places are kept for the abandon timeout, and everything else goes on.
        assert_eq!(groups(&server, &namespace), (1, 1), "{message}");
        check_usable(&server, &namespace);
    }
}

#[test]
fn the_lock_of_a_client_given_up_stays_for_its_abandon_timeout() {
    let server = Server::start(&[]);
    const TIMEOUT: Duration = Duration::from_millis(300);
    for (index, message) in ["x", "null", &lock("w b")].into_iter().enumerate() {
        let namespace = format!("n{index}");
        let mut holder = Client::connect_for(&server, &namespace, TIMEOUT.as_millis() as u64);
        let mut next = Client::connect(&server, &namespace);
        assert_eq!(holder.lock("w a"), "acquired");
        assert_eq!(next.lock("w a"), "enqueued");
        let start = Instant::now();
        holder.send(message);
        holder.given_up();
        next.granted();
        assert!(start.elapsed() + ROUNDING >= TIMEOUT, "{message:?}: after {:?}", start.elapsed());
        next.release();
        check_usable(&server, &namespace);
    }
}

/// A holds, B waits and is given up, C waits behind B: B is granted although nobody is there any more, and C
/// comes after B's abandon timeout.
#[test]
fn a_waiter_given_up_keeps_its_place() {
    let server = Server::start(&[]);
    const TIMEOUT: Duration = Duration::from_millis(500);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect_for(&server, "n", TIMEOUT.as_millis() as u64);
    let mut next = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(waiter.lock("w a"), "enqueued");
    assert_eq!(next.lock("w a"), "enqueued");
    let start = Instant::now();
    waiter.send("x");
    waiter.given_up();
    holder.release();
    next.granted();
    assert!(start.elapsed() + ROUNDING >= TIMEOUT, "after {:?}", start.elapsed());
    check_usable(&server, "n");
}

#[test]
fn a_dead_waiter_whose_turn_comes_too_late_is_passed_over() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    let mut next = Client::connect_for(&server, "n", HOUR_MS);
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(waiter.lock("w a"), "enqueued");
    assert_eq!(next.lock("w a"), "enqueued");
    waiter.close(1000);
    // Its timeout is 0, so its place goes as soon as the server notices.
    eventually("the dead waiter goes", || groups(&server, "n") == (1, 1));
    holder.release();
    next.granted();
}

/// What follows a wrong message is not obeyed.
#[test]
fn nothing_is_obeyed_after_a_wrong_message() {
    let server = Server::start(&[]);
    let mut client = Client::connect_for(&server, "n", HOUR_MS);
    let commands = [&lock("w a"), "x", r#"{"action":"release"}"#, &lock("w b")];
    client.send_bytes(&commands.map(|text| frame(FIN | TEXT, text.as_bytes())).concat());
    assert_eq!(client.text(), reply(1, "lock", "acquired"));
    client.given_up();
    assert_eq!(groups(&server, "n"), (1, 0));
    check_usable(&server, "n");
}

/// Frames that break the rules of WebSocket: a close with 1002 and no text.
#[test]
fn framing_faults() {
    let server = Server::start(&[]);
    let text = lock("w b");
    let text = text.as_bytes();
    let long_ping = frame(FIN | PING, &[0; 126]);
    let faults: Vec<(&str, Vec<u8>)> = vec![
        ("unmasked text", unmasked_frame(FIN | TEXT, text)),
        ("unmasked ping", unmasked_frame(FIN | PING, b"")),
        ("unmasked close", unmasked_frame(FIN | CLOSE, &1000u16.to_be_bytes())),
        ("reserved data opcode 3", frame(FIN | 0x3, text)),
        ("reserved data opcode 7", frame(FIN | 0x7, text)),
        ("reserved control opcode b", frame(FIN | 0xb, b"")),
        ("reserved control opcode f", frame(FIN | 0xf, b"")),
        ("RSV1", frame(FIN | 0x40 | TEXT, text)),
        ("RSV2", frame(FIN | 0x20 | TEXT, text)),
        ("RSV3 on binary", frame(FIN | 0x10 | BINARY, text)),
        ("RSV1 on ping", frame(FIN | 0x40 | PING, b"")),
        ("continuation of nothing", frame(FIN, text)),
        ("text inside a fragmented message", [frame(TEXT, b"{"), frame(FIN | TEXT, text)].concat()),
        ("fragmented ping", frame(PING, b"")),
        ("ping of 126 bytes", long_ping),
        ("close of one byte", frame(FIN | CLOSE, &[3])),
        ("close code 999", frame(FIN | CLOSE, &999u16.to_be_bytes())),
        ("close code 1005", frame(FIN | CLOSE, &1005u16.to_be_bytes())),
        ("close code 1006", frame(FIN | CLOSE, &1006u16.to_be_bytes())),
    ];
    for (what, bytes) in faults {
        for state in ["ready", "acquired"] {
            let namespace = format!("{}-{state}", what.replace(' ', "-"));
            let mut client = Client::connect_for(&server, &namespace, HOUR_MS);
            if state == "acquired" {
                assert_eq!(client.lock("w a"), "acquired");
            }
            client.send_bytes(&bytes);
            match client.next() {
                Seen::Close(Some(1002), _) => {}
                other => panic!("{what} in {state}: {other:?}"),
            }
            client.send_bytes(&frame(FIN | CLOSE, &1002u16.to_be_bytes()));
            assert_eq!(client.next(), Seen::End, "{what} in {state}");
            if state == "acquired" {
                assert_eq!(groups(&server, &namespace), (1, 0), "{what}");
            }
            check_usable(&server, &namespace);
        }
    }
}

/// A connection that just goes away counts the same as one that says goodbye.
#[test]
fn a_lost_connection_keeps_its_lock_for_the_abandon_timeout() {
    let server = Server::start(&[]);
    const TIMEOUT: Duration = Duration::from_millis(300);
    // In the middle of nothing, of a frame's head, and of its payload.
    let whole = frame(FIN | TEXT, lock("w b").as_bytes());
    for (index, cut) in [0, 1, 5, whole.len() - 1].into_iter().enumerate() {
        let namespace = format!("n{index}");
        let mut holder = Client::connect_for(&server, &namespace, TIMEOUT.as_millis() as u64);
        let mut next = Client::connect(&server, &namespace);
        assert_eq!(holder.lock("w a"), "acquired");
        assert_eq!(next.lock("w a"), "enqueued");
        holder.send_bytes(&whole[..cut]);
        let start = Instant::now();
        drop(holder);
        next.granted();
        assert!(start.elapsed() + ROUNDING >= TIMEOUT, "cut at {cut}: after {:?}", start.elapsed());
        next.release();
        check_usable(&server, &namespace);
    }
}

#[test]
fn a_timeout_of_0_frees_at_once() {
    let server = Server::start(&[]);
    let mut holder = Client::connect(&server, "n");
    let mut next = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(next.lock("w a"), "enqueued");
    drop(holder);
    next.granted();
}

#[test]
fn refusals_are_counted_by_code() {
    let server = Server::start(&[]);
    let deep = ["a"; 201].join("/");
    let messages =
        ["{", r#"{"action":"release"}"#, r#"{"action":"lock","resources":[{"type":"x","path":["a"]}]}"#];
    for message in messages {
        let mut client = Client::connect(&server, "n");
        client.send(message);
        client.given_up();
    }
    let mut client = Client::connect(&server, "n");
    client.send(&lock(&format!("w {deep}")));
    client.given_up();
    let metrics = get(server.native, "/metrics").body;
    for (code, count) in [("bad_message", 2), ("bad_mode", 1), ("over_limit", 1)] {
        let line = format!("lockwood_errors_total{{interface=\"locktopus\",code=\"{code}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}
