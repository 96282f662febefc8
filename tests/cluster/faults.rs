//! Faults of storms, chosen by a seed: owners of shards are killed, paused and stopped while clients work. Knows nothing of
//! what clients see.

use crate::{harness::eventually, nodes::Nodes, random::Random};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// So many faults, unless `LOCKWOOD_CLUSTER_FAULTS` says otherwise.
const FAULTS_LEN: u64 = 6;
/// The seed, unless `LOCKWOOD_CLUSTER_SEED` says otherwise.
const SEED: u64 = 7;

pub(crate) struct Faults {
    pub(crate) len: u64,
    pub(crate) seed: u64,
    random: Random,
}

impl Faults {
    /// As the environment says, which is told so that the same faults can be had again.
    pub(crate) fn from_environment() -> Faults {
        let setting =
            |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        let (len, seed) =
            (setting("LOCKWOOD_CLUSTER_FAULTS", FAULTS_LEN), setting("LOCKWOOD_CLUSTER_SEED", SEED));
        println!("LOCKWOOD_CLUSTER_SEED={seed} LOCKWOOD_CLUSTER_FAULTS={len}");
        Faults { len, seed, random: Random(seed | 1 << 32) }
    }

    /// All faults, one after the other.
    pub(crate) fn strike_all(&mut self, nodes: &mut Nodes, shards: usize) {
        for _ in 0..self.len {
            self.strike(nodes, shards);
        }
    }

    /// After a while, one fault of the owner of some shard.
    pub(crate) fn strike(&mut self, nodes: &mut Nodes, shards: usize) {
        self.pause(300, 1500);
        let shard = self.random.below(shards as u64) as usize + 1;
        let Some(owner) = nodes.owner_of(shard) else { return };
        match self.random.below(4) {
            0 | 1 => {
                nodes.kill(owner);
                eventually("another node takes over", || {
                    nodes.owner_of(shard).is_some_and(|next| next != owner)
                });
                nodes.up(owner);
            }
            2 => {
                nodes.server(owner).signal("-STOP");
                self.pause(500, 5500);
                nodes.server(owner).signal("-CONT");
            }
            _ => {
                nodes.stop(owner);
                nodes.up(owner);
            }
        }
    }

    pub(crate) fn pause(&mut self, from_ms: u64, to_ms: u64) {
        thread::sleep(Duration::from_millis(from_ms + self.random.below(to_ms - from_ms)));
    }
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
