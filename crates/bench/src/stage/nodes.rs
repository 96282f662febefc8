//! Several of our own servers as nodes over one PostgreSQL. Knows nothing of measuring.

use super::{
    http,
    lockwood::{self, Lockwood},
};
use crate::peer::{self, Peer};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// How many names are tried until one has its home where it should.
const NAMES_LEN_MAX: usize = 100;
/// What calls between nodes are about that clients cause.
const CALLS: [&str; 3] = ["request", "shard", "guards"];

/// Nodes `n0`, `n1` and so on; each shard is owned by one of them.
pub(crate) struct Nodes {
    database: String,
    directory: PathBuf,
    shards: u64,
    places: Vec<(SocketAddr, SocketAddr)>,
    /// None while a node is down.
    nodes: Vec<Option<Lockwood>>,
}

impl Nodes {
    /// So many nodes over a database of their own in `postgres`.
    pub(crate) fn start(directory: &Path, url: String, len: usize) -> Nodes {
        let nodes = Nodes::up_all(directory, url, (len, 1));
        peer::wait_until("a node owns the shard", || nodes.owner_of(1).is_some());
        nodes
    }

    /// As many nodes as shards, once each owns one.
    pub(crate) fn start_sharded(directory: &Path, url: String, shards: u64) -> Nodes {
        let len = usize::try_from(shards).expect("a few");
        let nodes = Nodes::up_all(directory, url, (len, shards));
        let owners = || (1..=shards).filter_map(|shard| nodes.owner_of(shard)).collect::<BTreeSet<usize>>();
        peer::wait_until("each node owns a shard", || owners().len() == len);
        nodes
    }

    fn up_all(directory: &Path, database: String, (len, shards): (usize, u64)) -> Nodes {
        let places: Vec<_> = (0..len).map(|_| (peer::free_address(), peer::free_address())).collect();
        let nodes = places.iter().map(|_| None).collect();
        let mut nodes = Nodes { database, directory: directory.to_owned(), shards, places, nodes };
        (0..len).for_each(|index| nodes.up(index));
        nodes
    }

    /// Starts a node that is down.
    pub(crate) fn up(&mut self, index: usize) {
        let (address, for_nodes) = self.places[index];
        let data = self.directory.join(format!("node-{index}"));
        let flags = [
            "--cluster",
            &self.database,
            "--node",
            &format!("n{index}"),
            "--advertise",
            &for_nodes.to_string(),
            "--peer-listen",
            &for_nodes.to_string(),
            "--shards",
            &self.shards.to_string(),
        ]
        .map(str::to_owned);
        self.nodes[index] =
            Some(Lockwood { peer: Peer::lockwood_node(&data, address, &flags), address, data });
    }

    /// Ends a node without warning.
    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index] = None;
    }

    /// Asks a node to stop, and waits until it has.
    pub(crate) fn stop(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].take() {
            node.stop();
        }
    }

    pub(crate) fn node(&self, index: usize) -> &Lockwood {
        self.nodes[index].as_ref().expect("it is up")
    }

    pub(crate) fn owner(&self) -> usize {
        peer::wait_until("there is an owner", || self.owner_of(1).is_some());
        self.owner_of(1).expect("it was there just now")
    }

    /// A node that is up and does not own the shard.
    pub(crate) fn other(&self) -> usize {
        let owner = self.owner();
        (0..self.nodes.len()).find(|index| *index != owner && self.nodes[*index].is_some()).expect("several")
    }

    /// The node that owns a shard, if there is one.
    pub(crate) fn owner_of(&self, shard: u64) -> Option<usize> {
        let status = self.status()?;
        let owner = http::number_after(&status, &format!("{{\"shard\":{shard},\"owner\":\"n"))?;
        usize::try_from(owner).ok()
    }

    /// A namespace with its home at a shard. It has one document, in a collection of its own.
    pub(crate) fn namespace_at(&self, shard: u64, name: &str) -> String {
        let owner = self.owner_of(shard).expect("each shard has an owner");
        let mut session = self.node(owner).session();
        let there = || self.namespaces_of(shard).expect("the database says so");
        let mut names = (0..NAMES_LEN_MAX).map(|number| format!("{name}-{number}"));
        let is_there = |name: &String| {
            let before = there();
            session.call(&lockwood::create(name, "first", 1));
            there() > before
        };
        names.find(is_there).expect("homes are spread over the shards")
    }

    /// How many calls to each other the nodes have made for clients, if they count them.
    pub(crate) fn calls(&self) -> Option<u64> {
        let of = |node: &Lockwood| -> Option<u64> {
            let mut session = node.session();
            let text = session.call(&http::get("/metrics"));
            let kind =
                |kind| http::number_after(text, &format!("lockwood_peer_calls_total{{kind=\"{kind}\"}} "));
            CALLS.into_iter().map(kind).sum()
        };
        self.nodes.iter().flatten().map(of).sum()
    }

    /// How many namespaces have their home at a shard.
    pub(crate) fn namespaces_of(&self, shard: u64) -> Option<u64> {
        let status = self.status()?;
        http::number_after(&status[status.find(&format!("{{\"shard\":{shard},"))?..], "\"namespaces\":")
    }

    /// How other nodes reach a node.
    pub(crate) fn advertised(&self, index: usize) -> SocketAddr {
        self.places[index].1
    }

    fn status(&self) -> Option<String> {
        let node = self.nodes.iter().flatten().next()?;
        Some(node.session().call(&http::get("/v1/cluster")).to_owned())
    }
}
