//! Data of an original, brought over from its PostgreSQL: every kind of event, gaps between positions, deleted and
//! volatile models, ids. Knows the original's tables.

use crate::{
    harness::BINARY,
    postgres::Postgres,
    store::{Store, assert_is, deleted_model, locked, locking, missing, model, update},
};
use serde_json::{Value, json};
use std::{
    fs,
    process::{Command, Output},
};
use tempfile::TempDir;

/// The columns that matter of the tables that matter.
const TABLES: &str = "
    CREATE TYPE event_type AS ENUM ('create', 'update', 'delete', 'deletefields', 'listfields', 'restore');
    CREATE TABLE positions (position int PRIMARY KEY, timestamp timestamptz, user_id int NOT NULL,
        information json, migration_index int NOT NULL);
    CREATE TABLE events (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, position int REFERENCES positions,
        fqid varchar(48) NOT NULL, type event_type NOT NULL, data jsonb, weight int NOT NULL);
    CREATE TABLE models (fqid varchar(48) PRIMARY KEY, data jsonb NOT NULL, deleted boolean NOT NULL);
    CREATE TABLE id_sequences (collection varchar(32) PRIMARY KEY, id int NOT NULL);";

/// Position 3 was drawn and never written; position 8 has an event of a volatile model only.
const ROWS: &str = r#"
    INSERT INTO positions VALUES
        (1, '2024-05-01 10:00:00.123456+00', 1, '{"user/1": ["Account created"]}', 66),
        (2, '2024-05-01 10:00:01+00', 2, '["changed", {"b": 1, "a": null}]', 66),
        (4, '2024-05-01 10:00:02+00', 2, NULL, 66),
        (5, '2024-05-01 10:00:03+00', -1, 'null', 66),
        (6, '2024-05-01 10:00:04+00', 2, '"gone again"', 66),
        (7, '2024-05-01 10:00:05+00', 0, '{"note": "a\nb"}', 66),
        (8, '2024-05-01 10:00:06+00', 0, NULL, 66);
    INSERT INTO events (position, fqid, type, data, weight) VALUES
        (1, 'user/2', 'create', '{"id": 2, "name": "Bob"}', 2),
        (1, 'user/1', 'create', '{"id": 1, "name": "Ann", "age": 41, "group_ids": [1, 2]}', 1),
        (2, 'user/1', 'listfields', '{"add": {"tag_ids": [7, "x"], "group_ids": [2, 3]},
            "remove": {"tag_ids": [7], "group_ids": [1], "none_ids": [1]}}', 3),
        (2, 'user/1', 'update', '{"name": "Anna"}', 1),
        (2, 'user/1', 'deletefields', '["age", "absent"]', 2),
        (4, 'user/2', 'delete', NULL, 1),
        (5, 'user/2', 'restore', NULL, 1),
        (6, 'user/2', 'update', '{"name": "Bert"}', 1),
        (6, 'user/2', 'delete', NULL, 2),
        (7, 'motion/1', 'create', '{"text": "a\\b\n\"c\" \u00e9 \ud83e\udd91",
            "big": 123456789012345678901234567890, "half": 0.50, "tree": {"a": [null, {"b": []}]}}', 1),
        (8, 'action_worker/5', 'update', '{"state": "end"}', 1);
    INSERT INTO models VALUES
        ('user/1', '{"id": 1, "name": "Anna", "group_ids": [2, 3], "tag_ids": [7, "x"],
            "meta_deleted": false, "meta_position": 2}', false),
        ('user/2', '{"id": 2, "name": "Bert", "meta_deleted": true, "meta_position": 6}', true),
        ('motion/1', '{"text": "a\\b\n\"c\" \u00e9 \ud83e\udd91", "big": 123456789012345678901234567890,
            "half": 0.50, "tree": {"a": [null, {"b": []}]}, "meta_deleted": false, "meta_position": 7}', false),
        ('action_worker/5', '{"state": "end", "meta_deleted": false, "meta_position": 8}', false),
        ('import_preview/6', '{"result": {"rows": []}, "meta_deleted": false}', false),
        ('import_preview/7', '{"meta_deleted": true}', true);
    INSERT INTO id_sequences VALUES ('user', 10), ('motion', 2), ('tag', 4);"#;

fn filled() -> Postgres {
    let postgres = Postgres::start();
    postgres.sql(&format!("{TABLES}{ROWS}"));
    postgres
}

fn import(store: &Store, arguments: &[&str]) -> Output {
    let server = store.server.native.to_string();
    let mut command = Command::new(BINARY);
    command.args(["import", "openslides", "--server", &server]).args(arguments).output().unwrap()
}

#[track_caller]
fn imported(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said, "imported 5 models and 6 positions; the position is 7\n");
}

#[track_caller]
fn refused(store: &mut Store, output: &Output, code: i32, part: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{said}");
    store.is_empty();
}

fn ann(position: u64) -> Value {
    match position {
        1 => json!({ "id": 1, "name": "Ann", "age": 41, "group_ids": [1, 2] }),
        _ => json!({ "id": 1, "name": "Anna", "group_ids": [2, 3], "tag_ids": [7, "x"] }),
    }
}

fn bob(name: &str) -> Value {
    json!({ "id": 2, "name": name })
}

#[track_caller]
fn check_all(store: &mut Store) {
    assert_eq!(store.position(), json!(7));
    store.has("user/1", &ann(7), 2);
    for (position, expected) in [(1, model(&ann(1), 1)), (2, model(&ann(2), 2)), (3, model(&ann(3), 2))] {
        let body = json!({ "fqid": "user/1", "position": position });
        assert_eq!(store.read("get", &body), expected, "{position}");
    }
    store.lacks("user/2");
    let deleted = store.read("get", &json!({ "fqid": "user/2", "get_deleted_models": 2 }));
    assert_eq!(deleted, deleted_model(&bob("Bert"), 6));
    let at = |position: u64| json!({ "fqid": "user/2", "position": position });
    assert_eq!(store.read("get", &at(3)), model(&bob("Bob"), 1));
    assert_is(&store.ask_reader("get", &at(4)), 400, &missing("user/2"));
    assert_eq!(store.read("get", &at(5)), model(&bob("Bob"), 5));
    let motion = store.get("motion/1");
    assert!(motion.body.contains("123456789012345678901234567890"), "{motion:?}");
    let motion = motion.json();
    assert_eq!((&motion["text"], &motion["half"]), (&json!("a\\b\n\"c\" é 🦑"), &json!(0.5)));
    assert_eq!(motion["tree"], json!({ "a": [null, { "b": [] }] }));
    let worker = json!({ "state": "end", "meta_deleted": false });
    assert_is(&store.get("action_worker/5"), 200, &worker);
    let previews = store.read("get_all", &json!({ "collection": "import_preview" }));
    assert_eq!(previews, json!({ "6": { "result": { "rows": [] }, "meta_deleted": false } }));
}

#[track_caller]
fn check_history(store: &mut Store) {
    let fqids = json!({ "fqids": ["user/1", "user/2", "motion/1"] });
    let entry = |position: u64, timestamp: f64, user: i64, information: Value| json!({ "position": position, "timestamp": timestamp, "user_id": user, "information": information });
    let first = || entry(1, 1_714_557_600.123, 1, json!({ "user/1": ["Account created"] }));
    let expected = json!({
        "user/1": [first(), entry(2, 1_714_557_601.0, 2, json!(["changed", { "b": 1, "a": null }]))],
        "user/2": [first(), entry(6, 1_714_557_604.0, 2, json!("gone again"))],
        "motion/1": [entry(7, 1_714_557_605.0, 0, json!({ "note": "a\nb" }))],
    });
    assert_eq!(store.read("history_information", &fqids), expected);
}

#[test]
fn everything_is_brought_over_from_postgresql() {
    let (postgres, store) = (filled(), Store::start());
    imported(&import(&store, &["--from", &postgres.database()]));
    let mut store = store.crashed(&[]);
    check_all(&mut store);
    check_history(&mut store);
    let broken = locking(&[update("user/1", &json!({ "age": 42 }))], &json!({ "user/1/name": 1 }));
    assert_is(&store.write(&broken), 400, &locked(&["user/1/name"]));
    let held = locking(&[update("user/1", &json!({ "age": 42 }))], &json!({ "user/1/name": 2 }));
    assert_eq!(store.written(&held), 8);
    assert_eq!(store.reserve("user", 1), json!({ "ids": [10] }));
    assert_eq!(store.reserve("motion", 2), json!({ "ids": [2, 3] }));
    assert_eq!(store.reserve("tag", 1), json!({ "ids": [4] }));
    let output = import(&store, &["--from", &postgres.database()]);
    assert!(!output.status.success(), "the namespace is not empty any more: {output:?}");
}

/// What has gaps can be dumped and loaded like anything else.
#[test]
fn what_was_brought_over_can_be_dumped_and_loaded() {
    let (postgres, store) = (filled(), Store::start());
    imported(&import(&store, &["--from", &postgres.database()]));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dump").to_str().unwrap().to_owned();
    let server = store.server.native.to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new(BINARY).args(arguments).args(["--server", &server]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };
    let dump = run(&["dump", "-n", "openslides"]).stdout;
    fs::write(&file, &dump).unwrap();
    run(&["load", &file, "-n", "copy"]);
    let again = String::from_utf8(run(&["dump", "-n", "copy"]).stdout).unwrap();
    let again = again.replacen("\"namespace\":\"copy\"", "\"namespace\":\"openslides\"", 1);
    assert_eq!(again, String::from_utf8(dump).unwrap());
}

#[test]
fn data_that_contradicts_itself_or_breaks_off_leaves_nothing_behind() {
    let (postgres, mut store) = (filled(), Store::start());
    let script = import(&store, &["--sql"]).stdout;
    let export = postgres.sql(std::str::from_utf8(&script).unwrap());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("export").to_str().unwrap().to_owned();
    let lines: Vec<&str> = export.lines().collect();
    let cases = [
        (lines[..lines.len() - 1].join("\n"), "broke off"),
        (export.replace("Anna", "Hanna").replacen("Hanna", "Anna", 1), "the events make name"),
        (export.replacen("\"restore\"", "\"delete\"", 1), "does not follow"),
        (export.replacen("\"migration_indexes\": 1", "\"migration_indexes\": 2", 1), "finish the migration"),
        (lines[1..].join("\n"), ""),
        ("{\"x\":1}\n".to_owned(), "line 1"),
    ];
    for (text, part) in cases {
        assert_ne!(text, export);
        fs::write(&file, text).unwrap();
        let output = import(&store, &[&file]);
        refused(&mut store, &output, 65, part);
    }
    let output = import(&store, &["--from", "host=/nowhere"]);
    refused(&mut store, &output, 65, "psql failed");
    fs::write(&file, &export).unwrap();
    imported(&import(&store, &[&file]));
    check_all(&mut store);
}
