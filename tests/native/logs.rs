//! What a server writes into its log, and in which form.

use crate::harness::BINARY;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

fn serve(args: &[&str]) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]).args(args);
    command.env("RUST_LOG", "debug").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[track_caller]
fn as_json(text: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    text.lines().map(read).collect()
}

/// One server, everything it says, and a line for each request and each lock in it.
#[test]
fn json_logs_are_json_throughout_and_debug_logs_have_every_request_and_lock() {
    let data = tempfile::tempdir().unwrap();
    let mut server = serve(&["--data", data.path().to_str().unwrap()]);
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut greeting = String::new();
    stdout.read_line(&mut greeting).unwrap();
    let address = as_json(&greeting)[0]["fields"]["native"].as_str().unwrap().to_owned();
    let run = |args: &[&str]| {
        let output = Command::new(BINARY).args(args).env("LOCKWOOD_SERVER", &address).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    run(&["put", "user/42", "{}"]);
    run(&["lock", "--write", "user/43", "--", "true"]);
    run(&["lease", "take", "user/44", "--owner", "ann"]);
    run(&["lease", "release", "--all", "--owner", "ann"]);
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    let (mut rest, mut log) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0), "{log}");
    as_json(&rest);
    let log = as_json(&log);
    let has = |message: &str, name: &str, part: &str| {
        let fields = log.iter().map(|line| &line["fields"]);
        fields.clone().any(|fields| fields["message"] == message && fields[name].to_string().contains(part))
    };
    assert!(has("request", "target", "/v1/default/documents/user/42"), "{log:?}");
    assert!(has("request", "target", "/v1/default/session"), "{log:?}");
    assert!(has("a session asks for a lock", "outcome", "Granted"), "{log:?}");
    assert!(has("a session releases a lock", "namespace", "default"), "{log:?}");
    assert!(has("a lease is asked for", "owner", "ann"), "{log:?}");
    assert!(has("a lease is released", "namespace", "default"), "{log:?}");
}

#[test]
fn a_server_that_cannot_start_says_so_in_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = serve(&["--data", file.to_str().unwrap()]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = as_json(&String::from_utf8(output.stderr).unwrap());
    let last = log.last().unwrap();
    assert!(last["fields"]["error"].as_str().unwrap().contains("cannot open the data directory"), "{log:?}");
    assert_eq!(last["level"], "ERROR");
}
