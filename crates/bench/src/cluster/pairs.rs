//! Measures durable pairs on three nodes: an exclusive lease is taken and released, by every client on a path of its own;
//! beside an etcd of three members. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        Stage, disk, load,
        lockwood::Leaser,
        nodes::Nodes,
        run::{self, Contender, Run, median},
    },
};
use std::cell::RefCell;

const CLIENTS: usize = 32;
const NODES: u64 = 3;
const TTL_MS: u64 = 60_000;
/// So many times as many as etcd's are what is aimed at.
const AIM: f64 = 3.0;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let url = stage.postgres().url("leased");
    let nodes = Nodes::start_sharded(&stage.directory("leased"), url, NODES);
    let homes: Vec<(usize, String)> = (1..=NODES)
        .map(|shard| {
            let namespace = nodes.namespace_at(shard, &format!("leased-{shard}"));
            (nodes.owner_of(shard).expect("each shard has an owner"), namespace)
        })
        .collect();
    let first = &homes[..1];
    let [one, all, etcd] = [Rates::default(), Rates::default(), Rates::default()];
    let contenders = vec![
        Contender::new("one namespace, at its home", || {
            one.keep(pairs(stage, &nodes, first, |_| homes[0].0))
        }),
        Contender::new("one namespace, through all nodes", || {
            pairs(stage, &nodes, first, |number| number % NODES as usize)
        }),
        Contender::new("a namespace on each node, at its home", || {
            all.keep(pairs(stage, &nodes, &homes, |number| homes[number % homes.len()].0))
        }),
        #[cfg(feature = "etcd")]
        Contender::new("etcd, three members", || etcd.keep(pairs_etcd(stage))),
        Contender::new("disk alone", || disk::appends(stage)),
    ];
    let title = format!("lease + release on three nodes, {CLIENTS} clients");
    let mut figures = run::rates(&title, "/s", contenders);
    figures.extend(one.beside(&etcd, &format!("{title}: one namespace / etcd")));
    figures.extend(all.beside(&etcd, &format!("{title}: a namespace on each node / etcd")));
    figures
}

/// Pairs a second, in turn after turn.
#[derive(Default)]
struct Rates(RefCell<Vec<f64>>);

impl Rates {
    fn keep(&self, run: Run) -> Run {
        self.0.borrow_mut().push(run.rate);
        run
    }

    /// How many times as many as others; of what was measured in the same turn. None if there are no others.
    fn beside(&self, others: &Rates, name: &str) -> Option<Figure> {
        let (own, others) = (self.0.borrow(), others.0.borrow());
        let ratio =
            (!others.is_empty()).then(|| median(own.iter().zip(&*others).map(|(own, other)| own / other)))?;
        Some(Figure::new(name, ratio, "x").aim(format_args!("at least {AIM}")))
    }
}

/// Every client has a path in one of the namespaces, and a connection to the node that is told for its number.
fn pairs(stage: &Stage, nodes: &Nodes, homes: &[(usize, String)], node: impl Fn(usize) -> usize) -> Run {
    load::run(CLIENTS, stage.slice(), async |number| {
        let (_, namespace) = &homes[number % homes.len()];
        let path = format!(r#"["bench","{number}"]"#);
        Leaser::new(nodes.node(node(number)).connect().await, namespace, (number, &path), TTL_MS)
    })
}

#[cfg(feature = "etcd")]
fn pairs_etcd(stage: &Stage) -> Run {
    // Started here, because a start waits in its own way.
    let etcd = stage.etcd_of_three();
    load::run(CLIENTS, stage.slice(), async |number| {
        etcd.locker((number, format!("bench/{number}")), TTL_MS).await
    })
}
