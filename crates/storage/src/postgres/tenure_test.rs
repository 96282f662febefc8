//! The statements by which nodes own shards: what each needs, and what it leaves alone.

use super::{
    CallError, Change, ClaimIf, Claimant, Renewal, Tenure,
    postgres_test::{Cluster, of_a, run_of, wait},
};
use crate::{Appended, Batch, Epoch, Space};
use std::thread;

/// Fresh or stale by a margin that no slow machine takes.
const HOUR_MS: u64 = 3_600_000;

impl Cluster {
    fn claim_as(
        &self,
        (node, run): (&str, &str),
        shard: u64,
        expected: u64,
        condition: ClaimIf,
    ) -> Option<u64> {
        let claimant = Claimant { node, incarnation: run };
        let claimed = wait(self.directory().claim_at(shard, claimant, Epoch(expected), condition));
        claimed.unwrap().map(|epoch| epoch.0)
    }

    fn claim_free(&self, node: &str, shard: u64, expected: u64) -> Option<u64> {
        self.claim_as((node, &run_of(node)), shard, expected, self.row(shard).claim_if_stale())
    }

    fn release(&self, node: &str, shard: u64, epoch: u64, target: Option<&str>) {
        let tenure = Tenure { epoch: Epoch(epoch), incarnation: run_of(node) };
        wait(self.directory().release_to(shard, node, &tenure, target)).unwrap();
    }

    fn age(&self, table: &str, which: &str) {
        self.sql(&format!(
            "update lockwood.{table} set renewed_at = now() - interval '2 hours' where {which}"
        ));
    }

    fn fresh_shard(&self) -> u64 {
        let shard = Cluster::new_shard();
        wait(self.directory().ensure_shards(&[shard, shard])).unwrap();
        shard
    }
}

fn renewal(node: &str, run: &str, shards: &[(u64, u64)]) -> Renewal {
    Renewal {
        node: node.to_owned(),
        incarnation: run.to_owned(),
        address: format!("{node}:1"),
        version: "0.1.0".to_owned(),
        stops: false,
        shards: shards.iter().map(|(shard, epoch)| (*shard, Epoch(*epoch))).collect(),
    }
}

fn record(index: u64) -> Batch {
    let mut batch = Batch::default();
    batch.put(Space::Log, index.to_be_bytes(), "record");
    batch
}

/// A failover of the database has lost the claim of `a`, and the next claim gives its epoch to another owner.
#[test]
fn an_epoch_that_is_given_twice_appends_for_its_last_owner_only() {
    let cluster = Cluster::shared();
    let with_number = |index: u64| {
        let mut batch = record(index);
        batch.put(Space::Numbers, "ceiling", "5");
        batch
    };
    // Another node, and another run of the same one.
    for (node, run) in [("b", run_of("b")), ("a", "later run of a".to_owned())] {
        let shard = cluster.fresh_shard();
        let log = cluster.log(shard);
        assert_eq!(cluster.claim_free("a", shard, 0), Some(1));
        cluster.sql(&format!("update lockwood.shard set epoch = 0, owner = null where number = {shard}"));
        assert_eq!(cluster.claim_as((node, &run), shard, 0, ClaimIf::Free(0)), Some(1));
        for change in [record(1), with_number(1)] {
            let stale = log.append(&of_a(Epoch(1)), 0, Change::of(&change).unwrap());
            assert!(matches!(stale, Appended::Fenced(Epoch(1))), "{stale:?}");
        }
        let owner = Tenure { epoch: Epoch(1), incarnation: run };
        for (last, change) in [(0, record(1)), (1, with_number(2))] {
            let appended = log.append(&owner, last, Change::of(&change).unwrap());
            assert!(matches!(appended, Appended::Done), "{appended:?}");
        }
        // Nor does the stale owner renew, release, claim or open it, or change what only an owner may.
        cluster.age("shard", &format!("number = {shard}"));
        cluster.age("node", "name = 'a'");
        wait(cluster.directory().renew(&renewal("a", &run_of("a"), &[(shard, 1)]))).unwrap();
        assert!(cluster.row(shard).age_ms > HOUR_MS);
        cluster.release("a", shard, 1, None);
        assert_eq!(cluster.claim_as(("a", &run_of("a")), shard, 1, ClaimIf::Own), None);
        let folder = tempfile::tempdir().unwrap();
        super::open_cache(folder.path(), &cluster.link, shard, &of_a(Epoch(1))).map(drop).unwrap_err();
        let (directory, stale) = (cluster.directory(), of_a(Epoch(1)));
        assert_eq!(wait(directory.add_map(1_000_000 + shard, b"map", (shard, &stale))), Ok(false));
        assert_eq!(wait(directory.change_setting("hosts", b"[]", (shard, &stale))), Ok(false));
        let row = cluster.row(shard);
        assert_eq!((row.owner.as_deref(), row.epoch), (Some(node), Epoch(1)));
        assert_eq!(wait(directory.change_setting("hosts", b"[]", (shard, &owner))), Ok(true));
    }
}

#[test]
fn one_of_several_nodes_that_race_for_a_shard_wins() {
    let cluster = Cluster::shared();
    for _ in 0..20 {
        let shard = cluster.fresh_shard();
        let claims: Vec<_> = thread::scope(|scope| {
            let claim = |node: &'static str| {
                let cluster = cluster.clone();
                scope.spawn(move || cluster.claim_free(node, shard, 0))
            };
            ["a", "b", "c"].map(claim).into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(claims.iter().flatten().count(), 1, "{claims:?}");
    }
}

#[test]
fn a_shard_is_claimed_when_it_is_stale_released_or_this_runs_own() {
    let cluster = Cluster::shared();
    let shard = cluster.fresh_shard();
    assert_eq!(cluster.claim_free("a", shard, 7), None, "it has another epoch");
    assert_eq!(cluster.claim_free("a", shard, 0), Some(1));
    assert_eq!(cluster.claim_free("b", shard, 1), None, "it is fresh");
    assert_eq!(cluster.claim_free("a", shard, 1), None, "also for its owner");
    assert_eq!(cluster.claim_as(("a", "later run of a"), shard, 1, ClaimIf::Own), None, "of another run");
    assert_eq!(cluster.claim_as(("b", &run_of("a")), shard, 1, ClaimIf::Own), None);
    assert_eq!(cluster.claim_as(("a", &run_of("a")), shard, 1, ClaimIf::Own), Some(2));
    cluster.age("shard", &format!("number = {shard}"));
    assert_eq!(cluster.claim_free("b", shard, 1), None, "it was claimed since");
    assert_eq!(cluster.claim_free("b", shard, 2), Some(3));
    assert_eq!(cluster.claim_free("b", shard, 2), None, "what is sent twice counts once");
}

#[test]
fn a_shard_that_was_renewed_since_it_was_seen_is_not_claimed() {
    let cluster = Cluster::new();
    let shard = cluster.fresh_shard();
    assert_eq!(cluster.claim_free("a", shard, 0), Some(1));
    // Whatever the clock of the database does, before or after.
    for step in ["1 day", "-2 days"] {
        cluster.sql(&format!("update lockwood.shard set renewed_at = renewed_at + interval '{step}'"));
        let seen = ClaimIf::Free(cluster.row(shard).renewed);
        wait(cluster.directory().renew(&renewal("a", &run_of("a"), &[(shard, 1)]))).unwrap();
        assert_eq!(cluster.claim_as(("b", &run_of("b")), shard, 1, seen), None, "{step}");
    }
    let seen = ClaimIf::Free(cluster.row(shard).renewed);
    assert_eq!(cluster.claim_as(("b", &run_of("b")), shard, 1, seen), Some(2));
    assert_eq!(cluster.claim_as(("c", &run_of("c")), shard, 2, seen), None, "a claim is another one");
}

#[test]
fn a_release_is_its_owners_and_fences_what_is_under_way() {
    let cluster = Cluster::shared();
    let shard = cluster.fresh_shard();
    assert_eq!(cluster.claim_free("a", shard, 0), Some(1));
    let owner = || (cluster.row(shard).owner, cluster.row(shard).epoch.0);
    cluster.release("b", shard, 1, None);
    cluster.release("a", shard, 9, None);
    assert_eq!(owner(), (Some("a".to_owned()), 1));
    cluster.release("a", shard, 1, Some("c"));
    assert_eq!(owner(), (None, 2));
    assert_eq!(cluster.row(shard).target.as_deref(), Some("c"));
    let late = cluster.log(shard).append(&of_a(Epoch(1)), 0, Change::of(&record(1)).unwrap());
    assert!(matches!(late, Appended::Fenced(Epoch(2))), "{late:?}");
    assert_eq!(cluster.claim_free("c", shard, 2), Some(3));
    assert_eq!(cluster.row(shard).target, None, "the handoff is done");
}

#[test]
fn a_pin_outlasts_claims_and_releases_until_it_is_taken_away() {
    let cluster = Cluster::shared();
    let shard = cluster.fresh_shard();
    let target = || {
        let row = cluster.row(shard);
        (row.target, row.pinned)
    };
    let pinned = (Some("c".to_owned()), true);
    assert_eq!(wait(cluster.directory().pin(shard, Some("c"))), Ok(true));
    assert_eq!(wait(cluster.directory().pin(u64::from(u32::MAX), Some("c"))), Ok(false), "no such shard");
    assert_eq!(cluster.claim_free("a", shard, 0), Some(1));
    assert_eq!(target(), pinned);
    cluster.release("a", shard, 1, Some("b"));
    assert_eq!(target(), pinned);
    assert_eq!(wait(cluster.directory().pin(shard, None)), Ok(true));
    assert_eq!(target(), (None, false));
}

#[test]
fn a_renewal_renews_what_its_run_holds() {
    let cluster = Cluster::new();
    let shards: Vec<u64> = (0..4).map(|_| cluster.fresh_shard()).collect();
    for shard in &shards[..3] {
        cluster.claim_free("a", *shard, 0).unwrap();
    }
    cluster.claim_free("b", shards[3], 0).unwrap();
    cluster.age("shard", "true");
    // One that is not named, one with another epoch, one of another node.
    let held = [(shards[0], 1), (shards[1], 2), (shards[3], 1)];
    let rows = wait(cluster.directory().renew(&renewal("a", &run_of("a"), &held))).unwrap();
    let is_fresh: Vec<bool> = rows.shards.iter().map(|row| row.age_ms < HOUR_MS).collect();
    assert_eq!(is_fresh, [true, false, false, false]);
    assert_eq!(rows.nodes.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_name_belongs_to_one_run_until_it_is_stale() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    let register = |run: &str| wait(directory.register(&renewal("a", run, &[]))).unwrap();
    assert!(register("one") && register("one"));
    cluster.sql("update lockwood.node set renewed_at = now() + interval '1 hour'");
    assert!(!register("two"));
    let refused = wait(directory.renew(&renewal("a", "two", &[])));
    assert!(matches!(&refused, Err(CallError::Unexpected(why)) if why.contains("called a")), "{refused:?}");
    cluster.age("node", "true");
    assert!(register("two"));
    cluster.sql("update lockwood.node set renewed_at = now() + interval '1 hour'");
    assert!(!register("one"), "the name has changed hands");
    let mut stops = Renewal { stops: true, address: "b:2".to_owned(), ..renewal("a", "two", &[]) };
    let rows = wait(directory.renew(&stops)).unwrap();
    assert_eq!((&*rows.nodes[0].address, rows.nodes[0].drains), ("b:2", true));
    stops.stops = false;
    assert!(!wait(directory.renew(&stops)).unwrap().nodes[0].drains);
}

#[test]
fn an_operators_drain_outlasts_renewals() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    let renewed = || wait(directory.renew(&renewal("a", "one", &[]))).unwrap().nodes[0].drains;
    assert_eq!(wait(directory.set_drains("a", true)), Ok(false), "there is no such node");
    assert!(!renewed());
    assert_eq!(wait(directory.set_drains("a", true)), Ok(true));
    assert!(renewed());
    assert_eq!(wait(directory.set_drains("a", false)), Ok(true));
    assert!(!renewed());
}

#[test]
fn a_node_is_forgotten_when_it_is_stale_along_with_its_pins() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    let (pinned, other) = (cluster.fresh_shard(), cluster.fresh_shard());
    for node in ["a", "b"] {
        assert!(wait(directory.register(&renewal(node, "one", &[]))).unwrap());
    }
    wait(directory.pin(pinned, Some("a"))).unwrap();
    wait(directory.pin(other, Some("b"))).unwrap();
    assert_eq!(wait(directory.forget("a", HOUR_MS)), Ok(false), "it is alive");
    assert_eq!(cluster.row(pinned).target.as_deref(), Some("a"));
    cluster.age("node", "name = 'a'");
    assert_eq!(wait(directory.forget("a", HOUR_MS)), Ok(true));
    assert_eq!(wait(directory.forget("a", HOUR_MS)), Ok(false), "there is no such node");
    assert_eq!((cluster.row(pinned).target, cluster.row(pinned).pinned), (None, false));
    assert_eq!(cluster.row(other).target.as_deref(), Some("b"));
    assert_eq!(wait(directory.remove_node("b", "one")), Ok(true));
    assert_eq!(wait(directory.read_rows()).unwrap().nodes, []);
}

/// A node that is started again under the name of one that is still stopping.
#[test]
fn a_run_that_stops_does_not_remove_the_row_of_its_successor() {
    let cluster = Cluster::new();
    let directory = cluster.directory();
    assert_eq!(wait(directory.register(&renewal("a", "first", &[]))), Ok(true));
    cluster.age("node", "name = 'a'");
    assert_eq!(wait(directory.register(&renewal("a", "second", &[]))), Ok(true));
    assert_eq!(wait(directory.remove_node("a", "first")), Ok(false));
    assert_eq!(wait(directory.read_rows()).unwrap().nodes.len(), 1);
    assert_eq!(wait(directory.remove_node("a", "second")), Ok(true));
    assert_eq!(wait(directory.read_rows()).unwrap().nodes.len(), 0);
}
