//! Measures what it costs that locks are enforced: on a get that waits for them, and on an update by their
//! holder, beside many others', and where nobody has any. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        load::{self, Client, Exchange},
        lockwood::{self, Lease},
        random::Random,
        run::{self, Contender, Run},
    },
};

const READERS: usize = 32;
const WRITERS: [usize; 2] = [1, 32];
/// How many locks others hold.
const OTHERS: u64 = 10_000;
/// Longer than it all takes.
const TTL_MS: u64 = 3_600_000;

const READ: &str = "enforcement-read";
const HELD: &str = "enforcement-held";
const BESIDE: &str = "enforcement-beside";
const FREE: &str = "enforcement-free";

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    stage.lockwood().fill(READ, "user", 1, DOCUMENTS);
    load::block_on(stage.lockwood().take_many(BESIDE, OTHERS, TTL_MS));
    let mut figures = get(stage);
    figures.extend(WRITERS.iter().flat_map(|clients| update(stage, *clients)));
    figures
}

fn get(stage: &Stage) -> Vec<Figure> {
    let contenders = vec![
        Contender::new("locked", || get_with(stage, "?isolation=locked")),
        Contender::new("snapshot", || get_with(stage, "?isolation=snapshot")),
        Contender::new("plain", || get_with(stage, "")),
    ];
    run::rates(&format!("get, {READERS} connections"), "/s", contenders)
}

fn get_with(stage: &Stage, query: &'static str) -> Run {
    load::run(READERS, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::get_with(READ, "user", random.up_to(DOCUMENTS), query);
        Client::new(stage.lockwood().connect().await, 0, next)
    })
}

fn update(stage: &Stage, clients: usize) -> Vec<Figure> {
    let contenders = vec![
        Contender::new("with a token", || update_held(stage, clients)),
        Contender::new("beside 10,000 locks of others", || update_free(stage, BESIDE, clients)),
        Contender::new("without locks", || update_free(stage, FREE, clients)),
    ];
    run::rates(&format!("update, {clients} client{}", if clients == 1 { "" } else { "s" }), "/s", contenders)
}

/// Every client has a lease on its document.
fn update_held(stage: &Stage, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let key = first + number as u64;
        let mut connection = stage.lockwood().connect().await;
        connection.exchange(&lockwood::create(HELD, "user", key)).await;
        let take = lockwood::take(HELD, &format!("writer-{key}"), &format!(r#"["user","{key}"]"#), TTL_MS);
        let Lease { token, .. } = Lease::read(connection.call(&take).await);
        let mut numbers = 1..;
        let next =
            move |_| lockwood::update_holding(HELD, "user", key, numbers.next().expect("no end"), token);
        Client::new(connection, 0, next)
    })
}

fn update_free(stage: &Stage, namespace: &'static str, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let key = first + number as u64;
        let mut connection = stage.lockwood().connect().await;
        connection.exchange(&lockwood::create(namespace, "user", key)).await;
        let mut numbers = 1..;
        let next = move |_| lockwood::update(namespace, "user", key, numbers.next().expect("no end"));
        Client::new(connection, 0, next)
    })
}
