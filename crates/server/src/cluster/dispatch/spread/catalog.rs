//! What there is in a namespace, and which namespaces there are, on all shards together.

use super::{
    super::{Message, Whole},
    Answer,
    ask::{Asker, Stop},
    cut::{self, Cut, Manner},
    target,
};
use crate::native::json_of;
use lockwood_router::ShardNo;
use lockwood_wire::{
    NamespaceInfo, NamespaceList,
    documents::{Collections, IndexState, Indexes, Isolation, PositionAnswer, TrimAnswer},
};
use std::collections::{BTreeMap, BTreeSet};

/// Where the namespace stands on all shards, once all of them do.
pub(super) async fn position(ask: &Asker<'_>, namespace: &str) -> Answer {
    let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
    let PositionAnswer { horizon, .. } = cut::position(ask, namespace, &shards).await?;
    let cut = Cut::begin(ask, namespace, &shards, None, (&Manner::free(), |_| Vec::new())).await?;
    let target = target(namespace, "position");
    let replies = ask.all(|_| cut.message(Message::get(&target))).await?.into_iter();
    let parts: Vec<PositionAnswer> = replies.map(|reply| reply.read()).collect::<Result<_, _>>()?;
    let position = cut.told(parts.iter().map(|part| part.position));
    cut.end()?;
    let horizon = parts.iter().map(|part| part.horizon).fold(horizon, u64::max);
    Ok(json_of(&PositionAnswer { position, horizon }))
}

/// The collections that any shard has.
pub(super) async fn collections(ask: &Asker<'_>, namespace: &str) -> Answer {
    let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
    let cut = Cut::begin(ask, namespace, &shards, None, (&Manner::free(), |_| Vec::new())).await?;
    let (position, collections) = names(ask, namespace, &cut).await?;
    cut.end()?;
    Ok(json_of(&Collections { position, collections }))
}

/// The names of all collections, by name.
pub(super) async fn names(
    ask: &Asker<'_>,
    namespace: &str,
    cut: &Cut<'_>,
) -> Result<(u64, Vec<String>), Stop> {
    let target = target(namespace, "collections");
    let replies = ask.all(|_| cut.message(Message::get(&target))).await?.into_iter();
    let parts: Vec<Collections> = replies.map(|reply| reply.read()).collect::<Result<_, _>>()?;
    let position = cut.told(parts.iter().map(|part| part.position));
    let names: BTreeSet<String> = parts.into_iter().flat_map(|part| part.collections).collect();
    Ok((position, names.into_iter().collect()))
}

/// The indexes; each is ready when it is on all shards.
pub(super) async fn indexes(ask: &Asker<'_>, namespace: &str) -> Answer {
    ask.check_map()?;
    let target = target(namespace, "indexes");
    let replies = ask.all(|_| Message::get(&target)).await?.into_iter();
    let parts: Vec<Indexes> = replies.map(|reply| reply.read()).collect::<Result<_, _>>()?;
    let (first, others) = parts.split_first().expect("a map has at least one shard");
    let mut indexes = first.indexes.clone();
    for index in &mut indexes {
        let is_same = |other: &&lockwood_wire::documents::IndexInfo| {
            (&other.collection, &other.field) == (&index.collection, &index.field)
        };
        let ready = others.iter().all(|other| {
            other.indexes.iter().find(is_same).is_some_and(|other| other.state == IndexState::Ready)
        });
        if !ready {
            index.state = IndexState::Building;
        }
    }
    Ok(json_of(&Indexes { indexes }))
}

/// The namespaces that any shard has.
pub(super) async fn namespaces(ask: &Asker<'_>) -> Answer {
    ask.check_map()?;
    let mut all: BTreeMap<String, NamespaceInfo> = BTreeMap::new();
    for reply in ask.all(|_| Message::get("/v1/namespaces")).await? {
        let list: NamespaceList = reply.read()?;
        for info in list.namespaces {
            all.entry(info.namespace.clone())
                .and_modify(|known| {
                    known.sessions += info.sessions;
                    known.locks_granted += info.locks_granted;
                    known.locks_waiting += info.locks_waiting;
                    known.position = known.position.max(info.position);
                })
                .or_insert(info);
        }
    }
    Ok(json_of(&NamespaceList { namespaces: all.into_values().collect() }))
}

/// Forgets old history everywhere.
pub(super) async fn trim(ask: &Asker<'_>, whole: &Whole) -> Answer {
    let mut trimmed = 0;
    for reply in ask.all(|_| whole.message(ask.shared)).await? {
        let part: TrimAnswer = reply.read()?;
        trimmed += part.trimmed;
    }
    Ok(json_of(&TrimAnswer { trimmed }))
}

impl Manner {
    /// As nobody's locks matter.
    pub(super) fn free() -> Manner {
        Manner { isolation: Isolation::Snapshot, tokens: Vec::new(), wait_ms: None }
    }
}
