//! The official client from npm, unmodified, against the real server. The tests themselves are in
//! `tests/npm/locktopus.test.mjs`.

use crate::harness::{Server, repository};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_official_client() {
    let folder = repository().join("tests/npm").canonicalize().unwrap();
    install(&folder);
    let server = Server::start(&[]);
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "locktopus.test.mjs"]).current_dir(&folder);
    node.env("LOCKTOPUS_ADDRESS", server.locktopus.to_string());
    // Set by a test runner around this one, they would change what node prints and how.
    node.env_remove("NODE_TEST_CONTEXT").env_remove("NODE_OPTIONS");
    run(node);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

/// Makes sure that `node_modules` is what the lock file says.
fn install(folder: &Path) {
    let wanted = fs::read(folder.join("package-lock.json")).unwrap();
    let stamp: PathBuf = folder.join("node_modules/.installed-package-lock.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
    run(npm);
    fs::write(stamp, wanted).unwrap();
}

#[track_caller]
fn run(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; this test needs Node.js 20 or later with npm")
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
}
