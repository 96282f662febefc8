//! `lockwood lease`, `lockwood lock --lease` and writing with tokens, as a shell sees them.

use crate::{
    harness::{BINARY, Server, eventually},
    leaseholder::{Leaseholder, locks_in},
};
use serde_json::{Value, json};
use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn lockwood(server: &Server, args: &[&str]) -> Command {
    let folder = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(BINARY);
    command.args(args).env("LOCKWOOD_SERVER", server.native.to_string()).env("PATH", path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(server: &Server, args: &[&str]) -> Output {
    lockwood(server, args).output().unwrap()
}

/// What a command that works says.
#[track_caller]
fn says(server: &Server, args: &[&str]) -> String {
    let output = run(server, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn says_json(server: &Server, args: &[&str]) -> Value {
    serde_json::from_str(&says(server, &[args, &["--json"]].concat())).unwrap()
}

/// What a command that fails with this code complains of.
#[track_caller]
fn fails(server: &Server, args: &[&str], code: i32) -> String {
    let output = run(server, args);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    complaint
}

#[test]
fn take_renew_release_and_list() {
    let server = Server::start(&[]);
    let ann =
        ["lease", "take", "user/42", "bill", "--owner", "ann", "--ttl", "1h", "--note", "\"night run\""];
    let taken = says_json(&server, &ann);
    assert_eq!((&taken["outcome"], &taken["note"]), (&json!("granted"), &json!("night run")));
    let (lock, token) = (taken["lock"].to_string(), taken["token"].to_string());
    let text = says(&server, &ann);
    assert!(
        text.starts_with(&format!(
            "held already: lock {lock} of ann, token {token}: write bill, write user/42"
        )),
        "{text}"
    );
    let complaint = fails(&server, &["lease", "take", "user", "--read", "--owner", "bob"], 75);
    assert!(complaint.contains("in the way: ann holds write user/42 since"), "{complaint}");
    assert!(complaint.contains(&format!("lock {lock}")), "{complaint}");
    let list = says(&server, &["lease", "list"]);
    assert!(list.contains("ann") && list.contains("night run") && list.contains(&token), "{list}");
    assert!(says(&server, &["lease", "list", "--owner", "bob"]).starts_with("no leases"));
    assert_eq!(says_json(&server, &["lease", "list", "--path", "user"])[0]["lock"], taken["lock"]);
    let tree = says(&server, &["locks"]);
    assert!(tree.contains(&format!("token {token}, lease, ends in 59m")), "{tree}");
    assert!(tree.contains("note night run"), "{tree}");
    let renewed = says(&server, &["lease", "renew", "--lock", &lock, "--token", &token, "--ttl", "2h"]);
    assert!(renewed.starts_with(&format!("renewed: lock {lock} of ann")), "{renewed}");
    assert_eq!(
        says_json(&server, &["lease", "renew", "--all", "--owner", "ann"]).as_array().unwrap().len(),
        1
    );
    fails(&server, &["lease", "renew", "--lock", &lock, "--token", "999999"], 76);
    fails(&server, &["lease", "release", "user/42", "--owner", "ann"], 76);
    let released = says(&server, &["lease", "release", "user/42", "bill", "--owner", "ann"]);
    assert!(released.starts_with(&format!("released: lock {lock} of ann")), "{released}");
    fails(&server, &["lease", "release", "--all", "--owner", "ann"], 76);
    assert_eq!(says_json(&server, &["lease", "list"]), json!([]));
}

#[test]
fn the_four_words_for_locks_on_trees() {
    let server = Server::start(&[]);
    let words = |verb: &str, mode: &str, owner: &str| {
        let depth = ["lease", verb, "c/d/f", mode, "--depth", "1", "--owner", owner];
        run(&server, &depth).status.code().unwrap()
    };
    assert_eq!(words("take", "--read", "ann"), 0);
    assert_eq!(words("take", "--read", "bob"), 0);
    assert_eq!(words("release", "--write", "bob"), 76, "UNLOCK_X is not UNLOCK_S");
    assert_eq!(words("release", "--read", "bob"), 0);
    assert_eq!(words("take", "--write", "bob"), 75);
    assert_eq!(words("release", "--read", "ann"), 0);
    assert_eq!(words("take", "--write", "bob"), 0);
    assert_eq!(words("release", "--write", "bob"), 0);
}

#[test]
fn writes_show_tokens_and_wait() {
    let server = Server::start(&[]);
    let taken = says_json(&server, &["lease", "take", "user", "--owner", "ann"]);
    let token = taken["token"].to_string();
    let write = r#"{"events": [{"type": "put", "collection": "user", "key": 42, "fields": {"a": 2}}]}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), write).unwrap();
    let file = file.path().to_str().unwrap();
    let commands: [&[&str]; 3] = [&["put", "user/42", "{}"], &["write", file], &["delete", "user/42"]];
    for command in commands {
        let complaint = fails(&server, &[command, &["--wait", "0"]].concat(), 75);
        assert!(complaint.contains("in the way: ann holds write user since"), "{complaint}");
        assert!(complaint.contains("--wait") && complaint.contains("--token"), "{complaint}");
        let complaint = fails(&server, &[command, &["--token", "99999999"]].concat(), 76);
        assert!(complaint.contains("take the lock anew and read again"), "{complaint}");
        says(&server, &[command, &["--token", &token]].concat());
    }
    fails(&server, &["put", "user/43", "{}", "--wait", "50ms"], 75);
    let lock = taken["lock"].to_string();
    says(&server, &["lease", "renew", "--lock", &lock, "--owner", "ann", "--ttl", "300ms"]);
    says(&server, &["put", "user/43", "{}", "--wait", "20s"]);
    fails(&server, &["put", "user/43", "{}", "--token", &token], 76);
}

/// As a shell has it that exports the token of a lease, or passes on no other variable.
#[test]
fn a_token_in_the_environment_is_never_overlooked() {
    let server = Server::start(&[]);
    let taken = says_json(&server, &["lease", "take", "user/42", "--owner", "ann"]);
    let token = taken["token"].to_string();
    let put = |token: &str| {
        let put = ["put", "user/42", "{}", "--wait", "0"];
        let output = lockwood(&server, &put).env("LOCKWOOD_TOKEN", token).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(put(&token), (0, String::new()));
    assert_eq!(put("").0, 75, "an empty one is none");
    says(&server, &["lease", "release", "--all", "--owner", "ann"]);
    let (code, complaint) = put(&token);
    assert_eq!(code, 76, "{complaint}");
    let (code, complaint) = put("abc");
    assert_eq!(code, 2, "{complaint}");
    assert!(complaint.contains("LOCKWOOD_TOKEN is \"abc\", which is no token"), "{complaint}");
    assert_eq!(put("").0, 0);
}

#[test]
fn a_program_runs_under_a_lease() {
    let server = Server::start(&[]);
    let script = "lockwood put user/42 '{\"n\": 1}' && lockwood lease list --json && echo $LOCKWOOD_TOKEN";
    let lock = ["lock", "--write", "user/42", "--lease", "10s", "--owner", "ann", "--", "sh", "-c", script];
    let text = says(&server, &lock);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("user/42 written"), "its commands show its token: {text}");
    let listed: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!((&listed[0]["owner"]["name"], &listed[0]["owner"]["via"]), (&json!("ann"), &json!("lease")));
    assert_eq!(listed[0]["token"].to_string(), lines[2]);
    assert_eq!(says_json(&server, &["lease", "list"]), json!([]), "it is released at the end");
    let owner =
        says_json(&server, &["lock", "--write", "a", "--lease", "10s", "--", "lockwood", "lease", "list"]);
    assert!(owner[0]["owner"]["name"].as_str().unwrap().contains('@'), "{owner}");
    assert_eq!(
        run(&server, &["lock", "--write", "a", "--lease", "1s", "--", "sh", "-c", "exit 3"]).status.code(),
        Some(3)
    );
}

fn hold(server: &Server, args: &[&str]) -> Child {
    let program = ["--", "sh", "-c", "echo; exec sleep 600"];
    lockwood(server, &[&["lock", "--write", "a", "--owner", "ann"], args, &program].concat()).spawn().unwrap()
}

#[test]
fn a_lease_is_renewed_while_the_program_runs_and_the_program_ends_with_it() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let mut running = hold(&server, &["--lease", "2s"]);
    eventually("it runs", || !ann.locks().is_empty());
    let first = ann.locks()[0].clone();
    eventually("it is renewed", || ann.locks()[0]["expires_at"] != first["expires_at"]);
    assert_eq!(ann.locks()[0]["token"], first["token"]);
    let complaint =
        fails(&server, &["lock", "--write", "a", "--lease", "5s", "--wait", "10ms", "--", "true"], 75);
    assert!(complaint.contains("not obtained within 10ms"), "{complaint}");
    says(&server, &["locks", "release", &first["lock"].to_string()]);
    assert_eq!(running.wait().unwrap().code(), Some(76), "whatever it guarded is not guarded any more");
}

#[test]
fn whoever_is_interrupted_while_waiting_leaves_the_line() {
    let server = Server::start(&[]);
    let bob = Leaseholder::new(&server, "bob");
    bob.take("write a");
    let mut waiting = hold(&server, &["--lease", "2s"]);
    eventually("it waits", || !locks_in(&bob.store, "waiting").is_empty());
    assert!(Command::new("kill").args(["-TERM", &waiting.id().to_string()]).status().unwrap().success());
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
    eventually("nobody waits", || locks_in(&bob.store, "waiting").is_empty());
}

#[test]
fn a_lease_outlives_a_restart_of_the_server() {
    let server = Server::start(&[]);
    let address = server.native.to_string();
    let ann = Leaseholder::new(&server, "ann");
    let mut running = hold(&server, &["--lease", "20s"]);
    // From here on it has been told that it holds the lease.
    running.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let token = ann.locks()[0]["token"].clone();
    let server = server.kill().restart_at(&address, &[]);
    assert_eq!(ann.locks()[0]["token"], token);
    assert!(running.try_wait().unwrap().is_none(), "the program goes on");
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(143));
    eventually("it is released", || ann.locks().is_empty());
    drop(server);
}

#[test]
fn what_the_owner_had_before_is_not_released() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let held = ann.take("write a");
    let output = run(&server, &["lock", "--write", "a/b", "--lease", "1h", "--owner", "ann", "--", "true"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("already"), "{output:?}");
    assert_eq!(ann.locks()[0]["token"], held.token);
}
