//! The official clients from PyPI, unmodified, against the real server. What they do is in
//! `tests/python/document_locks.py`.

use crate::{
    cluster::Cluster,
    harness::{
        python::{run, venv},
        repository,
    },
};
use std::process::Command;

#[test]
fn the_client_of_version_5() {
    check("elasticsearch-5", "5.5.3");
}

#[test]
fn the_client_of_version_7() {
    check("elasticsearch-7", "7.17.13");
}

#[test]
fn the_client_of_version_8() {
    check("elasticsearch-8", "8.19.3");
}

#[track_caller]
fn check(name: &str, version: &str) {
    let folder = repository().join("tests/python").canonicalize().unwrap();
    let python = venv(&folder.join(name).join("requirements.txt"));
    let cluster = Cluster::start();
    let mut command = Command::new(python);
    command.arg("-B").arg(folder.join("document_locks.py"));
    command.args([cluster.server.elasticsearch().to_string(), cluster.server.native.to_string()]);
    assert_eq!(run(&mut command).trim(), format!("done with {version}"));
}
