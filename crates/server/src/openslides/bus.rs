//! The message bus: tells Redis of every change, in order, as often as it takes. Reads the log behind the
//! writers, who never wait for it; how far it has come is kept, so nothing is lost by a crash of either side.
//! Knows nothing of requests.

use super::redis::{Link, add_to_stream};
use crate::shared::Shared;
use lockwood_model::{Change, Commit, DocumentKey, FieldValue, META_DELETED, META_POSITION};
use lockwood_node::{schemas, shard::Shard};
use lockwood_storage::{Entry, StoreError};
use std::{borrow::Cow, collections::BTreeMap, io, sync::Arc, time::Duration};

const STREAM: &str = "ModifiedFields";
/// So much is sent at once.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// So many records of the log are looked at before what was found is sent.
const LOOKS_MAX: u64 = 4096;
/// Redis takes about a million words in one command; a longer message becomes several.
const MESSAGE_LEN_MAX: usize = if cfg!(test) { 100 } else { 400_000 };
/// Between two tries to reach Redis; doubled up to the second.
const DELAY: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Follows the log and passes on what happens in one namespace.
pub(crate) struct Bus {
    shared: Arc<Shared>,
    namespace: String,
    address: String,
    /// The last record of the log that needs no telling any more.
    cursor: u64,
}

/// Commands that are sent together.
#[derive(Default)]
struct Batch {
    commands: Vec<u8>,
    /// For each command the record of the log that is told once it is done.
    told: Vec<u64>,
    /// The last record that was looked at.
    last: u64,
    /// Records before this one were forgotten before they were told.
    forgotten: Option<u64>,
}

impl Bus {
    /// Takes up where the last run ended, or begins with what is written from now on.
    pub(crate) fn open(shared: &Arc<Shared>, namespace: &str, address: &str) -> Result<Bus, StoreError> {
        let applied = shared.shard.read().state().applied()?;
        let shared = Arc::clone(shared);
        let (namespace, address) = (namespace.to_owned(), address.to_owned());
        let mut bus = Bus { shared, namespace, address, cursor: applied };
        match bus.shared.ledger.cursor(&bus.reader())? {
            Some(cursor) if cursor <= applied => bus.cursor = cursor,
            Some(cursor) => tracing::warn!(cursor, applied, "the message bus was ahead of the log"),
            None => bus.shared.ledger.set_cursor(&bus.reader(), applied)?,
        }
        bus.shared.shard.hold_after(bus.cursor);
        Ok(bus)
    }

    /// Under which name the cursor is kept.
    fn reader(&self) -> String {
        format!("openslides/{}", self.namespace)
    }

    /// Tells everything there is, for ever.
    pub(crate) async fn run(mut self) {
        let mut applied = self.shared.shard.subscribe();
        let mut line = Line { address: self.address.clone(), link: None, delay: DELAY, is_down: false };
        loop {
            let last = *applied.borrow_and_update();
            if self.cursor < last {
                self.tell_some(&mut line).await;
            } else if applied.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tell_some(&mut self, line: &mut Line) {
        let (shard, namespace, cursor) =
            (Arc::clone(&self.shared.shard), self.namespace.clone(), self.cursor);
        let gathered = tokio::task::spawn_blocking(move || gather(&shard, &namespace, cursor)).await;
        let batch = match gathered {
            Ok(Ok(batch)) => batch,
            Ok(Err(error)) => {
                tracing::error!(%error, "read the log for the message bus");
                return tokio::time::sleep(DELAY_MAX).await;
            }
            Err(error) => {
                tracing::error!(%error, "read the log for the message bus");
                return tokio::time::sleep(DELAY_MAX).await;
            }
        };
        if let Some(first) = batch.forgotten {
            tracing::warn!(
                from = self.cursor + 1,
                to = first - 1,
                "these records of the log were forgotten before Redis could be told of them"
            );
        }
        let told = line.send(&batch).await;
        if told == batch.told.len() {
            self.cursor = batch.last;
        } else if let Some(done) = told.checked_sub(1) {
            self.cursor = self.cursor.max(batch.told[done]);
        }
        self.save(cursor).await;
        if told < batch.told.len() {
            line.wait().await;
        }
    }

    /// Keeps the cursor if it has moved.
    async fn save(&self, before: u64) {
        if self.cursor == before {
            return;
        }
        let (shared, reader, cursor) = (Arc::clone(&self.shared), self.reader(), self.cursor);
        let saved = tokio::task::spawn_blocking(move || shared.ledger.set_cursor(&reader, cursor)).await;
        match saved {
            Ok(Ok(())) => self.shared.shard.hold_after(cursor),
            // Messages are sent again after a restart then; a disk that fails is reported by the writers.
            Ok(Err(error)) => tracing::warn!(%error, "keep how far the message bus has come"),
            Err(_) => {}
        }
    }
}

/// The connection to Redis, or the lack of one.
struct Line {
    address: String,
    link: Option<Link>,
    delay: Duration,
    is_down: bool,
}

impl Line {
    /// Says how many of the commands were done, from the first on.
    async fn send(&mut self, batch: &Batch) -> usize {
        if batch.told.is_empty() {
            return 0;
        }
        let (done, sent) = match self.link().await {
            Ok(link) => link.send(&batch.commands, batch.told.len()).await,
            Err(error) => (0, Err(error)),
        };
        match sent {
            Ok(()) => {
                self.delay = DELAY;
                if std::mem::replace(&mut self.is_down, false) {
                    tracing::info!(address = self.address, "Redis is back; changes are told again");
                }
            }
            Err(error) => {
                self.link = None;
                if !std::mem::replace(&mut self.is_down, true) {
                    tracing::warn!(
                        %error,
                        address = self.address,
                        "Redis cannot be told of changes; they are kept and told when it is back"
                    );
                }
            }
        }
        done
    }

    async fn link(&mut self) -> io::Result<&mut Link> {
        if self.link.is_none() {
            self.link = Some(Link::open(&self.address).await?);
        }
        Ok(self.link.as_mut().expect("it was just opened"))
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(DELAY_MAX);
    }
}

/// The messages of the records after `cursor`, up to a limit.
fn gather(shard: &Shard, namespace: &str, cursor: u64) -> Result<Batch, StoreError> {
    let reading = shard.read();
    let state = reading.state();
    let applied = state.applied()?;
    let mut batch = Batch { last: cursor, ..Batch::default() };
    while batch.last < applied && batch.last - cursor < LOOKS_MAX && batch.commands.len() < BATCH_BYTES_MAX {
        let index = batch.last + 1;
        match state.entry(index)? {
            Some(entry) => batch.add(index, namespace, &entry),
            // Only the beginning of a log is ever dropped.
            None => {
                batch.last = state.trimmed()?.clamp(index, applied);
                batch.forgotten = Some(batch.last + 1);
                return Ok(batch);
            }
        }
        batch.last = index;
    }
    Ok(batch)
}

impl Batch {
    fn add(&mut self, index: u64, namespace: &str, entry: &Entry) {
        let mut message = Message::default();
        match entry {
            Entry::Committed { namespace: name, commits, .. } if **name == *namespace => {
                commits.iter().for_each(|commit| message.add_commit(commit));
            }
            Entry::Kept { namespace: name, put, .. } if **name == *namespace => {
                put.iter().for_each(|(at, fields)| message.add_kept(at, fields, &[]));
            }
            Entry::Merged { namespace: name, at, set, removed } if **name == *namespace => {
                message.add_kept(at, set, removed);
            }
            _ => {}
        }
        let pairs: Vec<(&str, &str)> = message.0.iter().map(|(name, value)| (&**name, &**value)).collect();
        let mut parts = pairs.chunks(MESSAGE_LEN_MAX).peekable();
        while let Some(part) = parts.next() {
            add_to_stream(&mut self.commands, STREAM, part.iter().copied());
            self.told.push(if parts.peek().is_some() { index - 1 } else { index });
        }
    }
}

/// What a call did: fields by their full names, each with its last value.
#[derive(Default)]
struct Message<'a>(BTreeMap<String, Cow<'a, str>>);

impl<'a> Message<'a> {
    fn add_commit(&mut self, commit: &'a Commit) {
        // Schemas are no models.
        for event in commit.events.iter().filter(|event| &*event.at.collection != schemas::COLLECTION) {
            let at = &event.at;
            match &event.change {
                Change::Created { fields } => {
                    self.values(at, fields);
                    self.put(at, META_DELETED, "false");
                }
                Change::Recreated { fields, removed } => {
                    removed.iter().for_each(|name| self.put(at, name, "null"));
                    self.values(at, fields);
                    self.put(at, META_DELETED, "false");
                }
                Change::Updated { set, removed } => {
                    self.values(at, set);
                    removed.iter().for_each(|name| self.put(at, name, "null"));
                }
                // The same for both, as the original has it: whoever needs the values reads them.
                Change::Deleted { fields } => {
                    fields.iter().for_each(|name| self.put(at, name, "null"));
                    self.put(at, META_DELETED, "null");
                }
                Change::Restored { fields } => {
                    fields.iter().for_each(|(name, _)| self.put(at, name, "null"));
                    self.put(at, META_DELETED, "null");
                }
            }
            self.put(at, META_POSITION, commit.position.to_string());
        }
    }

    fn add_kept(&mut self, at: &DocumentKey, set: &'a [FieldValue], removed: &[Box<str>]) {
        self.values(at, set);
        removed.iter().for_each(|name| self.put(at, name, "null"));
        self.put(at, META_POSITION, "0");
    }

    fn values(&mut self, at: &DocumentKey, fields: &'a [FieldValue]) {
        fields.iter().for_each(|(name, value)| self.put(at, name, value.as_str()));
    }

    fn put(&mut self, at: &DocumentKey, field: &str, value: impl Into<Cow<'a, str>>) {
        self.0.insert(format!("{at}/{field}"), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_engine::{Action, Intent, NoRules, Request};
    use lockwood_model::{Json, Key, Timestamp};
    use lockwood_node::shard::{Call, ShardLimits};
    use lockwood_storage::Memory;

    fn open() -> Arc<Shard> {
        let limits = ShardLimits { pending_bytes_max: u64::MAX, namespaces_max: 10 };
        Arc::new(Shard::open(Arc::new(Memory::default()), limits).unwrap())
    }

    /// One create in a namespace, at a time.
    async fn create(shard: &Shard, namespace: &str, id: i64, fields: usize, at: u64) {
        let fields = (0..fields).map(|number| (format!("f{number}").into(), Json::trusted("1"))).collect();
        let at_key = DocumentKey::new("a", Key::number(id));
        let intents = vec![Intent { at: at_key, action: Action::Create { fields } }];
        let call = Call { requests: vec![Request { intents, ..Request::default() }], ..Call::default() };
        write(shard, namespace, &call, at).await;
    }

    async fn write(shard: &Shard, namespace: &str, call: &Call, at: u64) {
        let pending = shard.decide_write(namespace, call, &NoRules, Timestamp(at)).unwrap();
        shard.settle_write(call, pending).await.unwrap();
    }

    #[tokio::test]
    async fn only_one_namespace_is_told_of() {
        let shard = open();
        for (namespace, id) in [("n", 1), ("other", 1), ("n", 2)] {
            create(&shard, namespace, id, 1, 5).await;
        }
        shard.record(Entry::Emptied { namespace: "n".into() }).await.unwrap();
        let batch = gather(&shard, "n", 0).unwrap();
        assert_eq!((batch.told, batch.last, batch.forgotten), (vec![1, 3], 4, None));
        let text = String::from_utf8(batch.commands).unwrap();
        assert_eq!(text.matches("ModifiedFields").count(), 2, "{text}");
        let batch = gather(&shard, "n", 3).unwrap();
        assert_eq!((batch.told, batch.last), (vec![], 4));
    }

    #[tokio::test]
    async fn schemas_are_not_told_of() {
        let shard = open();
        let at = DocumentKey::new(schemas::COLLECTION, Key::number(1));
        let action = Action::Create { fields: vec![("subject".into(), Json::trusted("1"))] };
        let request = Request { intents: vec![Intent { at, action }], ..Request::default() };
        let call = Call { requests: vec![request], ..Call::default() };
        write(&shard, "n", &call, 5).await;
        assert!(gather(&shard, "n", 0).unwrap().told.is_empty());
    }

    #[tokio::test]
    async fn what_was_forgotten_is_skipped_and_said() {
        let shard = open();
        for id in 1..=3 {
            create(&shard, "n", id, 1, 5).await;
        }
        assert!(shard.trim(Timestamp(6)).await.unwrap() >= 3);
        create(&shard, "n", 4, 1, 7).await;
        let batch = gather(&shard, "n", 1).unwrap();
        assert!(batch.told.is_empty());
        let forgotten = batch.forgotten.unwrap();
        assert_eq!(forgotten, batch.last + 1);
        let batch = gather(&shard, "n", batch.last).unwrap();
        assert_eq!(batch.told.len(), 1);
        assert_eq!(batch.forgotten, None);
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_told_once_all_its_parts_are() {
        let shard = open();
        create(&shard, "n", 1, MESSAGE_LEN_MAX, 5).await;
        create(&shard, "n", 2, 1, 5).await;
        let batch = gather(&shard, "n", 0).unwrap();
        assert_eq!(batch.told, [0, 1, 2]);
    }
}
