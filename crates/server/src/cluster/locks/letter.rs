//! What nodes ask each other about locks, and how it is sent. Knows nothing of what is done about it.

use super::here;
use crate::{
    cluster::{Current, EPOCH, Message, pull},
    lease::{LeaseRequest, Which},
    listing::Selection,
    shared::Shared,
    trouble::Trouble,
    view::Line,
};
use lockwood_model::{Json, LeaseVia, LockId, Resource};
use lockwood_router::{Epoch, ShardNo};
use lockwood_wire::{Blocker, Code, CycleStep, LeaseInfo, OperatorAction, WirePath, WireResource, WireWait};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};

/// How long an answer may take, besides what the request itself may wait.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Something a shard is to do about its locks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Letter {
    pub(crate) namespace: String,
    /// The map by which this shard was found to be the right one.
    pub(crate) epoch: Epoch,
    pub(crate) order: Order,
}

/// What it is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Take a lock that is all with this shard.
    Take {
        wanted: Wanted,
        poll_ms: Option<u64>,
        /// Whether it is taken even if the owner seems to have it.
        anew: bool,
        /// Who asks, for the time being.
        taker: u64,
    },
    /// Say a number that no lock has.
    Number,
    /// Take a part of a lock.
    Part(Part),
    /// Make a part one that its owner may rely on.
    Settle {
        lock: u64,
        token: u64,
        ttl_ms: Option<u64>,
        /// What all parts cover from now on, if it is something else than before, and which connection wants that.
        whole: Option<(Vec<WireResource>, u64)>,
        /// The token that nobody has heard of, if it is to be what it was before it got that one.
        instead_of: Option<u64>,
    },
    /// Give a lock other modes, or a part of it stronger ones.
    Convert(Convert),
    /// Give that up, for one lock or for all of an owner.
    Unconvert {
        lock: Option<u64>,
        owner: String,
        seat: u64,
        turn: u64,
    },
    /// Give back what there is of a lock that is not going to be taken after all.
    Drop {
        lock: Option<u64>,
        owner: String,
        /// Which connection of the owner wanted it, if it is a session.
        seat: Option<u64>,
        whole: Vec<WireResource>,
        /// Who asked for it. What somebody else has asked for since is not meant.
        taker: u64,
    },
    /// Give back everything of an owner that it may not rely on: another connection speaks for it from now on.
    DropUnsettled {
        owner: String,
        seat: u64,
    },
    Renew {
        meant: Meant,
        ttl_ms: u64,
    },
    Release {
        meant: Meant,
    },
    /// Say how a lock stands.
    Show {
        lock: u64,
        poll_ms: Option<u64>,
    },
    List(Selection),
    /// The nodes at and below a path, written as text.
    Tree {
        path: String,
    },
    Waits,
    /// Say whom owners wait for.
    Edges {
        owners: Vec<String>,
    },
    Log,
    /// End a lock by force, and record it if this shard is to.
    End {
        lock: u64,
        action: Option<Box<OperatorAction>>,
    },
    /// Say whose locks have these tokens, and until when.
    Vouch {
        tokens: Vec<u64>,
    },
}

impl Order {
    /// Whether it changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        use Order::{Edges, List, Log, Show, Tree, Vouch, Waits};
        matches!(self, Show { .. } | List(_) | Tree { .. } | Waits | Edges { .. } | Log | Vouch { .. })
    }
}

/// A request for a lease as nodes pass it on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) owner: String,
    pub(crate) resources: Vec<WireResource>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) wait: WireWait,
    /// As text.
    pub(crate) note: Option<String>,
}

/// A part of a lock to be taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) wanted: Wanted,
    /// The number of the lock, if other parts have it already.
    pub(crate) lock: Option<u64>,
    pub(crate) whole: Vec<WireResource>,
    /// The token has to be larger than this.
    pub(crate) floor: u64,
    /// How long to wait for it before answering that it stands in line; it keeps its place.
    pub(crate) slice_ms: u64,
    /// Do nothing if the owner has a lock that covers the whole.
    pub(crate) unless_covered: bool,
    /// Whether it is another lock than any the owner has, be it for the same.
    pub(crate) fresh: bool,
    /// Whether it is not asked for unless it is there already.
    pub(crate) only: bool,
    /// Who asks, for the time being.
    pub(crate) taker: u64,
    /// Which connection of its owner wants it, if it is a session.
    pub(crate) seat: Option<u64>,
    /// If other parts are not held, so that it is not settled any more: the token it had when that was seen.
    pub(crate) unsettled: Option<u64>,
}

/// What a lock is to become.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Convert {
    pub(crate) lock: u64,
    pub(crate) owner: String,
    /// Which connection of the owner wants it.
    pub(crate) seat: u64,
    pub(crate) whole: Vec<WireResource>,
    /// Whether there are no other parts.
    pub(crate) alone: bool,
    pub(crate) wait: WireWait,
    /// Whether it is waited for if it stands in line, rather than only said where.
    pub(crate) waits: bool,
    /// Which of the conversions that the connection wants; a later one has a larger number.
    pub(crate) turn: u64,
}

/// How far that has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Converted {
    Done { token: u64 },
    Queued(WireLine),
}

/// How a part was taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartTaken {
    /// It is held.
    Held {
        lock: u64,
        token: u64,
        settled: bool,
    },
    Queued {
        lock: u64,
        line: WireLine,
    },
    /// It is not there, and was not asked for.
    Absent,
    /// The owner has a lock that covers the whole: this one.
    Covered {
        lock: u64,
        /// Whether it is for the same, no more.
        same: bool,
    },
}

/// Where a request stands in line.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WireLine {
    pub(crate) place: usize,
    pub(crate) blockers_len: usize,
    pub(crate) blockers: Vec<Blocker>,
}

impl From<Line> for WireLine {
    fn from(Line { place, blockers_len, blockers }: Line) -> WireLine {
        WireLine { place, blockers_len, blockers }
    }
}

/// Which leases are meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Meant {
    Lock { lock: u64, token: Option<u64>, owner: Option<String> },
    Like { owner: String, resources: Vec<WireResource> },
    All { owner: String, seat: Option<u64> },
}

/// A lease, or a part of one, that was renewed or released.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// With the resources of all parts.
    pub(crate) lease: LeaseInfo,
    pub(crate) settled: bool,
}

/// What a shard released.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Pieces {
    pub(crate) leases: Vec<Piece>,
    /// What stood in line: numbers and resources of all parts.
    pub(crate) waits: Vec<(u64, Vec<WireResource>)>,
}

/// That a token is that of a lock which is held.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Voucher {
    pub(crate) token: u64,
    pub(crate) owner: String,
    /// In milliseconds since 1970; none if it does not end by itself.
    pub(crate) until: Option<u64>,
}

/// That an owner waits for another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edge {
    pub(crate) waiter: String,
    /// The lock that waits, or whose conversion does.
    pub(crate) lock: u64,
    pub(crate) wants: WireResource,
    pub(crate) holder: String,
    /// The lock in the way, be it held or earlier in line.
    pub(crate) held: u64,
    pub(crate) has: WireResource,
    /// Whether its owner relies on it, so that only the owner can end it.
    pub(crate) settled: bool,
}

/// An answer, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply<T> {
    Done(T),
    Refused(WireTrouble),
}

/// A refusal as nodes pass it on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireTrouble {
    code: Code,
    message: String,
    blockers: Vec<Blocker>,
    cycle: Vec<CycleStep>,
    paths: Vec<WirePath>,
}

impl From<Trouble> for WireTrouble {
    fn from(trouble: Trouble) -> WireTrouble {
        let Trouble { code, message, blockers, cycle, paths, .. } = trouble;
        WireTrouble { code, message, blockers, cycle, paths: paths.into_iter().map(WirePath).collect() }
    }
}

impl From<WireTrouble> for Trouble {
    fn from(trouble: WireTrouble) -> Trouble {
        let WireTrouble { code, message, blockers, cycle, paths } = trouble;
        let paths = paths.into_iter().map(|path| path.0).collect();
        Trouble { blockers, cycle, paths, ..Trouble::new(code, message) }
    }
}

impl Wanted {
    pub(super) fn of(request: &LeaseRequest) -> Wanted {
        Wanted {
            owner: request.owner.clone(),
            resources: written(&request.resources),
            ttl_ms: request.ttl_ms,
            wait: WireWait(request.wait),
            note: request.note.as_ref().map(|note| note.as_str().to_owned()),
        }
    }

    pub(super) fn into_request(self) -> Result<LeaseRequest, Trouble> {
        Ok(LeaseRequest {
            resources: read(self.resources)?,
            owner: self.owner,
            via: LeaseVia::Native,
            ttl_ms: self.ttl_ms,
            wait: self.wait.0,
            note: self.note.as_deref().map(Json::trusted),
        })
    }
}

impl From<&Which> for Meant {
    fn from(which: &Which) -> Meant {
        match which {
            Which::Lock { lock, token, owner } => {
                Meant::Lock { lock: lock.0, token: *token, owner: owner.clone() }
            }
            Which::Like { owner, resources } => {
                Meant::Like { owner: owner.clone(), resources: written(resources) }
            }
            Which::All { owner, seat } => Meant::All { owner: owner.clone(), seat: *seat },
        }
    }
}

impl Meant {
    pub(super) fn into_which(self) -> Result<Which, Trouble> {
        Ok(match self {
            Meant::Lock { lock, token, owner } => Which::Lock { lock: LockId(lock), token, owner },
            Meant::Like { owner, resources } => Which::Like { owner, resources: read(resources)? },
            Meant::All { owner, seat } => Which::All { owner, seat },
        })
    }
}

/// Resources as they are written.
pub(crate) fn written(resources: &[Resource]) -> Vec<WireResource> {
    resources.iter().map(WireResource::from).collect()
}

/// The resources meant.
pub(crate) fn read(resources: Vec<WireResource>) -> Result<Vec<Resource>, Trouble> {
    let read = resources.into_iter().map(WireResource::into_model).collect::<Result<_, _>>();
    read.map_err(|error| Trouble::new(error.code, error.message))
}

/// Has a shard do something, be it this node's own.
pub(super) async fn ask<T: DeserializeOwned>(
    shared: &Arc<Shared>,
    current: &Current,
    shard: ShardNo,
    (namespace, order): (&str, Order),
    wait: Duration,
) -> Result<T, Trouble> {
    let letter = Letter { namespace: namespace.to_owned(), epoch: current.map.epoch, order };
    let text = if shard == shared.cluster.this() && current.is_owner {
        // It asks others in its turn, so it has to be told that this has an end.
        Box::pin(here::carry_out(shared, letter)).await?
    } else {
        send(shared, current, shard, &letter, wait).await?
    };
    let odd = |_| pull::unreachable_shard(shard, "it answered something else");
    serde_json::from_slice(&text).map_err(odd)
}

async fn send(
    shared: &Arc<Shared>,
    current: &Current,
    shard: ShardNo,
    letter: &Letter,
    wait: Duration,
) -> Result<Vec<u8>, Trouble> {
    let unreachable = |why: &str| pull::unreachable_shard(shard, why);
    let host = current.map.rw_host(shard).ok_or_else(|| unreachable("the map has no host for it"))?;
    let body = serde_json::to_vec(letter).expect("a letter is valid JSON");
    let message = Message { patience: wait + ANSWER_PATIENCE, ..Message::post("/internal/locks", body) };
    let answer = shared.cluster.ask(shared, &host.address, &message).await;
    let answer = answer.map_err(|error| unreachable(&error.to_string()))?;
    if answer.headers().contains_key(EPOCH) {
        return Err(Trouble::new(Code::WrongEpoch, "the shard map has just changed; ask again"));
    }
    if !answer.status().is_success() {
        return Err(unreachable(&String::from_utf8_lossy(answer.body())));
    }
    match serde_json::from_slice::<Reply<Box<serde_json::value::RawValue>>>(answer.body()) {
        Ok(Reply::Done(text)) => Ok(text.get().as_bytes().to_vec()),
        Ok(Reply::Refused(trouble)) => Err(trouble.into()),
        Err(_) => Err(unreachable("it answered something else")),
    }
}
