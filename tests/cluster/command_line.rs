//! `lockwood shard` and `lockwood reshard`, as they are typed.

use crate::{
    cluster::{Cluster, at_shard, hosts},
    harness::{BINARY, eventually},
    spread_nodes::modulo,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

struct Shell<'a>(&'a Cluster);

impl Shell<'_> {
    /// Types a command; its exit code, and what it prints.
    fn type_in(&self, node: usize, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(BINARY);
        command
            .args(words)
            .env("LOCKWOOD_SERVER", &self.0.addresses[node - 1])
            .env("LOCKWOOD_NAMESPACE", "shop");
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn run(&self, node: usize, words: &[&str]) -> String {
        let (code, out, error) = self.type_in(node, words);
        assert_eq!(code, 0, "{words:?}: {out}{error}");
        out
    }

    #[track_caller]
    fn json(&self, node: usize, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(node, &[words, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &[&str], code: i32, part: &str) {
        let (found, out, error) = self.type_in(1, words);
        assert_eq!(found, code, "{words:?}: {out}{error}");
        assert!(error.contains(part), "{words:?}: {error}");
    }
}

/// So many nodes with a map of two shards.
fn started(nodes: usize) -> Cluster {
    Cluster::start_on(nodes, 2, modulo(2))
}

fn list(shards: usize) -> String {
    hosts(shards).to_string()
}

/// What `lockwood reshard --to` is given.
fn target(shards: usize) -> String {
    json!({ "list": hosts(shards), "curr": "modulo" }).to_string()
}

#[test]
fn a_map_is_made_and_shown() {
    let cluster = Cluster::nodes(2);
    let shell = Shell(&cluster);
    assert!(shell.run(1, &["shard", "map"]).starts_with("there is no map yet"));
    assert!(shell.run(2, &["shard", "valid"]).starts_with("not valid: this node has no shard map"));
    shell.fails(&["shard", "config", "--curr", "jump"], 65, "list: missing");
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.json");
    fs::write(&list, self::list(2)).unwrap();
    let script = folder.path().join("even.luau");
    fs::write(&script, "return function(collection, key) return key % 2 + 1 end").unwrap();
    let (list, script) = (list.to_str().unwrap(), script.to_str().unwrap());
    let made = shell.run(1, &["shard", "config", "--list", list, "--curr", script]);
    assert_eq!(made, "in force at epoch 1\n");
    assert_eq!(shell.run(2, &["shard", "valid"]), "valid\n");
    let map = shell.run(2, &["shard", "map"]);
    assert!(
        map.starts_with("epoch 1, steady\ncurr  script even version 1\nshard  mode  weight  address\n"),
        "{map}"
    );
    assert!(map.contains("2      rw    1       10.0.0.2:7117"), "{map}");
    assert_eq!(shell.json(1, &["shard", "map"])["curr"]["name"], "even");
}

#[test]
fn operations_are_typed() {
    let cluster = started(2);
    let shell = Shell(&cluster);
    for key in ["user/1", "user/2"] {
        assert_eq!(
            shell.run(1, &["shard", "insert", key, r#"{"n": 1}"#, "--user", "ann"]),
            "{\n  \"n\": 1\n}\n"
        );
        shell.fails(&["shard", "insert", key, "{}"], 73, "document_exists");
        let updated = shell.run(2, &["shard", "update", key, "+p=p", "n", "-5", "name", "\"Ann\""]);
        assert_eq!(updated, "{\n  \"n\": -4,\n  \"name\": \"Ann\"\n}\n");
        shell.fails(&["shard", "update", key, "=p", "name", "Ann"], 65, "text is written with its quotes");
        shell.fails(&["shard", "update", key, "+p", "name", "1"], 70, "bad_update");
        assert_eq!(shell.json(1, &["shard", "select", key])["document"]["value"]["n"], -4);
        assert_eq!(shell.json(1, &["shard", "eselect", "rw", key])["document"]["value"]["n"], -4);
        assert_eq!(shell.run(1, &["shard", "replace", key, r#"{"m": 1}"#]), "{\n  \"m\": 1\n}\n");
        assert_eq!(shell.run(1, &["shard", "delete", key]), "{\n  \"m\": 1\n}\n");
        assert_eq!(shell.run(1, &["shard", "delete", key]), format!("there is no document {key}\n"));
        shell.fails(&["shard", "select", key], 66, "there is no document");
        shell.fails(&["shard", "update", key, "=p", "n", "1"], 66, "there is no document");
    }
    shell.run(1, &["shard", "insert", "line/7:a", "{}"]);
    assert_eq!(shell.json(2, &["shard", "select", "line/7:a"])["document"]["key"], "7:a");
}

#[test]
fn procedures_are_typed() {
    let cluster = started(2);
    let shell = Shell(&cluster);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("add.luau");
    let source = "return function(db, key, by)\n\tlocal n = ((db.get('user', key) or {}).n or 0) + by\n\t\
                  db.put('user', key, { n = n })\n\treturn n\nend\n";
    fs::write(&file, source).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(shell.run(2, &["shard", "procedure", "put", "add", file]), "add version 1 is on all shards\n");
    assert!(shell.run(1, &["shard", "procedure", "list"]).contains("add   1"));
    assert_eq!(shell.run(1, &["shard", "procedure", "show", "add"]), source);
    for key in ["user/1", "user/2"] {
        assert_eq!(shell.run(1, &["shard", "call", "rw", "add", key, "5"]), "5\n");
        assert_eq!(shell.json(2, &["shard", "call", "rw", "add", key, "-2"])["answer"], 3);
        shell.fails(&["shard", "call", "ro", "add", key, "1"], 70, "bad_mode");
    }
    shell.fails(&["shard", "call", "rw", "other", "user/1"], 66, "no_procedure");
    assert_eq!(shell.run(1, &["shard", "procedure", "delete", "add"]), "add is deleted\n");
    assert_eq!(shell.run(1, &["shard", "procedure", "list"]), "no procedures\n");
}

fn fill(shell: &Shell<'_>, len: u64) {
    let store = shell.0.store(1, "shop");
    for key in 1..=len {
        store.post("shard/replace", &json!({ "collection": "user", "key": key, "fields": { "n": key } }));
    }
}

fn check(shell: &Shell<'_>, nodes: usize, len: u64) {
    for key in 1..=len {
        let store = shell.0.store(1 + key as usize % nodes, "shop");
        let found = store.post("shard/select", &json!({ "collection": "user", "key": key }));
        assert_eq!(found["document"]["value"]["n"], key, "{found}");
    }
}

#[test]
fn resharding_by_hand_is_typed() {
    let cluster = started(3);
    let shell = Shell(&cluster);
    fill(&shell, 12);
    let begun = shell.run(1, &["shard", "config", "--list", &list(3), "--curr", "modulo"]);
    assert_eq!(begun, "in force at epoch 3; next is `lockwood shard copy`\n");
    shell.fails(&["shard", "config", "--no-prev"], 70, "not_copied");
    // 4 of 12 stay where they are.
    let table = shell.run(3, &["shard", "copy"]);
    assert_eq!(table, "namespace  collection  copied\nshop       user        8\n");
    let table = shell.run(1, &["shard", "copy"]);
    assert_eq!(table, "namespace  collection  copied\nshop       user        0\n");
    let dropped = shell.run(2, &["shard", "config", "--no-prev"]);
    assert!(dropped.contains("next is `lockwood shard cleanup`"), "{dropped}");
    let table = shell.run(1, &["shard", "cleanup"]);
    assert_eq!(table, "namespace  collection  removed\nshop       user        8\n");
    eventually("it is over", || shell.json(3, &["reshard", "status"])["step"] == "none");
    check(&shell, 3, 12);
}

#[test]
fn resharding_from_end_to_end_is_typed() {
    let cluster = started(3);
    let shell = Shell(&cluster);
    fill(&shell, 30);
    assert_eq!(shell.run(2, &["reshard", "status"]), "nothing is under way; epoch 1\n");
    shell.fails(&["reshard", "pause"], 70, "no resharding is under way");
    shell.fails(&["reshard", "--to", r#"{"curr": {"function": "hash", "shards": 9}}"#], 65, "curr.shards: 9");
    let (code, out, error) = shell.type_in(3, &["reshard", "--to", &target(3)]);
    assert_eq!((code, out.as_str()), (0, "done: 3 shards at epoch 5, 20 documents moved\n"), "{error}");
    assert!(error.contains("copy: documents are copied and compared\n"), "{error}");
    check(&shell, 3, 30);
    let again = shell.json(1, &["reshard", "--to", &target(3)]);
    assert_eq!(again["step"], "none");
}

#[test]
fn resharding_is_steered() {
    let cluster = started(3);
    let shell = Shell(&cluster);
    fill(&shell, 60);
    // So slow that it is still under way when it is looked at.
    let begun = shell.run(1, &["reshard", "--to", &target(3), "--throttle", "1", "--detach"]);
    assert!(begun.starts_with("it has begun"), "{begun}");
    eventually("documents are copied", || shell.json(2, &["reshard", "status"])["step"] == "copy");
    let status = shell.run(2, &["reshard", "status"]);
    assert!(
        status.starts_with("copy: documents are copied and compared; epoch 3, at most 1/s\n"),
        "{status}"
    );
    assert_eq!(shell.run(1, &["reshard", "pause"]), "it rests\n");
    assert_eq!(shell.json(3, &["reshard", "status"])["paused"], true);
    // Slow enough to be still under way when it is aborted.
    let faster = shell.run(1, &["reshard", "throttle", "5"]);
    assert!(faster.starts_with("at most 5 documents"), "{faster}");
    assert_eq!(shell.run(2, &["reshard", "resume"]), "it goes on\n");
    check(&shell, 3, 60);
    assert_eq!(shell.run(1, &["reshard", "abort"]), "it goes back to the old map\n");
    eventually("it went back", || shell.json(1, &["reshard", "status"])["step"] == "none");
    assert_eq!(shell.json(1, &["shard", "map"])["shards"].as_array().unwrap().len(), 2);
    check(&shell, 3, 60);
}

/// Goes from two shards to three, as slowly as is said.
fn begin(shell: &Shell<'_>, rate: &str) {
    shell.run(1, &["reshard", "--to", &target(3), "--throttle", rate, "--detach"]);
    eventually("documents are copied", || shell.json(1, &["reshard", "status"])["step"] == "copy");
}

/// Waits for an alert that says this; gives it.
fn alert(shell: &Shell<'_>, node: usize, parts: &[&str]) -> String {
    let mut found = None;
    eventually(&format!("an alert says {parts:?}"), || {
        let status = shell.json(node, &["reshard", "status"]);
        let alerts =
            status["alerts"].as_array().unwrap().iter().map(|alert| alert.as_str().unwrap().to_owned());
        found = alerts.into_iter().find(|alert| parts.iter().all(|part| alert.contains(part)));
        found.is_some()
    });
    found.unwrap()
}

/// The node that is left takes over what the others owned, so the change ends without them.
#[test]
fn a_change_is_watched_through_takeovers() {
    let mut cluster = started(3);
    fill(&Shell(&cluster), 60);
    begin(&Shell(&cluster), "5");
    let mut watching = Command::new(BINARY);
    watching.args(["reshard", "--to", &target(3)]).env("LOCKWOOD_SERVER", cluster.addresses.join(","));
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    // A command whose answer is lost is not given again, so the nodes are killed when it has been answered.
    let begun = lines.next();
    assert!(begun.is_some(), "it ended at once");
    cluster.kill(2);
    cluster.kill(3);
    eventually("the one that is left drives", || {
        let reply = cluster.store(1, "_system").send("GET", "shard/transition", "");
        reply.status == 200 && reply.json()["step"] == "copy"
    });
    Shell(&cluster).run(1, &["reshard", "throttle", "none"]);
    let said = lines.collect::<Vec<_>>();
    assert!(watching.wait().unwrap().success(), "{said:?}");
    let shell = Shell(&cluster);
    assert_eq!(shell.json(1, &["reshard", "status"])["alerts"], json!([]));
    check(&shell, 1, 60);
}

#[test]
fn what_differs_again_and_again_is_an_alert() {
    let cluster = started(3);
    let shell = Shell(&cluster);
    fill(&shell, 60);
    begin(&shell, "5");
    let raw = |shard: usize, operation: &str, key: u64, more: Value| {
        let mut body = json!({ "collection": "user", "key": key });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = at_shard(&format!("shard/raw/{operation}?operator=test"), shard);
        cluster.store(1, "shop").post(&path, &body)
    };
    // 5 is on shard 2 of two, and on shard 3 of three.
    eventually("5 is copied", || !raw(3, "select", 5, json!({}))["document"].is_null());
    let frozen = raw(2, "delete", 5, json!({}));
    assert_eq!(frozen["document"]["value"]["n"], 5, "{frozen}");
    raw(2, "insert", 5, json!({ "fields": { "n": 55 } }));
    shell.run(1, &["reshard", "throttle", "none"]);
    let said = alert(&shell, 2, &["shard 2 copies again and again for", "user/5 on shard 3", "raw/delete"]);
    assert!(shell.run(3, &["reshard", "status"]).contains("alert: shard 2 copies again"), "{said}");
    // As the alert says: without the copy that is wrong, the other one is brought over.
    raw(3, "delete", 5, json!({}));
    eventually("it is over", || shell.json(3, &["reshard", "status"])["step"] == "none");
    assert_eq!(shell.json(1, &["reshard", "status"])["alerts"], json!([]));
    assert_eq!(shell.json(1, &["shard", "select", "user/5"])["document"]["value"]["n"], 55);
}

#[test]
fn a_cleanup_tells_what_it_removed_and_what_it_did_not() {
    let cluster = started(2);
    let shell = Shell(&cluster);
    let raw = |key: u64| {
        let body = json!({ "collection": "user", "key": key, "fields": { "n": 0 } });
        cluster.store(1, "shop").post(&at_shard("shard/raw/insert?operator=test", 1), &body);
    };
    // Odd keys are on shard 2. It has three of these, and newer ones; of the others it knows nothing.
    [1, 3, 5].into_iter().for_each(raw);
    (0..3).for_each(|_| fill(&shell, 12));
    (101..=115).step_by(2).for_each(raw);
    let (code, out, error) = shell.type_in(1, &["shard", "cleanup"]);
    assert_eq!((code, out.as_str()), (70, ""), "{error}");
    assert!(error.contains("8 not confirmed: user/101 stays: shard 2 does not confirm it, "), "{error}");
    assert!(error.contains("user/109 stays") && !error.contains("user/111"), "the first few: {error}");
    assert!(error.contains("; and 3 more. Removed: 3 of user in shop (not_copied)"), "{error}");
    let again = shell.type_in(1, &["shard", "cleanup"]).2;
    assert!(again.contains("8 not confirmed") && again.contains("Removed: nothing"), "{again}");
    // 6 of its own, and those.
    assert_eq!(
        cluster.store(1, "shop").post(&at_shard("shard/raw/len?operator=test", 1), &json!({})),
        json!({ "len": 14 })
    );
    check(&shell, 2, 12);
}

#[cfg(not(feature = "planted"))]
#[test]
fn no_fault_can_be_planted_in_a_usual_build() {
    let output = Command::new(BINARY).args(["serve", "--planted", "no-fence"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("unexpected argument"), "{error}");
}
