//! Caches of every kind brought to the log: each ends as the mirror of it, and says how.

use super::{
    Advanced, CacheError, CacheOutcome, CacheReport, Discarded, Follower, LostRecords,
    change::is_shared,
    postgres_test::{Cluster, of_a},
};
use crate::{
    Action, Appended, Batch, Claim, Durability, Embedded, Entry, Epoch, Fold, Ledger, LocalLog, Log, Memory,
    Order, Space, State, Store, Unsaved, has_snapshot_before, save_snapshot, save_snapshot_while, verify,
    with_prefix,
};
use lockwood_model::{DocumentKey, Json};
use std::{fs, path::Path, sync::Arc};
use tempfile::TempDir;

/// A shard that nodes own in turn.
struct Shard {
    cluster: Cluster,
    shard: u64,
}

/// A node that owns the shard.
struct Owner {
    store: Arc<dyn Store>,
    log: LocalLog,
    epoch: Epoch,
    report: CacheReport,
}

impl Shard {
    fn new() -> Shard {
        Shard { cluster: Cluster::shared(), shard: Cluster::new_shard() }
    }

    /// By a node with this directory. Nodes have one name here, so that no claim has to wait.
    fn own(&self, directory: &Path) -> Owner {
        let (store, report) = self.cluster.open("a", self.shard, directory).unwrap();
        let log = LocalLog::new(Arc::clone(&store));
        let Claim { epoch, last } = log.claim().unwrap();
        assert_eq!(last, report.last);
        Owner { store, log, epoch, report }
    }

    /// Loses all records behind `last`, as a failover to a standby does that did not have them.
    fn lose_after(&self, last: u64) {
        let shard = self.shard;
        self.cluster.sql(&format!(
            r#"delete from lockwood.log where shard = {shard} and "index" > {last};
               update lockwood.shard set last = {last} where number = {shard}"#
        ));
    }
}

impl Owner {
    fn put(&self, number: u64) {
        let at = DocumentKey::new("c", format!("{}", number % 7).parse().unwrap());
        let put = vec![(at, vec![("f".into(), Json::trusted(&format!("\"value {number} of it\"")))])];
        self.take(&Entry::Kept { namespace: "n".into(), put, removed: Vec::new() });
    }

    fn take(&self, entry: &Entry) {
        let snapshot = self.store.snapshot();
        let index = State::new(&*snapshot).applied().unwrap() + 1;
        let mut fold = Fold::new(&*snapshot, index);
        fold.apply(entry).unwrap();
        let appended = self.log.append(self.epoch, index - 1, &fold.finish(entry).unwrap());
        assert!(matches!(appended, Appended::Done), "{appended:?}");
    }

    fn put_all(&self, numbers: std::ops::RangeInclusive<u64>) {
        numbers.for_each(|number| self.put(number));
    }

    fn trim(&self, to: u64) {
        save_snapshot(&*self.store.snapshot(), &*self.store).unwrap();
        let trimmed = self.log.trim(self.epoch, to);
        assert!(matches!(trimmed, Appended::Done), "{trimmed:?}");
    }

    /// Everything that another node must have the same, and the state must be what the log leads to.
    #[track_caller]
    fn content(&self) -> Vec<(Space, Vec<u8>, Vec<u8>)> {
        let differences = verify(&*self.store.snapshot(), &Memory::default(), &mut |_, _| {}).unwrap();
        assert_eq!(differences, []);
        let snapshot = self.store.snapshot();
        let mut content = Vec::new();
        for space in Space::ALL.iter().filter(|space| **space != Space::Cache) {
            for pair in snapshot.scan(*space, with_prefix(b""), Order::Forward) {
                let (key, value) = pair.unwrap();
                if is_shared(*space, &key) || Space::STATE.contains(space) {
                    content.push((*space, key.to_vec(), value.to_vec()));
                }
            }
        }
        content
    }

    #[track_caller]
    fn check(&self, outcome: &CacheOutcome, records: u64) {
        assert_eq!((&self.report.outcome, self.report.records), (outcome, records));
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

const CAUGHT_UP: CacheOutcome = CacheOutcome::CaughtUp;
const FILLED: CacheOutcome = CacheOutcome::Filled;

#[test]
fn an_empty_shard_has_an_empty_cache() {
    let (shard, here) = (Shard::new(), folder());
    shard.own(here.path()).check(&FILLED, 0);
    shard.own(here.path()).check(&CAUGHT_UP, 0);
}

#[test]
fn a_cache_reads_only_what_it_does_not_have() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let first = shard.own(here.path());
    first.put_all(1..=20);
    let content = first.content();
    drop(first);
    let again = shard.own(here.path());
    again.check(&CAUGHT_UP, 0);
    assert_eq!(again.content(), content);
    drop(again);
    let second = shard.own(there.path());
    second.check(&FILLED, 20);
    assert_eq!(second.content(), content);
    second.put_all(21..=2500);
    let content = second.content();
    drop(second);
    let first = shard.own(here.path());
    first.check(&CAUGHT_UP, 2480);
    assert_eq!(first.content(), content);
}

#[test]
fn a_snapshot_and_the_records_behind_it_suffice() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let first = shard.own(here.path());
    first.put_all(1..=30);
    first.trim(20);
    first.put_all(31..=35);
    let content = first.content();
    let second = shard.own(there.path());
    second.check(&FILLED, 5);
    assert_eq!(second.content(), content);
    second.trim(35);
    second.put(36);
    let content = second.content();
    let elsewhere = folder();
    let third = shard.own(elsewhere.path());
    third.check(&FILLED, 1);
    assert_eq!(third.content(), content);
}

/// History and feeds are read from the records, so a snapshot alone drops none.
#[test]
fn a_snapshot_saves_folding_and_drops_no_record() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let first = shard.own(here.path());
    first.put_all(1..=30);
    save_snapshot(&*first.store.snapshot(), &*first.store).unwrap();
    first.put_all(31..=35);
    let without_pieces = |owner: &Owner| {
        let content = owner.content().into_iter().filter(|(space, ..)| *space != Space::Snapshots);
        content.collect::<Vec<_>>()
    };
    let content = without_pieces(&first);
    let (behind, elsewhere) = (folder(), folder());
    let mut followed = Follower::open(behind.path(), &shard.cluster.link, shard.shard).unwrap();
    assert_eq!(followed.advance().unwrap(), Advanced::To(35));
    let second = shard.own(there.path());
    second.check(&FILLED, 5);
    assert_eq!(without_pieces(&second), content);
    assert_eq!(shard.cluster.log(shard.shard).head().unwrap().unwrap().first, Some(1));
    // A copy of the snapshot would be no use here, but it is known of: a purge has to replace it.
    let snapshot = second.store.snapshot();
    let bytes = |space| {
        snapshot
            .scan(space, with_prefix(b""), Order::Forward)
            .map(|pair| pair.unwrap().1.len())
            .sum::<usize>()
    };
    assert!(bytes(Space::Snapshots) < 32);
    assert!(has_snapshot_before(&*snapshot, 31).unwrap());
    let mut unsaved = Unsaved::default();
    unsaved.count(&*snapshot).unwrap();
    assert_eq!((unsaved.saved, unsaved.last, unsaved.records()), (30, 35, 5));
    assert!(unsaved.bytes > 0 && unsaved.saved_bytes > 0);
    drop(snapshot);
    second.put(36);
    let snapshot = second.store.snapshot();
    let before = unsaved.bytes;
    unsaved.count(&*snapshot).unwrap();
    assert!(unsaved.records() == 6 && unsaved.bytes > before);
    drop(snapshot);
    // When records are dropped, those who have all of them need the snapshot after all.
    second.trim(34);
    assert_eq!(followed.advance().unwrap(), Advanced::To(36));
    let content = second.content();
    let (claimed, link) = (shard.cluster.claim("a", shard.shard).unwrap(), &shard.cluster.link);
    let (store, report) = followed.promote(link, &of_a(claimed.epoch)).unwrap();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    assert_eq!(Owner { store, log, epoch, report }.content(), content);
    let third = shard.own(elsewhere.path());
    assert_eq!(third.content(), content);
}

fn pieces(shard: &Shard) -> String {
    let number = shard.shard;
    let sql = format!(
        r#"select "index", count(*), bool_or(part = 4294967295) from lockwood.snapshot where shard = {number}
        group by "index" order by "index""#
    );
    shard.cluster.sql(&sql)
}

#[test]
fn a_snapshot_that_is_cut_short_leaves_the_one_before_it() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let first = shard.own(here.path());
    // Several pieces.
    let large = |number: u64| {
        let at = DocumentKey::new("c", format!("{number}").parse().unwrap());
        let put = vec![(at, vec![("f".into(), Json::trusted(&format!("\"{}\"", "x".repeat(200_000))))])];
        first.take(&Entry::Kept { namespace: "n".into(), put, removed: Vec::new() });
    };
    (1..=10).for_each(large);
    save_snapshot(&*first.store.snapshot(), &*first.store).unwrap();
    let complete = pieces(&shard);
    (11..=15).for_each(large);
    let mut steps = 0;
    let saved = save_snapshot_while(&*first.store.snapshot(), &*first.store, &mut || {
        steps += 1;
        steps < 3
    });
    assert_eq!(saved.unwrap(), None);
    first.store.tend().unwrap();
    assert_eq!(pieces(&shard), format!("{complete}\n15|3|f"));
    let content = |owner: &Owner| {
        let content = owner.content().into_iter().filter(|(space, ..)| *space != Space::Snapshots);
        content.collect::<Vec<_>>()
    };
    let expected = content(&first);
    let second = shard.own(there.path());
    second.check(&FILLED, 5);
    assert_eq!(content(&second), expected);
    // The one that has lost the shard saves nothing more.
    save_snapshot(&*first.store.snapshot(), &*first.store).unwrap_err();
    assert_eq!(pieces(&shard), format!("{complete}\n15|3|f"));
    second.put(16);
    save_snapshot(&*second.store.snapshot(), &*second.store).unwrap();
    assert!(pieces(&shard).starts_with("16|") && !pieces(&shard).contains('\n'), "{}", pieces(&shard));
    shard.own(folder().path()).check(&FILLED, 0);
}

#[test]
fn a_cache_follows_trims_it_missed_or_is_rebuilt() {
    let (shard, here, there, behind) = (Shard::new(), folder(), folder(), folder());
    shard.own(behind.path()).put_all(1..=5);
    shard.own(here.path()).put_all(6..=25);
    let other = shard.own(there.path());
    other.put_all(26..=30);
    other.trim(20);
    other.put_all(31..=32);
    let content = other.content();
    drop(other);
    let caught_up = shard.own(here.path());
    caught_up.check(&CAUGHT_UP, 7);
    assert_eq!(caught_up.content(), content, "the snapshot is there, the records before it are gone");
    let rebuilt = shard.own(behind.path());
    rebuilt.check(&CacheOutcome::Rebuilt(Discarded::Trimmed), 2);
    assert_eq!(rebuilt.content(), content);
}

#[test]
fn a_cache_that_is_ahead_is_discarded_and_an_alert_is_raised() {
    let (shard, here) = (Shard::new(), folder());
    shard.own(here.path()).put_all(1..=10);
    shard.lose_after(7);
    let owner = shard.own(here.path());
    owner.check(&CacheOutcome::Rebuilt(Discarded::Ahead), 7);
    let alert = LostRecords::Missing { shard: shard.shard, acknowledged: 10, found: 7 };
    assert_eq!(owner.report.alert, Some(alert));
    assert_eq!(owner.content(), shard.own(folder().path()).content());
}

#[test]
fn a_cache_whose_last_record_is_another_one_is_discarded() {
    let (shard, here) = (Shard::new(), folder());
    shard.own(here.path()).put_all(1..=10);
    shard.lose_after(7);
    let there = folder();
    let other = shard.own(there.path());
    other.put_all(18..=25);
    let content = other.content();
    let owner = shard.own(here.path());
    owner.check(&CacheOutcome::Rebuilt(Discarded::Disagrees), 15);
    let alert = LostRecords::Replaced { shard: shard.shard, acknowledged: 10 };
    assert_eq!(owner.report.alert, Some(alert));
    assert_eq!(owner.content(), content);
}

/// The bytes are the same, but another owner wrote them.
#[test]
fn a_cache_whose_last_record_has_another_epoch_is_discarded() {
    let (shard, here) = (Shard::new(), folder());
    shard.own(here.path()).put_all(1..=10);
    shard.lose_after(9);
    shard.own(folder().path()).put(10);
    shard.own(here.path()).check(&CacheOutcome::Rebuilt(Discarded::Disagrees), 10);
}

#[test]
fn a_cache_with_records_that_were_rewritten_is_discarded_with_its_files() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    shard.own(here.path()).put_all(1..=10);
    let other = shard.own(there.path());
    other.put(11);
    let mut rewritten = Batch::default();
    let put = Entry::Kept { namespace: "n".into(), put: Vec::new(), removed: Vec::new() };
    rewritten.put(Space::Log, 3u64.to_be_bytes(), put.encode());
    let appended = other.log.append(other.epoch, 11, &rewritten);
    assert!(matches!(appended, Appended::Done), "{appended:?}");
    let content = other.content();
    drop(other);
    let own = shard.own(there.path());
    own.check(&CAUGHT_UP, 0);
    drop(own);
    assert!(has_bytes(here.path(), b"value 3 of it"));
    let owner = shard.own(here.path());
    owner.check(&CacheOutcome::Rebuilt(Discarded::Rewritten), 11);
    assert_eq!(owner.content(), content);
    drop(owner);
    assert!(!has_bytes(here.path(), b"value 3 of it"));
}

fn has_bytes(directory: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => has_bytes(&path, bytes),
            false => fs::read(&path).unwrap().windows(bytes.len()).any(|found| found == bytes),
        }
    })
}

#[test]
fn a_damaged_cache_is_discarded() {
    let (shard, here) = (Shard::new(), folder());
    let owner = shard.own(here.path());
    owner.put_all(1..=10);
    let content = owner.content();
    drop(owner);
    fs::write(here.path().join("acknowledged"), "nonsense").unwrap();
    let owner = shard.own(here.path());
    assert!(
        matches!(owner.report.outcome, CacheOutcome::Rebuilt(Discarded::Damaged(_))),
        "{:?}",
        owner.report
    );
    assert_eq!(owner.content(), content);
    drop(owner);
    shard.own(here.path()).check(&CAUGHT_UP, 0);
}

#[test]
fn a_cache_of_another_shard_or_cluster_is_discarded() {
    let (one, two, here) = (Shard::new(), Shard::new(), folder());
    one.own(here.path()).put_all(1..=10);
    two.own(here.path()).check(&CacheOutcome::Rebuilt(Discarded::Foreign), 0);
    let elsewhere = Shard { cluster: Cluster::new(), shard: two.shard };
    elsewhere.own(here.path()).check(&CacheOutcome::Rebuilt(Discarded::Foreign), 0);
    one.own(here.path()).check(&CacheOutcome::Rebuilt(Discarded::Foreign), 10);
}

/// It may be the only copy.
#[test]
fn a_store_that_is_no_cache_is_left_alone() {
    let (shard, here) = (Shard::new(), folder());
    let mut batch = Batch::default();
    batch.put(Space::Numbers, "n", "1");
    Embedded::open(here.path()).unwrap().commit(&batch, Durability::Synced).unwrap();
    let refused = shard.cluster.open("a", shard.shard, here.path()).map(drop).unwrap_err();
    assert!(matches!(refused, CacheError::NotACache(_)), "{refused}");
    let store = Embedded::open(here.path()).unwrap();
    assert_eq!(store.snapshot().get(Space::Numbers, b"n").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_cache_that_another_process_uses_is_left_alone() {
    let (one, two, here) = (Shard::new(), Shard::new(), folder());
    let owner = one.own(here.path());
    owner.put(1);
    let refused = two.cluster.open("a", two.shard, here.path()).map(drop).unwrap_err();
    assert!(matches!(refused, CacheError::Open { .. }), "{refused}");
    owner.put(2);
    owner.content();
}

/// A node that is killed loses what the cache had not written yet; the log has it.
#[test]
fn a_cache_that_lost_its_end_catches_up() {
    let (shard, here, copy) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    owner.put_all(1..=50);
    copy_files(here.path(), copy.path());
    let content = owner.content();
    drop(owner);
    let owner = shard.own(copy.path());
    assert_eq!(owner.report.outcome, CAUGHT_UP);
    assert_eq!(owner.content(), content);
}

fn copy_files(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let copy = target.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_files(&path, &copy),
            false => assert!(fs::copy(&path, &copy).is_ok()),
        }
    }
}

#[test]
fn a_successor_has_the_ledger() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    let (ledger, recovered) = Ledger::open(Arc::clone(&owner.store), [7; 32]).unwrap();
    assert_eq!(recovered.secret_key, [7; 32]);
    ledger.raise_ceiling(500).unwrap();
    let action = |number: u64| Action { namespace: "n".into(), record: number.to_be_bytes().to_vec() };
    (0..3).for_each(|number| ledger.record(&action(number)).unwrap());
    ledger.set_cursor("bus", 4).unwrap();
    ledger.raise_ceiling(600).unwrap();
    ledger.set_cursor("bus", 5).unwrap();
    drop((owner, ledger));
    let successor = shard.own(there.path());
    let (ledger, recovered) = Ledger::open(Arc::clone(&successor.store), [8; 32]).unwrap();
    assert_eq!((recovered.secret_key, recovered.ceiling), ([7; 32], 600));
    assert_eq!(ledger.actions("n", 9).unwrap(), [action(2), action(1), action(0)]);
    assert_eq!(ledger.cursor("bus").unwrap(), Some(4), "the last one was not sent yet");
    ledger.set_cursor("bus", 6).unwrap();
    successor.store.tend().unwrap();
    drop((successor, ledger));
    let first = shard.own(here.path());
    let (ledger, _) = Ledger::open(Arc::clone(&first.store), [9; 32]).unwrap();
    assert_eq!(ledger.cursor("bus").unwrap(), Some(6), "what was deferred is sent when the store is tended");
    first.content();
}

#[test]
fn a_gap_in_the_log_is_reported() {
    let shard = Shard::new();
    shard.own(folder().path()).put_all(1..=9);
    shard.cluster.sql(&format!(r#"delete from lockwood.log where shard = {} and "index" = 4"#, shard.shard));
    let error = shard.cluster.open("a", shard.shard, folder().path()).map(drop).unwrap_err();
    assert!(error.to_string().contains("no record 4"), "{error}");
}

#[test]
fn a_cache_is_not_opened_without_ownership() {
    let (shard, here) = (Shard::new(), folder());
    let claimed = shard.cluster.claim("a", shard.shard).unwrap();
    shard.cluster.claim("a", shard.shard).unwrap();
    let error = super::open_cache(here.path(), &shard.cluster.link, shard.shard, &of_a(claimed.epoch))
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, CacheError::Fenced { expected: 1, found: 2, .. }), "{error}");
}

#[test]
fn a_follower_follows_and_becomes_the_owner() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    owner.put_all(1..=10);
    Ledger::open(Arc::clone(&owner.store), [7; 32]).unwrap().0.raise_ceiling(70).unwrap();
    let mut follower = Follower::open(there.path(), &shard.cluster.link, shard.shard).unwrap();
    assert_eq!(follower.last(), 10);
    assert_eq!(follower.advance().unwrap(), Advanced::To(10));
    owner.put_all(11..=25);
    assert_eq!(follower.advance().unwrap(), Advanced::To(25));
    owner.put_all(26..=30);
    owner.trim(20);
    owner.put(31);
    assert_eq!(follower.advance().unwrap(), Advanced::To(31), "what was trimmed it has read before");
    assert_eq!(State::new(&*follower.snapshot()).applied().unwrap(), 31);
    owner.put(32);
    let content = owner.content();
    let claimed = shard.cluster.claim("a", shard.shard).unwrap();
    let (store, report) = follower.promote(&shard.cluster.link, &of_a(claimed.epoch)).unwrap();
    assert_eq!((&report.outcome, report.records, report.alert), (&CAUGHT_UP, 1, None));
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    let promoted = Owner { store, log, epoch, report };
    assert_eq!(promoted.content(), content);
    promoted.put(33);
}

#[test]
fn a_follower_that_discards_a_cache_says_what_the_log_has_lost() {
    let (shard, here) = (Shard::new(), folder());
    shard.own(here.path()).put_all(1..=10);
    shard.lose_after(7);
    let follower = Follower::open(here.path(), &shard.cluster.link, shard.shard).unwrap();
    assert_eq!(
        follower.lost(),
        Some(LostRecords::Missing { shard: shard.shard, acknowledged: 10, found: 7 })
    );
    drop(follower);
    let again = Follower::open(here.path(), &shard.cluster.link, shard.shard).unwrap();
    assert_eq!((again.last(), again.lost()), (7, None));
}

#[test]
fn a_follower_of_a_log_that_was_rewritten_or_lost_records_diverges() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    owner.put_all(1..=10);
    let mut follower = Follower::open(there.path(), &shard.cluster.link, shard.shard).unwrap();
    let mut rewritten = Batch::default();
    let nothing = Entry::Kept { namespace: "n".into(), put: Vec::new(), removed: Vec::new() };
    rewritten.put(Space::Log, 3u64.to_be_bytes(), nothing.encode());
    assert!(matches!(owner.log.append(owner.epoch, 10, &rewritten), Appended::Done));
    assert_eq!(follower.advance().unwrap(), Advanced::Diverged);
    drop(follower);
    let mut follower = Follower::open(there.path(), &shard.cluster.link, shard.shard).unwrap();
    assert_eq!(follower.advance().unwrap(), Advanced::To(10));
    drop(owner);
    shard.lose_after(7);
    assert_eq!(follower.advance().unwrap(), Advanced::Diverged);
    let claimed = shard.cluster.claim("a", shard.shard).unwrap();
    let (_, report) = follower.promote(&shard.cluster.link, &of_a(claimed.epoch)).unwrap();
    assert_eq!(report.outcome, CacheOutcome::Rebuilt(Discarded::Ahead));
    assert!(report.alert.is_some());
}

#[test]
fn a_follower_of_a_log_with_other_records_in_the_place_of_its_own_diverges() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    owner.put_all(1..=10);
    let mut follower = Follower::open(there.path(), &shard.cluster.link, shard.shard).unwrap();
    drop(owner);
    // Another owner alone changes nothing.
    drop(shard.own(here.path()));
    assert_eq!(follower.advance().unwrap(), Advanced::To(10));
    shard.lose_after(7);
    shard.own(here.path()).put_all(51..=55);
    assert_eq!(follower.advance().unwrap(), Advanced::Diverged);
}

#[test]
fn a_follower_that_fails_between_two_pages_folds_no_record_twice() {
    let (shard, here, there) = (Shard::new(), folder(), folder());
    let owner = shard.own(here.path());
    let mut follower = Follower::open(there.path(), &shard.cluster.link, shard.shard).unwrap();
    owner.put_all(1..=1_100);
    let number = shard.shard;
    let renumber = |from: i64, to: i64| {
        let (sql, of) =
            (r#"update lockwood.log set "index" ="#, format!(r#"where shard = {number} and "index" ="#));
        shard.cluster.sql(&format!("{sql} {to} {of} {from}"));
    };
    renumber(1_050, 5_000);
    follower.advance().unwrap_err();
    assert_eq!(follower.last(), 1_000);
    renumber(5_000, 1_050);
    assert_eq!(follower.advance().unwrap(), Advanced::To(1_100));
    let content = owner.content();
    drop(owner);
    let claimed = shard.cluster.claim("a", shard.shard).unwrap();
    let (store, report) = follower.promote(&shard.cluster.link, &of_a(claimed.epoch)).unwrap();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    assert_eq!(Owner { store, log, epoch, report }.content(), content);
}
