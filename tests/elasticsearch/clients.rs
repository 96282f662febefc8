//! The official clients from PyPI, unmodified, against the real server. What they do is in
//! `tests/python/document_locks.py`.

use crate::{cluster::Cluster, harness::repository};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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
    let python = install(&folder.join(name).join("requirements.txt"), name);
    let cluster = Cluster::start();
    let mut command = Command::new(python);
    command.arg("-B").arg(folder.join("document_locks.py"));
    command.args([cluster.server.elasticsearch().to_string(), cluster.server.native.to_string()]);
    let output = run(command);
    assert_eq!(output.trim(), format!("done with {version}"));
}

/// Makes sure that an environment of its own has what the requirements say; gives its Python.
fn install(requirements: &Path, name: &str) -> PathBuf {
    let wanted = fs::read(requirements).unwrap();
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, stamp) = (environment.join("bin/python"), environment.join("installed-requirements.txt"));
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&environment);
    run(venv);
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"])
        .arg(requirements);
    run(pip);
    fs::write(stamp, wanted).unwrap();
    python
}

#[track_caller]
fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; this test needs Python 3.11 or later with venv")
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}
