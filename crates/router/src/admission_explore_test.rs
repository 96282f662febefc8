//! Every schedule of one lock, one client that wants it, one writer at a shard, takeovers of the home and of the shard, with
//! old owners going on and messages late: the writer's append never becomes durable while the client holds the lock.

use crate::{
    ShardEpoch, ShardNo, ShardRow, Target,
    admission::{Barrier, Earlier, Fault, Takeover, plant},
};
use std::collections::{BTreeSet, HashSet, VecDeque};

const HOME: ShardNo = ShardNo(1);
const SHARD: ShardNo = ShardNo(2);
/// Claims of each that may come.
const CLAIMS: u64 = 2;

/// What a test leaves out besides the faults of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Omission {
    None,
    Code(Fault),
    /// The log takes appends of replaced owners.
    Append,
    /// A home ends an operation's lock without hearing that the operation left.
    Forget,
    /// A home whose ownership is stale grants.
    Stale,
    /// An operation leaves although its append has no answer, and may become durable later.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// The home with this epoch has admitted the writer at the owner with the second one.
    Admitted(ShardEpoch, ShardEpoch),
    /// The writer has left: to the home, from the owner.
    Left(ShardEpoch, ShardEpoch),
    /// A home takes over: to the owner.
    Raise(ShardEpoch, ShardEpoch),
    /// The owner has nothing of earlier homes.
    Over(ShardEpoch, ShardEpoch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lock {
    Free,
    /// For the writer at the owner with this epoch.
    Writer(ShardEpoch),
    Client,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Home {
    epoch: ShardEpoch,
    takeover: Takeover,
    lock: Lock,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    epoch: ShardEpoch,
    barrier: Barrier,
    /// The home that admitted the operation that is under way. One whose append has no answer stays that.
    running: Option<ShardEpoch>,
    /// An append that left without an answer.
    stray: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    home_epoch: ShardEpoch,
    shard_epoch: ShardEpoch,
    homes: Vec<Home>,
    owners: Vec<Owner>,
    messages: BTreeSet<Message>,
    client_holds: bool,
    /// Writes that may still be asked for.
    writes: u8,
    committed: bool,
}

fn row(shard: ShardNo, epoch: ShardEpoch) -> ShardRow {
    ShardRow { shard, epoch, owner: Some("n".into()), age_ms: 0, target: Target::Any }
}

impl World {
    fn start() -> World {
        let rows = [row(HOME, ShardEpoch(1)), row(SHARD, ShardEpoch(1))];
        let mut takeover = Takeover::new(HOME, &rows);
        takeover.confirmed(SHARD, ShardEpoch(1));
        World {
            home_epoch: ShardEpoch(1),
            shard_epoch: ShardEpoch(1),
            homes: vec![Home { epoch: ShardEpoch(1), takeover, lock: Lock::Free }],
            owners: vec![Owner {
                epoch: ShardEpoch(1),
                barrier: Barrier::default(),
                running: None,
                stray: false,
            }],
            messages: BTreeSet::new(),
            client_holds: false,
            writes: 2,
            committed: false,
        }
    }

    fn rows(&self) -> [ShardRow; 2] {
        [row(HOME, self.home_epoch), row(SHARD, self.shard_epoch)]
    }

    fn next(&self, omission: Omission) -> Vec<World> {
        let mut found = Vec::new();
        self.claims(&mut found);
        for at in 0..self.homes.len() {
            self.home_steps(at, omission, &mut found);
        }
        for at in 0..self.owners.len() {
            self.owner_steps(at, omission, &mut found);
        }
        for message in &self.messages {
            found.push(self.deliver(*message));
        }
        found
    }

    fn claims(&self, found: &mut Vec<World>) {
        if self.home_epoch.0 <= CLAIMS {
            let mut next = self.clone();
            next.home_epoch = self.home_epoch.next();
            // The client re-attaches with what it holds before anything is granted; that is not what is explored here.
            let lock = if self.client_holds { Lock::Client } else { Lock::Free };
            let takeover = Takeover::new(HOME, &next.rows());
            for (shard, owner) in takeover.pending() {
                assert_eq!(shard, SHARD);
                next.messages.insert(Message::Raise(next.home_epoch, owner));
            }
            next.homes.push(Home { epoch: next.home_epoch, takeover, lock });
            found.push(next);
        }
        if self.shard_epoch.0 <= CLAIMS {
            let mut next = self.clone();
            next.shard_epoch = self.shard_epoch.next();
            next.owners.push(Owner {
                epoch: next.shard_epoch,
                barrier: Barrier::default(),
                running: None,
                stray: false,
            });
            found.push(next);
        }
    }

    fn home_steps(&self, at: usize, omission: Omission, found: &mut Vec<World>) {
        let home = &self.homes[at];
        let mut observed = self.clone();
        observed.homes[at].takeover.observed(SHARD, self.shard_epoch);
        let is_fresh = home.epoch == self.home_epoch || omission == Omission::Stale;
        if !is_fresh {
            return;
        }
        found.push(observed);
        match home.lock {
            // PostgreSQL names another owner of the shard: what the writer's owner appends is rejected.
            Lock::Writer(owner) if owner < self.shard_epoch || omission == Omission::Forget => {
                let mut next = self.clone();
                next.homes[at].lock = Lock::Free;
                found.push(next);
            }
            Lock::Free if home.takeover.is_complete() => {
                let mut next = self.clone();
                next.homes[at].lock = Lock::Client;
                next.client_holds = true;
                found.push(next);
                for owner in self.owners.iter().filter(|_| self.writes > 0) {
                    let mut next = self.clone();
                    next.writes -= 1;
                    next.homes[at].lock = Lock::Writer(owner.epoch);
                    next.messages.insert(Message::Admitted(home.epoch, owner.epoch));
                    found.push(next);
                }
            }
            Lock::Client if self.client_holds => {
                let mut next = self.clone();
                next.homes[at].lock = Lock::Free;
                next.client_holds = false;
                found.push(next);
            }
            _ => {}
        }
    }

    fn owner_steps(&self, at: usize, omission: Omission, found: &mut Vec<World>) {
        let owner = &self.owners[at];
        if owner.stray && owner.epoch == self.shard_epoch {
            assert!(
                !self.client_holds,
                "an append without an answer became durable beside the lock of the client"
            );
        }
        let Some(home) = owner.running else { return };
        if omission == Omission::Unknown {
            let mut next = self.clone();
            let left = &mut next.owners[at];
            (left.running, left.stray) = (None, true);
            left.barrier.leave(HOME, home);
            next.messages.insert(Message::Left(home, owner.epoch));
            found.push(next);
        }
        let mut next = self.clone();
        if owner.epoch == self.shard_epoch || omission == Omission::Append {
            assert!(!self.client_holds, "a write became durable beside the lock of the client");
            next.committed = true;
        }
        let ended = &mut next.owners[at];
        ended.running = None;
        ended.barrier.leave(HOME, home);
        next.messages.insert(Message::Left(home, owner.epoch));
        found.push(next);
    }

    fn deliver(&self, message: Message) -> World {
        let mut next = self.clone();
        next.messages.remove(&message);
        let at = |epoch: ShardEpoch| epoch.0 as usize - 1;
        match message {
            Message::Admitted(home, owner) => {
                let entering = &mut next.owners[at(owner)];
                match entering.running.is_none() && entering.barrier.enter(HOME, home).is_ok() {
                    true => entering.running = Some(home),
                    false => drop(next.messages.insert(Message::Left(home, owner))),
                }
            }
            Message::Left(home, owner) => {
                let lock = &mut next.homes[at(home)].lock;
                if *lock == Lock::Writer(owner) {
                    *lock = Lock::Free;
                }
            }
            Message::Raise(home, owner) => match next.owners[at(owner)].barrier.raise(HOME, home) {
                Ok(Earlier::Over) => drop(next.messages.insert(Message::Over(home, owner))),
                // It is asked again.
                Ok(Earlier::Running) => drop(next.messages.insert(message)),
                Err(_) => {}
            },
            Message::Over(home, owner) => next.homes[at(home)].takeover.confirmed(SHARD, owner),
        }
        next
    }
}

/// Visits every state; gives their number, and whether a write committed and the client held the lock somewhere.
fn explore(omission: Omission) -> (usize, bool, bool) {
    plant(if let Omission::Code(fault) = omission { Some(fault) } else { None });
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([World::start()]));
    let (mut commits, mut grants) = (false, false);
    while let Some(world) = queue.pop_front() {
        for next in world.next(omission) {
            commits |= next.committed;
            grants |= next.client_holds;
            if seen.insert(next.clone()) {
                queue.push_back(next);
            }
        }
    }
    plant(None);
    (seen.len(), commits, grants)
}

#[test]
fn no_write_becomes_durable_beside_a_conflicting_lock() {
    let (states, commits, grants) = explore(Omission::None);
    println!("{states} states");
    assert!(states > 1000 && commits && grants, "{states} states, {commits}, {grants}");
}

#[test]
fn every_omission_is_noticed() {
    let omissions = [
        Omission::Code(Fault::RaiseAtOnce),
        Omission::Code(Fault::EnterAnyway),
        Omission::Code(Fault::AdmitAtOnce),
        Omission::Append,
        Omission::Forget,
        Omission::Stale,
        Omission::Unknown,
    ];
    for omission in omissions {
        let found = std::panic::catch_unwind(|| explore(omission));
        plant(None);
        assert!(found.is_err(), "{omission:?} goes unnoticed");
    }
}

#[test]
fn a_barrier_waits_for_what_entered_under_earlier_homes() {
    let mut barrier = Barrier::default();
    assert!(barrier.enter(HOME, ShardEpoch(3)).is_ok());
    assert_eq!(barrier.raise(HOME, ShardEpoch(5)), Ok(Earlier::Running));
    assert!(barrier.enter(HOME, ShardEpoch(3)).is_err(), "replaced meanwhile");
    barrier.leave(HOME, ShardEpoch(3));
    assert_eq!(barrier.raise(HOME, ShardEpoch(5)), Ok(Earlier::Over));
    assert!(barrier.raise(HOME, ShardEpoch(4)).is_err());
    // Each home by itself.
    assert!(barrier.enter(ShardNo(9), ShardEpoch(1)).is_ok());
}
