//! What goes into the table and what comes out of it. Knows nothing of how it is decided.

use lockwood_model::{LockId, Mode, OwnerId, Path, Resource, Timestamp, Token, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// A set of resources to be taken together, or not at all.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks. An owner is never in its own way.
    pub owner: OwnerId,
    /// What is asked for. Repeated and redundant resources are fine.
    pub resources: Vec<Resource>,
    /// How long to stand in line.
    pub wait: Wait,
    /// How long it is held once granted, unless it is renewed; none if it does not end by itself.
    pub ttl_ms: Option<u64>,
    /// What kind of request it is.
    pub rank: Rank,
}

/// What kind of request a lock comes of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// It goes to the end of the line, and with its owner.
    #[default]
    Ordinary,
    /// It makes stronger what its owner has. If only those in line are in its way it goes ahead of them: they may
    /// wait for its owner.
    Upgrade,
    /// It is for something short that ends by itself, whatever becomes of the owner's other locks.
    Operation,
    /// The same, for an owner that holds something: it goes ahead of those in line too.
    HolderOperation,
}

impl Rank {
    /// Whether it goes ahead of those in line, if nothing else is in its way.
    pub fn overtakes(self) -> bool {
        matches!(self, Rank::Upgrade | Rank::HolderOperation)
    }

    /// What it is once it has to stand in line itself.
    pub fn in_line(self) -> Rank {
        match self {
            Rank::Upgrade => Rank::Ordinary,
            Rank::HolderOperation => Rank::Operation,
            other => other,
        }
    }

    /// Whether only its own release or the end of its wait ends it.
    pub fn is_operation(self) -> bool {
        matches!(self, Rank::Operation | Rank::HolderOperation)
    }
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Granted {
        /// The new lock.
        lock: LockId,
        /// The token of this grant.
        token: Token,
    },
    /// The lock stands in line; an [`Effect`] will tell how that ends.
    Queued {
        /// The new lock.
        lock: LockId,
    },
    /// There is no lock.
    Refused(Refusal),
}

/// Why there is no lock, or no conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Others are in the way and the request does not wait. These are some of them.
    Busy {
        /// Locks in the way, holders first; not more than [`crate::BLOCKERS_LEN_MAX`].
        blockers: Vec<LockId>,
    },
    /// Waiting would never end, because those in the way wait for this owner.
    Deadlock(Cycle),
    /// The table grants nothing at the moment, see [`crate::LockTable::freeze`].
    Frozen,
}

/// A ring of owners each of which waits for the next; the last waits for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle(pub Vec<CycleStep>);

/// One owner of a [`Cycle`] and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleStep {
    /// Who waits.
    pub waiter: OwnerId,
    /// What the waiter asked for.
    pub wants: Resource,
    /// Who is in the way.
    pub holder: OwnerId,
    /// The lock that is in the way.
    pub lock: LockId,
    /// What that lock has, or wants earlier than the waiter.
    pub has: Resource,
}

/// What a granted lock shall become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Every resource that is about a node gets this mode.
    All(Mode),
    /// The resources at these paths get these modes; the others stay as they are.
    Paths(Vec<(Path, Mode)>),
    /// Each of these resources that the lock has, in whatever mode, gets the mode it has here; the others stay as they
    /// are.
    Modes(Vec<Resource>),
}

impl Change {
    /// What resources of a granted lock become.
    pub fn applied_to(&self, resources: &[Resource]) -> Result<Vec<Resource>, ConvertError> {
        let mut changed = resources.to_vec();
        let nodes = changed.iter_mut().filter(|resource| !resource.mode.on_child_list());
        match self {
            Change::All(mode) => nodes.for_each(|resource| resource.mode = *mode),
            Change::Paths(paths) => apply_paths(nodes, paths)?,
            Change::Modes(wanted) => {
                let wanted: BTreeMap<_, Mode> =
                    wanted.iter().map(|wanted| (wanted.place(), wanted.mode)).collect();
                nodes.for_each(|resource| {
                    resource.mode = wanted.get(&resource.place()).copied().unwrap_or(resource.mode);
                });
            }
        }
        let is_odd = |(old, new): (&Resource, &Resource)| old.mode != new.mode && new.mode.on_child_list();
        match resources.iter().zip(&changed).any(is_odd) {
            true => Err(ConvertError::ChildListMode),
            false => Ok(changed),
        }
    }
}

fn apply_paths<'a>(
    resources: impl Iterator<Item = &'a mut Resource>,
    paths: &[(Path, Mode)],
) -> Result<(), ConvertError> {
    // The last word on a path named twice is the one that counts.
    let wanted: BTreeMap<&Path, Mode> = paths.iter().map(|(path, mode)| (path, *mode)).collect();
    let mut missing: BTreeSet<&Path> = wanted.keys().copied().collect();
    for resource in resources {
        if let Some((path, mode)) = wanted.get_key_value(&resource.path) {
            missing.remove(path);
            resource.mode = *mode;
        }
    }
    match paths.iter().find(|(path, _)| missing.contains(path)) {
        Some((path, _)) => Err(ConvertError::NoResourceAt(path.clone())),
        None => Ok(()),
    }
}

/// The answer to a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConvertOutcome {
    /// The lock has the new modes.
    Converted {
        /// A new token if the lock became stronger anywhere, otherwise the one it had.
        token: Token,
    },
    /// The lock keeps its old modes until the others are free; an [`Effect`] will tell.
    Queued,
    /// The lock keeps its old modes.
    Refused(Refusal),
    /// The request makes no sense for this lock.
    Invalid(ConvertError),
}

/// Why a conversion makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConvertError {
    /// The owner has no such lock.
    UnknownLock,
    /// The lock itself still waits.
    NotGranted,
    /// An earlier conversion of the lock still waits.
    AlreadyConverting,
    /// The lock has no resource at this path.
    NoResourceAt(Path),
    /// `list` and `link` are not modes a lock can be converted to or from.
    ChildListMode,
}

/// Something that happened to a lock other than by its owner's own call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A waiting lock is held now.
    Granted {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// The token of this grant.
        token: Token,
        /// How long it stood in line.
        waited_ms: u64,
    },
    /// A waiting conversion is done.
    Converted {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// The new token.
        token: Token,
    },
    /// A waiting lock is gone because its patience ended.
    TimedOut {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// Some of those that were in the way to the end, holders first.
        blockers: Vec<LockId>,
    },
    /// A waiting conversion is gone because its patience ended; the lock keeps its old modes.
    ConversionTimedOut {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// Some of those that were in the way to the end.
        blockers: Vec<LockId>,
    },
    /// A waiting lock is gone because locks put back after a restart made it part of a cycle.
    Deadlocked {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// The cycle.
        cycle: Cycle,
    },
    /// A waiting conversion is gone because another one made it part of a cycle.
    ConversionDeadlocked {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// The cycle.
        cycle: Cycle,
    },
    /// A lock is gone because its time was over.
    Expired {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// How long it was held.
        held_ms: u64,
    },
    /// A lock is gone because its owner was away for too long.
    Abandoned {
        /// Whose lock.
        owner: OwnerId,
        /// Which lock.
        lock: LockId,
        /// How long it was held; nothing if it still waited.
        held_ms: Option<u64>,
    },
}

/// A lock that was held before a restart, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Which lock.
    pub lock: LockId,
    /// The token of its grant.
    pub token: Token,
    /// Whose lock.
    pub owner: OwnerId,
    /// What it covers.
    pub resources: Vec<Resource>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it ends, if it does by itself.
    pub expires_at: Option<Timestamp>,
}

/// The owner has no such lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownLock;

/// What was released or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Whose lock it was.
    pub owner: OwnerId,
    /// How long it was held; nothing if it still waited.
    pub held_ms: Option<u64>,
}

/// The answer to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The waiting lock is gone.
    Cancelled,
    /// The waiting conversion is gone; the lock keeps its old modes.
    ConversionCancelled,
    /// Too late: the lock is held. It can be released.
    AlreadyGranted,
    /// The owner has no such lock.
    UnknownLock,
}

/// What becomes of an owner's waiting locks when the owner goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiters {
    /// They leave the queue at once.
    Leave,
    /// They keep their place as long as the owner's granted locks are kept.
    Stay,
}

/// One lock as listings show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Which lock.
    pub id: LockId,
    /// Whose lock.
    pub owner: OwnerId,
    /// The token if it is held, nothing if it waits.
    pub token: Option<Token>,
    /// What kind of request it came of.
    pub rank: Rank,
    /// What it covers, or shall cover.
    pub resources: Vec<Resource>,
    /// What it wants to become, if a conversion waits.
    pub converting_to: Option<Vec<Resource>>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// When it was granted.
    pub granted_at: Option<Timestamp>,
    /// When it ends by itself, if it is held and does.
    pub expires_at: Option<Timestamp>,
    /// When its wait, or that of its conversion, ends.
    pub wait_until: Option<Timestamp>,
    /// When it is given up, if its owner is away.
    pub away_until: Option<Timestamp>,
}

/// Where a waiter stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// 1 for the next in line: one more than the number of waiting locks it waits for.
    pub place: usize,
    /// Some of the locks it waits for, holders first; not more than [`crate::BLOCKERS_LEN_MAX`].
    pub blockers: Vec<LockId>,
    /// How many locks it waits for altogether.
    pub blockers_len: usize,
}

/// One node of the tree and who is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Which node.
    pub path: Path,
    /// Claims on the node or its child list: the lock, what it has or wants there, whether it has it.
    pub claims: Vec<Claimed>,
    /// How many granted resources below this node read (IS).
    pub intent_read: usize,
    /// How many granted resources below this node may change something (IX).
    pub intent_change: usize,
}

/// A lock's claim on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// Which lock.
    pub lock: LockId,
    /// Whose lock.
    pub owner: OwnerId,
    /// In which mode.
    pub mode: Mode,
    /// How far down.
    pub depth: lockwood_model::Depth,
    /// Held, or only announced: a waiter's claim is the pending intent on its target.
    pub granted: bool,
}

/// How much there is in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Locks that are held.
    pub locks_granted: usize,
    /// Locks that stand in line.
    pub locks_waiting: usize,
    /// Resources of the locks that are held.
    pub resources_granted: usize,
    /// Resources of the locks that stand in line.
    pub resources_waiting: usize,
    /// Nodes with something on or below them, the root included.
    pub nodes: usize,
    /// Owners with at least one lock.
    pub owners: usize,
}
