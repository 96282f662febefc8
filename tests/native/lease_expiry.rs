//! Very many leases that end at the same moment: all of them go, and others are answered meanwhile.

use crate::{document_crash::Wire, harness::Server, http};
use serde_json::json;
use std::{
    thread,
    time::{Duration, Instant},
};

const LEASES: u64 = 10_000;
const THREADS: u64 = 8;
const TTL_MS: u64 = 2_000;

#[test]
fn ten_thousand_leases_end_together() {
    let server = Server::start(&[]);
    let address = server.native;
    let takers: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let mut wire = Wire::connect(address).unwrap();
                for n in 0..LEASES / THREADS {
                    let resources =
                        json!([{ "path": ["crowd", thread.to_string(), n.to_string()], "mode": "write" }]);
                    let body = json!({ "owner": "crowd", "resources": resources, "ttl_ms": 3_600_000 });
                    let (status, answer) = wire.post("/v1/default/locks", &body).unwrap();
                    assert_eq!(status, 201, "{answer}");
                }
            })
        })
        .collect();
    takers.into_iter().for_each(|taker| taker.join().unwrap());
    let mut wire = Wire::connect(address).unwrap();
    let renewed_at = Instant::now();
    let (status, answer) =
        wire.post("/v1/default/locks/renew", &json!({ "owner": "crowd", "ttl_ms": TTL_MS })).unwrap();
    assert_eq!((status, answer["leases"].as_array().unwrap().len() as u64), (200, LEASES));
    let mut slowest = Duration::ZERO;
    let mut writes = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let body =
            json!({ "events": [{ "type": "put", "collection": "other", "key": writes, "fields": {} }] });
        let asked_at = Instant::now();
        let (status, answer) = wire.post("/v1/default/write", &body).unwrap();
        assert_eq!(status, 200, "{answer}");
        slowest = slowest.max(asked_at.elapsed());
        writes += 1;
        let held = http::get_json(&server, "/v1/namespaces")["namespaces"][0]["locks_granted"].clone();
        if held == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{held} leases never end");
    }
    let after = renewed_at.elapsed().saturating_sub(Duration::from_millis(TTL_MS));
    println!(
        "all gone at most {after:?} after their time; {writes} writes meanwhile, the slowest took {slowest:?}"
    );
    // What they had is free.
    let body =
        json!({ "owner": "next", "resources": [{ "path": ["crowd"], "mode": "write" }], "ttl_ms": 1000 });
    assert_eq!(wire.post("/v1/default/locks", &body).unwrap().0, 201);
}
