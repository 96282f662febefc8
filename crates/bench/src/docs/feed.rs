//! Measures how late somebody who follows the changes learns of a write. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        Stage,
        http::{self, Http},
        load::{self, Exchange, micros},
        lockwood,
        run::{REPETITIONS, Run, median},
    },
};
use std::time::{Duration, Instant};

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let runs: Vec<[Run; 2]> = (0..REPETITIONS).map(|_| load::block_on(follow(stage))).collect();
    let figure = |title: &str, which: usize| {
        let p50 = median(runs.iter().map(|run| run[which].p50));
        let p99 = median(runs.iter().map(|run| run[which].p99));
        Figure::new(format!("change feed: {title}"), p50, "us").note(format!("p99 {p99:.0} us"))
    };
    vec![figure("from a write's request to its event", 0), figure("from a write's answer to its event", 1)]
}

/// The lags from the request and from the answer; the latter is negative where the event comes first.
async fn follow(stage: &Stage) -> [Run; 2] {
    let mut writer = stage.lockwood().connect().await;
    let mut keys = stage.fresh_keys()..;
    let after = writer.exchange(&lockwood::create("feed", "user", keys.next().expect("no end"))).await;
    let mut feed = stage.lockwood().connect().await;
    feed.follow(&http::get_events(&format!("/v1/feed/changes?after={after}"))).await;
    let (mut from_request, mut from_answer) = (Vec::new(), Vec::new());
    let end = Instant::now() + stage.slice();
    while Instant::now() < end {
        let request = lockwood::create("feed", "user", keys.next().expect("no end"));
        let sent = Instant::now();
        let (answered, arrived) = tokio::join!(answer(&mut writer, &request), event(&mut feed));
        assert_eq!(answered.0, arrived.0, "nobody else writes");
        from_request.push(micros(arrived.1 - sent));
        from_answer.push(micros(arrived.1 - sent) - micros(answered.1 - sent));
    }
    [Run::new(from_request, Duration::from_secs(1)), Run::new(from_answer, Duration::from_secs(1))]
}

async fn answer(writer: &mut Http, request: &[u8]) -> (u64, Instant) {
    (writer.exchange(request).await, Instant::now())
}

async fn event(feed: &mut Http) -> (u64, Instant) {
    (feed.event().await, Instant::now())
}
