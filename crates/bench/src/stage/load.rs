//! Clients that ask again and again, all in one thread as those of pgbench are. Knows nothing of protocols.

use super::run::Run;
use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// What a client does again and again.
pub(crate) trait Work: Send + 'static {
    /// Does it once; says how long it took without the time to prepare it.
    fn once(&mut self) -> impl Future<Output = Duration> + Send;
}

/// A connection on which a request has one answer.
pub(crate) trait Exchange: Send + 'static {
    /// Sends a request and reads all of its answer; gives the position in it, or 0 if it has none.
    fn exchange(&mut self, request: &[u8]) -> impl Future<Output = u64> + Send;
}

/// Makes the next request from the position in the last answer.
type Next = Box<dyn FnMut(u64) -> Vec<u8> + Send>;

/// Asks one request after the other.
pub(crate) struct Client<E> {
    connection: E,
    position: u64,
    next: Next,
}

impl<E: Exchange> Client<E> {
    /// One that has seen `position` already.
    pub(crate) fn new(
        connection: E,
        position: u64,
        next: impl FnMut(u64) -> Vec<u8> + Send + 'static,
    ) -> Client<E> {
        Client { connection, position, next: Box::new(next) }
    }
}

impl<E: Exchange> Work for Client<E> {
    async fn once(&mut self) -> Duration {
        let request = (self.next)(self.position);
        let start = Instant::now();
        self.position = self.connection.exchange(&request).await;
        start.elapsed()
    }
}

/// So many clients at once, for a while.
pub(crate) fn run<W: Work>(clients: usize, slice: Duration, open: impl AsyncFn(usize) -> W) -> Run {
    block_on(async {
        let mut opened = Vec::new();
        for number in 0..clients {
            opened.push(open(number).await);
        }
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for client in opened {
            tasks.spawn(work_until(client, start + slice));
        }
        let latencies = tasks.join_all().await.concat();
        Run::new(latencies, start.elapsed())
    })
}

/// What clients did, each thing with when it was done and how long it took in microseconds.
pub(crate) struct Done(Vec<(Instant, f64)>);

impl Done {
    /// What was done in a time.
    pub(crate) fn run(&self, span: Range<Instant>) -> Run {
        let within = self.0.iter().filter(|(when, _)| span.contains(when));
        Run::new(within.map(|(_, latency)| *latency).collect(), span.end - span.start)
    }
}

/// So many clients at once, for as long as something else takes.
pub(crate) fn beside<W: Work>(
    clients: usize,
    open: impl AsyncFn(usize) -> W,
    something: impl FnOnce() + Send,
) -> Done {
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let over = Arc::clone(&is_over);
        scope.spawn(move || {
            something();
            over.store(true, Ordering::Relaxed);
        });
        block_on(async {
            let mut tasks = JoinSet::new();
            for number in 0..clients {
                tasks.spawn(work_while(open(number).await, Arc::clone(&is_over)));
            }
            Done(tasks.join_all().await.concat())
        })
    })
}

async fn work_while(mut work: impl Work, is_over: Arc<AtomicBool>) -> Vec<(Instant, f64)> {
    let mut done = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let latency = micros(work.once().await);
        done.push((Instant::now(), latency));
    }
    done
}

/// So many clients at once, each to its end.
pub(crate) fn each(clients: usize, work: impl AsyncFn(usize)) {
    block_on(async {
        let all = (0..clients).map(async |number| work(number).await);
        futures_util::future::join_all(all).await;
    });
}

async fn work_until(mut work: impl Work, end: Instant) -> Vec<f64> {
    let mut latencies = Vec::new();
    while Instant::now() < end {
        latencies.push(micros(work.once().await));
    }
    latencies
}

/// The same work one after the other, for a while; it says itself how long it took.
pub(crate) fn repeat(slice: Duration, mut work: impl FnMut() -> Duration) -> Run {
    let end = Instant::now() + slice;
    let mut latencies = Vec::new();
    while latencies.is_empty() || Instant::now() < end {
        latencies.push(work());
    }
    let elapsed = latencies.iter().sum();
    Run::new(latencies.into_iter().map(micros).collect(), elapsed)
}

pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
