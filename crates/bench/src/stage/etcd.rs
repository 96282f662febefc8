//! An etcd of one or several members with default settings, which sync every write, in a directory of its own, and clients of
//! its lock service. Knows nothing of what is compared with it.

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
    members: Vec<Member>,
}

pub(crate) struct Member {
    pub(crate) peer: Peer,
    address: SocketAddr,
}

impl Etcd {
    /// So many members; on loopback, like everything else.
    pub(crate) fn start(directory: &Path, len: usize) -> Etcd {
        let places: Vec<[SocketAddr; 2]> =
            (0..len).map(|_| [peer::free_address(), peer::free_address()]).collect();
        let all = places.iter().enumerate().map(|(index, [_, peers])| format!("bench{index}=http://{peers}"));
        let all = all.collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for (index, place) in places.into_iter().enumerate() {
            members.push(Member::start(&directory.join(index.to_string()), (index, place), &all));
        }
        for &Member { address, .. } in &members {
            peer::wait_until("etcd listens", || TcpStream::connect(address).is_ok());
            let mut session = Session::open(address);
            peer::wait_until("etcd is well", || session.status(&http::get("/health")) == 200);
        }
        Etcd { members }
    }

    /// The process of the only member.
    pub(crate) fn peer(&self) -> &Peer {
        &self.members[0].peer
    }

    /// A client with a connection of its own, to any of the members, and a lease as it is meant to have: one for all of its
    /// locks.
    pub(crate) async fn locker(&self, (number, name): (usize, String), ttl_ms: u64) -> Locker {
        let member = &self.members[number % self.members.len()];
        let mut client = Client::connect([member.address.to_string()], None).await.expect("etcd listens");
        let ttl_s = i64::try_from(ttl_ms / 1000).expect("not that long");
        let lease = client.lease_grant(ttl_s, None).await.expect("a lease");
        let options = LockOptions::new().with_lease(lease.id());
        Locker { client, name, options }
    }
}

impl Member {
    fn start(directory: &Path, (index, [address, peers]): (usize, [SocketAddr; 2]), all: &str) -> Member {
        fs::create_dir_all(directory).expect("a directory for a member");
        let [clients, peers] = [address, peers].map(|address| format!("http://{address}"));
        let log = fs::File::create(directory.join("log")).expect("a file for what it says");
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("bench{index}"), "--logger", "zap", "--initial-cluster", all]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--data-dir").arg(directory.join("data"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Member { peer: Peer::start(&mut command, Signal::KILL), address }
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
