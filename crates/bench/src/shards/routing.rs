//! Measures what it costs to ask a node that is not the owner, for single keys. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        cluster::Cluster,
        load::{self, Client},
        lockwood::{self, Lockwood},
        random::Random,
        run::{self, Contender, Run},
        tarantool,
    },
};

const NAMESPACE: &str = "routing";

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let cluster = Cluster::start(stage, NAMESPACE, 2, r#"{"function":"constant","shard":1}"#);
    let namespace = cluster.namespace(NAMESPACE);
    cluster.at(1).fill(&namespace, "user", 1, DOCUMENTS);
    stage.lockwood().fill(NAMESPACE, "user", 1, DOCUMENTS);
    [1, 16].iter().flat_map(|clients| measure_with(stage, (&cluster, &namespace), *clients)).collect()
}

fn measure_with(stage: &Stage, (cluster, name): (&Cluster, &str), clients: usize) -> Vec<Figure> {
    let plural = if clients == 1 { "" } else { "s" };
    let reads = vec![
        Contender::new("through a proxy", || get(stage, (cluster.at(2), name), clients)),
        Contender::new("from the owner", || get(stage, (cluster.at(1), name), clients)),
        Contender::new("without a cluster", || get(stage, (stage.lockwood(), NAMESPACE), clients)),
        Contender::new("tarantool", || select(stage, clients)),
    ];
    let mut figures = run::latencies(&format!("select, {clients} client{plural}"), reads);
    let writes = vec![
        Contender::new("through a proxy", || replace(stage, (cluster.at(2), name), clients)),
        Contender::new("from the owner", || replace(stage, (cluster.at(1), name), clients)),
        Contender::new("without a cluster", || replace(stage, (stage.lockwood(), NAMESPACE), clients)),
        Contender::new("tarantool", || replace_tarantool(stage, clients)),
    ];
    figures.extend(run::latencies(&format!("replace, {clients} client{plural}"), writes));
    figures
}

fn get(stage: &Stage, (node, namespace): (&Lockwood, &str), clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let namespace = namespace.to_owned();
        let next = move |_| lockwood::get(&namespace, "user", random.up_to(DOCUMENTS));
        Client::new(node.connect().await, 0, next)
    })
}

fn select(stage: &Stage, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| tarantool::select(Some(random.up_to(DOCUMENTS)));
        Client::new(stage.tarantool().connect().await, 0, next)
    })
}

fn replace(stage: &Stage, (node, namespace): (&Lockwood, &str), clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let namespace = namespace.to_owned();
        let next = move |_| lockwood::update(&namespace, "user", random.up_to(DOCUMENTS), 7);
        Client::new(node.connect().await, 0, next)
    })
}

fn replace_tarantool(stage: &Stage, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| tarantool::replace(random.up_to(DOCUMENTS));
        Client::new(stage.tarantool().connect().await, 0, next)
    })
}
