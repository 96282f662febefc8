//! Locks on a cluster. A lock on documents of one shard is with that shard; one on several shards has a part on
//! each of them, and one on a collection or a namespace a part on every shard. Knows nothing of how a shard grants
//! its part, nor of protocols.
//!
//! Parts are taken in the order of the shards, so that two locks never wait for each other, and settled once all
//! are there. Only then may the owner rely on any of them.

mod all;
mod convert;
mod deadlock;
mod here;
mod leftover;
mod letter;
mod patience;
mod seats;
mod take;

use super::Current;
use crate::trouble::Trouble;
use lockwood_locks::merge;
use lockwood_model::{DocumentKey, Key, KeyPart, Path, Resource};
use lockwood_router::{Phase, Route, ShardNo};
use lockwood_wire::Code;
use std::collections::BTreeMap;

pub(crate) use all::{drop_unsettled, end, log, one, page, release, renew, tree, vouch, waits};
pub(crate) use convert::{Ended, Stage, Wish, convert, mend};
pub(crate) use here::{answer, carry_out};
pub(crate) use letter::{Letter, Reply, Voucher, WireLine, read, written};
pub(crate) use seats::Seats;
pub(crate) use take::{Known, take, take_up, take_watched};

/// What of a lock is on which shard.
pub(crate) type Parts = BTreeMap<ShardNo, Vec<Resource>>;

/// Which shard locks on a path are with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// This one.
    Shard(ShardNo),
    /// Every one.
    Every,
    /// None at the moment.
    Moving {
        /// The one that has stopped.
        from: ShardNo,
        /// The one that is going to begin.
        to: ShardNo,
    },
}

/// The document a path is in; none for a path above documents.
fn document_of(path: &Path) -> Option<DocumentKey> {
    let mut segments = path.segments();
    let (collection, key) = (segments.next()?, segments.next()?);
    // A path may name what can be no document; it has its place all the same.
    let text = || Key::new([KeyPart::Text(key.into())]).expect("it has a part");
    Some(DocumentKey::new(collection, key.parse().unwrap_or_else(|_| text())))
}

impl Current {
    /// Which shard locks on a path are with.
    pub(crate) fn home(&self, path: &Path) -> Result<Home, Trouble> {
        let Some(at) = document_of(path) else { return Ok(Home::Every) };
        Ok(match self.route(&at)? {
            Route::Owner(owner) | Route::Pulled { owner, .. } => Home::Shard(owner),
            Route::Moving { from, to } => Home::Moving { from, to },
        })
    }
}

/// Resources as tables have them, by the shards that decide about them.
pub(crate) fn parts(current: &Current, resources: &[Resource]) -> Result<Parts, Trouble> {
    let mut whole = resources.to_vec();
    merge(&mut whole);
    let mut parts = Parts::new();
    for resource in whole {
        match current.home(&resource.path)? {
            Home::Shard(shard) => parts.entry(shard).or_default().push(resource),
            // Shards that come in have no part of it yet, so nothing is decided before they do.
            Home::Every if current.map.phase == Phase::Preparing => return Err(moving(&resource.path)),
            Home::Every => {
                for shard in current.map.shard_numbers() {
                    parts.entry(shard).or_default().push(resource.clone());
                }
            }
            Home::Moving { .. } => return Err(moving(&resource.path)),
        }
    }
    Ok(parts)
}

/// The same by the map that comes after this one, if this is one by which nobody decides about what moves.
pub(crate) fn coming_parts(current: &Current, resources: &[Resource]) -> Result<Parts, Trouble> {
    let mut whole = resources.to_vec();
    merge(&mut whole);
    let mut parts = Parts::new();
    for resource in whole {
        match current.home(&resource.path)? {
            Home::Shard(shard) | Home::Moving { to: shard, .. } => {
                parts.entry(shard).or_default().push(resource);
            }
            Home::Every => {
                for shard in current.map.shard_numbers() {
                    parts.entry(shard).or_default().push(resource.clone());
                }
            }
        }
    }
    Ok(parts)
}

/// That a shard decides about locks on all of these resources.
pub(super) fn check_here(current: &Current, this: ShardNo, resources: &[Resource]) -> Result<(), Trouble> {
    for resource in resources {
        let is_here = match current.home(&resource.path)? {
            Home::Shard(shard) => shard == this,
            Home::Every => current.map.phase != Phase::Preparing,
            Home::Moving { .. } => false,
        };
        if !is_here || !current.is_owner {
            return Err(moving(&resource.path));
        }
    }
    Ok(())
}

fn moving(path: &Path) -> Trouble {
    let message = format!("locks on {path} are with another shard, or about to be; ask again");
    Trouble::new(Code::WrongEpoch, message)
}
