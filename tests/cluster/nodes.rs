//! Real nodes over one database of their own, to be killed, paused and started again. Knows nothing of what they should
//! say.

use crate::{
    harness::{Ended, Server, eventually},
    http,
    network::Network,
    store::Store,
};
use lockwood_test_support::{Authority, Postgres, Proxy};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

/// Nodes `n1`, `n2` and so on. A node that ended can be started again on the same data and addresses.
pub(crate) struct Nodes {
    url: String,
    /// More flags that all nodes have.
    flags: Vec<String>,
    /// Signs the certificates of nodes that start from now on, if calls between them are encrypted.
    authority: Option<Arc<Authority>>,
    nodes: Vec<Node>,
    /// Shards whose owner was killed, and its epoch.
    orphaned: BTreeMap<usize, u64>,
    /// What fails under them, if it can.
    network: Option<Network>,
}

struct Node {
    url: String,
    listen: String,
    peer: String,
    /// Where other nodes reach it.
    advertise: String,
    state: State,
}

enum State {
    Up(Server),
    Down(Option<Ended>),
}

impl Nodes {
    /// So many nodes on a fresh database, one of which serves.
    pub(crate) fn start(len: usize) -> Nodes {
        let postgres = Postgres::shared();
        let database = postgres.create_database();
        Nodes::start_on(&postgres.url(&database, postgres.port()), len)
    }

    /// The same on a database that is there.
    pub(crate) fn start_on(url: &str, len: usize) -> Nodes {
        Nodes::start_with(url, len, &[])
    }

    /// The same with some more flags.
    pub(crate) fn start_with(url: &str, len: usize, flags: &[&str]) -> Nodes {
        Nodes::start_trusting(url, len, flags, None)
    }

    /// The same with calls between nodes encrypted, if there is an authority.
    pub(crate) fn start_trusting(
        url: &str,
        len: usize,
        flags: &[&str],
        authority: Option<Arc<Authority>>,
    ) -> Nodes {
        let mut nodes = Nodes { authority, ..Nodes::none(url, flags) };
        for _ in 0..len {
            nodes.add();
        }
        eventually("a node owns the shard", || nodes.owner().is_some());
        nodes
    }

    fn none(url: &str, flags: &[&str]) -> Nodes {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (nodes, orphaned) = (Vec::new(), BTreeMap::new());
        Nodes { url: url.to_owned(), flags, authority: None, nodes, orphaned, network: None }
    }

    /// So many nodes on a fresh database with so many shards, each of which is served; and more flags.
    pub(crate) fn start_sharded(len: usize, shards: usize, flags: &[&str]) -> Nodes {
        let postgres = Postgres::shared();
        let database = postgres.create_database();
        let shards_flag = shards.to_string();
        let flags = [&["--shards", &shards_flag], flags].concat();
        let nodes = Nodes::start_with(&postgres.url(&database, postgres.port()), len, &flags);
        nodes.await_balance(shards);
        nodes
    }

    /// The same without more flags, and with a proxy before each node through which other nodes reach it.
    pub(crate) fn start_apart(len: usize, shards: usize) -> (Nodes, Vec<Proxy>) {
        let postgres = Postgres::shared();
        let url = postgres.url(&postgres.create_database(), postgres.port());
        let mut nodes = Nodes::none(&url, &["--shards", &shards.to_string()]);
        let proxies: Vec<Proxy> = (0..len)
            .map(|_| {
                let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
                let proxy = Proxy::start(port);
                nodes.push(&url, format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", proxy.port()));
                proxy
            })
            .collect();
        nodes.await_balance(shards);
        (nodes, proxies)
    }

    /// So many nodes with so many shards on a network whose parts fail on command.
    pub(crate) fn start_exposed(len: usize, shards: usize) -> Nodes {
        let (mut nodes, mut network) =
            (Nodes::none("", &["--shards", &shards.to_string()]), Network::start());
        for _ in 0..len {
            let peer = free_address();
            let (url, advertise) = network.add(peer.parse().unwrap());
            nodes.push(&url, peer, advertise);
        }
        nodes.network = Some(network);
        nodes.await_balance(shards);
        nodes
    }

    /// What fails under nodes that are exposed.
    pub(crate) fn network(&mut self) -> &mut Network {
        self.network.as_mut().unwrap()
    }

    /// Waits until all shards have owners.
    pub(crate) fn await_owners(&self, shards: usize) {
        eventually("all shards have owners", || (1..=shards).all(|shard| self.owner_of(shard).is_some()));
    }

    /// Waits until all shards have owners that are up, and no node has more than its share.
    pub(crate) fn await_balance(&self, shards: usize) {
        let share = shards.div_ceil(self.running().count());
        eventually("shards are spread over the nodes", || {
            let epochs = self.epochs();
            let is_orphan = |(shard, epoch): (&usize, &u64)| epochs.get(shard).is_none_or(|now| now <= epoch);
            let owners: Vec<usize> = (1..=shards).filter_map(|shard| self.owner_of(shard)).collect();
            let has = |number| owners.iter().filter(|owner| **owner == number).count();
            let is_balanced = owners.len() == shards && self.running().all(|number| has(number) <= share);
            is_balanced && !self.orphaned.iter().any(is_orphan)
        });
    }

    /// The epoch of each shard, as the nodes that are up see it.
    fn epochs(&self) -> BTreeMap<usize, u64> {
        let status = self.status(self.running().next().unwrap());
        let shards = status["shards"].as_array().unwrap().iter();
        shards.map(|row| (row["shard"].as_u64().unwrap() as usize, row["epoch"].as_u64().unwrap())).collect()
    }

    /// Has the database carry out a script; it must be the shared one.
    pub(crate) fn sql(&self, script: &str) -> String {
        let (_, database) = self.url.rsplit_once('/').unwrap();
        Postgres::shared().sql(database, script)
    }

    /// Another flag for nodes that start from now on.
    pub(crate) fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Who signs the certificates of nodes that start from now on; they encrypt nothing without.
    pub(crate) fn set_authority(&mut self, authority: Option<Arc<Authority>>) {
        self.authority = authority;
    }

    pub(crate) fn add(&mut self) {
        self.add_on(&self.url.clone());
    }

    /// One more node, which reaches the database in its own way.
    pub(crate) fn add_on(&mut self, url: &str) {
        let peer = free_address();
        self.push(url, peer.clone(), peer);
    }

    /// One more node, which other nodes reach by the name of this machine.
    pub(crate) fn add_advertised(&mut self, host: &str) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = self.url.clone();
        self.push(&url, format!("127.0.0.1:{port}"), format!("{host}:{port}"));
    }

    fn push(&mut self, url: &str, peer: String, advertise: String) {
        let (url, listen) = (url.to_owned(), free_address());
        self.nodes.push(Node { url, listen, peer, advertise, state: State::Down(None) });
        self.up(self.nodes.len());
    }

    /// Starts a node that is down.
    pub(crate) fn up(&mut self, number: usize) {
        let name = format!("n{number}");
        let node = &mut self.nodes[number - 1];
        let (url, peer, advertise) = (node.url.clone(), node.peer.clone(), node.advertise.clone());
        let mut flags =
            vec!["--cluster", &url, "--node", &name, "--advertise", &advertise, "--peer-listen", &peer];
        flags.extend(self.flags.iter().map(String::as_str));
        let tls = self.authority.as_ref().map(|authority| tls_flags(authority, &name, &peer));
        flags.extend(tls.iter().flatten().map(String::as_str));
        let State::Down(ended) = &mut node.state else { panic!("n{number} is up") };
        let server = match ended.take() {
            Some(ended) => ended.restart_at(&node.listen, &flags),
            None => Server::start_at(&node.listen, &flags),
        };
        node.state = State::Up(server);
    }

    pub(crate) fn server(&self, number: usize) -> &Server {
        match &self.nodes[number - 1].state {
            State::Up(server) => server,
            State::Down(_) => panic!("n{number} is down"),
        }
    }

    /// Where a node listens for other nodes.
    pub(crate) fn peer(&self, number: usize) -> &str {
        &self.nodes[number - 1].peer
    }

    pub(crate) fn store(&self, number: usize) -> Store {
        self.store_of(number, "default")
    }

    /// A namespace, as one node is asked about it.
    pub(crate) fn store_of(&self, number: usize, namespace: &str) -> Store {
        Store::new(self.server(number), namespace)
    }

    /// Ends a node without warning.
    pub(crate) fn kill(&mut self, number: usize) {
        self.end(number, Server::kill);
    }

    /// The same for a node among nodes that answer, so that [`Nodes::await_balance`] waits for other owners of its shards.
    pub(crate) fn kill_owner(&mut self, number: usize) {
        let epochs = self.epochs();
        let owned = epochs.into_iter().filter(|(shard, _)| self.owner_of(*shard) == Some(number));
        let owned: Vec<(usize, u64)> = owned.collect();
        self.orphaned.extend(owned);
        self.kill(number);
    }

    /// Asks a node to stop and waits; gives its exit code.
    pub(crate) fn stop(&mut self, number: usize) -> Option<i32> {
        self.end(number, Server::stop)
    }

    /// The same; gives what it has logged.
    pub(crate) fn log_of_stopped(&mut self, number: usize) -> String {
        self.stop(number);
        let State::Down(Some(ended)) = &self.nodes[number - 1].state else { panic!("n{number} is up") };
        ended.log.clone()
    }

    fn end(&mut self, number: usize, end: impl FnOnce(Server) -> Ended) -> Option<i32> {
        let node = &mut self.nodes[number - 1];
        let State::Up(server) = std::mem::replace(&mut node.state, State::Down(None)) else {
            panic!("n{number} is down")
        };
        let ended = end(server);
        let code = ended.status.code();
        node.state = State::Down(Some(ended));
        code
    }

    /// The number of the owner, as the nodes that are up see it.
    pub(crate) fn owner(&self) -> Option<usize> {
        self.owner_by(self.running().next().unwrap())
    }

    /// The same, as one node sees it.
    pub(crate) fn owner_by(&self, number: usize) -> Option<usize> {
        let status = self.status(number);
        status["shards"][0]["owner"].as_str().and_then(|name| name.strip_prefix('n')?.parse().ok())
    }

    /// The number of the owner of a shard, as the nodes that are up see it.
    pub(crate) fn owner_of(&self, shard: usize) -> Option<usize> {
        let status = self.status(self.running().next().unwrap());
        let shards = status["shards"].as_array().unwrap();
        let found = shards.iter().find(|found| found["shard"] == shard)?;
        found["owner"].as_str().and_then(|name| name.strip_prefix('n')?.parse().ok())
    }

    /// A node that is up and does not own the shard.
    pub(crate) fn other(&self) -> usize {
        let owner = self.owner();
        self.running().find(|number| Some(*number) != owner).unwrap()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        let up = self.nodes.iter().map(|node| matches!(node.state, State::Up(_))).collect::<Vec<_>>();
        (1..=up.len()).filter(move |number| up[number - 1])
    }

    pub(crate) fn status(&self, number: usize) -> Value {
        let reply = http::request(self.server(number).native, "GET", "/v1/cluster", &[]);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// Waits until another node than this one owns the shard.
    pub(crate) fn taken_over_from(&self, number: usize) -> usize {
        eventually("another node takes over", || self.owner().is_some_and(|owner| owner != number));
        self.owner().unwrap()
    }
}

/// The files of a node with this name and address.
fn tls_flags(authority: &Authority, name: &str, peer: &str) -> [String; 6] {
    let (host, _) = peer.rsplit_once(':').unwrap();
    let issued = authority.issue(name, &[&format!("IP:{host}")], 30);
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    let flag = str::to_owned;
    [
        flag("--peer-cert"),
        file(&issued.certificate),
        flag("--peer-key"),
        file(&issued.key),
        flag("--peer-ca"),
        file(&authority.certificate()),
    ]
}

/// Connections that are made while a node is down must not take its port, nor may another test that looks for one at the same
/// time, so every address is on a loopback address of its own.
pub(crate) fn free_address() -> String {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let [high, low] = TAKEN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let own = TcpListener::bind(format!("127.77.{high}.{low}:0"));
    let listener = own.or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
    listener.local_addr().unwrap().to_string()
}
