//! A dump of the database, restored as the guide says.

use crate::{harness::eventually, leaseholder::Leaseholder, nodes::Nodes};
use lockwood_test_support::Postgres;
use serde_json::json;
use std::process::Command;

#[test]
fn a_restored_dump_has_everything_up_to_it_and_nothing_later() {
    let postgres = Postgres::start(&["fsync=off"]);
    let database = postgres.create_database();
    let url = postgres.url(&database, postgres.port());
    let mut nodes = Nodes::start_on(&url, 2);
    for key in 1..=20 {
        nodes.store(1).create("user", key, json!({ "n": key }));
    }
    let before = Leaseholder::new(nodes.server(1), "before").take("write user/1");
    let file = tempfile::NamedTempFile::new().unwrap();
    let dump =
        Command::new("pg_dump").args(["--schema", "lockwood", "--file"]).arg(file.path()).arg(&url).output();
    let dump = dump.unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    for key in 21..=40 {
        nodes.store(2).create("user", key, json!({ "n": key }));
    }
    let after = Leaseholder::new(nodes.server(1), "after").take("write user/2");
    for number in 1..=2 {
        nodes.stop(number);
    }
    let mut psql = Command::new("psql");
    psql.args([&url, "--set", "ON_ERROR_STOP=1", "--command", "drop schema lockwood cascade", "--file"]);
    let restored = psql.arg(file.path()).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    (1..=2).for_each(|number| nodes.up(number));
    eventually("a node owns the shard", || nodes.owner().is_some());
    for key in 1..=40 {
        let found = nodes.store(2).send("GET", &format!("documents/user/{key}"), "");
        assert_eq!(found.status, if key <= 20 { 200 } else { 404 }, "user/{key}: {}", found.body);
    }
    let told = nodes.status(1)["alerts"].to_string();
    assert!(told.contains("PostgreSQL has lost committed data"), "{told}");
    // The lease of the dump is held, and the later one is not known.
    let holder = Leaseholder::new(nodes.server(2), "before");
    assert_eq!(holder.renew(before.lock, &json!({ "ttl_ms": 60_000, "token": before.token })).status, 200);
    let lost = Leaseholder::new(nodes.server(2), "after").renew(after.lock, &json!({ "token": after.token }));
    assert_ne!(lost.status, 200, "{}", lost.body);
    nodes.store(1).create("user", 41, json!({ "n": 41 }));
}
