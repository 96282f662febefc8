//! The limits of leases: what is at the limit is taken, what is one past it is refused by the limit's name.

use crate::{
    harness::Server,
    leaseholder::{HOUR, Leaseholder},
    limits::limits,
    store::Store,
};
use serde_json::json;

limits! {
    leases_per_owner_max = 2, |server, limit| {
        let (ann, bob) = (Leaseholder::new(server, "ann"), Leaseholder::new(server, "bob"));
        bob.take("write x");
        let held = ann.take("write a");
        // One that waits counts as well.
        ann.queue("write x");
        limit.refuses(&ann.ask("write c", HOUR, 0), 400, "over_limit");
        assert_eq!(ann.ask("write a", HOUR, 0).status, 200, "what it has takes no room");
        ann.release(held.lock, &json!({ "owner": "ann" }));
        ann.take("write c");
    };
    owner_bytes_max = 4, |server, limit| {
        let (fits, over) = limit.texts();
        Leaseholder::new(server, &fits).take("write a");
        limit.refuses(&Leaseholder::new(server, &over).ask("write b", HOUR, 0), 400, "over_limit");
    };
    lease_ttl_ms_max = 6000, |server, limit| {
        let ann = Leaseholder::new(server, "ann");
        let held = ann.take_for("write a", 6000);
        limit.refuses(&ann.ask("write b", 6001, 0), 400, "over_limit");
        let renew = |ttl_ms: u64| ann.renew(held.lock, &json!({ "owner": "ann", "ttl_ms": ttl_ms }));
        assert_eq!(renew(6000).status, 200);
        limit.refuses(&renew(6001), 400, "over_limit");
        limit.refuses(&renew(u64::MAX), 400, "over_limit");
    };
    lease_note_bytes_max = 16, |server, limit| {
        let ann = Leaseholder::new(server, "ann");
        let note = |len: usize| json!({ "ttl_ms": HOUR, "note": "x".repeat(len) });
        assert_eq!(ann.ask_with("write a", note(14)).status, 201);
        limit.refuses(&ann.ask_with("write b", note(15)), 400, "over_limit");
    };
    wait_ms_max = 1000, |server, limit| {
        let ann = Leaseholder::new(server, "ann");
        assert_eq!(ann.ask("write a", HOUR, 1000).status, 201);
        limit.refuses(&ann.ask("write b", HOUR, 1001), 400, "over_limit");
        let lock = ann.locks()[0]["lock"].as_u64().unwrap();
        assert_eq!(ann.poll(lock, 1000).status, 200);
        limit.refuses(&ann.poll(lock, 1001), 400, "over_limit");
        let put = |wait_ms: u64| ann.store.send("PUT", &format!("documents/x/1?wait_ms={wait_ms}"), "{}");
        assert_eq!(put(1000).status, 200);
        limit.refuses(&put(1001), 400, "over_limit");
    };
    tokens_max = 2, |server, limit| {
        let ann = Leaseholder::new(server, "ann");
        let tokens: Vec<u64> = (0..3).map(|n| ann.take(&format!("write a/{n}")).token).collect();
        let write = |tokens: &[u64]| {
            json!({ "events": [{ "type": "put", "collection": "a", "key": 1, "fields": {} }], "tokens": tokens })
        };
        limit.check_post(&Store::new(server, "default"), "write", &write(&tokens[..2]), &write(&tokens));
        let put = |query: String| ann.store.send("PUT", &format!("documents/a/2?token={query}"), "{}");
        assert_eq!(put(format!("{},{}", tokens[2], tokens[1])).status, 200);
        limit.refuses(&put(format!("{},{},{}", tokens[0], tokens[1], tokens[2])), 400, "over_limit");
    };
}
