//! Several of our own servers as one cluster, and what it is told. Knows nothing of measuring.

use super::{
    http::{self, Session},
    lockwood::Lockwood,
};
use crate::peer::{self, Peer};
use std::{fs, net::SocketAddr, path::Path};

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Lockwood>,
}

impl Cluster {
    /// So many nodes; the first `shards` of them are in the map.
    pub(crate) fn start(directory: &Path, nodes: usize, shards: usize, function: &str) -> Cluster {
        let key = directory.join("key");
        fs::write(&key, "a key that only the benchmark knows").expect("a file for the key");
        let node = |number: usize| {
            let data = directory.join(format!("node-{number}"));
            let address = peer::free_address();
            let flags =
                ["--this", &number.to_string(), "--cluster-key", &key.to_string_lossy()].map(str::to_owned);
            Lockwood { peer: Peer::lockwood_node(&data, address, &flags), address, data }
        };
        let cluster = Cluster { nodes: (1..=nodes).map(node).collect() };
        cluster.tell(&format!(r#"{{"do":"config","change":{}}}"#, cluster.change(shards, function)));
        cluster
    }

    /// A map of the first nodes.
    fn change(&self, shards: usize, function: &str) -> String {
        let hosts: Vec<String> = self
            .addresses()
            .take(shards)
            .map(|address| format!(r#"[{{"mode":"rw","weight":1,"address":"{address}"}}]"#))
            .collect();
        format!(r#"{{"list":[{}],"curr":{function}}}"#, hosts.join(","))
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.address)
    }

    fn tell(&self, command: &str) {
        self.nodes[0].session().call(&http::post("/v1/_system/shard/transition", command));
    }

    /// Starts to go over to the first `shards` nodes.
    pub(crate) fn reshard(&self, shards: usize, function: &str) {
        self.tell(&format!(r#"{{"do":"reshard","change":{}}}"#, self.change(shards, function)));
    }

    /// Whether everything that moves has been copied and found equal.
    pub(crate) fn is_copied(&self, session: &mut Session) -> bool {
        let status = session.call(&http::get("/v1/_system/shard/transition"));
        ["\"step\":\"finish\"", "\"step\":\"clean\"", "\"step\":\"settle\"", "\"step\":\"none\""]
            .iter()
            .any(|step| status.contains(step))
    }

    /// Whether everything is done.
    pub(crate) fn is_over(&self, session: &mut Session) -> bool {
        session.call(&http::get("/v1/_system/shard/transition")).contains("\"step\":\"none\"")
    }
}
