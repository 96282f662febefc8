//! Measures durable pairs: a lock that outlives its connection is taken and released, by every client on a
//! path of its own. Knows nothing of protocols.

use crate::{
    figure::Figure,
    peer::Peer,
    stage::{
        Stage, disk,
        load::{self, micros},
        lockwood::Leaser,
        postgres::Script,
        run::{self, Contender, Run, median},
    },
};
use std::{cell::RefCell, time::Duration};

const CLIENTS: [usize; 2] = [1, 32];
const NAMESPACE: &str = "pairs";
const TTL_MS: u64 = 60_000;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    stage
        .postgres()
        .sql("CREATE TABLE locks (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)");
    CLIENTS.iter().flat_map(|clients| measure_with(stage, *clients)).collect()
}

fn measure_with(stage: &Stage, clients: usize) -> Vec<Figure> {
    let (lockwood, etcd) = (Cpu::default(), Cpu::default());
    let contenders = vec![
        Contender::new("lockwood", || {
            lockwood.of(&stage.lockwood().peer, stage.slice(), || pairs_lockwood(stage, clients))
        }),
        #[cfg(feature = "etcd")]
        Contender::new("etcd", || etcd.of(stage.etcd().peer(), stage.slice(), || pairs_etcd(stage, clients))),
        Contender::new("postgresql", || pairs_postgres(stage, clients)),
        Contender::new("disk alone", || disk::appends(stage)),
    ];
    let title = format!("lease + release, {clients} client{}", if clients == 1 { "" } else { "s" });
    let mut figures = run::rates(&title, "/s", contenders);
    figures.extend(lockwood.figure(&title, "lockwood"));
    figures.extend(etcd.figure(&title, "etcd"));
    figures
}

/// What a pair costs a server, which other work on the machine changes less than the rate.
#[derive(Default)]
struct Cpu(RefCell<Vec<f64>>);

impl Cpu {
    fn of(&self, server: &Peer, slice: Duration, run: impl FnOnce() -> Run) -> Run {
        let before = server.cpu();
        let run = run();
        let pairs = run.rate * slice.as_secs_f64();
        self.0.borrow_mut().push(micros(server.cpu().saturating_sub(before)) / pairs);
        run
    }

    fn figure(&self, title: &str, name: &str) -> Option<Figure> {
        let each = self.0.borrow();
        let value = (!each.is_empty()).then(|| median(each.iter().copied()))?;
        Some(Figure::new(format!("{title}: server CPU of {name}"), value, "us"))
    }
}

fn pairs_lockwood(stage: &Stage, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let path = format!(r#"["bench","{number}"]"#);
        Leaser::new(stage.lockwood().connect().await, NAMESPACE, (number, &path), TTL_MS)
    })
}

#[cfg(feature = "etcd")]
fn pairs_etcd(stage: &Stage, clients: usize) -> Run {
    // Started here, because a start waits in its own way.
    let etcd = stage.etcd();
    load::run(clients, stage.slice(), async |number| {
        etcd.locker((number, format!("bench/{number}")), TTL_MS).await
    })
}

/// A row for each lock that is held. Somebody else's lock that is not over would return no row, which ends
/// pgbench.
fn pairs_postgres(stage: &Stage, clients: usize) -> Run {
    let text = format!(
        "INSERT INTO locks (name, owner, expires) \
         VALUES ('bench/' || :client_id::text, 'client-' || :client_id::text, now() + interval '{TTL_MS} ms') \
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires \
         WHERE locks.expires < now() RETURNING owner AS held \\gset\n\
         DELETE FROM locks WHERE name = 'bench/' || :client_id::text AND owner = :held;\n"
    );
    let script = Script { text: &text, clients, variables: &[], prepared: true };
    stage.postgres().bench(stage.slice(), &script)
}
