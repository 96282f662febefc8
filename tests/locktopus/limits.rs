//! Every limit that can be met through the facade: at the limit all is well, one past it is refused by name.

use crate::{
    client::{Client, check_usable, groups, lock},
    harness::Server,
    raw::{BINARY, FIN, TEXT, frame, get},
};

/// A lock message of exactly so many bytes.
fn message_of(bytes: usize) -> String {
    let message = lock("w a");
    let padding = " ".repeat(bytes - message.len());
    padding + &message
}

#[test]
fn message_bytes_max() {
    let server = Server::start(&["--message-bytes-max", "2048"]);
    let fits = message_of(2048);
    for first in [FIN | TEXT, FIN | BINARY] {
        let mut client = Client::connect(&server, "n");
        client.send_bytes(&frame(first, fits.as_bytes()));
        assert_eq!(client.locked(), "acquired");
        client.release();
        for bytes in [2049, 2050, 5000, 100_000] {
            let mut client = Client::connect(&server, "n");
            client.send_bytes(&frame(first, message_of(bytes).as_bytes()));
            let reason = client.given_up();
            assert!(reason.contains("message_bytes_max") && reason.contains("2048"), "{bytes}: {reason}");
            check_usable(&server, "n");
        }
    }
}

/// Far past the limit the connection may be over before all is sent; nobody else notices.
#[test]
fn a_flood_in_one_message() {
    let server = Server::start(&["--message-bytes-max", "2048"]);
    let mut client = Client::connect(&server, "n");
    client.send(&message_of(30_000_000));
    check_usable(&server, "n");
}

#[test]
fn message_bytes_max_counts_all_fragments() {
    let server = Server::start(&["--message-bytes-max", "2048"]);
    let mut client = Client::connect(&server, "n");
    let send = |client: &mut Client, message: &str| {
        let (start, end) = message.as_bytes().split_at(1000);
        client.send_bytes(&frame(TEXT, start));
        client.send_bytes(&frame(FIN, end));
    };
    send(&mut client, &message_of(2048));
    assert_eq!(client.locked(), "acquired");
    client.release();
    send(&mut client, &message_of(2049));
    let reason = client.given_up();
    assert!(reason.contains("message_bytes_max"), "{reason}");
    check_usable(&server, "n");
}

#[test]
fn an_oversize_message_while_holding() {
    let server = Server::start(&["--message-bytes-max", "2048"]);
    let mut client = Client::connect_for(&server, "n", 3_600_000);
    assert_eq!(client.lock("w a"), "acquired");
    client.send(&message_of(2049));
    client.given_up();
    assert_eq!(groups(&server, "n"), (1, 0));
    check_usable(&server, "n");
}

/// A frame that says it is enormous is refused before it arrives.
#[test]
fn an_announced_monster_is_refused_at_once() {
    let server = Server::start(&[]);
    let mut client = Client::connect(&server, "n");
    client.send_bytes(&[FIN | TEXT, 0x80 | 127, 0, 0, 0x10, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    let reason = client.given_up();
    assert!(reason.contains("message_bytes_max"), "{reason}");
    check_usable(&server, "n");
}

#[track_caller]
fn check(server: &Server, limit: &str, fits: &str, too_much: &str) {
    let mut client = Client::connect(server, "n");
    assert_eq!(client.say_lock(fits), "acquired", "{limit}");
    client.release();
    client.send(too_much);
    let reason = client.given_up();
    assert!(reason.contains(limit), "{limit}: {reason}");
    check_usable(server, "n");
}

#[test]
fn limits_of_a_lock() {
    let server = Server::start(&[
        "--resources-per-lock-max",
        "3",
        "--path-segments-max",
        "4",
        "--segment-bytes-max",
        "13",
    ]);
    check(&server, "resources_per_lock_max", &lock("w a, w b, w c"), &lock("w a, w b, w c, w d"));
    check(&server, "resources_per_lock_max", &lock("w a, w a, w a"), &lock("w a, w a, w a, w a"));
    check(&server, "path_segments_max", &lock("w a/b/c/d"), &lock("w a/b/c/d/e"));
    check(&server, "segment_bytes_max", &lock("w a/thirteenbytes"), &lock("w a/fourteen-bytes"));
    // Bytes, not characters.
    check(&server, "segment_bytes_max", &lock("w ééééééx"), &lock("w ééééééé"));
}

#[test]
fn default_limits_of_a_lock() {
    let server = Server::start(&[]);
    let path = |len: usize| lock(&format!("w {}", vec!["s"; len].join("/")));
    check(&server, "path_segments_max", &path(200), &path(201));
    // So many that no server takes them, whatever its flags say.
    let mut client = Client::connect(&server, "n");
    client.send(&path(100_000));
    let reason = client.given_up();
    let clear = "a path has 100000 segments; the limit path_segments_max is 200 (flag --path-segments-max)";
    assert!(reason.contains(clear), "{reason}");
    let segment = |len: usize| lock(&format!("w {}", "s".repeat(len)));
    check(&server, "segment_bytes_max", &segment(1024), &segment(1025));
    let resources =
        |len: usize| lock(&(0..len).map(|index| format!("w {index}")).collect::<Vec<_>>().join(", "));
    check(&server, "resources_per_lock_max", &resources(50_000), &resources(50_001));
}

#[test]
fn namespace_bytes_max() {
    let server = Server::start(&["--namespace-bytes-max", "10"]);
    check_usable(&server, "ten-bytes-");
    // Decoded bytes count.
    check_usable(&server, "%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9");
    for namespace in ["eleven-byte", "%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9x"] {
        let response = get(server.locktopus, &format!("/v1?namespace={namespace}"));
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.body.contains("'namespace'"), "{response:?}");
        assert!(response.body.contains("namespace_bytes_max"), "{response:?}");
    }
}

#[test]
fn abandon_timeout_ms_max() {
    let server = Server::start(&["--abandon-timeout-ms-max", "5000"]);
    Client::connect_for(&server, "n", 5000).close(1000);
    let given = |asked: &str| {
        let mut client = Client::connect_with(&server, &format!("namespace=n&abandon-timeout-ms={asked}"));
        assert_eq!(client.lock("w a"), "acquired");
        client.release();
        let given = client.response.header("x-abandon-timeout-ms").map(str::to_owned);
        client.close(1000);
        given
    };
    assert_eq!(given("4999").as_deref(), Some("4999"));
    assert_eq!(given("5001").as_deref(), Some("5000"), "capped, and the handshake says so");
    assert!(get(server.locktopus, "/").body.contains("longest abandon timeout: 5000 ms"));
    assert!(server.stop().log.contains("abandon_timeout_ms_max=5000"));
}

#[test]
fn queue_len_max() {
    let server = Server::start(&["--queue-len-max", "2"]);
    let mut clients = [0; 4].map(|_| Client::connect(&server, "n"));
    let [holder, first, second, third] = &mut clients;
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(first.lock("w a"), "enqueued");
    assert_eq!(second.lock("w a"), "enqueued");
    third.send(&lock("w a"));
    let reason = third.given_up();
    assert!(reason.contains("queue_len_max"), "{reason}");
    check_usable(&server, "n");
    holder.release();
    first.granted();
    first.release();
    second.granted();
}
