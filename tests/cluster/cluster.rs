//! Nodes with a shard map and no other flags than operators need, asked by number. Knows nothing of what they should say.

use crate::{
    harness::Server,
    http::Reply,
    leaseholder::Leaseholder,
    spread_nodes::{Spread, list},
    store::Store,
};
use serde_json::{Value, json};

/// Shard `n` is not on node `n`: the owner of a shard is the node on record.
pub(crate) struct Cluster {
    spread: Spread,
    /// One for each node.
    pub(crate) addresses: Vec<String>,
}

impl Cluster {
    /// So many nodes, and as many shards, that have no map yet.
    pub(crate) fn nodes(len: usize) -> Cluster {
        // As many shards, so that none changes its owner when they are first used.
        let spread = Spread::without_map(len, len, &["--raw-operations"]);
        let addresses = (1..=len).map(|node| spread.nodes.server(node).native.to_string()).collect();
        Cluster { spread, addresses }
    }

    /// The same with a map of all shards and this function.
    pub(crate) fn start(len: usize, curr: Value) -> Cluster {
        Cluster::start_on(len, len, curr)
    }

    /// The same with a map of the first shards.
    pub(crate) fn start_on(len: usize, shards: usize, curr: Value) -> Cluster {
        let cluster = Cluster::nodes(len);
        cluster.config(shards, curr);
        cluster
    }

    /// Begins a namespace whose home stays where it is when the map has fewer shards: those who wait do so undisturbed.
    pub(crate) fn begin_at_first(&self, namespace: &str) {
        self.spread.begin_at_first(namespace);
    }

    /// Starts one more node, which owns no shard; gives its number.
    pub(crate) fn add(&mut self) -> usize {
        self.spread.nodes.add();
        let number = self.addresses.len() + 1;
        self.addresses.push(self.node(number).native.to_string());
        number
    }

    /// Puts a map of the first shards in force. If there is one, documents are to be moved by hand from now on.
    pub(crate) fn config(&self, shards: usize, curr: Value) {
        self.spread.config(shards, curr);
    }

    /// Moves by hand what [`Cluster::config`] left to be moved, and drops the old places.
    pub(crate) fn drop_prev(&self) {
        self.spread.drop_prev();
    }

    /// Removes by hand what was moved away.
    pub(crate) fn clean_up(&self) {
        self.spread.clean_up();
    }

    /// Begins to move documents back to where they were.
    pub(crate) fn abort(&self) {
        self.spread.keeper().post("shard/transition", &json!({ "do": "abort" }));
    }

    /// Goes over to a map of the first shards, to the end.
    pub(crate) fn reshard(&self, shards: usize, curr: Value) {
        self.spread.reshard(shards, curr);
    }

    /// The same without waiting for the end; a donor copies so many documents in a second.
    pub(crate) fn begin(&self, shards: usize, curr: Value, throttle: Option<u64>) {
        self.spread.begin(shards, curr, throttle);
    }

    pub(crate) fn await_end(&self) {
        self.spread.await_end();
    }

    /// The step that a change of the map is in.
    pub(crate) fn step(&self) -> String {
        self.spread.step()
    }

    pub(crate) fn node(&self, number: usize) -> &Server {
        self.spread.nodes.server(number)
    }

    /// Has every shard stay with its owner, so that a restart of another node does not move it.
    pub(crate) fn pin(&self) {
        self.spread.pin();
    }

    /// The number of the node that owns a shard.
    pub(crate) fn owner(&self, shard: usize) -> usize {
        self.spread.owner(shard)
    }

    /// The shard that is the home of the only namespace there is.
    pub(crate) fn home(&self) -> usize {
        let homes = self.spread.homes();
        assert_eq!(homes.iter().sum::<u64>(), 1, "{homes:?}");
        homes.iter().position(|count| *count == 1).unwrap() + 1
    }

    /// A namespace, asked through one node.
    pub(crate) fn store(&self, number: usize, namespace: &str) -> Store {
        self.spread.store(number, namespace)
    }

    /// An owner of leases in the namespace `default`, who asks one node.
    pub(crate) fn holder(&self, number: usize, owner: &str) -> Leaseholder {
        Leaseholder::new(self.node(number), owner)
    }

    /// Ends a node without warning.
    pub(crate) fn kill(&mut self, number: usize) {
        self.spread.nodes.kill_owner(number);
    }

    /// Starts a node again that was killed, on what it left.
    pub(crate) fn up(&mut self, number: usize) {
        self.spread.nodes.up(number);
    }

    /// The same, and waits until shards are spread over all nodes again: a command that is under way when its shard is
    /// handed off is told that its outcome is unknown.
    pub(crate) fn restart(&mut self, number: usize) {
        self.up(number);
        self.await_balance();
    }

    /// Waits until shards are spread over all nodes.
    pub(crate) fn await_balance(&self) {
        let nodes = &self.spread.nodes;
        let asked = nodes.running().next().unwrap();
        let shards = nodes.status(asked)["shards"].as_array().unwrap().len();
        nodes.await_balance(shards);
    }
}

/// The hosts of so many shards, for a change of the map.
pub(crate) fn hosts(shards: usize) -> Value {
    list(shards)
}

/// A path that asks for what one shard has, whichever node it goes to.
pub(crate) fn at_shard(path: &str, shard: usize) -> String {
    format!("{path}{}shard={shard}", if path.contains('?') { '&' } else { '?' })
}

/// Writes a document of the collection `user` at once, or not at all.
pub(crate) fn write(holder: &Leaseholder, key: u64, tokens: &[u64]) -> Reply {
    let event = json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": 1 } });
    let call = json!({ "events": [event], "tokens": tokens, "wait_ms": 0 });
    holder.store.send("POST", "write", &call.to_string())
}

#[track_caller]
pub(crate) fn passes(holder: &Leaseholder, key: u64, tokens: &[u64]) {
    let reply = write(holder, key, tokens);
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[track_caller]
pub(crate) fn is_blocked(holder: &Leaseholder, key: u64, by: &str) {
    let problem = write(holder, key, &[]).assert_problem(423, "locked");
    assert_eq!(problem["blockers"][0]["name"], by, "{problem}");
}
