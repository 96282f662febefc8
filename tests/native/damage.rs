//! Data directories that lost something, or are gone: nothing is served that rests on what is not there.

use crate::{
    harness::{BINARY, Server, eventually},
    http,
    peer::Peer,
    store::Store,
};
use serde_json::json;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How every batch of a journal ends.
const TRAILER: &[u8] = b"FJL\x03";

/// Runs a command that must end by itself.
fn lockwood(args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    // Does nothing to one that has ended, as it should have.
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

fn lease(server: &Server, owner: &str) -> http::Reply {
    let resources = json!([{ "path": "printer", "mode": "write" }]);
    let body = json!({ "owner": owner, "resources": resources, "ttl_ms": 3_600_000, "wait_ms": 0 });
    let headers = [("content-type", "application/json")];
    http::send(server.native, "POST", "/v1/shop/locks", &headers, body.to_string().as_bytes())
}

/// Where the batches of the journal end.
fn batch_ends(journal: &[u8]) -> Vec<usize> {
    let ends = journal.windows(TRAILER.len()).enumerate().filter(|(_, bytes)| *bytes == TRAILER);
    ends.map(|(at, _)| at + TRAILER.len()).collect()
}

/// The journal is made two, as when it is full, and the older one loses its last batch.
fn lose_end_of_older_journal(data: &Path, older_end: usize) {
    let journal = data.join("0.jnl");
    let bytes = fs::read(&journal).unwrap();
    let ends = batch_ends(&bytes);
    let last = *ends.last().unwrap();
    let before = *ends.iter().rfind(|end| **end < older_end).unwrap();
    fs::write(data.join("1.jnl"), &bytes[older_end..last]).unwrap();
    fs::write(journal, &bytes[..before]).unwrap();
}

#[test]
fn a_lease_in_an_older_journal_that_was_cut_off_is_not_granted_to_somebody_else() {
    let server = Server::start(&[]);
    assert_eq!(lease(&server, "anna").status, 201);
    let journal = fs::read(server.data().join("0.jnl")).unwrap();
    let granted = *batch_ends(&journal).last().unwrap();
    let store = Store::new(&server, "shop");
    for key in 0..3 {
        store.create("user", key, json!({ "n": key }));
    }
    let data = TempDir::new().unwrap();
    let source = server.data().to_owned();
    let ended = server.kill();
    let copied =
        Command::new("cp").args(["-r", "--sparse=always"]).arg(source.join(".")).arg(data.path()).status();
    assert!(copied.unwrap().success());
    lose_end_of_older_journal(data.path(), granted);
    for command in ["serve", "verify"] {
        let flags: &[&str] = if command == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] };
        let output = lockwood(&[&[command, "--data", data.path().to_str().unwrap()], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("commits are missing") && said.contains("1.jnl"), "{command}: {said}");
        assert!(said.contains("restore the data directory from a backup"), "{command}: {said}");
    }
    let server = ended.restart(&[]);
    assert_eq!(lease(&server, "ben").status, 423, "the lease is there where nothing is lost");
}

#[test]
fn a_server_whose_data_directory_was_deleted_acknowledges_nothing() {
    let server = Server::start(&[]);
    let store = Store::new(&server, "shop");
    store.create("user", 1, json!({ "n": 1 }));
    let mut peer = Peer::open(&server, "anna");
    fs::remove_dir_all(server.data()).unwrap();
    let refused = store.send("PUT", "documents/user/2", r#"{"n":2}"#);
    refused.assert_problem(503, "storage_failed");
    assert!(refused.body.contains("was deleted or replaced"), "{}", refused.body);
    lease(&server, "anna").assert_problem(503, "storage_failed");
    assert_eq!(http::get(&server, "/readyz").status, 503);
    let refused = peer.lock("write a", 0);
    assert_eq!(refused["code"], "storage_failed", "{refused}");
    let saved = store.send("GET", "dump", "");
    assert!(
        saved.status == 200 && saved.body.contains(r#"{"n":1}"#),
        "what is there can be saved: {saved:?}"
    );
}

#[test]
fn a_deleted_data_directory_is_noticed_without_a_write() {
    let server = Server::start(&[]);
    fs::remove_dir_all(server.data()).unwrap();
    eventually("it is not ready any more", || http::get(&server, "/readyz").status == 503);
}

#[test]
fn verifying_what_is_not_there_is_an_error_and_makes_nothing() {
    let above = TempDir::new().unwrap();
    let [absent, empty, scratch] = ["absent", "empty", "scratch"].map(|name| above.path().join(name));
    fs::create_dir(&empty).unwrap();
    for data in [&absent, &empty] {
        let (data, scratch) = (data.to_str().unwrap(), scratch.to_str().unwrap());
        let output = lockwood(&["verify", "--data", data, "--scratch", scratch]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("there is no data in it") && said.contains(data), "{said}");
    }
    assert!(!absent.exists() && !scratch.exists());
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn dumping_what_is_not_there_is_an_error_and_makes_nothing() {
    let server = Server::start(&[]);
    let above = TempDir::new().unwrap();
    let file = above.path().join("shop.ndjson");
    let address = server.native.to_string();
    let output =
        lockwood(&["dump", file.to_str().unwrap(), "--namespace", "nowhere", "--server", address.as_str()]);
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nowhere") && said.contains("nothing to dump"), "{said}");
    assert_eq!(fs::read_dir(above.path()).unwrap().count(), 0);
    http::request(server.native, "GET", "/v1/nowhere/dump", &[]).assert_problem(404, "unknown_namespace");
}
