//! Scripts: those in requests, and those an administrator adds.

use crate::{cluster::Cluster, harness::BINARY};
use serde_json::{Value, json};
use std::{fs, process::Command};

#[test]
fn what_a_script_can_do_to_a_document() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "count": 1, "name": "a" })).is(201);
    let run = |script: &str| {
        let script = json!({ "source": script, "lang": "painless", "params": { "by": 4 } });
        cluster.ask("POST", "/fs/file/1/_update", json!({ "script": script }))
    };
    let updated = run("if (ctx._source.name == 'a') { ctx._source.count += params.by }").is(200);
    assert_eq!((&updated["result"], &updated["_version"]), (&"updated".into(), &2.into()));
    for op in ["none", "noop", "anything"] {
        let done = run(&format!("ctx._source.count = 0; ctx.op = '{op}'")).is(200);
        assert_eq!((&done["result"], &done["_version"]), (&"noop".into(), &2.into()));
    }
    let joined = run("ctx._source.note = ctx._source.name + ':' + params.by; ctx.op = 'no' + 'ne'").is(200);
    assert_eq!(joined["result"], "noop");
    // A script that changes nothing is a write all the same.
    assert_eq!(run("ctx._source.count = ctx._source.count").is(200)["_version"], 3);
    assert_eq!(
        cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"],
        json!({ "count": 5, "name": "a" })
    );
    let reply = run("throw new IllegalStateException('not now')");
    reply.fails(400, "illegal_argument_exception");
    let cause = &reply.json()["error"]["caused_by"];
    assert_eq!(cause["caused_by"], json!({ "type": "illegal_state_exception", "reason": "not now" }));
    assert_eq!((&cause["type"], &cause["lang"]), (&"script_exception".into(), &"painless".into()));
    let reply = run("while (true) {}");
    reply.fails(400, "illegal_argument_exception");
    let cause = &reply.json()["error"]["caused_by"];
    assert_eq!((&cause["type"], &cause["reason"]), (&"script_exception".into(), &"compile error".into()));
    assert_eq!(run("ctx.op = 'delete'").is(200)["result"], "deleted");
    run("ctx.op = 'delete'").fails(404, "document_missing_exception");
}

#[test]
fn text_is_joined_by_plus() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "name": "a", "log": "" })).is(201);
    let script = json!({ "inline": "ctx._source.log += name + '#' + 1 + ';'", "lang": "groovy", "params": { "name": "p" } });
    for _ in 0..2 {
        cluster.ask("POST", "/fs/file/1/_update", json!({ "script": script })).is(200);
    }
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"]["log"], "p#1;p#1;");
}

#[test]
fn a_script_for_a_document_that_is_not_there() {
    let cluster = Cluster::start();
    let update = |script: &str| {
        let body =
            json!({ "scripted_upsert": true, "upsert": { "count": 1 }, "script": { "source": script } });
        cluster.ask("POST", "/fs/file/1/_update", body)
    };
    assert_eq!(update("ctx.op = 'none'").is(200)["result"], "noop");
    assert_eq!(update("ctx._source.count += 1").is(201)["result"], "created");
    assert_eq!(update("ctx._source.count += 1").is(200)["result"], "updated");
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"]["count"], 3);
}

#[test]
fn scripts_of_administrators() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("steal-lock.painless"),
        "if (ctx._source.name != params.name) { ctx.op = 'delete' }",
    )
    .unwrap();
    fs::write(folder.path().join("notes.txt"), "((((").unwrap();
    let scripts = folder.path().to_str().unwrap();
    let cluster = Cluster::start_with(&["--elasticsearch-scripts", scripts]);
    cluster.ask("PUT", "/fs/file/1", json!({ "name": "a" })).is(201);
    let script = json!({ "script": { "id": "steal-lock", "params": { "name": "b" } } });
    assert_eq!(cluster.ask("POST", "/fs/file/1/_update", script).is(200)["result"], "deleted");
    let script = json!({ "script": { "id": "nobody" }, "upsert": {} });
    let reason = cluster.ask("POST", "/fs/file/1/_update", script).fails(400, "illegal_argument_exception");
    assert!(reason.contains("[nobody]"), "{reason}");

    fs::write(folder.path().join("bad.groovy"), "for (;;) {}").unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--elasticsearch",
        "127.0.0.1:0",
        "--elasticsearch-scripts",
    ]);
    let output = command.arg(scripts).arg("--data").arg(data.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("bad: [for] is not supported"), "{text}");
}
