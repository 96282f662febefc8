//! Measures what it costs to ask a node that is not the owner: reads, and pairs of session locks through a tunnel. Knows
//! nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        load::{self, Client, Work},
        lockwood::{self, Lockwood},
        nodes::Nodes,
        random::Random,
        run::{self, Contender, Run},
    },
    wire::{Connection, Protocol, Target},
};
use std::time::{Duration, Instant};

const NAMESPACE: &str = "hop";

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let url = stage.postgres().url("hop");
    let nodes = Nodes::start(&stage.directory("hop"), url, 2);
    let (owner, other) = (nodes.node(nodes.owner()), nodes.node(nodes.other()));
    owner.fill(NAMESPACE, "user", 1, DOCUMENTS);
    [1, 16].iter().flat_map(|clients| measure_with(stage, owner, other, *clients)).collect()
}

fn measure_with(stage: &Stage, owner: &Lockwood, other: &Lockwood, clients: usize) -> Vec<Figure> {
    let plural = if clients == 1 { "" } else { "s" };
    let reads = vec![
        Contender::new("through another node", || get(stage, other, clients)),
        Contender::new("at the owner", || get(stage, owner, clients)),
    ];
    let mut figures = run::latencies(&format!("get, {clients} client{plural}"), reads);
    let sessions = vec![
        Contender::new("through another node", || pairs(stage, other, clients))
            .aim("at most 2 times that at the owner"),
        Contender::new("at the owner", || pairs(stage, owner, clients)),
    ];
    figures.extend(run::latencies(&format!("session lock + release, {clients} client{plural}"), sessions));
    figures
}

fn get(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::get(NAMESPACE, "user", random.up_to(DOCUMENTS));
        Client::new(node.connect().await, 0, next)
    })
}

fn pairs(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    let target = Target { namespace: "pairs".into(), mode: "write", shared: false, apart: true };
    load::run(clients, stage.slice(), async |number| {
        Pair(Connection::open(Protocol::Native(node.address), &target, number).await)
    })
}

struct Pair(Connection);

impl Work for Pair {
    async fn once(&mut self) -> Duration {
        let start = Instant::now();
        self.0.pair().await;
        start.elapsed()
    }
}
