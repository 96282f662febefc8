//! Several of our own servers as one cluster with a shard map, and what it is told. Knows nothing of measuring.

use super::{
    Stage,
    http::{self, Session},
    lockwood::Lockwood,
    nodes::Nodes,
};

pub(crate) struct Cluster {
    nodes: Nodes,
}

impl Cluster {
    /// As many nodes as shards, each of which owns one, over a database of this name.
    pub(crate) fn start(stage: &Stage, name: &str, shards: u64, function: &str) -> Cluster {
        let url = stage.postgres().url(name);
        let cluster = Cluster { nodes: Nodes::start_sharded(&stage.directory(name), url, shards) };
        let change = cluster.change(shards, function);
        cluster.at(1).session().call(&http::post("/v1/_system/shard/config", &change));
        cluster
    }

    /// The node that owns a shard.
    pub(crate) fn at(&self, shard: u64) -> &Lockwood {
        self.nodes.node(self.nodes.owner_of(shard).expect("each shard has an owner"))
    }

    /// A namespace with its home at shard 1, so that its documents there are no further hop away. It has one document, in a
    /// collection of its own.
    pub(crate) fn namespace(&self, name: &str) -> String {
        self.nodes.namespace_at(1, name)
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// A map with so many shards, which stay where they are.
    fn change(&self, shards: u64, function: &str) -> String {
        let host = |shard| {
            let owner = self.nodes.owner_of(shard).expect("each shard has an owner");
            format!(r#"[{{"mode":"rw","weight":1,"address":"{}"}}]"#, self.nodes.advertised(owner))
        };
        let hosts: Vec<String> = (1..=shards).map(host).collect();
        format!(r#"{{"list":[{}],"curr":{function}}}"#, hosts.join(","))
    }

    /// Starts to go over to another function.
    pub(crate) fn reshard(&self, shards: u64, function: &str) {
        let command = format!(r#"{{"do":"reshard","change":{}}}"#, self.change(shards, function));
        self.at(1).session().call(&http::post("/v1/_system/shard/transition", &command));
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
