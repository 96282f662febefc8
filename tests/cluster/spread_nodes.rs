//! Nodes over one database with a map, so that a namespace is on several shards. Knows nothing of what they should say.

use crate::{
    harness::{eventually, eventually_is},
    http,
    nodes::Nodes,
    store::Store,
};
use serde_json::{Value, json};

/// Nodes with a map of some of their shards.
pub(crate) struct Spread {
    pub(crate) nodes: Nodes,
}

impl Spread {
    /// So many nodes and shards, and a map of all shards with this function.
    pub(crate) fn start(nodes: usize, shards: usize, curr: Value) -> Spread {
        let spread = Spread::without_map(nodes, shards, &[]);
        spread.config(shards, curr);
        spread
    }

    pub(crate) fn without_map(nodes: usize, shards: usize, flags: &[&str]) -> Spread {
        Spread { nodes: Nodes::start_sharded(nodes, shards, flags) }
    }

    /// The same on a network whose parts fail on command.
    pub(crate) fn exposed(nodes: usize, shards: usize) -> Spread {
        Spread { nodes: Nodes::start_exposed(nodes, shards) }
    }

    /// Puts a map of the first shards in force.
    pub(crate) fn config(&self, shards: usize, curr: Value) {
        let before = self.epoch();
        let change = json!({ "list": list(shards), "curr": curr });
        self.tell("shard/config", &change, || self.epoch() > before);
    }

    /// The epoch of the map in force.
    fn epoch(&self) -> Option<u64> {
        self.map()["epoch"].as_u64()
    }

    /// The map in force, or a problem if there is none. It is asked for again if the first shard has no owner just now.
    fn map(&self) -> Value {
        let mut map = Value::Null;
        eventually("the shard map is told", || {
            map = self.keeper().send("GET", "shard/map", "").json();
            map["code"] != "shard_unreachable"
        });
        map
    }

    /// Gives a command. If its owner is lost on the way it may have been carried out, so it is looked for before it is given
    /// again.
    fn tell(&self, path: &str, command: &Value, is_done: impl Fn() -> bool) {
        eventually("a command is carried out", || {
            let reply = self.keeper().send("POST", path, &command.to_string());
            assert!([200, 503].contains(&reply.status), "{path} {command}: {}", reply.body);
            reply.status == 200 || is_done()
        });
    }

    pub(crate) fn store(&self, node: usize, namespace: &str) -> Store {
        self.nodes.store_of(node, namespace)
    }

    /// Where the map is asked about and changed.
    pub(crate) fn keeper(&self) -> Store {
        self.store(self.nodes.running().next().unwrap(), "_system")
    }

    /// A namespace, through each node that is up.
    pub(crate) fn stores(&self, namespace: &str) -> Vec<Store> {
        self.nodes.running().map(|node| self.store(node, namespace)).collect()
    }

    /// Has every shard stay with its owner, and come back to it whenever that returns.
    pub(crate) fn pin(&self) {
        for shard in 1..=self.homes().len() {
            let target = format!("/v1/cluster/shards/{shard}/owner/n{}", self.owner(shard));
            let asked = self.nodes.running().next().unwrap();
            let reply = http::send(self.nodes.server(asked).native, "PUT", &target, &[], b"");
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
    }

    pub(crate) fn status(&self) -> Value {
        self.keeper().get("shard/transition")
    }

    pub(crate) fn step(&self) -> String {
        self.status()["step"].as_str().unwrap().to_owned()
    }

    /// Whether documents move, as far as a node can tell.
    pub(crate) fn is_resharding(&self) -> bool {
        let reply = self.keeper().send("GET", "shard/transition", "");
        reply.status == 200 && reply.json()["step"] != "none"
    }

    /// Over how many shards documents are spread.
    pub(crate) fn spread_len(&self) -> usize {
        self.map()["curr"]["shards"].as_u64().unwrap() as usize
    }

    pub(crate) fn begin(&self, shards: usize, curr: Value, throttle: Option<u64>) {
        let change = json!({ "list": list(shards), "curr": curr });
        let command = json!({ "do": "reshard", "change": change, "throttle": throttle });
        let before = self.epoch();
        self.tell("shard/transition", &command, || self.epoch() > before);
    }

    /// Goes over to a map of the first shards, to the end.
    pub(crate) fn reshard(&self, shards: usize, curr: Value) {
        self.begin(shards, curr, None);
        self.await_end();
    }

    /// Copies by hand what is to be moved, and drops the old places.
    pub(crate) fn drop_prev(&self) {
        self.tell("shard/copy", &json!({}), || false);
        let before = self.epoch();
        self.tell("shard/config", &json!({ "prev": false }), || self.epoch() > before);
    }

    /// Removes by hand what was moved away.
    pub(crate) fn clean_up(&self) {
        self.tell("shard/cleanup", &json!({}), || false);
        self.await_end();
    }

    /// Has documents move as fast as they can, if any do. A command that no owner answered is given again.
    pub(crate) fn unthrottle(&self) {
        let command = json!({ "do": "throttle", "rate": null }).to_string();
        eventually("nothing slows documents down", || {
            self.keeper().send("POST", "shard/transition", &command).status != 503
        });
    }

    pub(crate) fn await_end(&self) {
        let look = || self.keeper().send("GET", "shard/transition", "");
        eventually_is("the resharding is over", look, |reply| {
            reply.status == 200 && reply.json()["step"] == "none"
        });
    }

    /// The owner of a shard, which may be about to get one.
    pub(crate) fn owner(&self, shard: usize) -> usize {
        loop {
            eventually("the shard has an owner", || self.nodes.owner_of(shard).is_some());
            if let Some(owner) = self.nodes.owner_of(shard) {
                return owner;
            }
        }
    }

    /// The home of a namespace, by what the nodes list as namespaces at each shard.
    pub(crate) fn homes(&self) -> Vec<u64> {
        let status = self.nodes.status(self.nodes.running().next().unwrap());
        let shards = status["shards"].as_array().unwrap();
        shards.iter().map(|shard| shard["namespaces"].as_u64().unwrap()).collect()
    }

    /// Begins a namespace whose home is at the first shard, which never leaves the map.
    pub(crate) fn begin_at_first(&self, namespace: &str) {
        // What cannot be read begins the namespace, and does nothing in it.
        eventually("it begins", || self.store(1, namespace).send("POST", "write", "{").status == 400);
        self.move_home(namespace, 1);
    }

    /// Moves the home of a namespace, and does so again if an owner is lost on the way.
    pub(crate) fn move_home(&self, namespace: &str, shard: usize) {
        let asked = self.nodes.server(self.nodes.running().next().unwrap()).native;
        let target = format!("/v1/{namespace}/shard/home/{shard}");
        eventually("the home has moved", || {
            let reply = http::send(asked, "PUT", &target, &[], b"");
            assert!([200, 503].contains(&reply.status), "{}", reply.body);
            reply.status == 200
        });
    }

    pub(crate) fn get(&self, node: usize, target: &str) -> http::Reply {
        http::request(self.nodes.server(node).native, "GET", target, &[])
    }
}

/// Hosts for so many shards. Who owns them is not for them to say.
pub(crate) fn list(shards: usize) -> Value {
    (1..=shards).map(|shard| json!([["rw", 1, format!("10.0.0.{shard}"), 7117]])).collect()
}

pub(crate) fn modulo(shards: usize) -> Value {
    json!({ "function": "modulo", "shards": shards })
}

pub(crate) fn hash(shards: usize) -> Value {
    json!({ "function": "hash", "shards": shards })
}
