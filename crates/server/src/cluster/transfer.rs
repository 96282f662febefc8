//! The two ends of a move: what a donor gives away of a key, and what an owner takes in. Knows nothing of the
//! order in which keys move.

use super::{Current, sweep, work};
use crate::shared::Shared;
use lockwood_model::{DocumentKey, Position};
use lockwood_node::{territory::Admitted, trouble::Trouble};
use lockwood_router::Epoch;
use lockwood_storage::{DocumentRef, Entry, Moved, NamespaceId, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Whether an owner has what a donor has: its keys, when each last changed and the digest of each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) namespace: String,
    pub(crate) collection: String,
    pub(crate) transition: Epoch,
    /// A digest of zeros is not compared.
    pub(crate) keys: Vec<(String, u64, String)>,
}

/// The keys of a question that are not as they should be, by their place, and why.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Unconfirmed {
    pub(crate) unconfirmed: Vec<(usize, String)>,
    /// Whether clients ask the owner for much.
    pub(crate) is_busy: bool,
}

/// Which keys this node, their owner, does not have as the donor has them.
pub(crate) fn confirm(
    shared: &Shared,
    current: &Current,
    question: &Question,
) -> Result<Unconfirmed, Trouble> {
    sweep::check(shared, current)?;
    let reading = shared.shard.read();
    let state = reading.state();
    let id = state.namespace(&question.namespace)?;
    let mut answer = Unconfirmed { unconfirmed: Vec::new(), is_busy: shared.cluster.load.is_busy() };
    for (place, (key, position, digest)) in question.keys.iter().enumerate() {
        let why = match (id, key.parse()) {
            (Some(id), Ok(key)) => {
                let at = DocumentKey::new(&question.collection, key);
                // What the owner has counts, whatever the donor has.
                let keeps = current.map.keeps && state.mark(id, &at)? == Some(question.transition);
                match keeps {
                    true => None,
                    false => misses(state, id, &at, question.transition, (*position, digest))?,
                }
            }
            _ => Some("it is not known there"),
        };
        answer.unconfirmed.extend(why.map(|why| (place, why.to_owned())));
    }
    Ok(answer)
}

fn misses(
    state: State<'_>,
    id: NamespaceId,
    at: &DocumentKey,
    transition: Epoch,
    (position, digest): (u64, &str),
) -> Result<Option<&'static str>, Trouble> {
    let record = state.document_bytes(id, at)?;
    let there = record.as_ref().map(|record| DocumentRef::read(record).map(|document| document.position().0));
    let there = there.transpose()?;
    let is_known = state.mark(id, at)? == Some(transition);
    Ok(match (there, &record) {
        // Outside of a transition there are no marks; then it has to be there, and as new.
        _ if !is_known && there.is_none_or(|there| there < position) => Some("it is not known there"),
        (Some(there), Some(record)) if there == position && digest.bytes().any(|digit| digit != b'0') => {
            let same = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(record)) == digest;
            (!same).then_some("its content is another one")
        }
        (Some(there), _) if there < position => Some("it is older there"),
        _ => None,
    })
}

/// Everything this node knows of some keys.
pub(crate) fn export(
    shared: &Shared,
    current: &Current,
    namespace: &str,
    keys: &[DocumentKey],
) -> Result<Entry, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let goes_back = current.map.reverses != 0;
    let transition = current.map.transition;
    let installed =
        |documents, horizon| Entry::Installed { namespace: namespace.into(), transition, horizon, documents };
    let Some(id) = state.namespace(namespace)? else {
        let nothing = |at| if goes_back { Moved::kept(at) } else { Moved::nothing(at) };
        return Ok(installed(keys.iter().map(nothing).collect(), Position::START));
    };
    let mut documents = state.export(id, keys)?;
    if goes_back {
        for moved in &mut documents {
            if !work::counts(state, id, current, &moved.at)? {
                *moved = Moved::kept(&moved.at);
            }
        }
    }
    Ok(installed(documents, state.horizon(id)?))
}

/// Takes in what is not known here yet; says how many documents that were, once they are durable.
pub(crate) async fn install(shared: &Arc<Shared>, current: &Current, brought: Entry) -> Result<u64, Trouble> {
    let (installed, index) = install_in_passing(shared, current, brought)?;
    shared.shard.shown(index).await?;
    Ok(installed)
}

/// The same without waiting until they are durable; whatever is decided about them later waits for that.
pub(super) fn install_in_passing(
    shared: &Shared,
    current: &Current,
    brought: Entry,
) -> Result<(u64, u64), Trouble> {
    let _passage = shared.pass(Admitted::under(current.map.epoch))?;
    Ok(shared.shard.install(brought, current.map.keeps)?)
}
