//! Nodes over one database in the place of the older cluster's nodes, so that what users see of one is asked of the other
//! too. Shard `n` is not node `n` here: the owner of a shard is the node on record.

use crate::{harness::Server, spread_nodes::Spread, spread_nodes::list, store::Store};
use serde_json::{Value, json};

/// Nodes and a map. Maps are not put in force as they are given, but by what leads to them.
pub(crate) struct Cluster {
    spread: Spread,
    /// One for each node.
    pub(crate) addresses: Vec<String>,
}

impl Cluster {
    /// So many nodes that have no map yet.
    pub(crate) fn nodes(len: usize) -> Cluster {
        // As many shards, so that none changes its owner when they are first used.
        let spread = Spread::without_map(len, len, &["--raw-operations"]);
        let mut cluster = Cluster { spread, addresses: Vec::new() };
        cluster.note_addresses();
        cluster
    }

    fn note_addresses(&mut self) {
        let nodes = &self.spread.nodes;
        self.addresses = nodes.running().map(|node| nodes.server(node).native.to_string()).collect();
    }

    /// The same with a map of so many shards and this function.
    pub(crate) fn start(len: usize, curr: Value) -> Cluster {
        let cluster = Cluster::nodes(len);
        cluster.put_map(&cluster.steady(1, len, curr));
        cluster
    }

    /// Starts one more node; gives its number.
    pub(crate) fn add(&mut self) -> usize {
        self.spread.nodes.add();
        self.note_addresses();
        self.addresses.len()
    }

    /// The same: any node passes on what it does not have.
    pub(crate) fn add_proxy(&mut self) -> usize {
        self.add()
    }

    /// A map of the first `len` shards.
    #[expect(clippy::unused_self, reason = "the older cluster names its own nodes")]
    pub(crate) fn steady(&self, epoch: u64, len: usize, curr: Value) -> Value {
        json!({ "epoch": epoch, "phase": "steady", "shards": list(len), "curr": curr, "prev": null,
            "transition": 0 })
    }

    /// Takes the steps, one by one and by hand, that a map comes of.
    pub(crate) fn put_map(&self, map: &Value) {
        let keeper = self.spread.keeper();
        let config = |change: Value| keeper.post("shard/config", &change);
        match (map["phase"].as_str().unwrap(), keeper.get("shard/map").is_null()) {
            ("preparing", _) => {}
            ("resharding", _) if map["reverses"].as_u64().unwrap_or(0) > 0 => {
                keeper.post("shard/transition", &json!({ "do": "abort" }));
            }
            ("finishing", _) => {
                keeper.post("shard/copy", &json!({}));
                config(json!({ "prev": false }));
            }
            ("steady", false) => {
                keeper.post("shard/cleanup", &json!({}));
                self.spread.await_end();
            }
            _ => drop(config(json!({ "list": map["shards"], "curr": map["curr"] }))),
        }
    }

    pub(crate) fn node(&self, number: usize) -> &Server {
        self.spread.nodes.server(number)
    }

    /// A namespace, asked through one node.
    pub(crate) fn store(&self, number: usize, namespace: &str) -> Store {
        self.spread.store(number, namespace)
    }

    /// A path that asks for what one shard has, whichever node it goes to.
    #[expect(clippy::unused_self, reason = "as for the older cluster")]
    pub(crate) fn at_shard(&self, path: &str, shard: usize) -> String {
        format!("{path}{}shard={shard}", if path.contains('?') { '&' } else { '?' })
    }

    /// Ends a node without warning.
    pub(crate) fn kill(&mut self, number: usize) {
        self.spread.nodes.kill(number);
    }

    /// Starts a node again that was killed, on what it left. Shards have found their places by then: a command that is
    /// under way when its shard is handed off is told that its outcome is unknown.
    pub(crate) fn restart(&mut self, number: usize) {
        let nodes = &mut self.spread.nodes;
        nodes.up(number);
        let asked = nodes.running().next().unwrap();
        let shards = nodes.status(asked)["shards"].as_array().unwrap().len();
        nodes.await_balance(shards);
    }
}
