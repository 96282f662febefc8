//! The description of the HTTP interface, judged by a validator of others.

use crate::harness::{
    python::{run, venv},
    repository,
};
use std::process::Command;

#[test]
fn description_is_valid_openapi() {
    let folder = repository().join("tests/python/openapi").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let description = repository().join("docs/openapi.json");
    let printed = run(Command::new(python).args(["-m", "openapi_spec_validator"]).arg(description));
    assert!(printed.trim_end().ends_with(": OK"), "{printed}");
}
