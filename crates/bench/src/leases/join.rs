//! Measures a join of two collections in which every document has one partner. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        http::Session,
        load,
        lockwood::{self, Lockwood},
        run::{self, Contender},
    },
};

const COUNTS: [u64; 2] = [DOCUMENTS, 10 * DOCUMENTS];
/// The most a server gives at once.
const PAGE_LEN: u64 = 10_000;
/// The field that has an index on either side, and one that has none.
const FIELDS: [(&str, &str); 2] = [("city", "without an index"), ("name", "with an index")];

/// What of the documents is asked for.
#[derive(Debug, Clone, Copy)]
enum Shown {
    All,
    One,
}

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    COUNTS.iter().flat_map(|count| measure_of(stage, *count)).collect()
}

fn measure_of(stage: &Stage, count: u64) -> Vec<Figure> {
    let namespace = format!("join-{count}");
    fill(stage.lockwood(), &namespace, count);
    let mut figures = Vec::new();
    for (field, title) in FIELDS {
        let contender = |name, shown| {
            let mut session = stage.lockwood().session();
            let namespace = &namespace;
            let mut rows = 0;
            let seen = |page: &str| rows += page.matches("\"left\":").count() as u64;
            join(&mut session, namespace, (field, shown), seen);
            assert_eq!(rows, count, "all of them match once");
            Contender::new(name, move || {
                load::repeat(stage.slice(), || {
                    load::timed(|| join(&mut session, namespace, (field, shown), |_| ()))
                })
            })
        };
        let contenders =
            vec![contender("whole documents", Shown::All), contender("one field of each", Shown::One)];
        figures.extend(run::latencies(&format!("join {count} x {count}, {title}"), contenders));
    }
    figures
}

fn fill(lockwood: &Lockwood, namespace: &str, count: u64) {
    for collection in ["left", "right"] {
        lockwood.fill(namespace, collection, 1, count);
        lockwood.index(namespace, collection, FIELDS[1].0);
    }
}

/// All pages.
fn join(session: &mut Session, namespace: &str, (field, shown): (&str, Shown), mut seen: impl FnMut(&str)) {
    let fields = match shown {
        Shown::All => String::new(),
        Shown::One => r#","fields":["number"]"#.to_owned(),
    };
    let side = |collection| format!(r#"{{"collection":"{collection}","field":"{field}"{fields}}}"#);
    let [left, right] = ["left", "right"].map(side);
    let mut cursor = None::<String>;
    loop {
        let cursor_member = cursor.map(|cursor| format!(r#","cursor":"{cursor}""#)).unwrap_or_default();
        let body =
            format!(r#"{{"left":{left},"right":{right},"kind":"inner","limit":{PAGE_LEN}{cursor_member}}}"#);
        let page = session.call(&lockwood::join(namespace, &body));
        seen(page);
        cursor = lockwood::next_page(page);
        if cursor.is_none() {
            return;
        }
    }
}
