//! How a server starts, or says why it does not.

use crate::{harness, harness::Server, http};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Runs a server that must not start.
fn refused(flags: &[&str]) -> Output {
    let data = TempDir::new().unwrap();
    refused_on(data.path().to_str().unwrap(), flags)
}

fn refused_on(data: &str, flags: &[&str]) -> Output {
    let mut child = Command::new(harness::BINARY)
        .args(["serve", "--data", data])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Does nothing to one that has ended, as it should have.
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn assert_says(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_server_says_where_it_is_and_stops_when_told() {
    let server = Server::start(&[]);
    assert!(server.greeting.contains("lockwood lock --write"), "{}", server.greeting);
    assert!(server.greeting.contains(&format!("curl http://{}", server.native)), "{}", server.greeting);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn an_address_others_can_reach_is_refused() {
    assert_says(&refused(&["--listen", "0.0.0.0:0"]), &["0.0.0.0:0", "other machines", "--insecure"]);
}

#[test]
fn an_address_others_can_reach_is_refused_for_the_facade_too() {
    let flags = ["--listen", "127.0.0.1:0", "--locktopus", "0.0.0.0:0"];
    assert_says(&refused(&flags), &["0.0.0.0:0", "--insecure"]);
}

#[test]
fn an_address_others_can_reach_is_accepted_with_insecure() {
    let mut server = Server::start_at("0.0.0.0:0", &["--insecure"]);
    server.native.set_ip([127, 0, 0, 1].into());
    assert_eq!(http::get(&server, "/healthz").status, 200);
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let server = Server::start(&[]);
    let output = refused_on(server.data().to_str().unwrap(), &["--listen", "127.0.0.1:0"]);
    assert_says(&output, &["data directory", "another server is using it"]);
    assert_eq!(http::get(&server, "/healthz").status, 200);
}

#[test]
fn a_port_in_use_is_refused() {
    let server = Server::start(&[]);
    let native = server.native.to_string();
    assert_says(
        &refused(&["--listen", &native]),
        &[&native, "cannot listen", "another program listens there"],
    );
}

#[test]
fn a_data_directory_that_cannot_be_made_is_refused() {
    let output = refused_on("/proc/lockwood", &["--listen", "127.0.0.1:0"]);
    assert_says(&output, &["data directory", "/proc/lockwood"]);
}
