//! A write whose answer was lost is sent again, and done once, wherever its document is by then.

use crate::{cluster::Cluster, spread_nodes::hash};
use serde_json::{Value, json};

#[test]
fn an_answer_goes_where_its_document_goes_however_often() {
    let cluster = Cluster::start_on(3, 2, hash(2));
    let call = |key: u64| {
        let put = json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": 1 } });
        json!({ "events": [put], "idempotency_key": format!("call {key}") })
    };
    let store = cluster.store(1, "shop");
    let written: Vec<Value> = (0..40).map(|key| store.post("write", &call(key))).collect();
    for len in [3, 1, 3, 2] {
        cluster.reshard(len, hash(len));
        for (key, first) in (0..40).zip(&written) {
            let again = store.post("write", &call(key));
            assert_eq!(again["replayed"], true, "{key} on {len} shards");
            assert_eq!(again["position"], first["position"], "{key} on {len} shards");
        }
    }
}
