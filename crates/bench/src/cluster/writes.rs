//! Measures creates and lease pairs over the log in PostgreSQL, beside PostgreSQL's own inserts of the same rows. Knows
//! nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        KEYS_LEN, Stage, disk, document,
        load::{self, Client},
        lockwood::{self, Leaser, Lockwood},
        nodes::Nodes,
        postgres::Script,
        run::{self, Contender, Run},
    },
};

const CLIENTS: [usize; 2] = [1, 32];
const CLIENT_KEYS: u64 = KEYS_LEN / CLIENTS[1] as u64;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    stage.postgres().fill("inserted", 0);
    let url = stage.postgres().url("writes");
    let nodes = Nodes::start(&stage.directory("writes"), url, 2);
    let (owner, other) = (nodes.node(nodes.owner()), nodes.node(nodes.other()));
    CLIENTS.iter().flat_map(|clients| measure_with(stage, owner, other, *clients)).collect()
}

fn measure_with(stage: &Stage, owner: &Lockwood, other: &Lockwood, clients: usize) -> Vec<Figure> {
    let plural = if clients == 1 { "" } else { "s" };
    let creates = vec![
        Contender::new("at the owner", || create(stage, owner, clients))
            .aim("with 32 clients at least PostgreSQL's"),
        Contender::new("through another node", || create(stage, other, clients)),
        Contender::new("postgresql", || insert(stage, clients)),
        Contender::new("without a cluster", || create(stage, stage.lockwood(), clients)),
        Contender::new("disk alone", || disk::appends(stage)),
    ];
    let mut figures = run::rates(&format!("create, {clients} client{plural}"), "/s", creates);
    let pairs = vec![
        Contender::new("at the owner", || pairs(stage, owner, clients)),
        Contender::new("through another node", || pairs(stage, other, clients)),
        Contender::new("without a cluster", || pairs(stage, stage.lockwood(), clients)),
    ];
    figures.extend(run::rates(&format!("lease + release, {clients} client{plural}"), "/s", pairs));
    figures
}

fn create(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let mut keys = first + number as u64 * CLIENT_KEYS..;
        let next = move |_| lockwood::create("create", "user", keys.next().expect("no end"));
        Client::new(node.connect().await, 0, next)
    })
}

fn insert(stage: &Stage, clients: usize) -> Run {
    let variables =
        [format!("first={}", stage.fresh_keys()), "n=0".into(), format!("doc={}", document::json(12_345))];
    let text = format!(
        "\\set n :n + 1\n\\set id :first + :client_id * {CLIENT_KEYS} + :n\n\
         INSERT INTO inserted (id, doc) VALUES (:id, :doc);\n"
    );
    let script = Script { text: &text, clients, variables: &variables, prepared: true };
    stage.postgres().bench(stage.slice(), &script)
}

fn pairs(stage: &Stage, node: &Lockwood, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let path = format!(r#"["bench","{number}"]"#);
        Leaser::new(node.connect().await, "pairs", (number, &path), 60_000)
    })
}
