//! Confluent's own client from PyPI, unmodified, against the real server. The steps themselves are in
//! `tests/python/schema-registry/client.py`.

use crate::{
    harness::{
        python::{run, venv},
        repository,
    },
    registry::Registry,
};
use std::process::Command;

#[test]
fn the_official_client() {
    let folder = repository().join("tests/python/schema-registry").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let registry = Registry::start();
    let url = format!("http://{}", registry.address);
    let printed = run(Command::new(python).arg(folder.join("client.py")).arg(url));
    assert_eq!(printed.lines().count(), 6, "{printed}");
}
