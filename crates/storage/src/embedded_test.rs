//! Data directories that are damaged, of another format, or in use: each is refused with a sentence that
//! says so, or shows exactly what was written.

use super::{Embedded, OpenError, SEAL};
use crate::{
    Action, Appended, Batch, Durability, Entry, Epoch, Fold, Ledger, LocalLog, Log, Memory, Order, Space,
    State, Store, StoreError, acknowledged::Noted, save_snapshot, seal::Seal, suite::Random, verify,
    with_prefix,
};
use lockwood_model::{
    Change, Commit, Depth, DocumentKey, Event, FieldPath, Json, Key, Lease, LeaseVia, LockId, Mode, Position,
    Resource, Timestamp, Token,
};
use std::{
    collections::BTreeMap,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) type Contents = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

/// A store with something in every space, in tables as well as in the journal.
pub(crate) fn furnish(directory: &Path) {
    fill(directory);
    // Only a journal that was opened again ends where its content does.
    let (ledger, _) = Ledger::open(Arc::new(Embedded::open(directory).unwrap()), [1; 32]).unwrap();
    ledger.record(&Action { namespace: "n".into(), record: b"the last".to_vec() }).unwrap();
    ledger.raise_ceiling(1_000_000).unwrap();
    let len = fs::metadata(journal(directory)).unwrap().len();
    assert!((1000..100_000).contains(&len), "{len}");
}

fn fill(directory: &Path) {
    let store = Arc::new(Embedded::open(directory).unwrap());
    let (ledger, _) = Ledger::open(Arc::clone(&store) as Arc<dyn Store>, [7; 32]).unwrap();
    let log = LocalLog::new(Arc::clone(&store) as Arc<dyn Store>);
    let epoch = log.claim().unwrap().epoch;
    let indexed = Entry::Indexed {
        namespace: "n".into(),
        collection: "c".into(),
        field: FieldPath::name("f"),
        wanted: true,
    };
    take(&*store, &log, epoch, 1, &indexed);
    for index in 2..30 {
        let entry =
            if index == 11 { Entry::Trimmed { to: 8 } } else { committed(index - 1 - u64::from(index > 11)) };
        take(&*store, &log, epoch, index, &entry);
        ledger.raise_ceiling(index * 1000).unwrap();
        if index % 5 == 0 {
            let record = format!("at {index}").into_bytes();
            ledger.record(&Action { namespace: "n".into(), record }).unwrap();
        }
        match index {
            12 => {
                save_snapshot(&*store.snapshot(), &*store).unwrap();
                assert!(matches!(log.trim(epoch, 8), Appended::Done));
            }
            15 => {
                flush(
                    &store,
                    &[Space::Numbers, Space::Actions, Space::Log, Space::Snapshots, Space::History],
                );
            }
            22 => flush(&store, &[Space::Numbers, Space::Log, Space::Documents]),
            _ => {}
        }
    }
    take(&*store, &log, epoch, 30, &leased());
    take(&*store, &log, epoch, 31, &crate::suite::moving::arrived());
}

fn leased() -> Entry {
    let lease = Lease {
        lock: LockId(1),
        token: Token(1),
        owner: "p".into(),
        via: LeaseVia::Native,
        resources: vec![Resource::new(
            lockwood_model::Path::from_segments(["c"]),
            Mode::Write,
            Depth::SUBTREE,
        )],
        granted_at: Timestamp(1),
        expires_at: Some(Timestamp(2)),
        ttl_ms: None,
        note: None,
        version: 1,
    };
    Entry::Leased { namespace: "n".into(), lease }
}

/// From memory to tables.
fn flush(store: &Embedded, spaces: &[Space]) {
    spaces.iter().for_each(|space| store.space(*space).rotate_memtable_and_wait().unwrap());
}

pub(crate) fn take(store: &dyn Store, log: &dyn Log, epoch: Epoch, index: u64, entry: &Entry) {
    let snapshot = store.snapshot();
    let mut fold = Fold::new(&*snapshot, index);
    fold.apply(entry).unwrap();
    let mut batch = fold.finish(entry).unwrap();
    if matches!(entry, Entry::Indexed { .. }) {
        let mut ready = Batch::default();
        let view = crate::Overlay { below: &*snapshot, above: &batch };
        let state = State::new(&view);
        let namespace = state.namespace("n").unwrap().unwrap();
        state.finish_index(&mut ready, (namespace, "c"), &FieldPath::name("f")).unwrap();
        batch.absorb(ready);
    }
    assert!(matches!(log.append(epoch, index - 1, &batch), Appended::Done));
}

pub(crate) fn committed(position: u64) -> Entry {
    let at = DocumentKey::new("c", Key::number((position % 4) as i64));
    let fields = vec![("f".into(), Json::trusted(&position.to_string()))];
    let change = match position {
        0..4 => Change::Created { fields },
        _ => Change::Updated { set: fields, removed: Vec::new() },
    };
    let commit = Commit {
        position: Position(position),
        at: Timestamp(position),
        user: None,
        note: None,
        events: vec![Event { at, change }],
        purged: None,
    };
    let answer = crate::Answer { key: format!("call {position}").into(), fingerprint: [1; 16] };
    Entry::Committed { namespace: "n".into(), commits: vec![commit], answer: Some(answer) }
}

/// Opens the store and looks at all there is.
pub(crate) fn read_everything(directory: &Path) -> Result<Contents, String> {
    let store = Arc::new(Embedded::open(directory).map_err(|error| format!("open: {error}"))?);
    let text = |error: crate::StoreError| error.to_string();
    let snapshot = store.snapshot();
    let mut contents = Contents::new();
    for space in Space::ALL {
        for pair in snapshot.scan(*space, with_prefix(b""), Order::Forward) {
            let (key, value) = pair.map_err(text)?;
            let found = snapshot.get(*space, &key).map_err(text)?;
            assert_eq!(found.as_deref(), Some(&*value), "a scan and a look agree");
            contents.insert((*space, key.to_vec()), value.to_vec());
        }
    }
    let differences = verify(&*snapshot, &Memory::default(), &mut |_, _| {}).map_err(text)?;
    if !differences.is_empty() {
        return Err(format!("verify: {differences:?}"));
    }
    drop(snapshot);
    let (ledger, _) = Ledger::open(Arc::clone(&store) as Arc<dyn Store>, [1; 32]).map_err(text)?;
    ledger.actions("n", 100).map_err(text)?;
    let applied = State::new(&*store.snapshot()).applied().map_err(text)?;
    let last = LocalLog::new(store).claim().map_err(text)?.last;
    if applied != last {
        return Err(format!("the state is at {applied}, the log at {last}"));
    }
    Ok(contents)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

pub(crate) fn copy(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let to = target.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Gone,
}

fn damage(path: &Path, damage: Damage) {
    let mut bytes = fs::read(path).unwrap();
    match damage {
        Damage::Flip(offset, bit) => bytes[offset] ^= bit,
        Damage::Cut(len) => bytes.truncate(len),
        Damage::Gone => return fs::remove_file(path).unwrap(),
    }
    fs::write(path, bytes).unwrap();
}

/// Damages one file of a copy and looks at it.
fn damaged(source: &Path, file: &Path, how: Damage) -> Result<Contents, String> {
    let directory = tempfile::tempdir().unwrap();
    copy(source, directory.path());
    damage(&directory.path().join(file), how);
    catch_unwind(|| read_everything(directory.path()))
        .unwrap_or_else(|_| panic!("{} {how:?} made it panic", file.display()))
}

/// A few kinds of damage at a few places, more of them in the journal.
fn cases(file: &Path, len: usize, random: &mut Random) -> Vec<Damage> {
    if len == 0 {
        return vec![Damage::Gone];
    }
    let place = |random: &mut Random| random.below(len as u64) as usize;
    let many = if file.extension().is_some_and(|end| end == "jnl") { 100 } else { 1 };
    let flips = (0..many).map(|_| Damage::Flip(place(random), random.below(255) as u8 + 1));
    let mut cases: Vec<Damage> = flips.collect();
    for _ in 0..many / 6 {
        cases.push(Damage::Cut(place(random)));
    }
    let last = [Damage::Gone, Damage::Cut(0), Damage::Cut(len - 1), Damage::Cut(len / 2)];
    cases.push(last[random.below(4) as usize]);
    cases
}

#[test]
fn a_damaged_file_is_reported_or_does_not_matter() {
    let setting = |name, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first: u64 = setting("LOCKWOOD_MODEL_SEED", 0);
    let source = tempfile::tempdir().unwrap();
    furnish(source.path());
    let expected = expected(source.path());
    let mut reported = 0;
    for seed in first..first + setting("LOCKWOOD_MODEL_HISTORIES", 1) {
        let mut random = Random::new(seed);
        for path in files(source.path()) {
            let file = path.strip_prefix(source.path()).unwrap();
            let len = fs::metadata(&path).unwrap().len() as usize;
            for case in cases(file, len, &mut random) {
                match damaged(source.path(), file, case) {
                    Err(error) => {
                        assert!(
                            !error.contains("it must be a directory"),
                            "{} {case:?}: {error}",
                            file.display()
                        );
                        reported += 1;
                    }
                    Ok(found) => assert!(
                        found == expected,
                        "{} {case:?} was not noticed; LOCKWOOD_MODEL_SEED={seed}",
                        file.display()
                    ),
                }
            }
        }
    }
    assert!(reported > 50, "{reported}");
}

/// What is in a sound directory, which stays as it is.
pub(crate) fn expected(source: &Path) -> Contents {
    let directory = tempfile::tempdir().unwrap();
    copy(source, directory.path());
    let contents = read_everything(directory.path()).unwrap();
    for space in Space::ALL.iter().filter(|space| **space != Space::Cache) {
        assert!(contents.keys().any(|(found, _)| found == space), "{space:?} has something in it");
    }
    contents
}

pub(crate) fn journal(source: &Path) -> PathBuf {
    let journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "jnl");
    files(source).into_iter().rfind(journal).unwrap()
}

/// The last things written were not records of the log, so the log alone does not tell.
#[test]
fn a_journal_that_lost_its_end_is_reported() {
    let source = tempfile::tempdir().unwrap();
    furnish(source.path());
    let journal = journal(source.path());
    let len = fs::metadata(&journal).unwrap().len() as usize;
    let file = journal.strip_prefix(source.path()).unwrap();
    for lost in (1..300).step_by(13) {
        let error = damaged(source.path(), file, Damage::Cut(len - lost)).unwrap_err();
        assert!(error.contains("with commit") && error.contains("was acknowledged"), "{lost} {error}");
    }
}

/// The engine opens it without a word, so only the seal can tell.
#[test]
fn a_number_that_went_back_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    {
        let database = fjall::Database::builder(directory.path()).open().unwrap();
        let numbers = database.keyspace("numbers", fjall::KeyspaceCreateOptions::default).unwrap();
        let seals = database.keyspace("seal", fjall::KeyspaceCreateOptions::default).unwrap();
        let seal = crate::seal::Seal::read(&seals.get("seal").unwrap().unwrap()).unwrap();
        let mut batch = database.batch();
        batch.insert(&numbers, "ceiling", 999_999u64.to_be_bytes());
        let next = crate::seal::Seal { commits: seal.commits + 1, ..seal };
        batch.insert(&seals, "seal", next.to_bytes());
        batch.commit().unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let error = Embedded::open(directory.path()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    assert!(error.to_string().contains("what the server knows of itself is damaged"), "{error}");
}

#[test]
fn every_damaged_byte_of_a_list_of_tables_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_list = |path: &PathBuf| name(path) == "current" || name(path).starts_with('v');
    let lists: Vec<PathBuf> =
        files(&directory.path().join("keyspaces")).into_iter().filter(is_list).collect();
    assert!(lists.len() > 2 * Space::ALL.len(), "each space has a list and says which");
    let first = lists[0].clone();
    for list in lists {
        let bytes = fs::read(&list).unwrap();
        for offset in 0..bytes.len() {
            damage(&list, Damage::Flip(offset, 0x40));
            assert!(!crate::tables::is_sound(list.parent().unwrap()).unwrap(), "{} {offset}", list.display());
            fs::write(&list, &bytes).unwrap();
        }
        assert!(crate::tables::is_sound(list.parent().unwrap()).unwrap());
    }
    damage(&first, Damage::Flip(20, 0x40));
    let error = Embedded::open(directory.path()).map(drop).unwrap_err();
    assert!(error.to_string().contains("the list of tables in"), "{error}");
    damage(&first, Damage::Flip(20, 0x40));
    Embedded::open(directory.path()).unwrap();
}

#[test]
fn an_emptied_table_is_named() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let is_table = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with("tables"));
    let tables: Vec<PathBuf> = files(directory.path()).into_iter().filter(is_table).collect();
    fs::write(&tables[0], "").unwrap();
    let error = Embedded::open(directory.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("the table {}", tables[0].display())), "{error}");
}

#[test]
fn a_write_that_the_power_loss_cut_short_is_no_damage() {
    let source = tempfile::tempdir().unwrap();
    furnish(source.path());
    let before = expected(source.path());
    let (journal, acknowledged) = (journal(source.path()), source.path().join("acknowledged"));
    let (len, old) = (fs::metadata(&journal).unwrap().len(), fs::read(&acknowledged).unwrap());
    {
        let store = Arc::new(Embedded::open(source.path()).unwrap());
        let (ledger, _) = Ledger::open(store, [1; 32]).unwrap();
        ledger.raise_ceiling(2_000_000).unwrap();
    }
    fs::write(&acknowledged, old).unwrap();
    let end = fs::metadata(&journal).unwrap().len();
    let file = journal.strip_prefix(source.path()).unwrap();
    for cut in (len..end).step_by(13) {
        let found = damaged(source.path(), file, Damage::Cut(cut as usize)).unwrap();
        assert_eq!(found, before, "cut at {cut}");
    }
}

#[test]
fn a_newer_format_is_refused_with_a_clear_sentence_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(directory.path()).unwrap();
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", (super::FORMAT + 1).to_be_bytes());
        store.commit(&batch, Durability::Synced).unwrap();
    }
    for _ in 0..2 {
        let error = Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Format { found } if found == super::FORMAT + 1), "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains("has format 6, this version reads format 5"), "{sentence}");
        assert!(sentence.contains("use the version that wrote it"), "{sentence}");
    }
}

/// What a version that wrote `format` leaves behind: up to format 1 the ledger alone, up to format 2 a seal without the
/// number of its commit.
fn furnish_as_of_format(directory: &Path, format: u64) {
    let database = fjall::Database::builder(directory).open().unwrap();
    let options = fjall::KeyspaceCreateOptions::default;
    let numbers = database.keyspace("numbers", options).unwrap();
    database.keyspace("actions", options).unwrap();
    let mut seal = Seal { commits: 7, ..Seal::default() };
    let values: [(&str, &[u8]); 3] =
        [("format", &format.to_be_bytes()), ("secret_key", &[9; 32]), ("ceiling", &5000u64.to_be_bytes())];
    for (key, value) in values {
        numbers.insert(key, value).unwrap();
        seal.add(Space::Numbers, key.as_bytes(), value);
    }
    if format > 1 {
        database.keyspace(SEAL, options).unwrap().insert(SEAL, &seal.to_bytes()[..16]).unwrap();
        fs::write(directory.join("acknowledged"), [0u64, 7].map(u64::to_be_bytes).concat()).unwrap();
    }
    database.persist(fjall::PersistMode::SyncAll).unwrap();
}

#[test]
fn a_directory_of_an_older_format_still_opens() {
    for format in 1..=2 {
        let directory = tempfile::tempdir().unwrap();
        furnish_as_of_format(directory.path(), format);
        for _ in 0..2 {
            let store = Arc::new(Embedded::open(directory.path()).unwrap());
            let (_, recovered) = Ledger::open(Arc::clone(&store) as Arc<dyn Store>, [1; 32]).unwrap();
            assert_eq!((recovered.ceiling, recovered.secret_key), (5000, [9; 32]));
            let format = store.snapshot().get(Space::Numbers, b"format").unwrap().unwrap();
            assert_eq!(*format, super::FORMAT.to_be_bytes());
            assert_eq!(LocalLog::new(store).claim().unwrap().last, 0);
        }
        assert!(Noted::read(directory.path()).unwrap().unwrap().is_checked, "format {format}");
    }
}

/// Format 3 had everything but the digest in the file `acknowledged`.
#[test]
fn a_directory_of_format_3_gets_its_digest_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let before = expected(directory.path());
    {
        let store = Embedded::open(directory.path()).unwrap();
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", 3u64.to_be_bytes());
        store.commit(&batch, Durability::Synced).unwrap();
    }
    let acknowledged = directory.path().join("acknowledged");
    let noted = fs::read(&acknowledged).unwrap();
    fs::write(&acknowledged, &noted[..24]).unwrap();
    assert_eq!(read_everything(directory.path()).unwrap(), before);
    assert_eq!(fs::metadata(&acknowledged).unwrap().len(), 32);
}

/// Up to format 4 a lease had its end, and no record of how long it lasts from one renewal to the next.
#[test]
fn a_directory_of_format_4_opens_with_leases_that_have_no_duration() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    {
        let store = Arc::new(Embedded::open(directory.path()).unwrap());
        let log = LocalLog::new(Arc::clone(&store) as Arc<dyn Store>);
        let epoch = log.claim().unwrap().epoch;
        take(&*store, &log, epoch, 32, &renewed(Timestamp(3), None));
    }
    let before = expected(directory.path());
    {
        let store = Embedded::open(directory.path()).unwrap();
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", 4u64.to_be_bytes());
        store.commit(&batch, Durability::Synced).unwrap();
    }
    let Entry::Leased { lease, .. } = leased() else { unreachable!("it is a lease") };
    let old = Lease { expires_at: Some(Timestamp(3)), ..lease };
    for _ in 0..2 {
        let store = Embedded::open(directory.path()).unwrap();
        let format = store.snapshot().get(Space::Numbers, b"format").unwrap().unwrap();
        assert_eq!(*format, super::FORMAT.to_be_bytes());
        let leases = State::new(&*store.snapshot()).leases().unwrap();
        assert!(leases.contains(&("n".into(), old.clone())), "{leases:?}");
    }
    assert_eq!(read_everything(directory.path()).unwrap(), before);
    let store = Arc::new(Embedded::open(directory.path()).unwrap());
    let log = LocalLog::new(Arc::clone(&store) as Arc<dyn Store>);
    let epoch = log.claim().unwrap().epoch;
    take(&*store, &log, epoch, 33, &renewed(Timestamp(4), Some(60_000)));
    let leases = State::new(&*store.snapshot()).leases().unwrap();
    let new = Lease { expires_at: Some(Timestamp(4)), ttl_ms: Some(60_000), ..old };
    assert!(leases.contains(&("n".into(), new)), "{leases:?}");
}

fn renewed(expires_at: Timestamp, ttl_ms: Option<u64>) -> Entry {
    Entry::LeaseRenewed { namespace: "n".into(), lock: LockId(1), expires_at: Some(expires_at), ttl_ms }
}

/// Without it, nothing would show that the newest of what was acknowledged is missing.
#[test]
fn a_damaged_note_of_what_was_acknowledged_is_reported() {
    let source = tempfile::tempdir().unwrap();
    furnish(source.path());
    let whole = fs::read(source.path().join("acknowledged")).unwrap();
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    });
    let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
    for bytes in flipped.chain(cut).chain([vec![0; whole.len()]]) {
        let directory = tempfile::tempdir().unwrap();
        copy(source.path(), directory.path());
        fs::write(directory.path().join("acknowledged"), &bytes).unwrap();
        let error = Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "{bytes:?}: {error}");
        assert!(error.to_string().contains("the file \"acknowledged\""), "{bytes:?}: {error}");
    }
}

#[test]
fn what_a_killed_comparison_left_behind_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    fs::create_dir(directory.path().join("verify")).unwrap();
    fs::write(directory.path().join("verify/0.jnl"), "unfinished").unwrap();
    Embedded::open(directory.path()).unwrap();
    assert!(!directory.path().join("verify").exists());
}

#[test]
fn a_directory_with_nothing_in_it_is_not_made_a_store_by_whoever_looks() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("absent")] {
        let error = Embedded::open_existing(&path).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NotThere), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The engine makes its files one after the other, and would not go on where it was killed.
#[test]
fn a_directory_whose_making_was_killed_is_made_again() {
    for files in [&[][..], &["lock"], &["lock", "0.jnl"], &["lock", "0.jnl", "version"]] {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("keyspaces")).unwrap();
        files.iter().for_each(|name| fs::write(directory.path().join(name), "").unwrap());
        let error = Embedded::open_existing(directory.path()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NotThere), "{files:?}: {error}");
        Embedded::open(directory.path()).unwrap_or_else(|error| panic!("{files:?}: {error}"));
        Embedded::open(directory.path()).unwrap();
    }
}

/// Even if nothing is left that says so.
#[test]
fn a_store_without_its_version_is_not_made_anew() {
    for version in [None, Some("")] {
        let directory = tempfile::tempdir().unwrap();
        furnish(directory.path());
        fs::remove_file(directory.path().join("acknowledged")).unwrap();
        fs::remove_file(directory.path().join("version")).unwrap();
        version.iter().for_each(|text| fs::write(directory.path().join("version"), text).unwrap());
        let error = Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(error.to_string().contains("the file \"version\", which is missing,"), "{error}");
        fs::remove_dir_all(directory.path().join("keyspaces")).unwrap();
        let error = Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "its journal is left: {error}");
    }
}

#[test]
fn a_missing_file_of_the_directory_is_reported() {
    let source = tempfile::tempdir().unwrap();
    furnish(source.path());
    for name in ["version", "acknowledged", "0.jnl"] {
        let error = damaged(source.path(), Path::new(name), Damage::Gone).unwrap_err();
        assert!(error.contains("is damaged"), "{name}: {error}");
    }
    let spaces = fs::read_dir(source.path().join("keyspaces")).unwrap().map(|entry| entry.unwrap().path());
    for space in spaces {
        let directory = tempfile::tempdir().unwrap();
        copy(source.path(), directory.path());
        fs::remove_dir_all(directory.path().join(space.strip_prefix(source.path()).unwrap())).unwrap();
        let error = Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged(_) | OpenError::Engine(_)),
            "{}: {error}",
            space.display()
        );
    }
}

#[test]
fn a_directory_that_is_deleted_or_replaced_takes_no_more_commits() {
    let mut batch = Batch::default();
    batch.put(Space::Numbers, "n", 1u64.to_be_bytes());
    let check = |change: &dyn Fn(&Path), tend: bool| {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("data");
        let store = Embedded::open(&directory).unwrap();
        store.commit(&batch, Durability::Synced).unwrap();
        store.tend().unwrap();
        change(&directory);
        let error = if tend { store.tend() } else { store.commit(&batch, Durability::Synced) }.unwrap_err();
        assert!(error.to_string().contains("was deleted or replaced"), "{error}");
        assert!(store.is_poisoned());
        let error = store.commit(&batch, Durability::Buffered).unwrap_err();
        assert!(matches!(error, StoreError::Gone { .. }), "it stays so: {error}");
    };
    let delete = |directory: &Path| fs::remove_dir_all(directory).unwrap();
    let delete_journals = |directory: &Path| fs::remove_file(journal(directory)).unwrap();
    let replace = |directory: &Path| {
        fs::rename(directory, directory.with_extension("old")).unwrap();
        copy(&directory.with_extension("old"), directory);
    };
    let changes: [&dyn Fn(&Path); 3] = [&delete, &delete_journals, &replace];
    for change in changes {
        check(change, false);
        check(change, true);
    }
}

/// `LOCKWOOD_START_DOCUMENTS=1000000` says how long a start with as many takes.
#[test]
fn every_record_is_checked_before_anything_is_served() {
    let documents = std::env::var("LOCKWOOD_START_DOCUMENTS");
    let documents: u64 = documents.map_or(2500, |text| text.parse().expect("a number"));
    let directory = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(directory.path()).unwrap();
        let mut last = 0;
        while last < documents {
            let snapshot = store.snapshot();
            let mut batch = Batch::default();
            for index in last + 1..=(last + 1000).min(documents) {
                let entry = created(index);
                let view = crate::Overlay { below: &*snapshot, above: &batch };
                let mut fold = Fold::new(&view, index);
                fold.apply(&entry).unwrap();
                let changes = fold.finish(&entry).unwrap();
                batch.absorb(changes);
                last = index;
            }
            store.commit(&batch, Durability::Synced).unwrap();
        }
    }
    let started = cpu_time();
    let inspected = super::inspect(directory.path()).map(drop);
    let read_journals = cpu_time() - started;
    inspected.unwrap();
    let started = (cpu_time(), std::time::Instant::now());
    let store = Embedded::open(directory.path()).unwrap();
    let opened = (cpu_time() - started.0, started.1.elapsed());
    let started = cpu_time();
    store.check_log(&super::Noted::default()).unwrap();
    eprintln!(
        "opened with {documents} documents, one record each, in {:?}; of the processor: {:?}, the journals {read_journals:?}, \
         the log {:?}",
        opened.1,
        opened.0,
        cpu_time() - started,
    );
    for (record, gap) in [(Some(b"not this".to_vec()), "the record 1200 of the log"), (None, "after 1199")] {
        let mut batch = Batch::default();
        match record {
            Some(record) => batch.put(Space::Log, 1200u64.to_be_bytes(), record),
            None => batch.remove(Space::Log, 1200u64.to_be_bytes()),
        }
        store.commit(&batch, Durability::Synced).unwrap();
        let error = store.check_log(&super::Noted::default()).unwrap_err();
        assert!(error.to_string().contains(gap), "{error}");
    }
}

/// What this thread took of the processor so far.
fn cpu_time() -> std::time::Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu = statistics.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok());
    std::time::Duration::from_nanos(on_cpu.unwrap_or_default())
}

fn created(position: u64) -> Entry {
    let at = DocumentKey::new("c", Key::number(position as i64));
    let fields = ["name", "mail", "city", "note"];
    let value = |name| Json::trusted(&format!("\"{name} of document {position}, of some length\""));
    let fields = fields.into_iter().map(|name| (name.into(), value(name))).collect();
    let events = vec![Event { at, change: Change::Created { fields } }];
    let (at, position) = (Timestamp(position), Position(position));
    let commit = Commit { position, at, user: None, note: None, events, purged: None };
    Entry::Committed { namespace: "n".into(), commits: vec![commit], answer: None }
}

#[test]
fn a_directory_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path()).unwrap();
    let error = Embedded::open(directory.path()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::InUse), "{error}");
    assert!(error.to_string().contains("another server is using it"), "{error}");
    drop(store);
    Embedded::open(directory.path()).unwrap();
}

#[test]
fn after_a_failed_commit_there_are_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Embedded::open(directory.path()).unwrap();
    store.acknowledged.make_read_only();
    let mut batch = Batch::default();
    batch.put(Space::Log, 1u64.to_be_bytes(), "record");
    let error = store.commit(&batch, Durability::Synced).unwrap_err();
    assert!(error.to_string().contains("acknowledged"), "{error}");
    assert!(store.is_poisoned());
    let error = store.commit(&Batch::default(), Durability::Buffered).unwrap_err();
    assert!(matches!(error, StoreError::Poisoned), "{error}");
}
