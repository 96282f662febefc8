//! Counts the calls between nodes that a lock on one document costs when its home is elsewhere. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        Stage,
        cluster::Cluster,
        http::Session,
        lockwood::{self, Lease},
    },
};

const NAMESPACE: &str = "called";
const TTL_MS: u64 = 60_000;
const LOCKS: u64 = 200;
/// Calls for one lock that are aimed at.
const AIM: u64 = 2;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let cluster = Cluster::start(stage, NAMESPACE, 3, r#"{"function":"constant","shard":2}"#);
    let namespace = cluster.namespace(NAMESPACE);
    if cluster.nodes().calls().is_none() {
        eprintln!("nodes do not count their calls (lockwood_peer_calls_total), so this is left out");
        return Vec::new();
    }
    // The home is at shard 1, the documents are at shard 2.
    let places = [(1, "at its home"), (2, "at the node of its document"), (3, "at a third node")];
    places.iter().flat_map(|(shard, name)| measure_at(&cluster, &namespace, *shard, name)).collect()
}

fn measure_at(cluster: &Cluster, namespace: &str, shard: u64, name: &str) -> Vec<Figure> {
    let mut session = cluster.at(shard).session();
    // Shards have joined, and connections are there.
    for number in 0..3 {
        let lease = take(&mut session, namespace, number);
        session.call(&lockwood::release(namespace, lease));
    }
    let mut leases = Vec::new();
    let taken =
        calls(cluster, || leases.extend((0..LOCKS).map(|number| take(&mut session, namespace, number))));
    let released = calls(cluster, || {
        for lease in &leases {
            session.call(&lockwood::release(namespace, *lease));
        }
    });
    let of =
        |what: &str, calls: f64| Figure::new(format!("calls between nodes, {what}, asked {name}"), calls, "");
    vec![
        of("a lock on a document of another node", taken).aim(format_args!("at most {AIM}")),
        of("its release", released),
    ]
}

fn take(session: &mut Session, namespace: &str, number: u64) -> Lease {
    let path = format!(r#"["user","{number}"]"#);
    Lease::read(session.call(&lockwood::take(namespace, "bench", &path, TTL_MS)))
}

/// How many calls nodes made for each lock.
fn calls(cluster: &Cluster, work: impl FnOnce()) -> f64 {
    let count = || cluster.nodes().calls().expect("they were counted before");
    let before = count();
    work();
    (count() - before) as f64 / LOCKS as f64
}
