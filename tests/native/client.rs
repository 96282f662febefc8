//! The Rust client against the real server: what its user sees of conflicts, losses and restarts.

use crate::{
    harness::{Server, eventually},
    http::{get_json, request},
    peer::Peer,
};
use futures_util::FutureExt;
use lockwood_client::{Code, Error, Mode, Options, Request, Session, Step, Wait};
use serde_json::json;
use std::{net::TcpListener, time::Duration};

fn options(server: &Server, name: &str) -> Options {
    Options { address: server.native.to_string(), name: Some(name.into()), ..Options::default() }
}

async fn open(server: &Server, name: &str) -> Session {
    Session::open(options(server, name)).await.unwrap()
}

fn write(path: &str) -> Request {
    Request::new().subtree(path.parse().unwrap(), Mode::Write)
}

/// What must happen; a test that waits for ever says nothing.
async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), event).await.expect("it happens soon")
}

/// An address nobody listens on.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_converted_and_released() {
    let server = Server::start(&[]);
    let ann = open(&server, "ann").await;
    let lock = ann.lock(write("user/42")).await.unwrap();
    let listed = get_json(&server, "/v1/default/locks")["locks"][0].clone();
    assert_eq!(listed["lock"], lock.id().0);
    assert_eq!(listed["token"], lock.token().0);
    assert_eq!(listed["owner"]["session"], ann.id());
    let first = lock.token();
    assert_eq!(lock.convert(Mode::Read, Wait::Never).await.unwrap(), first, "less needs no other token");
    let second = lock.convert(Mode::Write, Wait::Never).await.unwrap();
    assert!(second > first && second == lock.token());
    lock.release().await.unwrap();
    ann.close().await.unwrap();
    assert_eq!(get_json(&server, "/v1/namespaces"), json!({ "namespaces": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_who_is_in_the_way() {
    let server = Server::start(&[]);
    let (ann, bob) = (open(&server, "ann").await, open(&server, "bob").await);
    let lock = ann.lock(write("a")).await.unwrap();
    for wait in [Wait::Never, Wait::Millis(50)] {
        let Err(Error::Refused(refusal)) = bob.lock(write("a").wait(wait)).await else { panic!("refused") };
        assert!(matches!(refusal.code, Code::Locked | Code::Timeout), "{refusal}");
        assert_eq!(refusal.blockers[0].lock, lock.id().0);
        assert_eq!(refusal.blockers[0].name.as_deref(), Some("ann"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_sees_its_place_and_then_its_lock() {
    let server = Server::start(&[]);
    let (ann, bob) = (open(&server, "ann").await, open(&server, "bob").await);
    let lock = ann.lock(write("a")).await.unwrap();
    let mut waiting = bob.ask(write("a"));
    let Step::Queued(queued) = waiting.next().await.unwrap() else { panic!("it must wait") };
    assert_eq!((queued.place, queued.blockers[0].lock), (1, lock.id().0));
    assert_eq!(waiting.place().await.unwrap().place, 1);
    let before = lock.token();
    lock.release().await.unwrap();
    let Step::Granted(mine) = waiting.next().await.unwrap() else { panic!("it is free") };
    assert!(mine.token() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_wait_or_a_lock_gives_it_up() {
    let server = Server::start(&[]);
    let (ann, bob) = (open(&server, "ann").await, open(&server, "bob").await);
    let lock = ann.lock(write("a")).await.unwrap();
    let mut waiting = bob.ask(write("a"));
    assert!(matches!(waiting.next().await, Ok(Step::Queued(_))));
    drop(waiting);
    drop(lock);
    let mut eve = Peer::open(&server, "eve");
    let granted = eve.lock("write a", "forever");
    if granted["type"] == "queued" {
        eve.granted();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_refused_with_the_cycle() {
    let server = Server::start(&[]);
    let (ann, bob) = (open(&server, "ann").await, open(&server, "bob").await);
    let _a = ann.lock(write("a")).await.unwrap();
    let _b = bob.lock(write("b")).await.unwrap();
    let mut waiting = ann.ask(write("b"));
    assert!(matches!(waiting.next().await, Ok(Step::Queued(_))));
    let Err(Error::Refused(refusal)) = bob.lock(write("a")).await else { panic!("refused") };
    assert_eq!((refusal.code, refusal.cycle.len()), (Code::Deadlock, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ended_by_an_operator_is_lost() {
    let server = Server::start(&[]);
    let ann = open(&server, "ann").await;
    let lock = ann.lock(write("a")).await.unwrap();
    let reply = request(server.native, "DELETE", &format!("/v1/default/locks/{}", lock.id()), &[]);
    assert_eq!(reply.status, 200);
    assert_eq!(soon(lock.lost()).await.code, Code::ReleasedByOperator);
    assert!(matches!(lock.release().await, Err(Error::Lost(_))));
    ann.lock(write("a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_told_that_the_server_is_about_to_stop() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let ann = open(&server, "ann").await;
    let lock = ann.lock(write("a")).await.unwrap();
    server.signal("-TERM");
    assert_eq!(soon(ann.draining()).await.timeout_ms, 3_600_000);
    assert!(lock.lost().now_or_never().is_none());
    assert_eq!(ann.lock(write("b")).await.unwrap_err().code(), Some(Code::Draining));
    lock.release().await.unwrap();
    assert_eq!(server.wait().status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_opening_fails_at_once() {
    let options = Options { address: free_address(), ..Options::default() };
    assert!(matches!(Session::open(options).await, Err(Error::Unreachable { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_survives_a_crash_and_restart_of_the_server() {
    let address = free_address();
    let server = Server::start_at(&address, &[]);
    let options = Options { abandon_timeout_ms: Some(10_000), ..options(&server, "ann") };
    let ann = Session::open(options).await.unwrap();
    let lock = ann.lock(write("a")).await.unwrap();
    let (id, token) = (ann.id(), lock.token());
    let server = server.kill().restart_at(&address, &[]);
    eventually("it is back", || get_json(&server, "/v1/default/locks")["locks"][0]["token"] == token.0);
    assert!(lock.lost().now_or_never().is_none(), "the holder noticed");
    assert_eq!((ann.id(), lock.token()), (id, token));
    // Its number is another one; a release that works shows that the client has learnt it.
    lock.release().await.unwrap();
    assert_eq!(get_json(&server, "/v1/default/locks")["locks"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_survives_a_crash_and_restart_of_the_server() {
    let address = free_address();
    let server = Server::start_at(&address, &["--abandon-timeout", "1500ms"]);
    let (ann, bob) = (open(&server, "ann").await, open(&server, "bob").await);
    let lock = ann.lock(write("a")).await.unwrap();
    let mut waiting = bob.ask(write("a"));
    assert!(matches!(waiting.next().await, Ok(Step::Queued(_))));
    let server = server.kill().restart_at(&address, &["--abandon-timeout", "1500ms"]);
    eventually("both are back", || {
        get_json(&server, "/v1/default/locks")["locks"].as_array().unwrap().len() == 2
    });
    let before = lock.token();
    lock.release().await.unwrap();
    let mine = soon(waiting.granted()).await.unwrap();
    assert!(mine.token() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_when_the_server_stays_away() {
    let server = Server::start(&[]);
    let options = Options { abandon_timeout_ms: Some(300), ..options(&server, "ann") };
    let ann = Session::open(options).await.unwrap();
    let lock = ann.lock(write("a")).await.unwrap();
    server.kill();
    assert_eq!(soon(lock.lost()).await.code, Code::LockLost);
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_under_a_lock_are_never_lost() {
    let server = Server::start(&[]);
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let workers = (0..4).map(|_| {
        let (options, counter) = (options(&server, "worker"), counter.clone());
        tokio::spawn(async move {
            let session = Session::open(options).await.unwrap();
            for _ in 0..50 {
                let lock = session.lock(write("counter")).await.unwrap();
                // Read, let others have a chance, write: two at once would lose an increment.
                let seen = counter.load(std::sync::atomic::Ordering::Relaxed);
                tokio::task::yield_now().await;
                counter.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                lock.release().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(counter.load(std::sync::atomic::Ordering::Relaxed), 200);
}
