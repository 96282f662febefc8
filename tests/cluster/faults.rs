//! Faults of storms, drawn from a seed: nodes, connections and the database fail, shards and documents move, while clients
//! work. Knows nothing of what clients see.

use crate::{
    harness::{eventually, eventually_is},
    http,
    nodes::Nodes,
    random::Random,
    spread_nodes::{Spread, hash},
};
use lockwood_test_support::{Fault, Postgres};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// So many faults, unless `LOCKWOOD_CLUSTER_FAULTS` says otherwise.
const FAULTS_LEN: u64 = 6;
/// The seed, unless `LOCKWOOD_CLUSTER_SEED` says otherwise.
const SEED: u64 = 7;

/// What goes wrong. Where nothing else is said, the owner of a shard is struck: half of the time that of a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kill,
    Pause,
    Stop,
    /// An operator moves the shard to another node.
    Move,
    /// An operator has the owner give all its shards away.
    Drain,
    /// Between the owner and the database.
    Database(Fault),
    /// When other nodes call the owner.
    Calls(Fault),
    /// When any node calls another one.
    AllCalls(Fault),
    CrashDatabase,
    RestartDatabase,
}

/// Every kind comes as often as here before any comes again; their order is drawn.
const KINDS: [Kind; 21] = [
    Kind::Kill,
    Kind::Kill,
    Kind::Kill,
    Kind::Pause,
    Kind::Pause,
    Kind::Stop,
    Kind::Move,
    Kind::Drain,
    Kind::Database(Fault::Refuse),
    Kind::Database(Fault::HoldRequests),
    Kind::Database(Fault::HoldAnswers),
    Kind::Database(Fault::CutAnswers),
    Kind::Database(SLOW),
    Kind::Calls(Fault::Refuse),
    Kind::Calls(Fault::HoldRequests),
    Kind::Calls(Fault::HoldAnswers),
    Kind::Calls(Fault::CutAnswers),
    Kind::Calls(SLOW),
    Kind::AllCalls(Fault::Refuse),
    Kind::CrashDatabase,
    Kind::RestartDatabase,
];
const SLOW: Fault = Fault::Delay(Duration::from_millis(80));
/// One lasting fault of so many has another node killed meanwhile.
const DOUBLED: u64 = 3;
/// A fault lasts twice as long at most, in a short storm and in a long one; ownership lasts 3 s.
const SHORT_MS: u64 = 1_900;
const LONG_MS: u64 = 3_500;
/// How many documents a donor copies in a second, so that there is time for faults.
const THROTTLE: u64 = 40;
/// Of so many faults, the first two strike while documents move to other shards.
const LEG_LEN: u64 = 4;

pub(crate) struct Faults {
    pub(crate) len: u64,
    pub(crate) seed: u64,
    pub(crate) shards: usize,
    random: Random,
    /// Whether documents move from shard to shard meanwhile.
    pub(crate) has_reshardings: bool,
    tally: Tally,
    started: Instant,
    struck: u64,
    /// The kinds that are still to come before all come again.
    left: Vec<Kind>,
}

/// How often shards and documents moved.
#[derive(Debug, Default)]
struct Tally {
    /// Shards that an operator moved, and nodes that gave all of theirs away.
    moves: u64,
    reshardings: u64,
    aborts: u64,
    /// Faults that struck during a resharding.
    faults_meanwhile: u64,
}

impl Faults {
    /// As the environment says, which is told so that the same faults can be had again. Storms of different names have
    /// different faults.
    pub(crate) fn from_environment(name: &str, shards: usize) -> Faults {
        let setting =
            |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        let (len, seed) =
            (setting("LOCKWOOD_CLUSTER_FAULTS", FAULTS_LEN), setting("LOCKWOOD_CLUSTER_SEED", SEED));
        println!("{name}: LOCKWOOD_CLUSTER_SEED={seed} LOCKWOOD_CLUSTER_FAULTS={len}");
        let salt = name.bytes().fold(seed, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte.into()));
        let (random, left) = (Random(salt | 1 << 32), Vec::new());
        let started = Instant::now();
        let (has_reshardings, tally) = (false, Tally::default());
        Faults { len, seed, shards, random, has_reshardings, tally, started, struck: 0, left }
    }

    /// Documents move from shard to shard meanwhile, and half of the time back. There must be three shards.
    pub(crate) fn with_reshardings(self) -> Faults {
        Faults { has_reshardings: true, ..self }
    }

    /// All faults, one after the other. What was to happen meanwhile did, if there were enough of them.
    pub(crate) fn strike_all(&mut self, spread: &mut Spread) {
        for _ in 0..self.len {
            if self.has_reshardings {
                self.reshard(spread);
            }
            self.strike(spread);
        }
        if self.has_reshardings {
            unthrottle_to_the_end(spread);
        }
        println!(
            "seed {}, {} faults in {:.1?}, {:?}",
            self.seed,
            self.len,
            self.started.elapsed(),
            self.tally
        );
        let Tally { moves, reshardings, aborts, faults_meanwhile } = self.tally;
        let (len, rounds) = (self.len, self.len / KINDS.len() as u64);
        let is_often =
            reshardings >= len / LEG_LEN && aborts >= len / LEG_LEN / 4 && faults_meanwhile >= len / 4;
        let is_enough = moves >= 2 * rounds && (is_often || !self.has_reshardings);
        assert!(is_enough || rounds == 0, "shards and documents moved too seldom: {:?}", self.tally);
    }

    /// Has documents begin to move, go back, or come to the end of it, as it is due before the next fault.
    fn reshard(&mut self, spread: &Spread) {
        let (place, leg) = (self.struck % LEG_LEN, self.struck / LEG_LEN);
        match place {
            0 => {
                // To any number of shards but the present one, and at least two, so that documents are on their way.
                let drawn = 2 + self.random.below(self.shards as u64 - 2) as usize;
                let len = if drawn < spread.spread_len() { drawn } else { drawn + 1 };
                spread.begin(len, hash(len), Some(THROTTLE));
                self.tally.reshardings += 1;
            }
            1 if leg % 2 == 1 => {
                let reply = spread.keeper().send("POST", "shard/transition", r#"{"do":"abort"}"#);
                self.tally.aborts += u64::from(reply.status == 200);
            }
            2 => unthrottle_to_the_end(spread),
            _ => {}
        }
    }

    /// After a while, one fault; and waits until all shards have owners again.
    fn strike(&mut self, spread: &mut Spread) {
        self.pause(300, 1500);
        self.tally.faults_meanwhile += u64::from(self.has_reshardings && spread.is_resharding());
        let (kind, shard) = (self.draw(), self.choose_shard(&mut spread.nodes));
        let owner = spread.owner(shard);
        self.struck += 1;
        let at = self.started.elapsed();
        println!(
            "seed {}, fault {} at {at:.1?}: {kind:?}, n{owner} with shard {shard}",
            self.seed, self.struck
        );
        self.strike_node(kind, &mut spread.nodes, shard, owner);
        spread.nodes.await_owners(self.shards);
    }

    fn draw(&mut self) -> Kind {
        if self.left.is_empty() {
            self.left = KINDS.to_vec();
        }
        let place = self.random.below(self.left.len() as u64) as usize;
        self.left.swap_remove(place)
    }

    fn choose_shard(&mut self, nodes: &mut Nodes) -> usize {
        let homes = nodes.network().sql("select distinct home from lockwood.namespace order by home");
        let homes: Vec<usize> = homes.lines().map(|home| home.parse().unwrap()).collect();
        match self.random.below(2) {
            0 if !homes.is_empty() => homes[self.random.below(homes.len() as u64) as usize],
            _ => self.random.below(self.shards as u64) as usize + 1,
        }
    }

    fn strike_node(&mut self, kind: Kind, nodes: &mut Nodes, shard: usize, owner: usize) {
        match kind {
            Kind::Kill => {
                nodes.kill(owner);
                eventually("another node takes over", || {
                    nodes.owner_of(shard).is_some_and(|next| next != owner)
                });
                nodes.up(owner);
            }
            Kind::Stop => {
                nodes.stop(owner);
                nodes.up(owner);
            }
            Kind::Move => self.move_away(nodes, shard, owner),
            Kind::Drain => self.drain(nodes, owner),
            Kind::CrashDatabase => self.restart_database(nodes, Postgres::crash),
            Kind::RestartDatabase => self.restart_database(nodes, Postgres::stop),
            Kind::Pause => self.last(nodes, owner, |nodes, is_on| {
                nodes.server(owner).signal(if is_on { "-STOP" } else { "-CONT" });
            }),
            Kind::Database(fault) => self.last(nodes, owner, |nodes, is_on| {
                nodes.network().set_to_database(owner, if is_on { fault } else { Fault::None });
            }),
            Kind::Calls(fault) => self.last(nodes, owner, |nodes, is_on| {
                nodes.network().set_to_node(owner, if is_on { fault } else { Fault::None });
            }),
            Kind::AllCalls(fault) => self.last(nodes, owner, |nodes, is_on| {
                nodes.network().set_between_nodes(if is_on { fault } else { Fault::None });
            }),
        }
    }

    /// Has a fault last for a while, and sometimes kills a node meanwhile that is not struck.
    fn last(&mut self, nodes: &mut Nodes, struck: usize, set: impl Fn(&mut Nodes, bool)) {
        let is_doubled = self.random.below(DOUBLED) == 0;
        let killed = is_doubled.then(|| self.other(nodes, struck));
        let half_ms = if self.len > FAULTS_LEN { LONG_MS } else { SHORT_MS };
        set(nodes, true);
        self.pause(250, half_ms);
        if let Some(killed) = killed {
            println!("seed {}, fault {}: n{killed} is killed too", self.seed, self.struck);
            nodes.kill(killed);
        }
        self.pause(250, half_ms);
        set(nodes, false);
        if let Some(killed) = killed {
            nodes.up(killed);
        }
    }

    fn restart_database(&mut self, nodes: &mut Nodes, end: impl FnOnce(&mut Postgres)) {
        nodes.network().restart_database(end, || self.pause(0, 4000));
    }

    fn move_away(&mut self, nodes: &mut Nodes, shard: usize, owner: usize) {
        let to = self.other(nodes, owner);
        let target = format!("shards/{shard}/owner");
        operate(nodes, "PUT", &format!("{target}/n{to}"));
        eventually("the shard is moved", || nodes.owner_of(shard) == Some(to));
        self.tally.moves += 1;
        operate(nodes, "DELETE", &target);
    }

    fn drain(&mut self, nodes: &mut Nodes, owner: usize) {
        let (target, shards) = (format!("nodes/n{owner}/drain"), self.shards);
        operate(nodes, "PUT", &target);
        eventually("the node has no shard", || {
            (1..=shards).all(|shard| nodes.owner_of(shard).is_some_and(|other| other != owner))
        });
        self.tally.moves += 1;
        operate(nodes, "DELETE", &target);
    }

    /// A node that is up, and not this one.
    fn other(&mut self, nodes: &Nodes, than: usize) -> usize {
        let others: Vec<usize> = nodes.running().filter(|number| *number != than).collect();
        others[self.random.below(others.len() as u64) as usize]
    }

    pub(crate) fn pause(&mut self, from_ms: u64, to_ms: u64) {
        thread::sleep(Duration::from_millis(from_ms + self.random.below(to_ms - from_ms)));
    }
}

fn unthrottle_to_the_end(spread: &Spread) {
    spread.unthrottle();
    spread.await_end();
}

/// Has a node carry out what an operator asks of the cluster.
fn operate(nodes: &Nodes, method: &str, target: &str) {
    let (native, target) =
        (nodes.server(nodes.running().next().unwrap()).native, format!("/v1/cluster/{target}"));
    let ask = || http::send(native, method, &target, &[], b"");
    eventually_is("an operator is obeyed", ask, |reply| reply.status == 200);
}

/// Clients in threads of their own, which work until this goes.
#[derive(Default)]
pub(crate) struct Clients {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Has a client work turn by turn; turns are numbered.
    pub(crate) fn start(&mut self, mut turn: impl FnMut(u64) + Send + 'static) {
        let stopping = Arc::clone(&self.stopping);
        self.threads.push(thread::spawn(move || {
            (0..).take_while(|_| !stopping.load(Ordering::Acquire)).for_each(&mut turn);
        }));
    }

    /// Ends them; a client that panicked has the test panic.
    pub(crate) fn stop(mut self) {
        self.stopping.store(true, Ordering::Release);
        self.threads.drain(..).for_each(|client| client.join().unwrap());
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
    }
}
