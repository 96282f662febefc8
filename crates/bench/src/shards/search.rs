//! Measures a search over several shards beside the same search on one server. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        cluster::Cluster,
        load::{self, Client},
        lockwood::{self, Lockwood},
        random::Random,
        run::{self, Contender, Run},
    },
};

const NAMESPACE: &str = "search";

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let cluster = Cluster::start(stage, NAMESPACE, 3, r#"{"function":"hash","shards":3}"#);
    let namespace = cluster.namespace(NAMESPACE);
    fill(cluster.at(1), &namespace);
    stage.lockwood().fill(NAMESPACE, "user", 1, DOCUMENTS);
    let contenders = vec![
        Contender::new("three shards", || filter(stage, (cluster.at(1), &namespace))),
        Contender::new("one server", || filter(stage, (stage.lockwood(), NAMESPACE))),
    ];
    let title = format!("filter of {DOCUMENTS} documents without an index");
    run::latencies(&title, contenders)
}

/// One document after the other, because a request is about one shard.
fn fill(node: &Lockwood, namespace: &str) {
    let clients = 16;
    load::each(clients, async |number| {
        let mut connection = node.connect().await;
        for key in (1..=DOCUMENTS).filter(|key| key % clients as u64 == number as u64) {
            connection.call(&lockwood::create(namespace, "user", key)).await;
        }
    });
}

fn filter(stage: &Stage, (node, namespace): (&Lockwood, &str)) -> Run {
    load::run(1, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let namespace = namespace.to_owned();
        let next = move |_| lockwood::filter(&namespace, "user", "city", random.up_to(DOCUMENTS));
        Client::new(node.connect().await, 0, next)
    })
}
