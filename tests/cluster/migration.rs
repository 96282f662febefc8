//! A single server moves to a cluster, by the commands that an operator types: what is carried, and that any node takes in a dump of
//! any length.

use crate::{
    cluster::at_shard,
    harness::{BINARY, Server, eventually},
    http,
    spread_nodes::{Spread, hash},
    store::Store,
};
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
};

/// More than the body of another request may have.
const DUMP_BYTES_MIN: u64 = 17 << 20;
const DOCUMENTS: u64 = 5_000;
const TEXT_LEN: usize = 3_600;

/// A shell in a folder.
struct Shell<'a>(&'a Path);

impl Shell<'_> {
    fn type_in(&self, server: SocketAddr, command: &str) -> Output {
        let mut shell = Command::new("sh");
        let path = Path::new(BINARY).parent().unwrap().display().to_string();
        let path = format!("{path}:{}", std::env::var("PATH").unwrap());
        shell.args(["-c", command]).current_dir(self.0).env("PATH", path);
        shell.env("LOCKWOOD_SERVER", server.to_string()).output().unwrap()
    }

    #[track_caller]
    fn run(&self, server: SocketAddr, command: &str) -> String {
        let output = self.type_in(server, command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, server: SocketAddr, command: &str, part: &str) {
        let output = self.type_in(server, command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{command}: {said}");
    }
}

/// Fills a single server with everything there is: documents, history, a schema with an index, another index, a procedure, counters
/// and a lease.
fn fill(shell: &Shell<'_>, server: &Server) {
    let text = "x".repeat(TEXT_LEN);
    let store = Store::new(server, "default");
    for first in (1..=DOCUMENTS).step_by(250) {
        let event = |key: u64| {
            let fields = json!({ "n": key, "text": text });
            json!({ "type": "create", "collection": "line", "key": key, "fields": fields })
        };
        store.write((first..first + 250).map(event).collect());
    }
    fs::write(shell.0.join("look.luau"), "return function(db, key) return db.get(\"user\", key) end")
        .unwrap();
    let age = json!({ "type": "integer", "x-lockwood-index": true });
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" }, "age": age } });
    fs::write(shell.0.join("user.json"), schema.to_string()).unwrap();
    for command in [
        "lockwood put user/1 '{\"name\": \"Ann\", \"age\": 41}'",
        "lockwood put user/1 '{\"name\": \"Ann\", \"age\": 42}'",
        "lockwood schema register user.json",
        "lockwood index add line n",
        "lockwood shard procedure put look look.luau",
        "lockwood lease take user/1 --owner importer --ttl 10m",
    ] {
        shell.run(server.native, command);
    }
}

/// What a namespace must have after the move, asked through a node.
fn check(shell: &Shell<'_>, node: SocketAddr, namespace: &str, position: &str) {
    let run = |command: &str| shell.run(node, &format!("{command} --namespace {namespace}"));
    assert_eq!(run("lockwood count line").trim(), DOCUMENTS.to_string());
    assert_eq!(run(&format!("lockwood count line 'n > {}'", DOCUMENTS - 7)).trim(), "7");
    let ann: Value = serde_json::from_str(&run("lockwood get user/1")).unwrap();
    assert_eq!(ann, json!({ "age": 42, "name": "Ann" }));
    let history = run("lockwood history user/1");
    assert!(history.contains("41") && history.contains("42"), "{history}");
    let indexes = run("lockwood index");
    assert!(indexes.contains("line") && indexes.contains("user"), "{indexes}");
    let misfit = format!("lockwood put user/2 '{{\"name\": 7}}' --namespace {namespace}");
    shell.fails(node, &misfit, "name");
    let called = run("lockwood shard call ro look user/1");
    assert!(called.contains("Ann"), "{called}");
    // Locks are not carried: they are taken anew.
    assert!(!run("lockwood lease list").contains("importer"));
    run("lockwood lease take user/1 --owner importer --ttl 10m");
    run("lockwood lease release user/1 --owner importer");
    let written: u64 =
        run("lockwood put line/1 '{\"n\": 0}'").trim().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(written > position.parse().unwrap(), "positions go on: {written} {position}");
}

#[test]
fn a_single_server_moves_into_whole_and_spread_namespaces_through_any_node() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell(folder.path());
    let single = Server::start(&[]);
    fill(&shell, &single);
    shell.run(single.native, "lockwood dump all.ndjson");
    let len = fs::metadata(folder.path().join("all.ndjson")).unwrap().len();
    assert!(len > DUMP_BYTES_MIN, "{len}");

    let spread = Spread::without_map(3, 3, &["--raw-operations"]);
    // It owns nothing, so it passes everything on.
    let node = spread.nodes.server(3).native;
    let reply = http::send(node, "PUT", "/v1/cluster/nodes/n3/drain", &[], b"");
    assert_eq!(reply.status, 200, "{}", reply.body);
    eventually("n3 owns nothing", || {
        (1..=3).all(|shard| spread.nodes.owner_of(shard).is_some_and(|owner| owner != 3))
    });
    let load = |namespace: &str| {
        let said = shell.run(node, &format!("lockwood load all.ndjson --namespace {namespace}"));
        let position = said.trim().rsplit_once(' ').unwrap().1.to_owned();
        check(&shell, node, namespace, &position);
        shell.fails(
            node,
            &format!("lockwood load all.ndjson --namespace {namespace}"),
            "namespace_not_empty",
        );
    };
    load("whole");
    spread.config(3, hash(3));
    load("spread");
    let lens = [1, 2, 3].map(|shard| {
        let path = format!("shard/{}", at_shard("raw/len?operator=test", shard));
        let len = spread.store(3, "spread").post(&path, &json!({ "collection": "line" }));
        len["len"].as_u64().unwrap()
    });
    assert!(lens.iter().all(|len| *len > 0) && lens.iter().sum::<u64>() == DOCUMENTS, "{lens:?}");
}

#[test]
fn a_dump_that_breaks_off_on_the_way_leaves_nothing() {
    let spread = Spread::without_map(2, 1, &[]);
    let other = spread.nodes.other();
    let store = spread.store(other, "broken");
    let head = r#"{"lockwood":"dump","format":1,"namespace":"default","position":1,"horizon":0}"#;
    let event = r#"{"type":"created","collection":"user","key":"1","fields":{"name":"Ann"}}"#;
    let commit = format!("{{\"commit\":{{\"position\":1,\"at\":1700000000000,\"events\":[{event}]}}}}");
    let half = format!("{head}\n{commit}\n");
    let kind = [("content-type", "application/x-ndjson")];
    let reply = http::send(store.native, "POST", &store.target("load"), &kind, half.as_bytes());
    reply.assert_problem(400, "bad_body");
    assert_eq!(store.get("collections")["collections"], json!([]));
    // It is empty, so it can be loaded after all.
    let whole = format!("{half}{{\"end\":{{\"lines\":2}}}}\n");
    let reply = http::send(store.native, "POST", &store.target("load"), &kind, whole.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
}
