//! Several real nodes that know each other, to be killed and started again. Knows nothing of what they should say.

use crate::{
    harness::{Ended, Server},
    http,
    store::Store,
};
use serde_json::{Value, json};
use std::{io::Write, net::TcpListener};
use tempfile::NamedTempFile;

/// Nodes on ports of their own. Node `n` serves shard `n`, counted from 1, unless it is a proxy.
pub(crate) struct Cluster {
    key: NamedTempFile,
    pub(crate) addresses: Vec<String>,
    /// By node, which shard it serves; 0 if none.
    shards: Vec<usize>,
    nodes: Vec<Option<Server>>,
    ended: Vec<Option<Ended>>,
}

impl Cluster {
    /// So many nodes that have no map yet.
    pub(crate) fn nodes(len: usize) -> Cluster {
        let mut key = NamedTempFile::new().unwrap();
        key.write_all(b"a key that only the tests know").unwrap();
        let (addresses, shards, nodes, ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Cluster { key, addresses, shards, nodes, ended };
        for _ in 0..len {
            cluster.add();
        }
        cluster
    }

    /// The same with a map of all of them and this function.
    pub(crate) fn start(len: usize, curr: Value) -> Cluster {
        let cluster = Cluster::nodes(len);
        cluster.put_map(&cluster.steady(1, len, curr));
        cluster
    }

    /// Starts one more node; gives its number.
    pub(crate) fn add(&mut self) -> usize {
        self.add_for(self.nodes.len() + 1)
    }

    /// Starts a node that only passes requests on; gives its number.
    pub(crate) fn add_proxy(&mut self) -> usize {
        self.add_for(0)
    }

    /// Starts a node for a shard that need not be its own; gives its number.
    pub(crate) fn add_for(&mut self, shard: usize) -> usize {
        let number = self.nodes.len() + 1;
        self.shards.push(shard);
        // Connections that are made while a node is down must not take its port; they come from another address.
        let own = TcpListener::bind(format!("127.0.0.{}:0", number + 1));
        let listener = own.or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        self.addresses.push(address);
        let flags = self.flags(number);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.nodes.push(Some(Server::plain_at(&self.addresses[number - 1], &flags)));
        self.ended.push(None);
        number
    }

    fn flags(&self, number: usize) -> Vec<String> {
        let key = self.key.path().to_str().unwrap().to_owned();
        let this = self.shards[number - 1].to_string();
        let mut flags = vec!["--this".into(), this, "--cluster-key".into(), key, "--raw-operations".into()];
        if number > 1 {
            flags.extend(["--join".into(), self.addresses[0].clone()]);
        }
        flags
    }

    /// A map of the first `len` nodes.
    pub(crate) fn steady(&self, epoch: u64, len: usize, curr: Value) -> Value {
        let shards: Vec<Value> = self.addresses[..len]
            .iter()
            .map(|address| json!([{ "mode": "rw", "weight": 1, "address": address }]))
            .collect();
        json!({ "epoch": epoch, "phase": "steady", "shards": shards, "curr": curr, "prev": null,
            "transition": 0 })
    }

    /// Puts a map in force, be it one that the cluster would come to by itself or not.
    pub(crate) fn put_map(&self, map: &Value) {
        let native = self.node(1).native;
        let target = "/v1/_system/shard/map?force=true";
        let reply = http::send(native, "PUT", target, &[], map.to_string().as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    /// A path that asks for what one shard has: its node is asked anyway.
    #[expect(clippy::unused_self, reason = "a cluster over a database has to name the shard")]
    pub(crate) fn at_shard(&self, path: &str, _shard: usize) -> String {
        path.to_owned()
    }

    pub(crate) fn node(&self, number: usize) -> &Server {
        self.nodes[number - 1].as_ref().unwrap()
    }

    /// A namespace, asked through one node.
    pub(crate) fn store(&self, number: usize, namespace: &str) -> Store {
        Store::new(self.node(number), namespace)
    }

    /// Ends a node without warning.
    pub(crate) fn kill(&mut self, number: usize) {
        self.ended[number - 1] = Some(self.nodes[number - 1].take().unwrap().kill());
    }

    /// Starts a node again that was killed, on what it left, but for this shard.
    pub(crate) fn restart_for(&mut self, number: usize, shard: usize) {
        self.shards[number - 1] = shard;
        self.restart(number);
    }

    /// Starts a node again that was killed, on what it left.
    pub(crate) fn restart(&mut self, number: usize) {
        let flags = self.flags(number);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ended = self.ended[number - 1].take().unwrap();
        self.nodes[number - 1] = Some(ended.restart_plain_at(&self.addresses[number - 1], &flags));
    }
}
