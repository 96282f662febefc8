//! `lockwood lock` inside of `lockwood lock`, and what becomes of a program when its `lockwood lock` ends.

use crate::{
    harness::{self, Server, eventually, eventually_is},
    http::get_json,
    peer::Peer,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};
use tempfile::TempDir;

/// A shell script, in which `lockwood` is the binary under test and knows the server.
fn shell(server: &Server, script: &str) -> Command {
    let programs = Path::new(harness::BINARY).parent().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .env("LOCKWOOD_SERVER", server.native.to_string())
        .stdin(Stdio::null());
    command
}

fn run(server: &Server, script: &str) -> Output {
    shell(server, script).output().unwrap()
}

#[track_caller]
fn says(server: &Server, script: &str) -> String {
    let output = run(server, script);
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn fails(server: &Server, script: &str, code: i32) -> String {
    let output = run(server, script);
    assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn locks(server: &Server) -> Vec<Value> {
    get_json(server, "/v1/default/locks")["locks"].as_array().unwrap().clone()
}

/// A command line in the background, killed when dropped.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(server: &Server, script: &str) -> Running {
        let mut child = shell(server, &format!("exec {script}")).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_alive(id: &str) -> bool {
    // One that has ended and that nobody has asked about yet is a zombie.
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// A program that says its own number and that of one it has started, and goes on.
const TWO_SLEEPERS: &str = "sh -c 'sleep 600 & echo $$ $!; wait; sleep 600'";

#[test]
fn the_program_finds_server_namespace_lock_and_token_in_its_environment() {
    let server = Server::start(&[]);
    let script = "unset LOCKWOOD_SERVER; lockwood lock --server ADDR -n shop --write a -- sh -c \
                  'echo $LOCKWOOD_SERVER $LOCKWOOD_NAMESPACE $LOCKWOOD_LOCK $LOCKWOOD_TOKEN; lockwood put a/1 {}'";
    let said = says(&server, &script.replace("ADDR", &server.native.to_string()));
    assert_eq!(said, format!("{} shop 1 1\na/1 written at position 1", server.native));
}

#[test]
fn a_token_is_shown_to_its_own_server_only() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let script = format!("lockwood lock --write a -- lockwood put a/1 {{}} --server {}", other.native);
    assert_eq!(says(&server, &script), "a/1 written at position 1");
    let script = "lockwood lock --write a -- sh -c 'LOCKWOOD_TOKEN= lockwood put a/1 {} --wait 0'";
    assert!(fails(&server, script, 75).contains("locked"));
}

const KINDS: [&str; 2] = ["", "--lease 30s --owner importer"];

#[test]
fn a_lock_below_the_surrounding_one_is_granted_at_once() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let _waiter = Running::start(&server, "lockwood lock -q --write other -- sleep 600");
        let script = format!(
            "lockwood lock {kind} --write user/42 -- lockwood lock --write user/42/name -- sh -c \
             'lockwood put user/42 {{}} && lockwood set user/42/name 1 && echo inner'"
        );
        assert!(says(&server, &script).ends_with("inner"), "{kind}");
        eventually("all but the other lock are released", || locks(&server).len() <= 1);
    }
}

/// Somebody else waits for the outer lock, and still the inner one does not stand behind.
#[test]
fn a_nested_lock_does_not_queue_behind_those_who_wait_for_the_surrounding_one() {
    let server = Server::start(&[]);
    let folder = TempDir::new().unwrap();
    let go = folder.path().join("go");
    let script = format!(
        "lockwood lock --write user -- sh -c 'echo held; while [ ! -e {} ]; do sleep 0.02; done; \
         lockwood lock --write user/42 --wait 0 -- echo inner'",
        go.display()
    );
    let mut outer = Running::start(&server, &script);
    assert_eq!(outer.line(), "held");
    let _waiter = Running::start(&server, "lockwood lock -q --write user/42 -- sleep 600");
    eventually("somebody waits", || locks(&server).len() == 2);
    fs::write(&go, "").unwrap();
    assert_eq!(outer.line(), "inner");
}

#[test]
fn what_the_surrounding_lock_does_not_cover_is_taken_in_addition() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let script = format!(
            "lockwood lock {kind} --write user/42 -- sh -c 'lockwood lock --write order/1 -- lockwood locks --json; \
             lockwood locks --json'"
        );
        let said = says(&server, &script);
        let mut lists =
            serde_json::Deserializer::from_str(&said).into_iter::<Vec<Value>>().map(Result::unwrap);
        let (inside, after) = (lists.next().unwrap(), lists.next().unwrap());
        assert_eq!((inside.len(), after.len()), (2, 1), "{kind}: {said}");
        assert_eq!(inside[0]["owner"], inside[1]["owner"], "{kind}: one owner has both");
        assert_eq!(after[0]["resources"][0]["path"], json!(["user", "42"]), "{kind}");
        assert_eq!(locks(&server).len(), 0, "{kind}");
    }
}

#[test]
fn writing_below_a_surrounding_read_waits_for_other_readers_only() {
    let server = Server::start(&[]);
    let script = "lockwood lock --read user -- lockwood lock --write user/42 --wait 0 -- echo inner";
    assert_eq!(says(&server, script), "inner");
    let mut ann = Peer::open(&server, "ann");
    ann.hold("read user");
    let said = fails(&server, script, 75);
    assert!(said.contains("ann"), "{said}");
}

/// Ann holds b and waits for a; the program that holds a asks for b inside.
#[test]
fn a_nested_lock_that_would_never_be_granted_is_refused_as_a_deadlock() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let mut ann = Peer::open(&server, "ann");
        ann.hold("write b");
        let folder = TempDir::new().unwrap();
        let go = folder.path().join("go");
        let script = format!(
            "lockwood lock {kind} --write a -- sh -c 'while [ ! -e {} ]; do sleep 0.02; done; \
             lockwood lock --write b -- echo never'",
            go.display()
        );
        let outer = shell(&server, &script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("both are held", || locks(&server).len() == 2);
        ann.queue("write a");
        fs::write(&go, "").unwrap();
        let output = outer.wait_with_output().unwrap();
        let refused = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{kind}: {refused}");
        assert!(refused.contains("deadlock") && refused.contains("ann"), "{kind}: {refused}");
    }
}

#[test]
fn locks_can_be_nested_more_than_once() {
    let server = Server::start(&[]);
    let script = "lockwood lock --write a -- lockwood lock -n other --write x -- lockwood lock -n default --write a/1 -- \
                  lockwood lock --write a/1/f -- sh -c 'echo $LOCKWOOD_NAMESPACE; lockwood put a/1 {}; \
                  lockwood put x/1 {} -n other'";
    assert_eq!(says(&server, script), "default\na/1 written at position 1\nx/1 written at position 1");
}

#[test]
fn a_surrounding_lock_that_cannot_be_asked_is_named_instead_of_waited_for() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let script = format!(
            "lockwood lock --write a -- sh -c 'LOCKWOOD_OUTER=$(echo \"$LOCKWOOD_OUTER\" | sed s/lockwood-/gone-/) \
             lockwood lock {kind} --write a/1 -- echo never'"
        );
        let said = fails(&server, &script, 70);
        assert!(said.contains("around this command is in the way"), "{kind}: {said}");
    }
}

#[test]
fn a_nested_lock_ends_with_the_command_that_asked_for_it() {
    let server = Server::start(&[]);
    let script =
        "lockwood lock --write a -- sh -c 'lockwood lock --write b -- sleep 600 & echo $!; wait; sleep 600'";
    let mut outer = Running::start(&server, script);
    let inner = outer.line();
    eventually("both are held", || locks(&server).len() == 2);
    assert!(Command::new("kill").args(["-KILL", &inner]).status().unwrap().success());
    eventually_is("only the outer one is left", || locks(&server).len(), |len| *len == 1);
    outer.signal("-TERM");
}

#[track_caller]
fn sleepers(running: &mut Running) -> Vec<String> {
    let ids: Vec<String> = running.line().split(' ').map(str::to_owned).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| is_alive(id)), "{ids:?}");
    ids
}

#[test]
fn the_program_and_what_it_has_started_end_when_the_lock_is_lost() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let mut running =
            Running::start(&server, &format!("lockwood lock {kind} --write a -- {TWO_SLEEPERS}"));
        let ids = sleepers(&mut running);
        says(&server, &format!("lockwood locks release {}", locks(&server)[0]["lock"]));
        eventually("all of it has ended", || !ids.iter().any(|id| is_alive(id)));
        assert_eq!(running.child.wait().unwrap().code(), Some(76), "{kind}");
    }
}

#[test]
fn the_program_and_what_it_has_started_end_when_lockwood_lock_is_killed() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let mut running =
            Running::start(&server, &format!("lockwood lock {kind} --write a -- {TWO_SLEEPERS}"));
        let ids = sleepers(&mut running);
        running.signal("-KILL");
        eventually("all of it has ended", || !ids.iter().any(|id| is_alive(id)));
    }
}

#[test]
fn a_program_that_ignores_signals_is_killed_with_lockwood_lock() {
    let server = Server::start(&[]);
    let script = "lockwood lock --kill-after 100ms --write a -- sh -c 'trap \"\" TERM; echo $$ $$; while :; do sleep 1; done'";
    let mut running = Running::start(&server, script);
    let ids = sleepers(&mut running);
    running.signal("-KILL");
    eventually("it has ended", || !is_alive(&ids[0]));
}

#[test]
fn a_termination_reaches_everything_before_the_lock_is_released() {
    let server = Server::start(&[]);
    let mut running = Running::start(&server, &format!("lockwood lock --write a -- {TWO_SLEEPERS}"));
    let ids = sleepers(&mut running);
    running.signal("-TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(143));
    assert!(!ids.iter().any(|id| is_alive(id)), "nothing of it runs without the lock");
    assert_eq!(locks(&server), Vec::<Value>::new());
}

/// The ways in which a program loses its lock.
const ENDS: [(&str, i32); 3] = [("-KILL", 137), ("-TERM", 143), ("release", 76)];

/// Brings one of them about, for the `lockwood lock` with this number.
fn end(server: &Server, how: &str, id: &str) {
    match how {
        "release" => drop(says(server, &format!("lockwood locks release {}", locks(server)[0]["lock"]))),
        signal => assert!(Command::new("kill").args([signal, id]).status().unwrap().success()),
    }
}

/// `timeout` makes a process group of its own.
#[test]
fn what_has_made_a_process_group_of_its_own_does_not_outlive_the_lock() {
    for (how, code) in ENDS {
        let server = Server::start(&[]);
        let script = "lockwood lock --kill-after 1s --write a -- sh -c \
                      'timeout 600 sh -c \"sleep 600 & echo \\$\\$ \\$!; wait\"; true'";
        let mut running = Running::start(&server, script);
        let ids = sleepers(&mut running);
        end(&server, how, &running.child.id().to_string());
        if how == "-KILL" {
            eventually("all of it has ended", || !ids.iter().any(|id| is_alive(id)));
        } else {
            assert_eq!(running.child.wait().unwrap().code(), Some(code), "{how}");
            assert!(!ids.iter().any(|id| is_alive(id)), "{how}: nothing of it runs without the lock");
        }
    }
}

/// Orphans have no parent to be found by, and at a terminal they share the group of the shell that goes on afterwards.
#[test]
fn orphans_at_a_terminal_do_not_outlive_the_lock_and_their_shell_does() {
    for (how, code) in ENDS {
        let server = Server::start(&[]);
        let program = "sh -c 'echo lock: $$; exec lockwood lock --kill-after 1s --write a -- sh -c \
                       \"(sh -c \\\"echo orphan: \\\\\\$\\\\\\$; exec sleep 600\\\" &); sleep 600\"'; echo ended: $?; read line";
        let mut command = shell(&server, "exec script -qec \"$1\" /dev/null");
        command.args(["sh", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut keyboard = child.stdin.take().unwrap();
        let mut screen = BufReader::new(child.stdout.take().unwrap());
        let mut word_after = |word: &str| loop {
            let mut line = String::new();
            assert_ne!(
                screen.read_line(&mut line).unwrap(),
                0,
                "{how}: the terminal was closed before {word}"
            );
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        };
        let (lock, orphan) = (word_after("lock: "), word_after("orphan: "));
        assert!(is_alive(&orphan));
        end(&server, how, &lock);
        assert_eq!(word_after("ended: "), code.to_string(), "{how}: the shell goes on");
        if how == "-KILL" {
            eventually("the orphan has ended", || !is_alive(&orphan));
        } else {
            assert!(!is_alive(&orphan), "{how}: nothing of it runs without the lock");
        }
        keyboard.write_all(b"\n").unwrap();
        child.wait().unwrap();
    }
}

/// Under a lease both have the same lock, and even the same token.
#[test]
fn the_end_of_one_nested_command_leaves_its_neighbour_alone() {
    for kind in KINDS {
        let server = Server::start(&[]);
        let inner = "lockwood lock --write a -- sh -c \"echo \\$PPID \\$\\$; exec sleep 600\"";
        let script = format!("lockwood lock {kind} --write a -- sh -c '{inner} & {inner} & wait'");
        let mut outer = Running::start(&server, &script);
        let (first, second) = (sleepers(&mut outer), sleepers(&mut outer));
        end(&server, "-TERM", &first[0]);
        eventually("one has ended", || !first.iter().any(|id| is_alive(id)));
        assert!(second.iter().all(|id| is_alive(id)), "{kind}");
        outer.signal("-TERM");
        outer.child.wait().unwrap();
        assert!(!second.iter().any(|id| is_alive(id)), "{kind}: nothing of it runs without the lock");
    }
}

#[test]
fn what_a_program_starts_to_clean_up_is_not_signalled() {
    let server = Server::start(&[]);
    let script = "lockwood lock --write a -- sh -c 'trap \"setsid sh -c \\\"sleep 0.2; echo clean\\\"; exit 7\" TERM; \
                  echo $$ $$; while :; do sleep 0.05; done'";
    let mut running = Running::start(&server, script);
    sleepers(&mut running);
    running.signal("-TERM");
    assert_eq!(running.line(), "clean");
    assert_eq!(running.child.wait().unwrap().code(), Some(7));
}

#[test]
fn what_a_program_leaves_behind_when_it_ends_by_itself_is_left_alone() {
    let server = Server::start(&[]);
    let id = says(&server, "lockwood lock --write a -- sh -c 'sleep 600 >&- 2>&- & echo $!'");
    assert!(is_alive(&id), "a daemon that the program started goes on");
    assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
    assert_eq!(get_json(&server, "/v1/default/locks")["locks"], json!([]));
}

/// `script` gives the command a terminal of its own.
#[test]
fn a_program_at_a_terminal_reads_from_it_and_is_interrupted_by_it() {
    let server = Server::start(&[]);
    let program = "lockwood lock --write a -- sh -c 'read line; echo got $line; exec sleep 600'";
    let mut command = shell(&server, "exec script -qec \"$1\" /dev/null");
    command.args(["sh", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut keyboard, mut screen) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    keyboard.write_all(b"hello\n").unwrap();
    let mut line = String::new();
    while !line.contains("got hello") {
        line.clear();
        assert_ne!(screen.read_line(&mut line).unwrap(), 0, "the terminal was closed");
    }
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(locks(&server), Vec::<Value>::new());
}
