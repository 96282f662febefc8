//! Measures reads of 10,000 documents: one by its key, one by a field, all of them, and one as it was. Knows
//! nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        http::Session,
        load::{self, Client},
        lockwood::{self, BULK_LEN, Lockwood},
        postgres::Script,
        random::Random,
        run::{self, Contender, Run},
        tarantool,
    },
};

const PAGE_LEN: u64 = 1_000;
/// How many updates a document with a long history has had.
const UPDATES: u64 = 2_000;
const UPDATES_A_REQUEST: u64 = 100;

/// The field that has an index, and one that has none.
const INDEXED: &str = "name";
const PLAIN: &str = "city";

/// One document by its key.
pub(crate) fn get(stage: &Stage) -> Vec<Figure> {
    stage.lockwood().fill("get", "user", 1, DOCUMENTS);
    stage.postgres().fill("got", DOCUMENTS);
    [1, 32].iter().flat_map(|clients| get_with(stage, *clients)).collect()
}

fn get_with(stage: &Stage, clients: usize) -> Vec<Figure> {
    let contenders = vec![
        Contender::new("lockwood", || get_lockwood(stage, clients)),
        Contender::new("postgresql", || {
            let text = format!("\\set id random(1, {DOCUMENTS})\nSELECT doc FROM got WHERE id = :id;\n");
            stage
                .postgres()
                .bench(stage.slice(), &Script { text: &text, clients, variables: &[], prepared: true })
        }),
        Contender::new("tarantool", || get_tarantool(stage, clients)),
    ];
    run::rates(&format!("get, {clients} connection{}", if clients == 1 { "" } else { "s" }), "/s", contenders)
}

fn get_lockwood(stage: &Stage, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::get("get", "user", random.up_to(DOCUMENTS));
        Client::new(stage.lockwood().connect().await, 0, next)
    })
}

fn get_tarantool(stage: &Stage, clients: usize) -> Run {
    load::run(clients, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| tarantool::select(Some(random.up_to(DOCUMENTS)));
        Client::new(stage.tarantool().connect().await, 0, next)
    })
}

/// One document by a field, with and without an index.
pub(crate) fn filter(stage: &Stage) -> Vec<Figure> {
    fill_for_filter(stage.lockwood());
    stage.postgres().fill("filtered", DOCUMENTS);
    stage.postgres().sql(&format!("CREATE INDEX ON filtered ((doc->>'{INDEXED}'))"));
    stage.postgres().sql("ANALYZE filtered");
    let mut figures = Vec::new();
    for (field, title) in [(INDEXED, "with an index"), (PLAIN, "without an index")] {
        let contenders = vec![
            Contender::new("lockwood", || filter_lockwood(stage, stage.lockwood(), field)),
            Contender::new("postgresql", || filter_postgres(stage, field)),
        ];
        figures.extend(run::latencies(&format!("filter 1 of {DOCUMENTS}, {title}"), contenders));
    }
    figures
}

/// The same in a server that has many other documents and in one that has few.
pub(crate) fn filter_among_others(stage: &Stage, full: &Lockwood) -> Vec<Figure> {
    let empty = Lockwood::start(stage.directory("lockwood-few"));
    fill_for_filter(&empty);
    fill_for_filter(full);
    let mut figures = Vec::new();
    for (field, title) in [(INDEXED, "with an index"), (PLAIN, "without an index")] {
        let contenders = vec![
            Contender::new("among others", || filter_lockwood(stage, full, field)),
            Contender::new("alone", || filter_lockwood(stage, &empty, field)),
        ];
        let title = format!("filter 1 of {DOCUMENTS}, {title}, {} others", stage.others());
        figures.extend(run::latencies(&title, contenders));
    }
    figures
}

fn fill_for_filter(lockwood: &Lockwood) {
    lockwood.fill("filter", "user", 1, DOCUMENTS);
    lockwood.index("filter", "user", INDEXED);
    for field in [INDEXED, PLAIN] {
        let answer = lockwood.session().call(&lockwood::filter("filter", "user", field, 7)).to_owned();
        assert_eq!(answer.matches("\"padding\"").count(), 1, "one document: {answer}");
    }
}

fn filter_lockwood(stage: &Stage, lockwood: &Lockwood, field: &'static str) -> Run {
    load::run(1, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let next = move |_| lockwood::filter("filter", "user", field, random.up_to(DOCUMENTS));
        Client::new(lockwood.connect().await, 0, next)
    })
}

fn filter_postgres(stage: &Stage, field: &str) -> Run {
    let text = format!(
        "\\set id random(1, {DOCUMENTS})\n\
         SELECT id, doc FROM filtered WHERE doc->>'{field}' = '{field}-' || :id::text;\n"
    );
    let script = Script { text: &text, clients: 1, variables: &[], prepared: true };
    stage.postgres().bench(stage.slice(), &script)
}

/// A whole collection.
pub(crate) fn all(stage: &Stage) -> Vec<Figure> {
    stage.lockwood().fill("all", "user", 1, DOCUMENTS);
    stage.postgres().fill("listed", DOCUMENTS);
    let mut session = stage.lockwood().session();
    let mut found = 0;
    for_each_page(&mut session, |page| found += page.matches("\"padding\"").count());
    assert_eq!(found as u64, DOCUMENTS, "the pages have all of them");
    let contenders = vec![
        Contender::new("lockwood", || {
            load::repeat(stage.slice(), || load::timed(|| for_each_page(&mut session, |_| ())))
        }),
        Contender::new("postgresql", || {
            let text = "SELECT id, doc FROM listed ORDER BY id;\n";
            stage
                .postgres()
                .bench(stage.slice(), &Script { text, clients: 1, variables: &[], prepared: true })
        }),
        Contender::new("tarantool", || {
            load::run(1, stage.slice(), async |_| {
                Client::new(stage.tarantool().connect().await, 0, |_| tarantool::select(None))
            })
        }),
    ];
    run::latencies(&format!("get all of {DOCUMENTS}, ours in pages of {PAGE_LEN}"), contenders)
}

fn for_each_page(session: &mut Session, mut seen: impl FnMut(&str)) {
    let mut cursor: Option<String> = None;
    loop {
        let page = session.call(&lockwood::page("all", "user", PAGE_LEN, cursor.as_deref()));
        seen(page);
        cursor = lockwood::next_page(page);
        if cursor.is_none() {
            return;
        }
    }
}

/// A document with a long history, as it was.
pub(crate) fn as_of(stage: &Stage) -> Vec<Figure> {
    let [created, middle] = long_history(stage);
    let read = |request: fn(u64) -> Vec<u8>, position: u64| {
        move || {
            load::run(1, stage.slice(), async |_| {
                Client::new(stage.lockwood().connect().await, 0, move |_| request(position))
            })
        }
    };
    let then = |position| lockwood::get_at("as-of", "user", 1, position);
    let contenders = vec![
        Contender::new("creation", read(then, created)),
        Contender::new("middle", read(then, middle)),
        Contender::new("now", read(|_| lockwood::get("as-of", "user", 1), 0)),
    ];
    run::latencies(&format!("get one with {} events as of", UPDATES + 1), contenders)
}

/// The positions of the first and the middle event of the only document.
fn long_history(stage: &Stage) -> [u64; 2] {
    let mut session = stage.lockwood().session();
    let created = session.position(&lockwood::create("as-of", "user", 1));
    let mut middle = created;
    for first in (0..UPDATES).step_by(UPDATES_A_REQUEST as usize) {
        let updates = first..first + UPDATES_A_REQUEST;
        let requests: Vec<String> = updates
            .map(|number| format!(r#"{{"events":[{}]}}"#, lockwood::update_event("user", 1, number)))
            .collect();
        let body = format!(r#"{{"requests":[{}]}}"#, requests.join(","));
        let position = session.position(&lockwood::write("as-of", &body));
        if first < UPDATES / 2 {
            middle = position;
        }
    }
    [created, middle]
}

const _: () = assert!(DOCUMENTS.is_multiple_of(BULK_LEN), "documents are made in full requests");
