//! Documents that leave one store and arrive in another, with all that is known of them: random histories, moved,
//! and asked at both ends.

use super::{
    Machine, Random, for_seeds,
    model::{COLLECTIONS, Model, random_entry},
};
use crate::{
    Durability, Entry, Fold, Memory, NamespaceId, Order, Space, State, Store, rebuild, verify, with_prefix,
};
use lockwood_model::{Change, Commit, DocumentKey, Event, Json, Position, Timestamp};

const STEPS: u64 = 120;
const TRANSITION: u64 = 7;
/// Where [`arrived`] puts its documents.
pub(super) const ARRIVED: &str = "arrived";

/// A store that takes in records one after the other.
#[derive(Default)]
struct End {
    store: Memory,
    index: u64,
}

impl End {
    fn take(&mut self, entry: &Entry) {
        self.index += 1;
        let snapshot = self.store.snapshot();
        let mut fold = Fold::new(&*snapshot, self.index);
        fold.apply(entry).unwrap();
        self.store.commit(&fold.finish(entry).unwrap(), Durability::Synced).unwrap();
    }

    fn keys(&self, name: &str) -> Vec<DocumentKey> {
        let snapshot = self.store.snapshot();
        let state = State::new(&*snapshot);
        let Some(id) = state.namespace(name).unwrap() else { return Vec::new() };
        let documents = |collection| state.documents(id, collection, None, Order::Forward);
        COLLECTIONS.into_iter().flat_map(documents).map(|found| found.unwrap().0).collect()
    }
}

pub(super) fn what_moves_keeps_its_past(machine: &mut dyn Machine) {
    for_seeds(machine, |_, mut random| {
        let mut donor = End::default();
        let mut model = Model::default();
        for _ in 0..STEPS {
            let entry = random_entry(&model, &mut random);
            // What is forgotten cannot be compared.
            if !matches!(entry, Entry::Trimmed { .. }) {
                donor.take(&entry);
                model.apply(&entry);
            }
        }
        let mut owner = End::default();
        for name in super::model::NAMESPACES {
            moves(&donor, &mut owner, name, &mut random);
        }
        let snapshot = owner.store.snapshot();
        assert_eq!(verify(&*snapshot, &Memory::default(), &mut |_, _| {}).unwrap(), []);
        rebuild(&*snapshot, &Memory::default(), &mut |_, _| {}).unwrap();
    });
}

/// Moves every document of a namespace, a few at a time, compares both ends, and takes everything away again.
fn moves(donor: &End, owner: &mut End, name: &str, random: &mut Random) {
    let keys = donor.keys(name);
    let source = donor.store.snapshot();
    let there = State::new(&*source);
    let Some(id) = there.namespace(name).unwrap() else { return };
    for some in keys.chunks(1 + random.below(5) as usize) {
        let documents = there.export(id, some).unwrap();
        let horizon = there.horizon(id).unwrap();
        let entry = Entry::Installed { namespace: name.into(), transition: TRANSITION, horizon, documents };
        // As it comes over the wire.
        owner.take(&Entry::decode(1, &entry.encode()).unwrap());
    }
    assert_eq!(owner.keys(name), keys);
    let target = owner.store.snapshot();
    let here = State::new(&*target);
    if let Some(here_id) = here.namespace(name).unwrap() {
        keys.iter().for_each(|at| same((there, id), (here, here_id), at));
        owner.take(&Entry::Forgotten { namespace: name.into(), documents: keys });
        let left = owner.store.snapshot();
        for space in [Space::Documents, Space::History, Space::Origins, Space::Marks] {
            let prefix = here_id.0.to_be_bytes();
            assert_eq!(left.scan(space, with_prefix(&prefix), Order::Forward).count(), 0, "{space:?}");
        }
    }
}

fn same((there, id): (State<'_>, NamespaceId), (here, here_id): (State<'_>, NamespaceId), at: &DocumentKey) {
    assert_eq!(here.document(here_id, at).unwrap(), there.document(id, at).unwrap(), "{at}");
    assert_eq!(here.mark(here_id, at).unwrap(), Some(TRANSITION), "{at}");
    let steps = there.history(id, at, Position::START, 1000).unwrap();
    let moved = here.history(here_id, at, Position::START, 1000).unwrap();
    assert!(moved == steps, "the history of {at}: {} steps of {}", moved.len(), steps.len());
    for step in &steps {
        let origin = there.origin(id, at, step.position).unwrap();
        assert!(origin.is_some(), "{at} at {}", step.position);
        assert_eq!(here.origin(here_id, at, step.position).unwrap(), origin, "{at} at {}", step.position);
        let then = there.document_at(id, at, step.position).unwrap();
        assert_eq!(here.document_at(here_id, at, step.position).unwrap(), then, "{at} at {}", step.position);
    }
    // So that nothing is missing either when it moves on.
    let one = std::slice::from_ref(at);
    assert_eq!(here.export(here_id, one).unwrap(), there.export(id, one).unwrap(), "{at}");
    let position = there.document(id, at).unwrap().unwrap().position;
    assert!(here.position(here_id).unwrap() >= position, "{at}");
}

/// Documents that came from elsewhere, with a history.
pub(crate) fn arrived() -> Entry {
    let mut donor = End::default();
    for (index, key) in ["1", "2", "3"].into_iter().enumerate() {
        let at = DocumentKey::new("c", key.parse().unwrap());
        let change = Change::Created { fields: vec![("f".into(), Json::trusted("1"))] };
        let commit = Commit {
            position: Position(index as u64 + 1),
            at: Timestamp(7),
            user: None,
            note: None,
            events: vec![Event { at, change }],
            purged: None,
        };
        donor.take(&Entry::Committed { namespace: ARRIVED.into(), commits: vec![commit], answer: None });
    }
    let snapshot = donor.store.snapshot();
    let state = State::new(&*snapshot);
    let id = state.namespace(ARRIVED).unwrap().unwrap();
    let keys: Vec<DocumentKey> =
        state.documents(id, "c", None, Order::Forward).map(|found| found.unwrap().0).collect();
    let documents = state.export(id, &keys).unwrap();
    let (transition, horizon) = (TRANSITION, Position::START);
    Entry::Installed { namespace: ARRIVED.into(), transition, horizon, documents }
}
