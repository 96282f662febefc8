//! Commits as they happen, over a connection that is made again when it is lost. Knows nothing of what is done
//! with them.

use crate::{
    documents::Store,
    error::Error,
    sse::SseReader,
    transport::{self, Call, Streaming, Target},
};
use hyper::Method;
use lockwood_model::Position;
use lockwood_wire::documents::WireCommit;
use std::{collections::VecDeque, time::Duration};

/// The first attempt to connect again comes after this, each further one after twice the time,
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(3);

/// Which commits: those that touch these collections and fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// None means all.
    pub collections: Vec<String>,
    /// None means all.
    pub fields: Vec<String>,
}

impl Subject {
    pub(crate) fn target(&self, namespace: &str, after: u64) -> Target {
        Target::new(namespace, "changes")
            .query("after", Some(after))
            .names("collection", &self.collections)
            .names("field", &self.fields)
    }
}

/// What comes out of a feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedStep {
    /// A write was done.
    Commit(WireCommit),
    /// The connection is lost, for this reason. The feed tries to get it back; nothing will be missing.
    Lost(Error),
    /// The connection is there again.
    Back,
}

/// Commits in order, each once.
pub struct Feed {
    store: Store,
    subject: Subject,
    /// Everything up to here was given out or did not have to be.
    position: Position,
    connection: Connection,
    ready: VecDeque<WireCommit>,
}

enum Connection {
    Open(Streaming, SseReader),
    /// To be made again; so many attempts have failed.
    Lost(u32),
}

impl Feed {
    pub(crate) async fn open(store: Store, subject: Subject, position: Position) -> Result<Feed, Error> {
        let stream = connect(&store, &subject, position).await?;
        let connection = Connection::Open(stream, SseReader::default());
        Ok(Feed { store, subject, position, connection, ready: VecDeque::new() })
    }

    /// After which position the next commit comes.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Waits for what comes next. An error is the end: the server will not go on from this position.
    ///
    /// It can be left and called again at any time; nothing is lost by that.
    pub async fn next(&mut self) -> Result<FeedStep, Error> {
        loop {
            if let Some(commit) = self.ready.pop_front() {
                self.position = Position(commit.position);
                return Ok(FeedStep::Commit(commit));
            }
            match &mut self.connection {
                Connection::Open(stream, reader) => match more(stream, reader).await {
                    Ok(commits) => self.take(commits),
                    Err(error) => {
                        self.connection = Connection::Lost(0);
                        return Ok(FeedStep::Lost(error));
                    }
                },
                Connection::Lost(attempts) => {
                    tokio::time::sleep(backoff(*attempts)).await;
                    *attempts += 1;
                    if self.reconnect().await? {
                        return Ok(FeedStep::Back);
                    }
                }
            }
        }
    }

    /// A server that repeats what was given out already does no harm.
    fn take(&mut self, commits: Vec<WireCommit>) {
        let position = self.position.0;
        self.ready.extend(commits.into_iter().filter(|commit| commit.position > position));
    }

    async fn reconnect(&mut self) -> Result<bool, Error> {
        match connect(&self.store, &self.subject, self.position).await {
            Ok(stream) => {
                self.connection = Connection::Open(stream, SseReader::default());
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the same attempt may succeed later: the server is away, starts, or is about to stop.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused(refusal) => refusal.code.status() >= 500,
        _ => false,
    }
}

fn backoff(attempts: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << attempts.min(10)).min(BACKOFF_MAX)
}

async fn connect(store: &Store, subject: &Subject, after: Position) -> Result<Streaming, Error> {
    let call = Call {
        accept: "text/event-stream",
        last_event_id: Some(after.0),
        ..Call::new(Method::GET, subject.target(&store.namespace, after.0).text)
    };
    store.nodes.open(&call).await
}

/// The commits in the next piece of the stream, perhaps none. An end is an error: a feed has none.
async fn more(stream: &mut Streaming, reader: &mut SseReader) -> Result<Vec<WireCommit>, Error> {
    let chunk = stream.chunk().await?.ok_or_else(|| stream.broken("the server ended the feed".into()))?;
    let events = reader.read(&chunk).map_err(|_| Error::BadAnswer("an endless event".into()))?;
    let commits = events.iter().filter(|event| event.event == "commit");
    commits.map(|event| transport::read(event.data.as_bytes())).collect()
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("subject", &self.subject).field("position", &self.position).finish()
    }
}
