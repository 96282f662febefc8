//! The settings of the facade: flags, and the environment names of the original as their defaults.

use crate::{
    client::{Client, check_usable},
    harness::{BINARY, Server},
    raw::{Raw, get},
};
use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};
use tempfile::TempDir;

/// A start of the binary that may fail, with nothing said about Locktopus but by the test.
struct Start {
    child: Child,
    stderr: Option<Lines<BufReader<ChildStderr>>>,
    /// What it printed up to the line that says it is up.
    greeting: String,
    _data: TempDir,
}

impl Start {
    fn new(flags: &[&str], env: &[(&str, &str)]) -> Start {
        let data = TempDir::new().unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).args(flags);
        command.envs(env.iter().copied());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("curl ") && stdout.read_line(&mut greeting).unwrap() > 0 {}
        let stderr = Some(BufReader::new(child.stderr.take().unwrap()).lines());
        Start { child, stderr, greeting, _data: data }
    }

    /// Its exit and what it said about it; it must not have started.
    #[track_caller]
    fn refused(mut self) -> (ExitStatus, String) {
        assert!(!self.greeting.contains("is up"), "{}", self.greeting);
        let said: Vec<String> = self.stderr.take().unwrap().map_while(Result::ok).collect();
        (self.child.wait().unwrap(), said.join("\n"))
    }

    /// Waits for a line in the log.
    #[track_caller]
    fn logged(&mut self, part: &str) -> String {
        let mut lines = self.stderr.as_mut().unwrap().map_while(Result::ok);
        lines.find(|line| line.contains(part)).expect("the log ended without it")
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn check_address(flags: &[&str], env: &[(&str, &str)], expected: &str) {
    let mut start = Start::new(flags, env);
    let mut said = start.greeting.clone();
    if said.is_empty() {
        // The default port may be taken on this machine; then the error names it.
        for line in start.stderr.take().unwrap() {
            said += &line.unwrap();
        }
    }
    assert!(said.contains(expected), "{flags:?} {env:?}: {said}");
}

#[test]
fn host_and_port() {
    check_address(&["--locktopus"], &[("LOCKTOPUS_PORT", "0")], "ws://127.0.0.1:");
    let both = [("LOCKTOPUS_HOST", "127.0.0.2"), ("LOCKTOPUS_PORT", "0")];
    check_address(&["--locktopus"], &both, "ws://127.0.0.2:");
    check_address(&["--locktopus", "--locktopus-host", "127.0.0.3"], &both, "ws://127.0.0.3:");
    let flags = ["--locktopus", "--locktopus-port", "0"];
    check_address(&flags, &[("LOCKTOPUS_PORT", "1")], "ws://127.0.0.1:");
    check_address(&["--locktopus", "127.0.0.4:0"], &both, "ws://127.0.0.4:");
    check_address(&flags, &[("LOCKTOPUS_HOST", ""), ("LOCKTOPUS_PORT", "")], "ws://127.0.0.1:");
    check_address(&["--locktopus"], &[], "127.0.0.1:9009");
    check_address(&["--locktopus"], &[("LOCKTOPUS_HOST", ""), ("LOCKTOPUS_PORT", "")], "127.0.0.1:9009");
}

#[test]
fn the_environment_alone_does_not_turn_it_on() {
    let start = Start::new(&[], &[("LOCKTOPUS_HOST", "127.0.0.1"), ("LOCKTOPUS_PORT", "0")]);
    assert!(start.greeting.contains("is up") && !start.greeting.contains("locktopus"), "{}", start.greeting);
}

#[test]
fn an_address_others_can_reach_needs_consent() {
    let env = [("LOCKTOPUS_HOST", "0.0.0.0"), ("LOCKTOPUS_PORT", "0")];
    let (status, said) = Start::new(&["--locktopus"], &env).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("0.0.0.0:0") && said.contains("--insecure"), "{said}");
    let start = Start::new(&["--locktopus", "--insecure"], &env);
    assert!(start.greeting.contains("ws://0.0.0.0:"), "{}", start.greeting);
}

#[test]
fn a_port_that_is_taken_is_a_failed_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, said) = Start::new(&["--locktopus", &address], &[]).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn hosts_have_names_too() {
    let env = [("LOCKTOPUS_HOST", "localhost"), ("LOCKTOPUS_PORT", "0")];
    let start = Start::new(&["--locktopus"], &env);
    assert!(start.greeting.contains("locktopus  ws://"), "{}", start.greeting);
    let env = [("LOCKTOPUS_HOST", "no such host"), ("LOCKTOPUS_PORT", "0")];
    let (status, said) = Start::new(&["--locktopus"], &env).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("no such host"), "{said}");
}

#[test]
fn values_that_make_no_sense_are_failed_starts() {
    let cases = [
        ("LOCKTOPUS_PORT", "x"),
        ("LOCKTOPUS_PORT", "65536"),
        ("LOCKTOPUS_PORT", "-1"),
        ("LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", "x"),
        ("LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", "1.5"),
        ("LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", "60s"),
        ("LOCKTOPUS_STATS_INTERVAL", "x"),
        ("LOCKTOPUS_STATS_INTERVAL", "1s"),
    ];
    for (name, value) in cases {
        let (status, said) = Start::new(&["--locktopus", "127.0.0.1:0"], &[(name, value)]).refused();
        assert!(status.code().is_some_and(|code| code != 0), "{name}={value}: {status} {said}");
        let flag = format!("--{}", name.to_lowercase().replace('_', "-"));
        assert!(said.contains(&flag), "{name}={value}: {said}");
    }
}

#[track_caller]
fn check_timeout(flags: &[&str], env: &[(&str, &str)], expected_ms: u64) {
    let server = Server::start_with_env(flags, env);
    let page = get(server.locktopus, "/").body;
    let line = format!("default abandon timeout: {expected_ms} ms\n");
    assert!(page.contains(&line), "{flags:?} {env:?}: {page}");
}

#[test]
fn the_default_abandon_timeout() {
    const NAME: &str = "LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT";
    const FLAG: &str = "--locktopus-default-abandon-timeout";
    check_timeout(&[], &[], 60_000);
    check_timeout(&[], &[(NAME, "1234")], 1234);
    check_timeout(&[], &[(NAME, "")], 60_000);
    check_timeout(&[FLAG, "99"], &[(NAME, "1234")], 99);
    check_timeout(&[], &[(NAME, "-5")], 0);
    check_timeout(&[FLAG, "-5"], &[], 0);
}

#[test]
fn the_default_abandon_timeout_is_what_connections_get() {
    let server = Server::start_with_env(&[], &[("LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", "-1")]);
    let mut next = Client::connect(&server, "n");
    let mut holder = Client::connect_with(&server, "namespace=n");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(next.lock("w a"), "enqueued");
    drop(holder);
    next.granted();
    drop(server);

    let server = Server::start_with_env(&[], &[("LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", "300")]);
    let mut next = Client::connect(&server, "n");
    let mut holder = Client::connect_with(&server, "namespace=n");
    assert_eq!(holder.lock("w a"), "acquired");
    assert_eq!(next.lock("w a"), "enqueued");
    let start = std::time::Instant::now();
    drop(holder);
    next.granted();
    assert!(start.elapsed().as_millis() >= 298, "after {:?}", start.elapsed());
}

/// The log of a server that has served one client, who took one lock.
fn log(flags: &[&str], env: &[(&str, &str)]) -> String {
    let server = Server::start_with_env(flags, env);
    check_usable(&server, "n");
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}

#[track_caller]
fn check_logs(flags: &[&str], env: &[(&str, &str)], clients: bool, locks: bool) {
    let log = log(flags, env);
    let count = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    let case = format!("{flags:?} {env:?}: {log}");
    assert_eq!(count("locktopus client connected"), usize::from(clients), "{case}");
    assert_eq!(count("locktopus lock"), usize::from(locks), "{case}");
    assert_eq!(count("locktopus release"), usize::from(locks), "{case}");
}

/// In the original these switches are the wrong way round.
#[test]
fn log_switches() {
    const CLIENTS: &str = "LOCKTOPUS_LOG_CLIENTS";
    const LOCKS: &str = "LOCKTOPUS_LOG_LOCKS";
    check_logs(&[], &[], false, false);
    check_logs(&[], &[(CLIENTS, "true")], true, false);
    check_logs(&[], &[(LOCKS, "1")], false, true);
    check_logs(&[], &[(CLIENTS, "yes"), (LOCKS, "y")], true, true);
    check_logs(&[], &[(CLIENTS, ""), (LOCKS, "TRUE")], false, false);
    check_logs(&[], &[(CLIENTS, "false"), (LOCKS, "0")], false, false);
    check_logs(&["--locktopus-log-clients", "--locktopus-log-locks"], &[], true, true);
    let env = [(CLIENTS, "true"), (LOCKS, "true")];
    check_logs(&["--locktopus-log-clients", "false"], &env, false, true);
    check_logs(&["--locktopus-log-locks=no"], &env, true, false);
}

#[test]
fn the_stats_interval() {
    let env = [("LOCKTOPUS_STATS_INTERVAL", "1"), ("LOCKTOPUS_PORT", "0")];
    let mut start = Start::new(&["--locktopus"], &env);
    let (_, rest) = start.greeting.split_once("locktopus  ws://").unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    let _raw = Raw::open(address.parse().unwrap(), "/v1?namespace=counted", "");
    let line = start.logged("locktopus stats");
    assert!(line.contains("counted") && line.contains("LastGroupID"), "{line}");
    for value in ["0", ""] {
        assert!(!log(&[], &[("LOCKTOPUS_STATS_INTERVAL", value)]).contains("locktopus stats"));
    }
}
