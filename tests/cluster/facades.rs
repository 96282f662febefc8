//! The ancestors' own clients, unmodified, at a node that does not own what they use. What they do is tested on a single
//! server in full.

use crate::{
    harness::{
        npm,
        python::{run, venv},
        repository,
    },
    http::{self, Reply},
    nodes::Nodes,
    spread_nodes::{Spread, modulo},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Lines, Write},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
};

/// Nodes with every interface on, and a node that owns none of the shards.
fn with_a_proxy() -> (Nodes, usize) {
    let flags = [
        ["--openslides", "127.0.0.1:0,127.0.0.1:0"],
        ["--elasticsearch", "127.0.0.1:0"],
        ["--schema-registry", "127.0.0.1:0"],
    ];
    let nodes = Nodes::start_sharded(2, 2, flags.as_flattened());
    let reply = http::send(nodes.server(1).native, "PUT", "/v1/cluster/nodes/n2/drain", &[], b"");
    assert_eq!(reply.status, 200, "{}", reply.body);
    crate::harness::eventually("n1 owns all shards", || {
        (1..=2).all(|shard| nodes.owner_of(shard) == Some(1))
    });
    (nodes, 2)
}

#[test]
fn clients_of_locktopus_work_at_any_node() {
    let (nodes, proxy) = with_a_proxy();
    let folder = repository().join("tests/npm").canonicalize().unwrap();
    npm::install(&folder);
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "locktopus.test.mjs"]).current_dir(&folder);
    npm::run(node.env("LOCKTOPUS_ADDRESS", nodes.server(proxy).locktopus.to_string()));
}

/// A lock of a Locktopus client holds on every shard of a spread namespace, until it is released.
#[test]
fn locks_of_locktopus_hold_on_every_shard() {
    let spread = Spread::start(3, 3, modulo(3));
    for key in 1..=2 {
        spread.store(1, "shop").create("user", key, json!({}));
    }
    let home = spread.homes().iter().position(|count| *count == 1).unwrap() + 1;
    let owner = spread.owner(home);
    let asked = (1..=3).find(|node| *node != owner).unwrap();
    let mut client = Script::start(spread.nodes.server(asked).locktopus, "shop");
    assert_eq!(client.says(), "held");
    let write = |key: u64| {
        let event = json!({ "type": "update", "collection": "user", "key": key, "fields": { "n": 1 } });
        let call = json!({ "events": [event], "wait_ms": 0 });
        spread.store(asked, "shop").send("POST", "write", &call.to_string()).status
    };
    assert_eq!([write(1), write(2)], [423, 423], "the keys are on two shards");
    client.goes_on();
    assert_eq!(client.says(), "released");
    assert_eq!([write(1), write(2)], [200, 200]);
    client.goes_on();
}

/// The client from npm in a program that says how far it is, and waits where it is told to.
struct Script {
    node: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Script {
    fn start(locktopus: SocketAddr, namespace: &str) -> Script {
        let folder = repository().join("tests/npm").canonicalize().unwrap();
        npm::install(&folder);
        let mut node = Command::new("node");
        node.arg("locktopus-spread.mjs").current_dir(&folder);
        node.env("LOCKTOPUS_ADDRESS", locktopus.to_string()).env("LOCKTOPUS_NAMESPACE", namespace);
        let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(node.stdout.take().unwrap()).lines();
        Script { node, lines }
    }

    #[track_caller]
    fn says(&mut self) -> String {
        self.lines.next().expect("the client goes on").unwrap()
    }

    fn goes_on(&mut self) {
        self.node.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

#[test]
fn clients_of_elasticsearch_work_at_any_node() {
    let (nodes, proxy) = with_a_proxy();
    let folder = repository().join("tests/python").canonicalize().unwrap();
    let server = nodes.server(proxy);
    let mut command = Command::new(venv(&folder.join("elasticsearch-8/requirements.txt")));
    command.arg("-B").arg(folder.join("document_locks.py"));
    command.args([server.elasticsearch().to_string(), server.native.to_string()]);
    assert_eq!(run(&mut command).trim(), "done with 8.19.3");
}

#[test]
fn clients_of_the_schema_registry_work_at_any_node() {
    let (nodes, proxy) = with_a_proxy();
    let folder = repository().join("tests/python/schema-registry").canonicalize().unwrap();
    let python = venv(&folder.join("requirements.txt"));
    let url = format!("http://{}", nodes.server(proxy).schema_registry());
    let printed = run(Command::new(python).arg(folder.join("client.py")).arg(url));
    assert_eq!(printed.lines().count(), 6, "{printed}");
}

#[test]
fn openslides_reads_at_one_node_what_it_wrote_at_another() {
    let (nodes, proxy) = with_a_proxy();
    let write = |node: usize, locks: Value| {
        let event =
            json!({ "type": "update", "fqid": "motion/1", "fields": { "title": format!("by n{node}") } });
        let created = json!({ "type": "create", "fqid": "motion/1", "fields": { "title": "new" } });
        let events = if locks == json!({}) { json!([created]) } else { json!([event]) };
        let body = json!({ "user_id": 1, "information": {}, "locked_fields": locks, "events": events });
        post(nodes.server(node).openslides_writer(), "writer/write", &body)
    };
    let read = |node: usize| {
        let reply =
            post(nodes.server(node).openslides_reader(), "reader/get", &json!({ "fqid": "motion/1" }));
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    };
    let created = write(proxy, json!({}));
    assert_eq!(created.status, 201, "{}", created.body);
    for node in nodes.running() {
        assert_eq!(read(node)["title"], "new");
    }
    // Both rely on the position of the create; the second one comes too late.
    let lock = json!({ "motion/1": read(proxy)["meta_position"] });
    assert_eq!(write(1, lock.clone()).status, 201);
    let broken = write(proxy, lock);
    assert_eq!(
        (broken.status, &broken.json()["error"]["keys"]),
        (400, &json!(["motion/1"])),
        "{}",
        broken.body
    );
    assert_eq!(read(proxy)["title"], "by n1");
}

fn post(address: SocketAddr, route: &str, body: &Value) -> Reply {
    let target = format!("/internal/datastore/{route}");
    http::send(address, "POST", &target, &[("content-type", "application/json")], body.to_string().as_bytes())
}
