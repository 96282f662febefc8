//! Tables of every version brought to this one, by any number of nodes at once.

use super::{
    ensure_schema,
    postgres_test::{Claimed, Cluster, of_a, wait},
    schema::{STEPS, SchemaError, bring_to},
};
use lockwood_test_support::Postgres;
use std::thread;

const TABLES_OF_VERSION_1: &str = include_str!("version_1.sql");

/// A database with the tables that a node of version 1 left.
fn of_version_1() -> Cluster {
    let database = Postgres::shared().create_database();
    Postgres::shared().sql(&database, TABLES_OF_VERSION_1);
    Cluster::on(&database, &Postgres::shared().socket(&database))
}

#[track_caller]
fn at_once(cluster: &Cluster, nodes: usize, steps: &'static [&'static str]) {
    let address = Postgres::shared().socket(&cluster.database);
    thread::scope(|scope| {
        for _ in 0..nodes {
            scope.spawn(|| wait(bring_to(&Cluster::on(&cluster.database, &address).link, steps)).unwrap());
        }
    });
}

fn version(cluster: &Cluster) -> String {
    cluster.sql("select convert_from(value, 'UTF8') from lockwood.setting where name = 'schema'")
}

#[test]
fn eight_nodes_bring_tables_of_version_1_to_this_one_once_and_lose_nothing() {
    let cluster = of_version_1();
    at_once(&cluster, 8, &STEPS);
    assert_eq!(version(&cluster), STEPS.len().to_string());
    // A claim from a row of version 1, and the store on its log.
    cluster.sql("update lockwood.shard set renewed_at = now() - interval '1 hour'");
    let Claimed { epoch, last } = cluster.claim("a", 1).unwrap();
    assert_eq!((epoch.0, last), (2, 8));
    let folder = tempfile::tempdir().unwrap();
    let (_, report) = super::open_cache(folder.path(), &cluster.link, 1, &of_a(epoch)).unwrap();
    assert_eq!((report.records, report.last), (8, 8));
}

#[test]
fn tables_of_version_1_are_the_same_as_new_ones_in_the_end() {
    let (old, new) = (of_version_1(), Cluster::new());
    wait(ensure_schema(&old.link)).unwrap();
    let columns = "select table_name, column_name, data_type, is_nullable, column_default
        from information_schema.columns where table_schema = 'lockwood' order by 1, 2";
    assert_eq!(old.sql(columns), new.sql(columns));
}

/// The steps of a version that does not exist yet.
const LATER: [&str; 4] =
    [STEPS[0], STEPS[1], STEPS[2], "create table lockwood.later (number bigint primary key)"];
const BROKEN: [&str; 4] =
    [STEPS[0], STEPS[1], STEPS[2], "create table lockwood.half (number bigint); select 1 / 0"];

#[test]
fn a_step_is_taken_once_and_earlier_nodes_are_told_to_upgrade() {
    for cluster in [of_version_1(), Cluster::new()] {
        at_once(&cluster, 8, &LATER);
        assert_eq!(version(&cluster), "4");
        cluster.sql("insert into lockwood.later values (1)");
        let error = wait(ensure_schema(&cluster.link)).unwrap_err();
        assert!(matches!(error, SchemaError::Newer { found: 4, known: 3 }), "{error}");
        assert!(error.to_string().contains("upgrade it"), "{error}");
        wait(bring_to(&cluster.link, &LATER)).unwrap();
    }
}

#[test]
fn a_step_that_fails_changes_nothing() {
    let cluster = of_version_1();
    assert!(matches!(wait(bring_to(&cluster.link, &BROKEN)), Err(SchemaError::Call(_))));
    assert_eq!(version(&cluster), "3");
    assert_eq!(cluster.sql("select to_regclass('lockwood.half') is null"), "t");
    wait(ensure_schema(&cluster.link)).unwrap();
    assert_eq!(cluster.sql("select count(*) from lockwood.log"), "8");
}
