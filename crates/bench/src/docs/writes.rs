//! Measures durable writes: single creates, updates under a lock, and many creates at once. Knows nothing of
//! protocols.

use crate::{
    figure::Figure,
    stage::{
        KEYS_LEN, Stage, disk, document,
        load::{self, Client, Exchange},
        lockwood::{self, BULK_LEN, Lockwood},
        postgres::{Postgres, Script},
        run::{self, Contender, Run},
        tarantool::{self, Tarantool},
    },
};

const CLIENTS: [usize; 3] = [1, 4, 32];
/// How many keys of a run belong to one client.
const CLIENT_KEYS: u64 = KEYS_LEN / CLIENTS[CLIENTS.len() - 1] as u64;

/// One document with each request.
pub(crate) fn create(stage: &Stage) -> Vec<Figure> {
    stage.postgres().fill("created", 0);
    CLIENTS.iter().flat_map(|clients| create_with(stage, *clients)).collect()
}

fn create_with(stage: &Stage, clients: usize) -> Vec<Figure> {
    let contenders = vec![
        Contender::new("lockwood", || create_lockwood(stage, clients)),
        Contender::new("postgresql", || create_postgres(stage, clients)),
        Contender::new("tarantool", || create_tarantool(stage, clients)),
        Contender::new("disk alone", || disk::appends(stage)),
    ];
    run::rates(&format!("create, {}", count(clients)), "/s", contenders)
}

fn create_lockwood(stage: &Stage, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let mut keys = client_keys(first, number);
        let next = move |_| lockwood::create("create", "user", keys.next().expect("keys enough"));
        Client::new(stage.lockwood().connect().await, 0, next)
    })
}

fn create_postgres(stage: &Stage, clients: usize) -> Run {
    // The document comes with each request, as it does for the others.
    let variables =
        [format!("first={}", stage.fresh_keys()), "n=0".into(), format!("doc={}", document::json(12_345))];
    let text = format!(
        "\\set n :n + 1\n\\set id :first + :client_id * {CLIENT_KEYS} + :n\n\
         INSERT INTO created (id, doc) VALUES (:id, :doc);\n"
    );
    let script = Script { text: &text, clients, variables: &variables, prepared: true };
    stage.postgres().bench(stage.slice(), &script)
}

fn create_tarantool(stage: &Stage, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let mut keys = client_keys(first, number);
        let next = move |_| tarantool::insert(keys.next().expect("keys enough"));
        Client::new(stage.tarantool().connect().await, 0, next)
    })
}

/// One field of a document of the client's own, provided nobody else has changed it.
pub(crate) fn update(stage: &Stage) -> Vec<Figure> {
    stage.postgres().fill("updated", CLIENTS[CLIENTS.len() - 1] as u64);
    CLIENTS.iter().flat_map(|clients| update_with(stage, *clients)).collect()
}

fn update_with(stage: &Stage, clients: usize) -> Vec<Figure> {
    let contenders = vec![
        Contender::new("lockwood", || update_lockwood(stage, stage.lockwood(), clients)),
        Contender::new("postgresql", || update_postgres(stage, stage.postgres(), clients)),
        Contender::new("tarantool", || update_tarantool(stage, stage.tarantool(), clients)),
        Contender::new("disk alone", || disk::appends(stage)),
    ];
    run::rates(&format!("update under a lock, {}", count(clients)), "/s", contenders)
}

fn update_lockwood(stage: &Stage, lockwood: &Lockwood, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let key = first + number as u64;
        let mut connection = lockwood.connect().await;
        let created = connection.exchange(&lockwood::create("update", "user", key)).await;
        let mut numbers = 1..;
        let next = move |position| {
            lockwood::update_locked("update", "user", key, numbers.next().expect("no end"), position)
        };
        Client::new(connection, created, next)
    })
}

/// The version takes the place of the position; a lost race would return no row, which ends pgbench.
fn update_postgres(stage: &Stage, postgres: &Postgres, clients: usize) -> Run {
    postgres.sql("UPDATE updated SET version = 0");
    let text = "\\set id :client_id + 1\n\
        UPDATE updated SET doc = jsonb_set(doc, '{number}', to_jsonb(version + 1)), version = version + 1 \
        WHERE id = :id AND version = :version RETURNING version \\gset\n";
    let script = Script { text, clients, variables: &["version=0".into()], prepared: true };
    postgres.bench(stage.slice(), &script)
}

/// Without a condition, of which the protocol knows none.
fn update_tarantool(stage: &Stage, tarantool: &Tarantool, clients: usize) -> Run {
    let first = stage.fresh_keys();
    load::run(clients, stage.slice(), async |number| {
        let id = first + number as u64;
        let mut connection = tarantool.connect().await;
        connection.exchange(&tarantool::insert(id)).await;
        let mut numbers = 1..;
        Client::new(connection, 0, move |_| tarantool::update(id, numbers.next().expect("no end")))
    })
}

/// Many documents with each request.
pub(crate) fn bulk(stage: &Stage) -> Vec<Figure> {
    stage.postgres().sql("CREATE TABLE bulk (id bigserial PRIMARY KEY, doc jsonb NOT NULL)");
    let insert = insert_many();
    let contenders = vec![
        Contender::new("lockwood", || bulk_lockwood(stage)),
        Contender::new("postgresql", || bulk_postgres(stage, &insert)),
    ];
    run::rates(&format!("create, {BULK_LEN} a request"), "documents/s", contenders)
}

/// The time it takes to make the requests does not count.
fn bulk_lockwood(stage: &Stage) -> Run {
    let mut session = stage.lockwood().session();
    let mut firsts = (stage.fresh_keys()..).step_by(BULK_LEN as usize);
    let run = load::repeat(stage.slice(), || {
        let request = lockwood::create_many("bulk", "user", firsts.next().expect("no end"));
        load::timed(|| {
            session.call(&request);
        })
    });
    run.of_many(BULK_LEN)
}

fn bulk_postgres(stage: &Stage, insert: &str) -> Run {
    let script = Script { text: insert, clients: 1, variables: &[], prepared: false };
    stage.postgres().bench(stage.slice(), &script).of_many(BULK_LEN)
}

/// As text that is sent as it is. The space keeps numbers from looking like variables.
fn insert_many() -> String {
    let row = |number| format!("('{}')", document::json(number).replace(':', ": "));
    let rows: Vec<String> = (0..BULK_LEN).map(row).collect();
    format!("INSERT INTO bulk (doc) VALUES {};\n", rows.join(", "))
}

fn client_keys(first: u64, client: usize) -> std::ops::Range<u64> {
    let first = first + client as u64 * CLIENT_KEYS;
    first..first + CLIENT_KEYS
}

fn count(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}
