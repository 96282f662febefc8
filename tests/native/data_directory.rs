//! The data directory is its owner's alone.

use crate::{harness::Server, store::Store};
use serde_json::json;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Calls `visit` for a directory and everything in it.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(path);
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| walk(&entry.unwrap().path(), visit));
    }
}

#[track_caller]
pub(crate) fn check_closed(data: &Path) {
    let mut files = 0;
    walk(data, &mut |path| {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(path), expected, "{}", path.display());
        files += usize::from(path.is_file());
    });
    assert!(files > 2, "there is something in it");
}

#[test]
fn files_of_the_store_are_readable_by_their_owner_only() {
    let server = Server::start(&[]);
    Store::new(&server, "default").create("a", 1, json!({ "n": 1 }));
    check_closed(server.data());
}

#[test]
fn a_data_directory_that_is_open_to_others_is_closed_at_the_start() {
    let server = Server::start(&[]);
    let data = server.data().to_owned();
    let ended = server.stop();
    walk(&data, &mut |path| {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    });
    let server = ended.restart(&[]);
    check_closed(&data);
    let log = server.stop().log;
    assert!(log.contains("the data directory was open to other users"), "{log}");
}
