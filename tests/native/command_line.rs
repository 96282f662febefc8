//! `lockwood lock` and `lockwood locks` as a shell sees them.

use crate::{
    harness::{self, Server, eventually},
    http::get_json,
    peer::Peer,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio},
};
use tempfile::TempDir;

/// A `lockwood` command for this server.
fn lockwood(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(harness::BINARY);
    command.args(args).env("LOCKWOOD_SERVER", server.native.to_string()).stdin(Stdio::null());
    command
}

fn run(server: &Server, args: &[&str]) -> Output {
    lockwood(server, args).output().unwrap()
}

/// A `lockwood` command that is still running; ended when dropped.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Running {
    fn start(server: &Server, args: &[&str]) -> Running {
        let mut child = lockwood(server, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Running { child, out, err }
    }

    /// A program that says so when it runs, and runs until it is stopped.
    fn start_holding(server: &Server, args: &[&str]) -> Running {
        let program = ["--", "sh", "-c", "echo $$; exec sleep 600"];
        let mut running = Running::start(server, &[&["lock"], args, &program].concat());
        let id = running.line();
        assert!(Path::new("/proc").join(&id).exists(), "the program {id} runs");
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Reads stderr until a line has `part`.
    fn says(&mut self, part: &str) -> String {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(part)) {
            assert_ne!(self.err.read_line(&mut said).unwrap(), 0, "no {part:?} in {said}");
        }
        said
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn wait(&mut self) -> Option<i32> {
        eventually("the command ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gently, so that it stops its program.
        if self.child.try_wait().unwrap().is_none() {
            self.signal("-TERM");
            let _ = self.child.wait();
        }
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn first_lock(server: &Server) -> Value {
    get_json(server, "/v1/default/locks")["locks"][0].clone()
}

// lockwood lock

#[test]
fn the_exit_code_is_the_programs() {
    let server = Server::start(&[]);
    for code in [0, 1, 7, 75] {
        let output = run(&server, &["lock", "--write", "a", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    let output = run(&server, &["lock", "--write", "a", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(137), "{output:?}");
}

#[test]
fn a_program_that_cannot_be_started_is_told_as_a_shell_would() {
    let server = Server::start(&[]);
    let output = run(&server, &["lock", "--write", "a", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(stderr(&output).contains("/no/such/program"), "{output:?}");
    let output = run(&server, &["lock", "--write", "a", "--", "/"]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    Peer::open(&server, "ann").hold("write a");
}

#[test]
fn the_program_finds_its_token_and_lock_in_its_environment() {
    let server = Server::start(&[]);
    let script = "echo $LOCKWOOD_NAMESPACE $LOCKWOOD_TOKEN $LOCKWOOD_LOCK; exec sleep 600";
    let mut running =
        Running::start(&server, &["lock", "-n", "shop", "--write", "a", "--", "sh", "-c", script]);
    let line = running.line();
    let lock = &get_json(&server, "/v1/shop/locks")["locks"][0];
    assert_eq!(line, format!("shop {} {}", lock["token"], lock["lock"]));
}

#[test]
fn the_program_gets_arguments_input_and_output_untouched() {
    let server = Server::start(&[]);
    let script = "printf '%s|' \"$@\"";
    let output = run(&server, &["lock", "--write", "a", "--", "sh", "-c", script, "sh", "-x", "--", "a b"]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("-x|--|a b|", ""));
}

#[test]
fn every_mode_and_the_depth_reach_the_server() {
    let server = Server::start(&[]);
    let args = ["--read", "r", "--update", "u", "--list", "l", "--link", "k", "--depth", "2", "--name", "me"];
    let _running = Running::start_holding(&server, &args);
    let lock = first_lock(&server);
    assert_eq!(lock["owner"]["name"], "me");
    let expected = json!([
        { "path": ["k"], "mode": "link" },
        { "path": ["l"], "mode": "list" },
        { "path": ["r"], "mode": "read", "depth": 2 },
        { "path": ["u"], "mode": "update", "depth": 2 },
    ]);
    let mut resources = lock["resources"].as_array().unwrap().clone();
    resources.sort_by_key(|resource| resource["path"].to_string());
    assert_eq!(Value::Array(resources), expected);
}

#[test]
fn a_slash_inside_a_segment_is_escaped() {
    let server = Server::start(&[]);
    let _running = Running::start_holding(&server, &["--write", "a%2Fb"]);
    assert_eq!(first_lock(&server)["resources"][0]["path"], json!(["a/b"]));
    let listing = stdout(&run(&server, &["locks"]));
    assert!(listing.contains("a%2Fb"), "{listing}");
    assert!(stdout(&run(&server, &["locks", "a%2Fb"])).contains("write"));
    assert!(stdout(&run(&server, &["locks", "a"])).starts_with("no locks"));
}

#[test]
fn the_lock_is_released_when_the_program_ends() {
    let server = Server::start(&[]);
    assert!(run(&server, &["lock", "--write", "a", "--", "true"]).status.success());
    assert_eq!(get_json(&server, "/v1/namespaces"), json!({ "namespaces": [] }));
}

#[test]
fn who_waits_is_told_who_is_in_the_way() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann the holder");
    let held = ann.hold("write user");
    let mut running = Running::start(&server, &["lock", "--read", "user/42", "--", "echo", "done"]);
    let said = running.says("in the way: ");
    assert!(said.contains("waiting for read user/42 in namespace default: place 1"), "{said}");
    assert!(said.contains("ann the holder holds write user since 20"), "{said}");
    assert!(said.contains(&format!("lock {}", held.lock)), "{said}");
    ann.release(&held);
    assert_eq!(running.line(), "done");
    assert_eq!(running.wait(), Some(0));
}

#[test]
fn what_is_not_obtained_in_time_is_not_run() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann the holder");
    ann.hold("write a");
    for wait in ["0", "100ms"] {
        let output = run(&server, &["lock", "--write", "a", "--wait", wait, "--", "echo", "ran"]);
        assert_eq!(output.status.code(), Some(75), "{output:?}");
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        assert!(said.contains("not obtained") && said.contains("ann the holder"), "{said}");
    }
    assert_eq!(get_json(&server, "/v1/default/locks?state=waiting")["locks"], json!([]));
}

#[test]
fn without_a_server_there_is_a_sentence_and_an_exit_code() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for args in [&["lock", "--write", "a", "--", "true"][..], &["locks"], &["locks", "release", "1"]] {
        let output = Command::new(harness::BINARY).args(args).env("LOCKWOOD_SERVER", &free).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains(&free) && said.contains("lockwood serve"), "{said}");
    }
}

#[test]
fn what_the_server_refuses_has_an_exit_code_of_its_own() {
    let server = Server::start(&["--path-segments-max", "2"]);
    let output = run(&server, &["lock", "--write", "a/b/c", "--", "echo", "ran"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(70), ""));
    assert!(stderr(&output).contains("path_segments_max"), "{output:?}");
}

#[test]
fn a_program_whose_lock_is_ended_by_an_operator_is_stopped() {
    let server = Server::start(&[]);
    let mut running =
        Running::start(&server, &["lock", "--write", "a", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let program = running.line();
    let lock = first_lock(&server)["lock"].to_string();
    let output = run(&server, &["locks", "release", &lock, "--reason", "it hangs"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains(&format!("released lock {lock}")), "{output:?}");
    assert_eq!(running.wait(), Some(76));
    let said = running.says("released_by_operator");
    assert!(said.contains("the lock is lost"), "{said}");
    assert!(!Path::new("/proc").join(&program).exists(), "the program {program} still runs");
    let log = get_json(&server, "/v1/default/operator-log");
    assert_eq!(log["actions"][0]["reason"], "it hangs");
}

#[test]
fn a_program_that_does_not_stop_is_killed() {
    let server = Server::start(&[]);
    let script = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let args = ["lock", "--write", "a", "--kill-after", "100ms", "--", "sh", "-c", script];
    let mut running = Running::start(&server, &args);
    let program = running.line();
    let lock = first_lock(&server)["lock"].to_string();
    assert!(run(&server, &["locks", "release", &lock]).status.success());
    assert_eq!(running.wait(), Some(76));
    assert!(!Path::new("/proc").join(&program).exists(), "the program {program} still runs");
}

#[test]
fn a_signal_is_passed_on_to_the_program() {
    let server = Server::start(&[]);
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(&server, &["lock", "--write", "a", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready");
    running.signal("-TERM");
    assert_eq!(running.wait(), Some(7));
    Peer::open(&server, "ann").hold("write a");
}

#[test]
fn a_signal_while_waiting_ends_the_wait() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    ann.hold("write a");
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut running = Running::start(&server, &["lock", "--write", "a", "--", "echo", "ran"]);
        eventually("it waits", || get_json(&server, "/v1/default/locks?state=waiting")["locks"] != json!([]));
        running.signal(signal);
        assert_eq!(running.wait(), Some(code));
        assert_eq!(get_json(&server, "/v1/default/locks?state=waiting")["locks"], json!([]));
    }
}

#[test]
fn a_holder_is_told_when_the_server_is_about_to_stop() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let script = "echo ready; read line < $0; exit 5";
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let args = ["lock", "--write", "a", "--", "sh", "-c", script, pipe.to_str().unwrap()];
    let mut running = Running::start(&server, &args);
    assert_eq!(running.line(), "ready");
    server.signal("-TERM");
    running.says("about to stop");
    std::fs::write(&pipe, "go\n").unwrap();
    assert_eq!(running.wait(), Some(5));
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn programs_under_the_same_lock_run_one_after_the_other() {
    let server = Server::start(&[]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("lines");
    let script = "echo start $$ >> $0; sleep 0.02; echo end $$ >> $0";
    let args = ["lock", "--quiet", "--write", "x", "--", "sh", "-c", script, file.to_str().unwrap()];
    let running: Vec<Running> = (0..6).map(|_| Running::start(&server, &args)).collect();
    for mut one in running {
        assert_eq!(one.wait(), Some(0));
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 12, "{text}");
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].strip_prefix("start "), pair[1].strip_prefix("end "), "interleaved: {text}");
    }
}

#[test]
fn readers_run_together() {
    let server = Server::start(&[]);
    let _one = Running::start_holding(&server, &["--read", "x"]);
    let _two = Running::start_holding(&server, &["--read", "x"]);
}

// lockwood locks

#[test]
fn the_tree_shows_holders_waiters_and_intents() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write user/42");
    let waiting = bob.queue("read user/42:2")["lock"].clone();
    let shown = stdout(&run(&server, &["locks"]));
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    assert_eq!(
        lines[..4],
        ["namespace default: 1 held, 1 waiting", "/  IX 1", "user  IX 1", "42"],
        "{shown}"
    );
    assert!(lines[4].starts_with("X   write          lock "), "{shown}");
    assert!(lines[4].contains(&format!("lock {}  ann, held for ", held.lock)), "{shown}");
    assert!(lines[4].ends_with(&format!("token {}", held.token)), "{shown}");
    assert!(
        lines[5].starts_with(&format!("IS  read, depth 2  lock {waiting}  bob, waiting for ")),
        "{shown}"
    );
    assert!(lines[5].ends_with(&format!("place 1, behind {} (ann)", held.lock)), "{shown}");
}

#[test]
fn the_listing_is_json_if_asked_for() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let output = run(&server, &["locks", "--json"]);
    let locks: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(locks[0]["lock"], held.lock);
    assert_eq!(locks[0]["owner"]["name"], "ann");
    let none = run(&server, &["locks", "--json", "-n", "nowhere"]);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&none)).unwrap(), json!([]));
}

#[test]
fn the_listing_can_be_narrowed() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write user/42").lock;
    let waiting = bob.queue("write user/42")["lock"].as_u64().unwrap();
    let other = bob.hold("write bill").lock;
    let listed = |args: &[&str]| -> Vec<u64> {
        let output = run(&server, &[&["locks", "--json"], args].concat());
        let locks: Vec<Value> = serde_json::from_str(&stdout(&output)).unwrap();
        locks.iter().map(|lock| lock["lock"].as_u64().unwrap()).collect()
    };
    assert_eq!(listed(&[]), [held, waiting, other]);
    assert_eq!(listed(&["user"]), [held, waiting]);
    assert_eq!(listed(&["--owner", "bob"]), [waiting, other]);
    assert_eq!(listed(&["--owner", &ann.session]), [held]);
    assert_eq!(listed(&["--state", "waiting"]), [waiting]);
    assert_eq!(listed(&["--state", "granted", "--owner", "bob"]), [other]);
    let shown = stdout(&run(&server, &["locks", "--owner", "ann"]));
    assert!(shown.contains("ann") && !shown.contains("bill"), "{shown}");
}

#[test]
fn a_listing_of_more_than_a_page_is_complete() {
    let server = Server::start(&["--page-len-max", "7"]);
    let mut ann = Peer::open(&server, "ann");
    let all: Vec<u64> = (0..30).map(|n| ann.hold(&format!("write a/{n}")).lock).collect();
    let locks: Vec<Value> = serde_json::from_str(&stdout(&run(&server, &["locks", "--json"]))).unwrap();
    assert_eq!(locks.iter().map(|lock| lock["lock"].as_u64().unwrap()).collect::<Vec<_>>(), all);
}

#[test]
fn all_namespaces_can_be_listed_at_once() {
    let server = Server::start(&[]);
    assert_eq!(stdout(&run(&server, &["locks", "--all"])), "no locks in any namespace\n");
    let mut shop = Peer::open_with(&server, "shop", json!({}));
    let mut zoo = Peer::open_with(&server, "zoo%2F1", json!({}));
    shop.hold("write a");
    zoo.hold("write b");
    let shown = stdout(&run(&server, &["locks", "--all"]));
    assert!(shown.contains("namespace shop: 1 held") && shown.contains("namespace zoo/1: 1 held"), "{shown}");
    let lists: Value = serde_json::from_str(&stdout(&run(&server, &["locks", "--all", "--json"]))).unwrap();
    let names: Vec<_> = lists.as_array().unwrap().iter().map(|list| &list["namespace"]).collect();
    assert_eq!(names, ["shop", "zoo/1"]);
    assert_eq!(lists[1]["locks"][0]["resources"][0]["path"], json!(["b"]));
}

#[test]
fn nothing_to_show_is_said_in_words() {
    let server = Server::start(&[]);
    let output = run(&server, &["locks"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "no locks in namespace default\n")
    );
}

#[test]
fn a_watched_listing_shows_again() {
    let server = Server::start(&[]);
    let mut running = Running::start(&server, &["locks", "--watch=1", "--json"]);
    assert_eq!(running.line(), "[]");
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let mut line = running.line();
    while line == "[]" {
        line = running.line();
    }
    let locks: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(locks[0]["lock"], held.lock);
}

#[test]
fn names_cannot_steer_the_terminal() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann\u{1b}[2J\nroot");
    let resources = json!([{ "path": ["\u{1b}[31m"], "mode": "write" }]);
    assert_eq!(ann.ask(json!({ "type": "lock", "resources": resources }))["type"], "granted");
    let shown = stdout(&run(&server, &["locks"]));
    assert!(!shown.contains('\u{1b}') && shown.contains("ann\\u{1b}[2J\\nroot"), "{shown:?}");
    let output = run(&server, &["lock", "--write", "/", "--wait", "0", "--", "true"]);
    assert!(!stderr(&output).contains('\u{1b}'), "{output:?}");
}

#[test]
fn releasing_what_is_not_there_is_told() {
    let server = Server::start(&[]);
    let _ann = Peer::open(&server, "ann");
    let output = run(&server, &["locks", "release", "12"]);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert!(stderr(&output).contains("12"), "{output:?}");
}

// Help.

#[test]
fn every_help_text_has_examples() {
    for command in ["serve", "lock", "locks"] {
        let output = Command::new(harness::BINARY).args([command, "--help"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let help = stdout(&output);
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("no examples: {help}"));
        assert!(examples.contains(&format!("lockwood {command}")), "{help}");
    }
}

#[test]
fn wrong_usage_has_an_exit_code_of_its_own() {
    for args in
        [&["lock", "--write", "a"][..], &["lock", "--", "true"], &["lokc"], &["locks", "--state", "x"], &[]]
    {
        let output = Command::new(harness::BINARY).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}
