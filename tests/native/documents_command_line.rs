//! The commands about documents as a shell sees them.

use crate::harness::{self, Server, eventually};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
};
use tempfile::TempDir;

/// A `lockwood` command for the server at this address.
fn lockwood(address: &str, args: &[&str]) -> Command {
    let mut command = Command::new(harness::BINARY);
    command.args(args).env("LOCKWOOD_SERVER", address).stdin(Stdio::null());
    command
}

fn run(server: &Server, args: &[&str]) -> Output {
    lockwood(&server.native.to_string(), args).output().unwrap()
}

fn run_with_input(server: &Server, args: &[&str], input: &str) -> Output {
    let mut command = lockwood(&server.native.to_string(), args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// What a command that succeeds prints.
#[track_caller]
fn shown(server: &Server, args: &[&str]) -> String {
    let output = run(server, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    stdout(&output)
}

/// What a command that succeeds prints as JSON, line by line.
#[track_caller]
fn lines(server: &Server, args: &[&str]) -> Vec<Value> {
    let shown = shown(server, args);
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a command that fails says, with this exit code.
#[track_caller]
fn refused(server: &Server, args: &[&str], code: i32) -> String {
    let output = run(server, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    stderr(&output)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A command that goes on; ended when dropped.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(address: &str, args: &[&str]) -> Running {
        let mut child = lockwood(address, args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "the command ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three people.
fn people() -> Server {
    let server = Server::start(&[]);
    for (key, fields) in [
        ("1", r#"{"name":"Ann","age":30}"#),
        ("2", r#"{"name":"Bob","age":17,"city":"Bonn"}"#),
        ("3", r#"{"name":"bob","age":50}"#),
    ] {
        shown(&server, &["put", &format!("user/{key}"), fields]);
    }
    server
}

fn keys(documents: &[Value]) -> Vec<&str> {
    documents.iter().map(|document| document["key"].as_str().unwrap()).collect()
}

// One document.

#[test]
fn what_is_put_is_got() {
    let server = Server::start(&[]);
    assert_eq!(
        shown(&server, &["put", "user/42", r#"{"price":1.50,"name":"Ann"}"#]),
        "user/42 written at position 1\n"
    );
    let document: Value = serde_json::from_str(&shown(&server, &["get", "user/42"])).unwrap();
    assert_eq!(document, json!({ "name": "Ann", "price": 1.5 }));
    assert!(shown(&server, &["get", "user/42"]).contains("  \"price\": 1.50"), "numbers stay as they are");
    let info = &lines(&server, &["get", "user/42", "--json"])[0];
    assert_eq!((&info["key"], &info["position"], &info["created"]), (&json!("42"), &json!(1), &json!(1)));
    let fields: Value =
        serde_json::from_str(&shown(&server, &["get", "user/42", "--fields", "name"])).unwrap();
    assert_eq!(fields, json!({ "name": "Ann" }));
}

#[test]
fn fields_come_from_standard_input() {
    let server = Server::start(&[]);
    for args in [&["put", "user/1"][..], &["put", "user/1", "-"]] {
        let output = run_with_input(&server, args, "{\"a\": 1}\n");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(lines(&server, &["get", "user/1", "--json"])[0]["position"], 2);
}

#[test]
fn a_put_replaces_and_earlier_positions_can_be_read() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/1", r#"{"a":1,"b":2}"#]);
    shown(&server, &["put", "user/1", r#"{"a":3}"#]);
    assert_eq!(lines(&server, &["get", "user/1", "--json"])[0]["value"], json!({ "a": 3 }));
    let before = &lines(&server, &["get", "user/1", "--at", "1", "--json"])[0];
    assert_eq!(before["value"], json!({ "a": 1, "b": 2 }));
}

#[test]
fn refusals_have_exit_codes() {
    let server = Server::start(&[]);
    assert!(refused(&server, &["get", "user/42"], 66).contains("no_document"));
    assert!(refused(&server, &["put", "user/42", "{}", "--if", "present"], 66).contains("no_document"));
    shown(&server, &["put", "user/42", "{}", "--if", "absent"]);
    assert!(refused(&server, &["put", "user/42", "{}", "--if", "absent"], 73).contains("document_exists"));
    assert!(refused(&server, &["put", "user/42", r#"{"meta_deleted":true}"#], 70).contains("reserved_field"));
    assert!(refused(&server, &["put", "user/42", "[]"], 65).contains("JSON object"));
    assert!(refused(&server, &["put", "user/42", r#"{"a":1,"a":2}"#], 65).contains("twice"));
    refused(&server, &["get", "user"], 2);
}

#[test]
fn a_broken_position_lock_says_who_broke_it_and_what_to_do() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/42", r#"{"a":1}"#]);
    shown(&server, &["put", "user/42", r#"{"a":2}"#, "--user", "ann", "--note", "because"]);
    for args in [&["put", "user/42", "{}", "--position", "1"][..], &["delete", "user/42", "--position", "1"]]
    {
        let said = refused(&server, args, 77);
        assert!(said.contains("position_locked"), "{said}");
        assert!(
            said.contains("user/42, read at position 1, by the write at position 2 of ann at 20"),
            "{said}"
        );
        assert!(said.contains("(because)") && said.contains("read it again"), "{said}");
    }
    shown(&server, &["put", "user/42", "{}", "--position", "2"]);
}

#[test]
fn a_deleted_document_is_hidden_and_can_be_restored() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/42", r#"{"a":1}"#]);
    assert_eq!(shown(&server, &["delete", "user/42"]), "user/42 deleted at position 2\n");
    refused(&server, &["get", "user/42"], 66);
    let deleted = &lines(&server, &["get", "user/42", "--deleted", "only", "--json"])[0];
    assert_eq!((&deleted["deleted"], &deleted["value"]), (&json!(true), &json!({ "a": 1 })));
    let restore = r#"{"events":[{"type":"restore","collection":"user","key":42}]}"#;
    let output = run_with_input(&server, &["write"], restore);
    assert_eq!(stdout(&output), "written at position 3\n", "{output:?}");
    shown(&server, &["get", "user/42"]);
}

// Write.

#[test]
fn requests_come_from_files_and_standard_input() {
    let server = Server::start(&[]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("request.json");
    let create = |key: u32| {
        format!(r#"{{"events":[{{"type":"create","collection":"u","key":{key},"fields":{{}}}}]}}"#)
    };
    fs::write(&file, format!("{{\"requests\":[{},{}]}}", create(1), create(2))).unwrap();
    assert_eq!(shown(&server, &["write", file.to_str().unwrap()]), "written at positions 1 to 2\n");
    let output = run_with_input(&server, &["write", "-", "--json"], &create(3));
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer, json!({ "position": 3, "positions": [3], "replayed": false }));
    refused(&server, &["write", "/no/such/file"], 65);
    assert_eq!(run_with_input(&server, &["write"], "{").status.code(), Some(65));
    let output = run_with_input(&server, &["write"], r#"{"events":[],"lock":[]}"#);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert!(stderr(&output).contains("unknown_member"), "{output:?}");
}

#[test]
fn a_write_that_is_sent_twice_is_done_once() {
    let server = Server::start(&[]);
    let request = r#"{"events":[{"type":"put","collection":"u","key":1,"fields":{}}],"idempotency_key":"k"}"#;
    assert_eq!(stdout(&run_with_input(&server, &["write"], request)), "written at position 1\n");
    let again = stdout(&run_with_input(&server, &["write"], request));
    assert!(again.starts_with("written at position 1 before"), "{again}");
}

// Many documents.

#[test]
fn a_filter_is_words_or_json() {
    let server = people();
    let found = |args: &[&str]| lines(&server, &[&["filter", "user", "--json"], args].concat());
    assert_eq!(keys(&found(&[])), ["1", "2", "3"]);
    assert_eq!(keys(&found(&["age >= 18"])), ["1", "3"]);
    assert_eq!(keys(&found(&["name ~= \"BOB\" and not city = \"Bonn\""])), ["3"]);
    assert_eq!(keys(&found(&["city != null"])), ["2"]);
    assert_eq!(keys(&found(&[r#"{"field":"name","op":"%=","value":"b%"}"#])), ["2", "3"]);
    assert_eq!(keys(&found(&["--sort", "-age"])), ["3", "1", "2"]);
    assert_eq!(keys(&found(&["--limit", "2"])), ["1", "2"]);
    assert_eq!(keys(&found(&["--at", "1"])), ["1"]);
    assert!(
        refused(&server, &["filter", "user", "age == 1"], 2).contains("at column 5: write = instead of ==")
    );
    assert!(refused(&server, &["filter", "user", r#"{"field":"a"}"#], 70).contains("bad_filter"));
}

#[test]
fn documents_are_shown_as_a_table() {
    let server = people();
    let table = shown(&server, &["filter", "user", "--fields", "name,city"]);
    assert_eq!(
        table,
        "key  position  name  city\n1    1         Ann\n2    2         Bob   Bonn\n3    3         bob\n"
    );
    let output = run(&server, &["filter", "user", "--limit", "1"]);
    assert!(stderr(&output).contains("--all"), "{output:?}");
    assert_eq!(shown(&server, &["filter", "user", "age > 99"]), "no documents that match in user\n");
}

#[test]
fn values_cannot_steer_the_terminal() {
    let server = Server::start(&[]);
    shown(&server, &["put", "u/1", "{\"a\":\"\\u001b[2J\\u202e\"}"]);
    for args in [&["filter", "u"][..], &["get", "u/1"], &["history", "u/1"], &["filter", "u", "--json"]] {
        let shown = shown(&server, args);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }
}

#[test]
fn all_pages_are_shown_if_asked_for() {
    let server = Server::start(&[]);
    let events: Vec<Value> = (0..2500)
        .map(|key| json!({ "type": "create", "collection": "u", "key": key, "fields": { "n": key } }))
        .collect();
    for part in events.chunks(500) {
        let output = run_with_input(&server, &["write"], &json!({ "events": part }).to_string());
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(lines(&server, &["filter", "u", "--all", "--json"]).len(), 2500);
    assert_eq!(lines(&server, &["filter", "u", "--limit", "1500", "--json"]).len(), 1500);
    assert_eq!(lines(&server, &["filter", "u", "--json"]).len(), 100);
    assert_eq!(shown(&server, &["count", "u"]), "2500\n");
}

#[test]
fn counting() {
    let server = people();
    assert_eq!(shown(&server, &["count", "user", "age >= 18"]), "2\n");
    assert_eq!(lines(&server, &["count", "user", "--json"])[0], json!({ "position": 3, "count": 3 }));
    shown(&server, &["delete", "user/1"]);
    assert_eq!(shown(&server, &["count", "user"]), "2\n");
    assert_eq!(shown(&server, &["count", "user", "--deleted", "with"]), "3\n");
    assert_eq!(shown(&server, &["count", "user", "--at", "1"]), "1\n");
}

// What happened.

#[test]
fn history_shows_who_changed_what() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/1", r#"{"a":1,"b":2}"#, "--user", "ann"]);
    shown(&server, &["put", "user/1", r#"{"a":3}"#, "--user", "bob", "--note", "cleaned up"]);
    shown(&server, &["delete", "user/1"]);
    let text = shown(&server, &["history", "user/1"]);
    let lines_shown: Vec<&str> = text.lines().collect();
    assert!(lines_shown[0].starts_with("position  when"), "{text}");
    for part in ["+ a: 1", "+ b: 2", "~ a: 1 → 3", "- b: 2", "bob", "cleaned up"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let entries = lines(&server, &["history", "user/1", "--json"]);
    let events: Vec<_> = entries.iter().map(|entry| &entry["event"]).collect();
    assert_eq!(events, ["created", "updated", "deleted"]);
    assert_eq!(entries[1]["changes"], json!({ "a": { "before": 1, "after": 3 }, "b": { "before": 2 } }));
    assert_eq!(
        lines(&server, &["history", "user/1", "--after", "1", "--limit", "1", "--json"]),
        [entries[1].clone()]
    );
}

#[test]
fn a_watch_shows_writes_as_they_happen() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/1", r#"{"a":1}"#, "--user", "ann"]);
    let address = server.native.to_string();
    let mut all = Running::start(&address, &["watch", "--after", "0"]);
    let mut orders = Running::start(&address, &["watch", "order", "--after", "0", "--json"]);
    let line = all.line();
    assert!(line.starts_with("1  20") && line.ends_with("ann  created user/1  a=1"), "{line}");
    shown(&server, &["put", "user/1", r#"{"b":2}"#]);
    shown(&server, &["put", "order/7", "{}"]);
    assert!(all.line().ends_with("-  updated user/1  b=2 -a"));
    assert!(all.line().ends_with("created order/7"));
    let commit: Value = serde_json::from_str(&orders.line()).unwrap();
    assert_eq!((&commit["position"], &commit["events"][0]["key"]), (&json!(3), &json!("7")));
}

#[test]
fn a_watch_goes_on_after_a_restart() {
    let server = Server::start(&[]);
    let address = server.native.to_string();
    let mut watch = Running::start(&address, &["watch", "--after", "0", "--json"]);
    shown(&server, &["put", "user/1", "{}"]);
    let position = |line: &str| serde_json::from_str::<Value>(line).unwrap()["position"].clone();
    assert_eq!(position(&watch.line()), 1);
    let server = server.kill().restart_at(&address, &[]);
    shown(&server, &["put", "user/2", "{}"]);
    assert_eq!(position(&watch.line()), 2);
}

// Dump and load.

#[test]
fn a_dump_can_be_loaded_elsewhere() {
    let server = people();
    shown(&server, &["delete", "user/2"]);
    shown(&server, &["index", "add", "user", "name"]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("all.ndjson");
    let path = file.to_str().unwrap();
    shown(&server, &["dump", path]);
    assert!(!Path::new(&format!("{path}.part")).exists());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("{\"lockwood\":\"dump\"") && text.ends_with("}\n"), "{text}");
    assert_eq!(stdout(&run(&server, &["dump"])), text, "the same goes to standard output");

    let loaded = shown(&server, &["load", path, "-n", "copy"]);
    assert!(loaded.contains("position is 4"), "{loaded}");
    for args in [
        &["filter", "user", "--deleted", "with", "--json"][..],
        &["filter", "user", "--at", "2", "--json"],
        &["history", "user/2", "--json"],
    ] {
        assert_eq!(shown(&server, args), shown(&server, &[args, &["-n", "copy"]].concat()), "{args:?}");
    }
    assert!(shown(&server, &["index", "-n", "copy"]).contains("name"));
    assert!(refused(&server, &["load", path, "-n", "copy"], 70).contains("namespace_not_empty"));

    let output = run_with_input(&server, &["load", "-", "-n", "third", "--json"], &text);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["position"], 4);
    let cut = &text[..text.len() / 2];
    let output = run_with_input(&server, &["load", "-", "-n", "fourth"], cut);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert_eq!(shown(&server, &["count", "user", "-n", "fourth"]), "0\n", "all or nothing");
}

#[test]
fn a_dump_that_breaks_off_is_not_taken_for_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let header = r#"{"lockwood":"dump","format":1,"namespace":"default","position":7,"horizon":0}"#;
        write!(stream, "HTTP/1.1 200 OK\r\n\r\n{header}\n{{\"document\":{{}}}}\n").unwrap();
    });
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("all.ndjson");
    let output = lockwood(&address, &["dump", file.to_str().unwrap()]).output().unwrap();
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("incomplete") && said.contains("all.ndjson.part"), "{said}");
    assert!(!file.exists() && folder.path().join("all.ndjson.part").exists());
}

// Nodes, joins, and the locks of others.

#[test]
fn one_node_is_shown_set_and_removed() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/42", r#"{"address":{"city":"Bonn","geo":{"lat":48}},"tags":[1,2]}"#]);
    assert_eq!(shown(&server, &["get", "user/42/address/city"]), "\"Bonn\"\n");
    let said = shown(&server, &["set", "user/42/address/city", "\"Ulm\""]);
    assert_eq!(said, "user/42/address/city written at position 2\n");
    let said = shown(&server, &["set", "user/42/tags/0", "--delete"]);
    assert_eq!(said, "user/42/tags/0 removed at position 3\n");
    let output = run(&server, &["get", "user/42", "--depth", "3"]);
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(value, json!({ "address": { "city": "Ulm", "geo": {} }, "tags": [2] }));
    assert_eq!(stderr(&output), "there is more in address/geo\n");
    let answer = &lines(&server, &["get", "user/42/tags", "--json"])[0];
    assert_eq!((&answer["node"]["value"], &answer["cut"]), (&json!([2]), &json!([])));
    assert!(refused(&server, &["get", "user/42/none"], 66).contains("no_node"));
    assert!(refused(&server, &["set", "user/42/none/x", "1"], 66).contains("no_node"));
    assert!(refused(&server, &["set", "user/42/x", "Ulm"], 65).contains("quotes"));
}

#[test]
fn collections_are_joined() {
    let server = people();
    shown(&server, &["put", "order/1", r#"{"who":"Ann","total":5}"#]);
    shown(&server, &["put", "order/2", r#"{"who":"Nobody","total":7}"#]);
    let name = lines(&server, &["get", "user/1", "--json"])[0]["value"]["name"].as_str().unwrap().to_owned();
    shown(&server, &["set", "order/1/who", &json!(name).to_string()]);
    let table = shown(&server, &["join", "order.who", "user.name", "--fields", "total,user.name"]);
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["order.key", "order.total", "user.key", "user.name"]);
    assert_eq!(words.last().unwrap()[..3], ["1", "5", "1"], "{table}");
    let all = lines(&server, &["join", "order.who", "user.name", "--left", "--all", "--json"]);
    assert_eq!((all.len(), &all[1]["right"]), (2, &Value::Null));
    let few = ["join", "order.who", "user.name", "--where-left", "total > 5", "--isolation", "locked"];
    assert_eq!(shown(&server, &few), "no documents that have a value in common\n");
}

#[test]
fn reads_wait_for_locks_when_told() {
    let server = people();
    let store = crate::store::Store::new(&server, "default");
    let held = crate::isolation::Held::take(&store, "ann", "write user");
    shown(&server, &["get", "user/1"]);
    for args in
        [&["get", "user/1"][..], &["filter", "user"], &["count", "user"], &["join", "user.a", "user.b"]]
    {
        let locked = [args, &["--isolation", "locked", "--wait", "0"]].concat();
        let said = refused(&server, &locked, 75);
        assert!(said.contains("locked"), "{said}");
        let token = held.token.to_string();
        shown(&server, &[&locked[..], &["--token", &token]].concat());
    }
    assert!(refused(&server, &["put", "user/1", "{}", "--wait", "0"], 75).contains("locked"));
    let token = held.release().to_string();
    assert!(refused(&server, &["get", "user/1", "--token", &token], 76).contains("lock_lost"));
}

// Indexes and history that is forgotten.

#[test]
fn indexes_are_added_listed_and_dropped() {
    let server = people();
    assert_eq!(shown(&server, &["index"]), "no indexes\n");
    assert!(shown(&server, &["index", "add", "user", "age"]).starts_with("added the index of user by age"));
    eventually("the index is ready", || {
        lines(&server, &["index", "--json"])
            == [json!({ "collection": "user", "field": "age", "state": "ready" })]
    });
    assert_eq!(keys(&lines(&server, &["filter", "user", "age = 50", "--json"])), ["3"]);
    shown(&server, &["index", "drop", "user", "age"]);
    assert_eq!(shown(&server, &["index"]), "no indexes\n");
}

#[test]
fn history_is_forgotten_when_told() {
    let server = people();
    let said = shown(&server, &["trim", "0"]);
    assert!(said.ends_with("commits forgotten\n"), "{said}");
    assert_eq!(shown(&server, &["count", "user"]), "3\n");
    assert!(refused(&server, &["get", "user/1", "--at", "1"], 70).contains("position_too_old"));
    assert!(refused(&server, &["watch", "--after", "0"], 70).contains("position_too_old"));
}

// All of them.

#[test]
fn every_help_text_has_examples() {
    for command in [
        "get", "put", "set", "delete", "write", "filter", "count", "join", "history", "watch", "dump",
        "load", "index", "trim",
    ] {
        let output = Command::new(harness::BINARY).args([command, "--help"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let help = stdout(&output);
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("no examples: {help}"));
        assert!(examples.contains(&format!("lockwood {command}")), "{help}");
    }
}

#[test]
fn without_a_server_there_is_a_sentence_and_an_exit_code() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for args in
        [&["get", "u/1"][..], &["put", "u/1", "{}"], &["filter", "u"], &["watch"], &["dump"], &["trim", "1h"]]
    {
        let output = lockwood(&free, args).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        assert!(stderr(&output).contains("lockwood serve"), "{output:?}");
    }
}

#[test]
fn the_history_of_an_unknown_node_says_that_there_is_none() {
    let server = Server::start(&[]);
    shown(&server, &["put", "user/1", r#"{"name": "Ann", "address": {"zip": "1"}}"#]);
    shown(&server, &["put", "user/1", r#"{"name": "Ann"}"#]);
    let get = run(&server, &["get", "user/1/nam"]);
    let history = refused(&server, &["history", "user/1/nam"], get.status.code().unwrap());
    assert!(
        history.contains("there is no") && history.contains("nam") && history.contains("no_node"),
        "{history}"
    );
    // What was there once has a history, and nothing after a position is no mistake.
    assert!(!shown(&server, &["history", "user/1/address/zip"]).is_empty());
    assert_eq!(shown(&server, &["history", "user/1/name", "--after", "2"]), "");
}
