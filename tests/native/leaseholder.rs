//! Somebody who takes leases over plain HTTP. Knows nothing of what a server should say.

use crate::{
    harness::Server,
    http::{self, Reply},
    peer::resources,
    store::Store,
};
use serde_json::{Value, json};

/// Long enough not to end within a test.
pub(crate) const HOUR: u64 = 3_600_000;

/// An owner of leases in one namespace.
#[derive(Clone)]
pub(crate) struct Leaseholder {
    pub(crate) store: Store,
    pub(crate) owner: String,
}

/// A lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) lock: u64,
    pub(crate) token: u64,
}

impl Leased {
    pub(crate) fn from(info: &Value) -> Leased {
        Leased { lock: info["lock"].as_u64().unwrap(), token: info["token"].as_u64().unwrap() }
    }
}

impl Leaseholder {
    /// An owner of this name in the namespace `default`.
    pub(crate) fn new(server: &Server, owner: &str) -> Leaseholder {
        Leaseholder { store: Store::new(server, "default"), owner: owner.to_owned() }
    }

    /// Asks for a lease; resources are written `write a/b:1, read c`.
    pub(crate) fn ask(&self, what: &str, ttl_ms: u64, wait_ms: u64) -> Reply {
        self.ask_with(what, json!({ "ttl_ms": ttl_ms, "wait_ms": wait_ms }))
    }

    /// The same with other members.
    pub(crate) fn ask_with(&self, what: &str, mut body: Value) -> Reply {
        body["owner"] = self.owner.clone().into();
        body["resources"] = resources(what);
        self.store.send("POST", "locks", &body.to_string())
    }

    /// Takes a lease that must be free, for an hour.
    #[track_caller]
    pub(crate) fn take(&self, what: &str) -> Leased {
        self.take_for(what, HOUR)
    }

    #[track_caller]
    pub(crate) fn take_for(&self, what: &str, ttl_ms: u64) -> Leased {
        let reply = self.ask(what, ttl_ms, 0);
        assert_eq!(reply.status, 201, "{what}: {}", reply.body);
        let answer = reply.json();
        assert_eq!(answer["outcome"], "granted", "{answer}");
        Leased::from(&answer)
    }

    /// Asks for a lease that must have to wait; gives its number.
    #[track_caller]
    pub(crate) fn queue(&self, what: &str) -> u64 {
        let reply = self.ask_with(what, json!({ "ttl_ms": HOUR, "wait_ms": 60_000, "poll_ms": 0 }));
        assert_eq!(reply.status, 202, "{what}: {}", reply.body);
        assert_eq!(reply.json()["outcome"], "queued", "{}", reply.body);
        reply.json()["lock"].as_u64().unwrap()
    }

    /// That a lease is not to be had at once.
    #[track_caller]
    pub(crate) fn is_refused(&self, what: &str) -> Value {
        self.ask(what, HOUR, 0).assert_problem(423, "locked")
    }

    pub(crate) fn renew(&self, lock: u64, body: &Value) -> Reply {
        self.store.send("POST", &format!("locks/{lock}/renew"), &body.to_string())
    }

    pub(crate) fn release(&self, lock: u64, body: &Value) -> Reply {
        self.store.send("POST", &format!("locks/{lock}/release"), &body.to_string())
    }

    /// Ends what was taken with exactly these resources.
    pub(crate) fn unlock(&self, what: &str) -> Reply {
        let body = json!({ "owner": self.owner, "resources": resources(what) });
        self.store.send("POST", "locks/release", &body.to_string())
    }

    pub(crate) fn release_all(&self) -> Reply {
        self.store.send("POST", "locks/release", &json!({ "owner": self.owner }).to_string())
    }

    /// Waits for the end of a wait.
    pub(crate) fn poll(&self, lock: u64, poll_ms: u64) -> Reply {
        let target = self.store.target(&format!("locks/{lock}?poll_ms={poll_ms}"));
        http::request(self.store.native, "GET", &target, &[])
    }

    /// All its locks, held and waiting.
    #[track_caller]
    pub(crate) fn locks(&self) -> Vec<Value> {
        let page = self.store.get(&format!("locks?owner={}", self.owner));
        page["locks"].as_array().unwrap().clone()
    }
}

/// All locks of a namespace that are in a state.
#[track_caller]
pub(crate) fn locks_in(store: &Store, state: &str) -> Vec<Value> {
    store.get(&format!("locks?state={state}"))["locks"].as_array().unwrap().clone()
}
