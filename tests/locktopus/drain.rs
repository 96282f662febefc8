//! A server that is told to stop: nobody gets a new lock, whoever holds one may finish, everybody is told.

use crate::{
    client::{Client, lock},
    harness::{Server, eventually},
    raw::get,
};

fn start_draining(server: &Server) {
    server.signal("-TERM");
    eventually("the server drains", || get(server.native, "/readyz").body.contains("draining"));
}

#[test]
fn a_holder_may_finish_and_nobody_else_starts() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut holder = Client::connect(&server, "n");
    let mut waiter = Client::connect(&server, "n");
    let mut newcomer = Client::connect(&server, "n");
    let mut idle = Client::connect(&server, "n");
    let mut elsewhere = Client::connect(&server, "other");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(waiter.lock("w a"), "enqueued");
    start_draining(&server);
    let about_to_stop = |reason: &str| assert!(reason.contains("about to stop"), "{reason}");
    about_to_stop(&waiter.given_up());
    newcomer.send(&lock("w b"));
    about_to_stop(&newcomer.given_up());
    // A namespace first used now is drained like the others.
    let mut late = Client::connect(&server, "late");
    late.send(&lock("w b"));
    about_to_stop(&late.given_up());
    holder.release();
    for client in [&mut holder, &mut idle, &mut elsewhere] {
        client.expect_close(1001);
    }
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn idle_connections_are_told() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(&server, "n")).collect();
    server.signal("-INT");
    clients.iter_mut().for_each(|client| client.expect_close(1001));
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

/// A lock whose client is gone is waited for as well, until its abandon timeout.
#[test]
fn an_abandoned_lock_is_waited_for() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut holder = Client::connect_for(&server, "n", 300);
    assert_eq!(holder.lock("w a"), "acquired");
    let start = std::time::Instant::now();
    drop(holder);
    server.signal("-TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(start.elapsed().as_millis() >= 298, "after {:?}", start.elapsed());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut holder = Client::connect(&server, "n");
    assert_eq!(holder.lock("w a"), "acquired");
    start_draining(&server);
    server.signal("-TERM");
    holder.expect_close(1001);
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
}
