//! Two real nodes with a fault planted in them or none, and clients that each ask one node and note what they see as the
//! clients of storms do. Knows nothing of what goes wrong when.

use crate::{
    harness::eventually,
    linear::{Action, Answer},
    nodes::Nodes,
    random::Random,
    register_check::{look_at_all, wrong},
    register_clients::{At, Held, NAMESPACE, Scene, Seen, carry_out, held, holds},
    spread_nodes::{Spread, modulo},
};
use lockwood_client::{
    Depth, Error, LeaseRequest, Leases, Lock, Mode, Options, Path, PutOptions, ReadOptions, Request,
    Resource, Session, Store, Terms, Wait,
};
use lockwood_planted::Fault;
use lockwood_test_support::{Postgres, Proxy};
use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{runtime::Runtime, task::JoinHandle};

/// How long a session outlives its connection; as long is its namespace in grace after a takeover.
const ABANDON_MS: u64 = 1_000;
/// How long leases last, and how long they are waited for.
const LEASE_MS: u64 = 20_000;

/// Nodes `n1` and `n2`, each of which reaches PostgreSQL through a proxy of its own.
pub(crate) struct Stage {
    pub(crate) spread: Spread,
    pub(crate) proxies: [Proxy; 2],
    runtime: Runtime,
    scene: Arc<Scene>,
    seen: Arc<Mutex<Seen>>,
    random: Random,
}

impl Stage {
    /// One shard, which `n1` owns, or two, of which each node owns one. A namespace on two shards is spread over both.
    pub(crate) fn start(fault: Option<Fault>, shards: usize, seed: u64) -> Stage {
        let postgres = Postgres::shared();
        let database = postgres.create_database();
        let proxies = [(); 2].map(|()| Proxy::start(postgres.port()));
        let number = shards.to_string();
        let mut flags = vec!["--shards", &number, "--wait", "10s"];
        flags.extend(fault.into_iter().flat_map(|fault| ["--planted", fault.name()]));
        let mut nodes = Nodes::start_with(&postgres.url(&database, proxies[0].port()), 1, &flags);
        nodes.await_owners(shards);
        nodes.add_on(&postgres.url(&database, proxies[1].port()));
        nodes.await_balance(shards);
        let spread = Spread { nodes };
        if shards > 1 {
            spread.config(shards, modulo(shards));
        }
        let addresses = spread.stores(NAMESPACE).iter().map(|store| store.native.to_string()).collect();
        let (scene, seen) = (Arc::new(Scene::new(addresses)), Arc::default());
        let runtime = Runtime::new().unwrap();
        Stage { spread, proxies, runtime, scene, seen, random: Random(seed | 1 << 32) }
    }

    /// A number below this, by the seed.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    pub(crate) fn pause(&mut self, from_ms: u64, to_ms: u64) {
        thread::sleep(Duration::from_millis(from_ms + self.random.below(to_ms - from_ms)));
    }

    /// Another client, which asks a node.
    pub(crate) fn client(&self, node: usize) -> Client {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let (scene, seen) = (Arc::clone(&self.scene), Arc::clone(&self.seen));
        let address = self.spread.nodes.server(node).native.to_string();
        Client { number: NUMBERS.fetch_add(1, Ordering::Relaxed) as usize, address, scene, seen }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits until `n2` is the owner of the only shard.
    pub(crate) fn await_takeover(&self) {
        eventually("n2 takes over", || self.spread.nodes.owner_by(2) == Some(2));
    }

    /// A document whose shard is not the home of the namespace, and the nodes that own the one and the other. To be asked when
    /// the namespace has been used.
    pub(crate) fn remote_document(&mut self) -> (u64, usize, usize) {
        let home = self.spread.homes().iter().position(|len| *len > 0).unwrap() + 1;
        let shard = 3 - home;
        // Number 0 is on shard 1.
        let hot = 2 * self.below(20) + shard as u64 - 1;
        (hot, self.spread.owner(shard), self.spread.owner(home))
    }

    /// What cannot have happened, by the checks of storms; and how many answers there were.
    pub(crate) fn judged(&self) -> (Vec<String>, usize) {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let answers = seen.operations.iter().filter(|(_, operation)| operation.answered.is_some()).count();
        let mut touched: Vec<At> = seen.operations.iter().map(|(at, _)| *at).collect();
        touched.sort();
        touched.dedup();
        let left = self.runtime.block_on(look_at_all(&self.scene, touched));
        (wrong(&self.scene, seen, &left), answers)
    }
}

/// Asks one node.
#[derive(Clone)]
pub(crate) struct Client {
    number: usize,
    address: String,
    scene: Arc<Scene>,
    seen: Arc<Mutex<Seen>>,
}

impl Client {
    pub(crate) async fn act(&self, hot: u64, action: Action) {
        let called = self.scene.now();
        let answer = carry_out(&self.store(), hot, action).await;
        let seen = (self.number, action, called);
        self.seen.lock().unwrap().note(&self.scene, At::Hot(hot), seen, answer);
    }

    /// Reads a document, lets something happen, and writes one more than it read, all of it under a lease.
    pub(crate) async fn count(&self, hot: u64, between: impl Future<Output = ()>) {
        let asked = self.scene.now();
        let leases = Leases::new(self.address.as_str(), NAMESPACE);
        let request = LeaseRequest {
            owner: format!("client {} at {asked}", self.number),
            resources: vec![(&resource(hot)).into()],
            ttl_ms: LEASE_MS,
            wait_ms: Some(LEASE_MS),
            poll_ms: None,
            note: None,
        };
        let lease = leases.hold(&request).await.unwrap();
        let (lock, token, from) = (lease.lock().0, lease.token(), self.scene.now());
        let counted = self.add(hot, Terms::default().token(token), between).await;
        let counted = counted.map(|count| (Answer::Holds(Some(count)), None));
        let operation = (self.number, Action::Add(1), from);
        self.seen.lock().unwrap().note(&self.scene, At::Hot(hot), operation, counted);
        let to = self.scene.now();
        if lease.release().await.is_ok() {
            self.note_held(hot, Held { client: self.number, lock, token: token.0, asked, from, to, free: 0 });
        }
    }

    async fn add(&self, hot: u64, terms: Terms, between: impl Future<Output = ()>) -> Result<u64, Error> {
        let (store, at) = (self.store(), At::Hot(hot).key());
        let options = ReadOptions { terms: terms.clone(), ..ReadOptions::default() };
        let count = held(&store.get(&at, &options).await?.document) + 1;
        between.await;
        let options = PutOptions { terms, ..PutOptions::default() };
        store.put(&at, &holds(count), &options).await?;
        Ok(count)
    }

    pub(crate) async fn session(&self) -> Session {
        let options = Options {
            address: self.address.clone(),
            namespace: NAMESPACE.into(),
            name: Some(format!("client {}", self.number)),
            abandon_timeout_ms: Some(ABANDON_MS),
        };
        Session::open(options).await.unwrap()
    }

    /// Holds a lock of a session while something happens, if it gets it and does not lose it.
    pub(crate) async fn hold(&self, session: &Session, hot: u64, meanwhile: impl Future<Output = ()>) {
        let asked = self.scene.now();
        let Ok(lock) = self.lock(session, hot).await else { return };
        let (number, token, from) = (lock.id().0, lock.token().0, self.scene.now());
        meanwhile.await;
        let to = self.scene.now();
        if lock.release().await.is_ok() {
            self.note_held(hot, Held { client: self.number, lock: number, token, asked, from, to, free: 0 });
        }
    }

    pub(crate) async fn lock(&self, session: &Session, hot: u64) -> Result<Lock, Error> {
        session.lock(Request::new().with(resource(hot)).wait(Wait::Millis(LEASE_MS))).await
    }

    fn note_held(&self, hot: u64, held: Held) {
        let free = self.scene.now();
        self.seen.lock().unwrap().held.push((At::Hot(hot), Held { free, ..held }));
    }

    fn store(&self) -> Store {
        Store::new(self.address.as_str(), NAMESPACE)
    }
}

fn resource(hot: u64) -> Resource {
    let at = At::Hot(hot).key();
    let path = Path::from_segments([&*at.collection, &at.key.to_string()]);
    Resource::new(path, Mode::Write, Depth::SUBTREE)
}
