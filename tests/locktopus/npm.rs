//! The official client from npm, unmodified, against the real server. The tests themselves are in
//! `tests/npm/locktopus.test.mjs`.

use crate::harness::{
    Server,
    npm::{install, run},
    repository,
};
use std::process::Command;

#[test]
fn the_official_client() {
    let folder = repository().join("tests/npm").canonicalize().unwrap();
    install(&folder);
    let server = Server::start(&[]);
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "locktopus.test.mjs"]).current_dir(&folder);
    run(node.env("LOCKTOPUS_ADDRESS", server.locktopus.to_string()));
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}
