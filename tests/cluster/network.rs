//! What the nodes of a storm stand on: a database of their own that crashes and restarts, and connections to it and between
//! nodes that fail. Knows nothing of nodes and what they should say.

use lockwood_test_support::{Fault, Postgres, Proxy};
use std::net::SocketAddr;

/// A database, and by node a proxy before it and one before the node.
pub(crate) struct Network {
    /// None only while it is down.
    postgres: Option<Postgres>,
    database: String,
    to_database: Vec<Proxy>,
    to_node: Vec<Proxy>,
}

impl Network {
    /// An empty database that keeps what it acknowledged when it crashes.
    pub(crate) fn start() -> Network {
        let postgres = Postgres::start(&[]);
        let database = postgres.create_database();
        Network { postgres: Some(postgres), database, to_database: Vec::new(), to_node: Vec::new() }
    }

    /// The way of one more node, which listens for others at `peer`: where it finds the database, and where others find it.
    pub(crate) fn add(&mut self, peer: SocketAddr) -> (String, String) {
        let postgres = self.postgres.as_ref().expect("nodes are added while it is up");
        let (to_database, to_node) = (Proxy::before(postgres.address()), Proxy::before(peer));
        let url = postgres.url(&self.database, to_database.port());
        let advertise = format!("127.0.0.1:{}", to_node.port());
        self.to_database.push(to_database);
        self.to_node.push(to_node);
        (url, advertise)
    }

    /// What goes wrong between a node and the database from now on.
    pub(crate) fn set_to_database(&self, node: usize, fault: Fault) {
        self.to_database[node - 1].set(fault);
    }

    /// What goes wrong with calls of other nodes to this one from now on.
    pub(crate) fn set_to_node(&self, node: usize, fault: Fault) {
        self.to_node[node - 1].set(fault);
    }

    /// What goes wrong with calls between all nodes from now on.
    pub(crate) fn set_between_nodes(&self, fault: Fault) {
        self.to_node.iter().for_each(|proxy| proxy.set(fault));
    }

    /// Ends the database; it is down for as long as `rest` takes.
    pub(crate) fn restart_database(&mut self, end: impl FnOnce(&mut Postgres), rest: impl FnOnce()) {
        let mut postgres = self.postgres.take().expect("it is up between faults");
        end(&mut postgres);
        rest();
        self.postgres = Some(postgres.recover(&[]));
    }

    /// What the database says to a script.
    pub(crate) fn sql(&self, script: &str) -> String {
        self.postgres.as_ref().expect("it is up between faults").sql(&self.database, script)
    }
}
