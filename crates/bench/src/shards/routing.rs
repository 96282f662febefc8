//! Measures what it costs to ask a node that is not the owner. Knows nothing of protocols.

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
    let cluster = Cluster::start(&stage.directory("routing"), 2, 2, r#"{"function":"constant","shard":1}"#);
    cluster.nodes[0].fill(NAMESPACE, "user", 1, DOCUMENTS);
    stage.lockwood().fill(NAMESPACE, "user", 1, DOCUMENTS);
    [1, 16].iter().flat_map(|clients| measure_with(stage, &cluster, *clients)).collect()
}

fn measure_with(stage: &Stage, cluster: &Cluster, clients: usize) -> Vec<Figure> {
    let plural = if clients == 1 { "" } else { "s" };
    let reads = vec![
        Contender::new("through a proxy", || get(stage, &cluster.nodes[1], clients)),
        Contender::new("from the owner", || get(stage, &cluster.nodes[0], clients)),
        Contender::new("without a cluster", || get(stage, stage.lockwood(), clients)),
        Contender::new("tarantool", || select(stage, clients)),
    ];
    let mut figures = run::latencies(&format!("select, {clients} client{plural}"), reads);
    let writes = vec![
        Contender::new("through a proxy", || replace(stage, &cluster.nodes[1], clients)),
        Contender::new("from the owner", || replace(stage, &cluster.nodes[0], clients)),
        Contender::new("without a cluster", || replace(stage, stage.lockwood(), clients)),
        Contender::new("tarantool", || replace_tarantool(stage, clients)),
    ];
    figures.extend(run::latencies(&format!("replace, {clients} client{plural}"), writes));
    figures
}

fn get(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::get(NAMESPACE, "user", random.up_to(DOCUMENTS));
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

fn replace(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::update(NAMESPACE, "user", random.up_to(DOCUMENTS), 7);
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
