//! Measures very many leases that end at the same moment: how soon they are gone, and what others notice of
//! it. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        Stage, http,
        http::Http,
        load::{self, Exchange, micros},
        lockwood,
        run::{REPETITIONS, Run, median},
    },
};
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time};

const LEASES: u64 = 10_000;
/// Until their end is set.
const TTL_MS: u64 = 3_600_000;
/// From then on.
const LEAD: Duration = Duration::from_secs(5);
/// For so long from their end on others' requests count as being meanwhile; for as long before it as being
/// before.
const MEANWHILE: Duration = Duration::from_millis(500);
/// Between two looks whether all are gone.
const PAUSE: Duration = Duration::from_millis(2);
const GONE_MAX: Duration = Duration::from_secs(10);

const ELSEWHERE: &str = "expiry-elsewhere";
const OTHERS: [&str; 4] = ["get elsewhere", "write elsewhere", "get beside them", "write beside them"];

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let ends: Vec<End> = (0..REPETITIONS).map(|number| load::block_on(end(stage, number))).collect();
    let gone = ends.iter().map(|end| end.gone_ms);
    let slowest = gone.clone().fold(0.0, f64::max);
    let mut figures = vec![
        Figure::new(format!("{LEASES} leases end at once: all gone after"), median(gone), "ms")
            .note(format!("the slowest of {REPETITIONS}: {slowest:.0} ms")),
    ];
    figures.extend((0..OTHERS.len()).map(|which| other_figure(&ends, which)));
    figures
}

fn other_figure(ends: &[End], which: usize) -> Figure {
    let of = |pick: fn(&Other) -> f64| median(ends.iter().map(|end| pick(&end.others[which])));
    let [p50, max] = [of(|other| other.meanwhile.p50), of(|other| other.meanwhile.max)];
    let before = of(|other| other.before.p99);
    Figure::new(format!("meanwhile, {}: p99", OTHERS[which]), of(|other| other.meanwhile.p99) / 1e3, "ms")
        .note(format!("p50 {:.2} ms, max {:.2} ms; p99 before {:.2} ms", p50 / 1e3, max / 1e3, before / 1e3))
}

/// How it went once.
struct End {
    gone_ms: f64,
    others: Vec<Other>,
}

struct Other {
    before: Run,
    meanwhile: Run,
}

async fn end(stage: &Stage, number: usize) -> End {
    let namespace = format!("expiry-{number}");
    let key = stage.fresh_keys();
    let mut connection = stage.lockwood().connect().await;
    for namespace in [ELSEWHERE, &namespace] {
        connection.exchange(&lockwood::create(namespace, "user", key)).await;
    }
    stage.lockwood().take_many(&namespace, LEASES, TTL_MS).await;
    let due = Instant::now() + LEAD;
    stage.lockwood().end_many(&namespace, due).await;
    assert!(Instant::now() + 2 * MEANWHILE < due, "there was time enough to set their end");
    time::sleep_until((due - 2 * MEANWHILE).into()).await;
    let others = watch_others(stage, &namespace, key, due).await;
    let gone_ms = until_gone(connection, &namespace, due).await;
    End { gone_ms, others: others.join(due).await }
}

/// What they took for their requests, in the order of [`OTHERS`].
struct Watched(JoinSet<(usize, Vec<Sample>)>);

struct Sample {
    start: Instant,
    end: Instant,
}

async fn watch_others(stage: &Stage, namespace: &str, key: u64, due: Instant) -> Watched {
    let mut tasks = JoinSet::new();
    let write = |namespace: &str| lockwood::update(namespace, "user", key, 7);
    let get = |namespace: &str| lockwood::get(namespace, "user", key);
    let requests = [get(ELSEWHERE), write(ELSEWHERE), get(namespace), write(namespace)];
    for (which, request) in requests.into_iter().enumerate() {
        let connection = stage.lockwood().connect().await;
        tasks.spawn(async move { (which, ask_until(connection, &request, due + MEANWHILE).await) });
    }
    Watched(tasks)
}

async fn ask_until(mut connection: Http, request: &[u8], end: Instant) -> Vec<Sample> {
    let mut samples = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        connection.exchange(request).await;
        samples.push(Sample { start, end: Instant::now() });
    }
    samples
}

impl Watched {
    async fn join(self, due: Instant) -> Vec<Other> {
        let mut found = self.0.join_all().await;
        found.sort_by_key(|(which, _)| *which);
        found.into_iter().map(|(_, samples)| Other::new(&samples, due)).collect()
    }
}

impl Other {
    fn new(samples: &[Sample], due: Instant) -> Other {
        let of = |wanted: &dyn Fn(&Sample) -> bool| {
            let latencies = samples.iter().filter(|sample| wanted(sample));
            Run::new(latencies.map(|sample| micros(sample.end - sample.start)).collect(), MEANWHILE)
        };
        Other {
            before: of(&|sample| sample.start >= due - MEANWHILE && sample.end < due),
            meanwhile: of(&|sample| sample.end >= due),
        }
    }
}

/// How long after their time no lease is listed any more.
async fn until_gone(mut connection: Http, namespace: &str, due: Instant) -> f64 {
    time::sleep_until(due.into()).await;
    let list = http::get(&format!("/v1/{namespace}/locks?limit=1"));
    while !connection.call(&list).await.contains("\"locks\":[]") {
        assert!(due.elapsed() < GONE_MAX, "they end at all");
        time::sleep(PAUSE).await;
    }
    due.elapsed().as_secs_f64() * 1e3
}
