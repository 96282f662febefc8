//! The flows of the guide: a global lock, locks on a tree, shared and exclusive locks on one document; with types and
//! without.

use crate::cluster::{Cluster, Reply};
use serde_json::{Value, json};

const CONFLICT: &str = "version_conflict_engine_exception";
const ILLEGAL: &str = "illegal_argument_exception";

/// Where the locks are: `fs/lock/ID`, or `fs-lock/_doc/ID`.
#[derive(Clone, Copy)]
struct Locks<'a> {
    cluster: &'a Cluster,
    typed: bool,
}

impl Locks<'_> {
    fn path(self, id: &str, action: &str) -> String {
        let id = id.replace('/', "%2F");
        match (self.typed, action) {
            (true, "") => format!("/fs/lock/{id}"),
            (true, action) => format!("/fs/lock/{id}/{action}"),
            (false, "") => format!("/fs-lock/_doc/{id}"),
            (false, action) => format!("/fs-lock/{action}/{id}"),
        }
    }

    fn create(self, id: &str, source: Value) -> Reply {
        self.cluster.ask("PUT", &self.path(id, "_create"), source)
    }

    fn shared(self, id: &str) -> Reply {
        let body = json!({
            "upsert": { "lock_type": "shared", "lock_count": 1 },
            "script": { "lang": "groovy", "id": "judge-lock-2" },
        });
        self.cluster.ask("POST", &self.path(id, "_update"), body)
    }

    fn unlock_shared(self, id: &str) -> Reply {
        let body = json!({ "script": { "lang": "groovy", "id": "unlock-shared" } });
        self.cluster.ask("POST", &self.path(id, "_update"), body)
    }

    fn delete(self, id: &str) -> Reply {
        self.cluster.ask("DELETE", &self.path(id, ""), Value::Null)
    }

    fn get(self, id: &str) -> Reply {
        self.cluster.ask("GET", &self.path(id, ""), Value::Null)
    }
}

fn both_ways(test: impl Fn(Locks<'_>)) {
    let cluster = Cluster::start();
    for typed in [true, false] {
        test(Locks { cluster: &cluster, typed });
    }
}

#[test]
fn the_global_lock() {
    both_ways(|locks| {
        assert_eq!(locks.create("global", json!({})).is(201)["result"], "created");
        let reason = locks.create("global", json!({})).fails(409, CONFLICT);
        assert!(reason.contains("document already exists (current version [1])"), "{reason}");
        assert_eq!(locks.get("global").is(200)["_source"], json!({}));
        let deleted = locks.delete("global").is(200);
        assert_eq!((&deleted["result"], &deleted["_version"]), (&"deleted".into(), &2.into()));
        assert_eq!(locks.delete("global").is(404)["result"], "not_found");
        assert_eq!(locks.get("global").is(404)["found"], false);
        locks.create("global", json!({})).is(201);
    });
}

#[test]
fn locks_on_a_tree() {
    both_ways(|locks| {
        let ancestors = ["/", "/clinton", "/clinton/projects"];
        for path in ancestors {
            assert_eq!(locks.shared(path).is(201)["result"], "created");
        }
        let exclusive = json!({ "lock_type": "exclusive" });
        locks.create("/clinton/projects/es", exclusive.clone()).is(201);
        // Another file below: its ancestors are shared once more.
        for path in ancestors {
            assert_eq!(locks.shared(path).is(200)["result"], "updated");
        }
        assert_eq!(locks.get("/clinton").is(200)["_source"]["lock_count"], 2);
        // What is exclusive cannot be shared, and what is shared cannot be had alone.
        locks.shared("/clinton/projects/es").fails(400, ILLEGAL);
        locks.create("/clinton", exclusive.clone()).fails(409, CONFLICT);
        locks.delete("/clinton/projects/es").is(200);
        for expected in ["updated", "deleted"] {
            for path in ancestors.iter().rev() {
                assert_eq!(locks.unlock_shared(path).is(200)["result"], expected);
            }
        }
        locks.unlock_shared("/clinton").fails(404, "document_missing_exception");
        locks.create("/clinton", exclusive).is(201);
    });
}

#[test]
fn shared_and_exclusive_on_one_document() {
    both_ways(|locks| {
        for count in 1..=3 {
            locks.shared("1");
            assert_eq!(locks.get("1").is(200)["_source"]["lock_count"], count);
        }
        let script = json!({
            "upsert": { "lock_type": "exclusive" },
            "script": { "source": "if (ctx._source.lock_type != 'exclusive') { assert false }; assert false" },
        });
        locks.cluster.ask("POST", &locks.path("1", "_update"), script.clone()).fails(400, ILLEGAL);
        for _ in 0..3 {
            locks.unlock_shared("1").is(200);
        }
        locks.cluster.ask("POST", &locks.path("1", "_update"), script).is(201);
        locks.shared("1").fails(400, ILLEGAL);
        locks.delete("1").is(200);
    });
}

/// No count is lost, however many share and unshare at once.
#[test]
fn shared_locks_are_counted_exactly() {
    let cluster = Cluster::start();
    let locks = Locks { cluster: &cluster, typed: true };
    let until_done = |act: &dyn Fn() -> Reply| loop {
        let status = act().status;
        assert!([200, 201, 409].contains(&status), "{status}");
        if status != 409 {
            return;
        }
    };
    locks.shared("1").is(201);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..10 {
                    until_done(&|| locks.shared("1"));
                    until_done(&|| locks.unlock_shared("1"));
                }
            });
        }
    });
    assert_eq!(locks.get("1").is(200)["_source"]["lock_count"], 1);
    assert_eq!(locks.unlock_shared("1").is(200)["result"], "deleted");
}
