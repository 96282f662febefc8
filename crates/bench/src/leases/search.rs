//! Measures a search for one of many documents by a field, as it stands to locks: not at all, as a whole, or
//! document by document. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        load::{self, Client},
        lockwood,
        random::Random,
        run::{self, Contender, Run},
    },
};

const COUNTS: [u64; 2] = [DOCUMENTS, 10 * DOCUMENTS];
const ISOLATIONS: [&str; 3] = ["snapshot", "locked", "document"];
/// The field that has an index, and one that has none.
const FIELDS: [(&str, &str); 2] = [("name", "with an index"), ("city", "without an index")];

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    COUNTS.iter().flat_map(|count| measure_among(stage, *count)).collect()
}

fn measure_among(stage: &Stage, count: u64) -> Vec<Figure> {
    let namespace = format!("search-{count}");
    stage.lockwood().fill(&namespace, "user", 1, count);
    stage.lockwood().index(&namespace, "user", FIELDS[0].0);
    let mut figures = Vec::new();
    for (field, title) in FIELDS {
        check(stage, &namespace, field);
        let contender = |isolation: &'static str| {
            let namespace = &namespace;
            Contender::new(isolation, move || search(stage, namespace, count, (field, isolation)))
        };
        let title = format!("filter 1 of {count}, {title}");
        figures.extend(run::latencies(&title, ISOLATIONS.map(contender).into()));
    }
    figures
}

fn search(stage: &Stage, namespace: &str, count: u64, how: (&'static str, &'static str)) -> Run {
    load::run(1, stage.slice(), async |number| {
        let mut random = Random::new(number);
        let namespace = namespace.to_owned();
        let next = move |_| request(&namespace, how, random.up_to(count));
        Client::new(stage.lockwood().connect().await, 0, next)
    })
}

fn check(stage: &Stage, namespace: &str, field: &str) {
    for isolation in ISOLATIONS {
        let answer = stage.lockwood().session().call(&request(namespace, (field, isolation), 7)).to_owned();
        assert_eq!(answer.matches("\"padding\"").count(), 1, "one document: {answer}");
    }
}

fn request(namespace: &str, (field, isolation): (&str, &str), number: u64) -> Vec<u8> {
    lockwood::filter_under(namespace, "user", field, number, isolation)
}
