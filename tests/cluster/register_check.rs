//! Whether what the clients of a storm saw, and what is left in the end, can have happened. Knows nothing of shards.

use crate::{
    linear::{self, Action, Answer, Operation, State, Verdict},
    register_clients::{At, CLIENTS_LEN, COLD_LEN, Held, Scene, Seen, held, look},
};
use lockwood_client::wire::{Deleted, DocumentInfo};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub(crate) type Dump = BTreeMap<At, Option<DocumentInfo>>;

/// Every document that there can be.
pub(crate) async fn dump(scene: &Arc<Scene>, seen: &Seen) -> Dump {
    let touched = seen.operations.iter().map(|(at, _)| *at);
    let mut all: Vec<At> = touched.chain((0..COLD_LEN).map(At::Cold)).collect();
    all.sort();
    all.dedup();
    look_at_all(scene, all).await
}

pub(crate) async fn look_at_all(scene: &Arc<Scene>, all: Vec<At>) -> Dump {
    let all = Arc::new(all);
    let looking = (0..CLIENTS_LEN).map(|client| {
        let (all, store) = (Arc::clone(&all), scene.store(client));
        tokio::spawn(async move {
            let mut found = Vec::new();
            for at in all.iter().skip(client).step_by(CLIENTS_LEN) {
                found.push((*at, look(&store, *at, Deleted::With).await.unwrap()));
            }
            found
        })
    });
    let mut dump = Dump::new();
    for looked in looking.collect::<Vec<_>>() {
        dump.extend(looked.await.unwrap());
    }
    dump
}

pub(crate) fn check(scene: &Scene, seen: Seen, dump: &Dump) {
    println!(
        "{} operations on {} documents, {} locks, {} reads from copies",
        seen.operations.len(),
        dump.len() as u64 - COLD_LEN,
        seen.held.len(),
        seen.from_copies
    );
    let (locks, answered) = (seen.held.len(), seen.operations.iter().filter(|(_, it)| it.answered.is_some()));
    let answered = answered.count();
    assert!(locks > 20 && answered > 500, "the clients came to nothing: {locks} locks, {answered} answers");
    assert!(seen.from_copies > 0, "no copy was asked");
    let wrong = wrong(scene, seen, dump);
    assert!(wrong.is_empty(), "{} things went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// All that cannot have happened, in words.
pub(crate) fn wrong(scene: &Scene, seen: Seen, dump: &Dump) -> Vec<String> {
    let mut wrong = seen.errors;
    let mut histories: HashMap<At, Vec<Operation>> = HashMap::new();
    for (at, operation) in seen.operations {
        histories.entry(at).or_default().push(operation);
    }
    for (at, found) in dump {
        let history = histories.remove(at).unwrap_or_default();
        if let Err(why) = explain(scene, *at, history, found.as_ref()) {
            wrong.push(format!("{at:?} cannot be explained: {why}"));
        }
    }
    wrong.extend(overlaps(&seen.held));
    let named: Vec<String> = wrong.iter().flat_map(|text| mentioned(text, &seen.held)).collect();
    wrong.extend(named);
    wrong
}

/// Whether everything that was seen of a document, and what became of it, can have happened.
fn explain(
    scene: &Scene,
    at: At,
    mut history: Vec<Operation>,
    found: Option<&DocumentInfo>,
) -> Result<(), String> {
    let begin = match at {
        At::Cold(number) => State::Live(number),
        At::Counter(_) => State::Live(0),
        At::Hot(_) => State::Unborn,
    };
    let end = found.map_or(State::Unborn, |found| match found.deleted {
        true => State::Gone(held(found)),
        false => State::Live(held(found)),
    });
    let now = scene.now();
    let (answered, position) = (Some((now + 1, Answer::Is(end))), found.map(|found| found.position));
    let position = position.filter(|_| matches!(at, At::Hot(_)));
    history.push(Operation { client: usize::MAX, action: Action::Look, called: now, answered, position });
    match linear::check(begin, &history) {
        Verdict::Linearizable => Ok(()),
        Verdict::Impossible(story) => Err(format!("\n{story}")),
        Verdict::Undecided => Err("too many operations have no answer".to_owned()),
    }
}

/// What is known of the locks that a text names.
fn mentioned(text: &str, held: &[(At, Held)]) -> Vec<String> {
    let is_named = |(_, held): &&(At, Held)| text.contains(&format!("(lock {})", held.lock));
    held.iter().filter(is_named).map(|(at, held)| format!("{at:?}: {}", held.story())).collect()
}

/// Locks on the same document that two had at once, and tokens that do not grow.
fn overlaps(held: &[(At, Held)]) -> Vec<String> {
    let mut by_document: BTreeMap<At, Vec<Held>> = BTreeMap::new();
    for (at, held) in held {
        by_document.entry(*at).or_default().push(*held);
    }
    let mut wrong = Vec::new();
    for (at, held) in &mut by_document {
        held.sort_by_key(|held| held.from);
        for pair in held.windows(2) {
            let [one, other] = [pair[0], pair[1]];
            if one.to > other.from || one.token >= other.token {
                let clients = (one.client, other.client);
                wrong.push(format!("{at:?}: both of {clients:?} held it, or tokens shrink: {pair:?}"));
            }
        }
    }
    wrong
}
