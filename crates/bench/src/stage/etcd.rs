//! An etcd with default settings, which sync every write, in a directory of its own, and clients of its lock
//! service. Knows nothing of what is compared with it.

use super::{http, http::Session, load::Work};
use crate::peer::{self, Peer};
use etcd_client::{Client, LockOptions};
use rustix::process::Signal;
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct Etcd {
    pub(crate) peer: Peer,
    address: SocketAddr,
}

impl Etcd {
    pub(crate) fn start(directory: &Path) -> Etcd {
        let address = peer::free_address();
        let [clients, peers] = [address, peer::free_address()].map(|address| format!("http://{address}"));
        let log = fs::File::create(directory.join("log")).expect("a file for what it says");
        let mut command = Command::new("etcd");
        command.args(["--name", "bench", "--logger", "zap", "--initial-cluster", &format!("bench={peers}")]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--data-dir").arg(directory.join("data"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let peer = Peer::start(&mut command, Signal::KILL);
        peer::wait_until("etcd listens", || TcpStream::connect(address).is_ok());
        let mut session = Session::open(address);
        peer::wait_until("etcd is well", || session.status(&http::get("/health")) == 200);
        Etcd { peer, address }
    }

    /// A client with a connection of its own, and a lease as it is meant to have: one for all of its locks.
    pub(crate) async fn locker(&self, name: String, ttl_ms: u64) -> Locker {
        let mut client = Client::connect([self.address.to_string()], None).await.expect("etcd listens");
        let ttl_s = i64::try_from(ttl_ms / 1000).expect("not that long");
        let lease = client.lease_grant(ttl_s, None).await.expect("a lease");
        let options = LockOptions::new().with_lease(lease.id());
        Locker { client, name, options }
    }
}

/// Locks and unlocks one name.
pub(crate) struct Locker {
    client: Client,
    name: String,
    options: LockOptions,
}

impl Work for Locker {
    async fn once(&mut self) -> Duration {
        let (name, options) = (self.name.clone(), self.options.clone());
        let start = Instant::now();
        let locked = self.client.lock(name, Some(options)).await.expect("the lock is free");
        self.client.unlock(locked.key()).await.expect("it is ours");
        start.elapsed()
    }
}
