//! Purges of random histories: the log leads to the state after every single step, and has nothing of what was purged in
//! the end. Knows nothing of files.

use super::{
    Machine, Random, for_seeds,
    model::{COLLECTIONS, Model, NAMESPACES, random_entry},
};
use crate::{
    Appended, Entry, Epoch, Erasure, Fold, LocalLog, Log, Memory, State, Store, has_snapshot_before,
    save_snapshot, verify,
};
use lockwood_model::{Commit, DocumentKey, Json, Position, Purged, Timestamp};
use std::sync::Arc;

/// A store with a log, and what a purge of it does.
struct Run {
    store: Arc<dyn Store>,
    log: LocalLog,
    epoch: Epoch,
}

impl Run {
    fn new(machine: &dyn Machine) -> Run {
        let store = machine.store();
        let log = LocalLog::new(Arc::clone(&store));
        let epoch = log.claim().unwrap().epoch;
        Run { store, log, epoch }
    }

    fn look<T>(&self, question: impl FnOnce(State<'_>) -> T) -> T {
        question(State::new(&*self.store.snapshot()))
    }

    fn take(&self, entry: &Entry) -> u64 {
        let snapshot = self.store.snapshot();
        let index = State::new(&*snapshot).applied().unwrap() + 1;
        let mut fold = Fold::new(&*snapshot, index);
        fold.apply(entry).unwrap();
        let appended = self.log.append(self.epoch, index - 1, &fold.finish(entry).unwrap());
        assert!(matches!(appended, Appended::Done), "{appended:?}");
        index
    }

    #[track_caller]
    fn check(&self) {
        let differences = verify(&*self.store.snapshot(), &Memory::default(), &mut |_, _| {}).unwrap();
        assert_eq!(differences, []);
    }

    fn begin(&self, namespace: &str, purged: Purged, documents: Vec<DocumentKey>) -> u64 {
        let (position, next) = self.look(|state| {
            let id = state.namespace(namespace).unwrap().unwrap();
            let next = purged.collection().map_or(0, |collection| state.next_id(id, collection).unwrap());
            (state.position(id).unwrap().next(), next)
        });
        let next = if documents.is_empty() || next == 1 { 0 } else { next };
        let (user, events) = (Some(Json::trusted("7")), Vec::new());
        let commit = Commit { position, at: Timestamp(9), user, note: None, events, purged: Some(purged) };
        self.take(&Entry::Purged { namespace: namespace.into(), commit, documents, next, pending: true })
    }

    /// One record at a time, each checked.
    fn erase(&self, purge: u64, from: u64, to: u64) {
        for index in from..=to {
            let step = self.look(|state| {
                let erasure = Erasure::of(&state, purge).unwrap().unwrap();
                erasure.step(&state, index - 1, index).unwrap()
            });
            if !step.batch.is_empty() {
                let last = self.look(|state| state.applied().unwrap());
                let appended = self.log.append(self.epoch, last, &step.batch);
                assert!(matches!(appended, Appended::Done), "{appended:?}");
                self.check();
            }
        }
    }

    /// Does a whole purge; gives the last record that it erased.
    fn purge(&self, namespace: &str, purged: Purged, documents: Vec<DocumentKey>) -> u64 {
        let (named, whole) = (documents.clone(), purged.clone());
        let is_purged = |at: &DocumentKey| match &whole {
            Purged::Documents { .. } => named.contains(at),
            Purged::Collection { collection } => at.collection == *collection,
            Purged::Namespace => true,
        };
        let purge = self.begin(namespace, purged.clone(), documents);
        self.check();
        let erasure = self.look(|state| Erasure::of(&state, purge).unwrap().unwrap());
        loop {
            let documents = self.look(|state| erasure.some_documents(&state, None, 3).unwrap());
            if documents.is_empty() {
                break;
            }
            self.take(&Entry::Forgotten { namespace: namespace.into(), documents });
            self.check();
        }
        let mut after = 0;
        while after < purge {
            let (keys, last) = self.look(|state| erasure.answers(&state, after, purge).unwrap());
            after = last;
            self.take(&Entry::Unanswered { namespace: namespace.into(), keys, purge });
            self.check();
        }
        while let Some(clearing) = self.look(|state| erasure.next_clearing(&state).unwrap()) {
            let Entry::Cleared { namespace, .. } = clearing else { unreachable!("{clearing:?}") };
            self.take(&Entry::Cleared { namespace, len: 3 });
            self.check();
        }
        let last = self.take(&Entry::Dropped { namespace: namespace.into(), purged, purge });
        self.check();
        assert_eq!(self.shown(namespace, is_purged), [0; 0], "the log still has it, and nobody is shown it");
        self.erase(purge, 1, purge - 1);
        if has_snapshot_before(&*self.store.snapshot(), last).unwrap() {
            save_snapshot(&*self.store.snapshot(), &*self.store).unwrap();
            self.check();
        }
        self.erase(purge, purge, last);
        assert_eq!(self.look(|state| state.purging().unwrap()), [(purge, last)]);
        self.take(&Entry::PurgeEnded { purge });
        assert_eq!(self.look(|state| state.purging().unwrap()), []);
        self.check();
        last
    }

    /// The positions at which a feed shows something of such a document.
    fn shown(&self, namespace: &str, is_purged: impl Fn(&DocumentKey) -> bool) -> Vec<u64> {
        self.look(|state| {
            let Some(id) = state.namespace(namespace).unwrap() else { return Vec::new() };
            let commits = state.commits(id, Position(1), None).map(|found| found.unwrap().commit);
            let showing = commits.filter(|commit| commit.events.iter().any(|event| is_purged(&event.at)));
            showing.map(|commit| commit.position.0).collect()
        })
    }

    /// Every record up to `last` that says something of such a document.
    fn telling(&self, namespace: &str, last: u64, is_purged: impl Fn(&DocumentKey) -> bool) -> Vec<u64> {
        (1..=last)
            .filter(|index| {
                let entry = self.look(|state| state.entry(*index).unwrap().unwrap());
                entry.namespace() == Some(namespace) && named(&entry).iter().any(|at| is_purged(at))
            })
            .collect()
    }
}

/// The documents that a record names.
fn named(entry: &Entry) -> Vec<&DocumentKey> {
    match entry {
        Entry::Committed { commits, .. } => {
            commits.iter().flat_map(|commit| &commit.events).map(|event| &event.at).collect()
        }
        Entry::Kept { put, removed, .. } => put.iter().map(|(at, _)| at).chain(removed).collect(),
        Entry::Merged { at, .. } => vec![at],
        Entry::Loaded { documents, .. } => documents.iter().map(|(at, _)| at).collect(),
        Entry::Installed { documents, .. } => documents.iter().map(|moved| &moved.at).collect(),
        Entry::Forgotten { documents, .. }
        | Entry::Unmarked { documents, .. }
        | Entry::Purged { documents, .. } => documents.iter().collect(),
        _ => Vec::new(),
    }
}

/// Calls have keys of their own, as the shard sees to it.
fn random_record(model: &Model, random: &mut Random) -> Entry {
    let mut entry = random_entry(model, random);
    if let Entry::Committed { answer: Some(answer), .. } = &mut entry {
        answer.key = format!("call {}", model.index).into();
    }
    entry
}

pub(super) fn the_log_leads_to_the_state_after_every_step_of_a_purge(machine: &mut dyn Machine) {
    for_seeds(machine, |machine, mut random| {
        let run = Run::new(machine);
        for namespace in NAMESPACES {
            run.take(&Entry::Emptied { namespace: namespace.into() });
        }
        for round in 0..3 {
            let mut model = Model::default();
            for namespace in NAMESPACES {
                run.take(&Entry::Emptied { namespace: namespace.into() });
            }
            model.index = run.look(|state| state.applied().unwrap());
            model.trimmed = run.look(|state| state.trimmed().unwrap());
            for _ in 0..60 {
                let entry = random_record(&model, &mut random);
                run.take(&entry);
                model.apply(&entry);
            }
            if random.one_in(2) {
                save_snapshot(&*run.store.snapshot(), &*run.store).unwrap();
            }
            let Some(id) = run.look(|state| state.namespace("n").unwrap()) else { continue };
            let collection = *random.pick(&[&COLLECTIONS[0], &COLLECTIONS[1], &COLLECTIONS[2]]);
            let mut documents =
                run.look(|state| state.some_documents(id, Some(collection), None, 9).unwrap());
            match round {
                0 if !documents.is_empty() => {
                    documents.truncate(1 + random.below(documents.len() as u64) as usize);
                    let count = documents.len() as u64;
                    let purged = Purged::Documents { collection: collection.into(), count };
                    let last = run.purge("n", purged, documents.clone());
                    assert_eq!(run.telling("n", last, |at| documents.contains(at)), [0; 0]);
                }
                0 | 1 => {
                    let last = run.purge("n", Purged::Collection { collection: collection.into() }, vec![]);
                    assert_eq!(run.telling("n", last, |at| *at.collection == *collection), [0; 0]);
                }
                _ => {
                    let before = run.look(|state| state.position(id).unwrap());
                    let last = run.purge("n", Purged::Namespace, vec![]);
                    assert_eq!(run.telling("n", last, |_| true), [0; 0]);
                    assert_eq!(run.look(|state| state.namespace("n").unwrap()), None);
                    assert_eq!(run.look(|state| state.past("n").unwrap()), before.next());
                    run.take(&Entry::Reserved { namespace: "n".into(), collection: "c".into(), next: 2 });
                    let again = run.look(|state| state.namespace("n").unwrap().unwrap());
                    assert_eq!(run.look(|state| state.position(again).unwrap()), before.next());
                    run.check();
                }
            }
        }
    });
}
