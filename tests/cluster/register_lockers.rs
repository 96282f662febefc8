//! Clients of a storm that count up under leases and locks of sessions, and note what they see. Reading and writing are two
//! requests: only the lock keeps others away. Knows nothing of shards, nor of what may be seen.

use crate::{
    linear::{Action, Answer},
    random::Random,
    register_clients::{At, COUNTERS_LEN, Held, NAMESPACE, Scene, Seen, held, holds, may_happen},
};
use lockwood_client::{
    Code, Depth, DocumentKey, Error, Lease, LeaseRequest, Leases, Lock, LockId, Mode, Path, PutOptions,
    ReadOptions, Request, Resource, Session, Store, Terms, Token, Wait,
};
use std::sync::{Arc, atomic::Ordering};

/// How long a lease outlives its owner, and how long a lock is waited for.
const LEASE_MS: u64 = 20_000;

/// Counts up under locks until it is calm.
pub(crate) struct Locker {
    number: usize,
    scene: Arc<Scene>,
    store: Store,
    keys: Keys,
    random: Random,
    seen: Seen,
}

/// How a locker locks.
enum Keys {
    Leases(Leases),
    Session(Session),
}

/// How a session takes a lock for writing.
#[derive(Clone, Copy)]
enum Way {
    AtOnce,
    /// It reads first, with others.
    Converting,
    /// It has another lock already, on a counter that it only reads.
    Holding(u64),
}

/// A lock that is held.
enum Grip {
    Lease(Lease),
    Lock(Lock),
    /// The second while the first was held.
    Locks(Lock, Lock),
}

impl Grip {
    fn lock(&self) -> LockId {
        match self {
            Grip::Lease(lease) => lease.lock(),
            Grip::Lock(lock) | Grip::Locks(_, lock) => lock.id(),
        }
    }

    fn token(&self) -> Token {
        match self {
            Grip::Lease(lease) => lease.token(),
            Grip::Lock(lock) | Grip::Locks(_, lock) => lock.token(),
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Grip::Lease(lease) => lease.release().await,
            Grip::Lock(lock) => lock.release().await,
            Grip::Locks(first, second) => {
                second.release().await?;
                first.release().await
            }
        }
    }
}

impl Locker {
    pub(crate) async fn start(number: usize, scene: Arc<Scene>, random: Random) -> Seen {
        let keys = match number % 2 {
            0 => Keys::Leases(Leases::new(scene.nodes(number + 1), NAMESPACE)),
            _ => Keys::Session(scene.session(number).await),
        };
        let store = scene.store(number);
        Locker { number, scene, store, keys, random, seen: Seen::default() }.run().await
    }

    async fn run(mut self) -> Seen {
        while !self.scene.calm.load(Ordering::Relaxed) {
            let (counters, paths) = self.choose();
            let (number, called) = (self.number, self.scene.now());
            let way = match self.random.below(3) {
                0 => Way::Converting,
                1 => Way::Holding(self.random.below(COUNTERS_LEN)),
                _ => Way::AtOnce,
            };
            match self.take(&paths, way).await {
                Ok(Some(grip)) => self.count(&counters, grip, called).await,
                Ok(None) => {}
                Err(error) if may_happen(&error) => self.begin_anew().await,
                Err(error) => {
                    self.seen.errors.push(format!("client {number} {counters:?} since {called}: {error}"));
                }
            }
        }
        self.seen
    }

    /// After a lock was lost. A session that was away for too long is over, and another one takes its place.
    async fn begin_anew(&mut self) {
        if matches!(self.keys, Keys::Session(_)) {
            self.keys = Keys::Session(self.scene.session(self.number).await);
        }
    }

    /// One counter, two of them, which may be on two shards, or one with its whole collection, which is on all shards.
    fn choose(&mut self) -> (Vec<At>, Vec<Path>) {
        let first = self.random.below(COUNTERS_LEN);
        let second = (first + 1 + self.random.below(COUNTERS_LEN - 1)) % COUNTERS_LEN;
        match self.random.below(10) {
            0 => (vec![At::Counter(first)], vec![Path::from_segments([At::Counter(first).key().collection])]),
            1..4 => (vec![At::Counter(first), At::Counter(second)], vec![path_of(first), path_of(second)]),
            _ => (vec![At::Counter(first)], vec![path_of(first)]),
        }
    }

    /// Takes locks for writing; nothing if a session that has one already is in the way of those in its way.
    async fn take(&self, paths: &[Path], way: Way) -> Result<Option<Grip>, Error> {
        let session = match &self.keys {
            Keys::Leases(leases) => {
                return self.lease(leases, paths).await.map(|lease| Some(Grip::Lease(lease)));
            }
            Keys::Session(session) => session,
        };
        let (first, second) = match way {
            Way::AtOnce => return Ok(Some(Grip::Lock(session.lock(request(paths, Mode::Write)).await?))),
            Way::Converting => {
                let lock = session.lock(request(paths, Mode::Read)).await?;
                let converted = lock.convert(Mode::Write, Wait::Millis(LEASE_MS)).await;
                (lock, converted.map(|_| None))
            }
            Way::Holding(number) => {
                let first = session.lock(request(&[path_of(number)], Mode::Read)).await?;
                (first, session.lock(request(paths, Mode::Write)).await.map(Some))
            }
        };
        match second {
            Ok(None) => Ok(Some(Grip::Lock(first))),
            Ok(Some(second)) => Ok(Some(Grip::Locks(first, second))),
            Err(error) if error.code() == Some(Code::Deadlock) => first.release().await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Each has an owner of its own: of an earlier one that was lost it is not known whether it is over.
    async fn lease(&self, leases: &Leases, paths: &[Path]) -> Result<Lease, Error> {
        let resources = paths.iter().map(|path| Resource::new(path.clone(), Mode::Write, Depth::SUBTREE));
        let request = LeaseRequest {
            owner: format!("locker {} at {}", self.number, self.scene.now()),
            resources: resources.map(|resource| (&resource).into()).collect(),
            ttl_ms: LEASE_MS,
            wait_ms: Some(LEASE_MS),
            poll_ms: None,
            note: None,
        };
        leases.hold(&request).await
    }

    async fn count(&mut self, counters: &[At], grip: Grip, asked: u64) {
        let (number, lock, token, from) = (self.number, grip.lock().0, grip.token(), self.scene.now());
        for at in counters {
            let called = self.scene.now();
            let counted = self.add(*at, Terms::default().token(token)).await;
            let counted = counted.map(|count| (Answer::Holds(Some(count)), None));
            self.seen.note(&self.scene, *at, (number, Action::Add(1), called), counted);
        }
        let to = self.scene.now();
        match grip.release().await {
            Ok(()) => {}
            // How long it was held is unknown. What was done under it is in the history all the same.
            Err(error) if may_happen(&error) => return self.begin_anew().await,
            Err(error) => {
                self.seen.errors.push(format!("client {number} gives back {counters:?} at {to}: {error}"));
            }
        }
        let free = self.scene.now();
        let held = Held { client: number, lock, token: token.0, asked, from, to, free };
        self.seen.held.extend(counters.iter().map(|at| (*at, held)));
    }

    async fn add(&self, at: At, terms: Terms) -> Result<u64, Error> {
        let options = ReadOptions { terms: terms.clone(), ..ReadOptions::default() };
        let count = held(&self.store.get(&at.key(), &options).await?.document) + 1;
        let options = PutOptions { terms, ..PutOptions::default() };
        self.store.put(&at.key(), &holds(count), &options).await?;
        Ok(count)
    }
}

fn path_of(counter: u64) -> Path {
    let DocumentKey { collection, key } = At::Counter(counter).key();
    Path::from_segments([&*collection, &key.to_string()])
}

fn request(paths: &[Path], mode: Mode) -> Request {
    let resources = paths.iter().map(|path| Resource::new(path.clone(), mode, Depth::SUBTREE));
    resources.fold(Request::new(), Request::with).wait(Wait::Millis(LEASE_MS))
}
