//! Several of our own servers as nodes over one PostgreSQL. Knows nothing of measuring.

use super::{http, lockwood::Lockwood};
use crate::peer::{self, Peer};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Nodes `n1`, `n2` and so on; one of them owns the shard.
pub(crate) struct Nodes {
    database: String,
    directory: PathBuf,
    places: Vec<(SocketAddr, SocketAddr)>,
    /// None while a node is down.
    nodes: Vec<Option<Lockwood>>,
}

impl Nodes {
    /// So many nodes over a database of their own in `postgres`.
    pub(crate) fn start(directory: &Path, url: String, len: usize) -> Nodes {
        let places: Vec<_> = (0..len).map(|_| (peer::free_address(), peer::free_address())).collect();
        let nodes = places.iter().map(|_| None).collect();
        let mut nodes = Nodes { database: url, directory: directory.to_owned(), places, nodes };
        (0..len).for_each(|index| nodes.up(index));
        peer::wait_until("a node owns the shard", || nodes.try_owner().is_some());
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
        peer::wait_until("there is an owner", || self.try_owner().is_some());
        self.try_owner().expect("it was there just now")
    }

    /// A node that is up and does not own the shard.
    pub(crate) fn other(&self) -> usize {
        let owner = self.owner();
        (0..self.nodes.len()).find(|index| *index != owner && self.nodes[*index].is_some()).expect("several")
    }

    fn try_owner(&self) -> Option<usize> {
        let node = self.nodes.iter().flatten().next()?;
        let mut session = node.session();
        let status = session.call(&http::get("/v1/cluster")).to_owned();
        http::number_after(&status, "\"owner\":\"n").and_then(|index| usize::try_from(index).ok())
    }
}
