//! Delivers what homes and members tell each other: to each shard in the order in which it was said, again and again until it
//! arrives or its receiver is replaced. Knows nothing of what is said.

use super::{
    Membership,
    message::{self, Hear, ToHome, ToMember},
};
use crate::{clustered::ShardCall, shared::Shared, trouble::Trouble};
use futures_util::future::join_all;
use lockwood_router::{
    ShardEpoch, ShardNo,
    guards::{HomeMessage, MemberMessage, Stream},
};
use lockwood_wire::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

pub(super) const POST: &str = "/guards/post";
pub(super) const HEAR: &str = "/guards/hear";

/// How many messages travel in one call.
const BATCH_LEN_MAX: usize = 256;
const POST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a lock waits for shards to know of it. A shard that does not answer has another owner by then, unless it
/// can reach the database and not this node.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What waits to be delivered. At most a message for each lock and each operation, and only as long as the receiver's shard
/// has the same owner.
pub(super) struct Outbox {
    send: UnboundedSender<(ShardNo, Letter)>,
    /// Taken by the task that delivers.
    receive: Mutex<Option<UnboundedReceiver<(ShardNo, Letter)>>>,
}

/// What goes to one shard, in order.
enum Letter {
    /// A message, and the shard and epoch for which it is meant.
    Message { stream: Stream, content: Content },
    /// Everything before it has arrived.
    Mark(oneshot::Sender<()>),
}

enum Content {
    ToMember(ToMember),
    ToHome(ToHome),
}

/// Several messages to one shard, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Batch {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    to_members: Vec<ToMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    to_homes: Vec<ToHome>,
    /// An earlier call with these messages may have been answered, and the answer was lost.
    #[serde(default)]
    is_repeated: bool,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        let (send, receive) = unbounded_channel();
        Outbox { send, receive: Mutex::new(Some(receive)) }
    }

    fn post(&self, shard: ShardNo, letter: Letter) {
        // Without a receiver the tenure is over.
        let _ = self.send.send((shard, letter));
    }
}

impl Membership {
    pub(super) fn send_to_member(&self, namespace: &str, message: &HomeMessage) {
        let content = Content::ToMember(ToMember::new(namespace, self.shard, message));
        self.outbox.post(message.stream.shard, Letter::Message { stream: message.stream, content });
    }

    pub(super) fn send_to_home(&self, home: ShardNo, namespace: &str, message: &MemberMessage) {
        let content = Content::ToHome(ToHome::new(namespace, message));
        self.outbox.post(home, Letter::Message { stream: message.stream, content });
    }

    /// Waits until everything that was sent to these shards so far has arrived, but not for long.
    pub(super) async fn arrived(&self, shards: impl IntoIterator<Item = ShardNo>) {
        let marks = shards.into_iter().map(|shard| {
            let (mark, arrived) = oneshot::channel();
            self.outbox.post(shard, Letter::Mark(mark));
            tokio::time::timeout(ARRIVE_TIMEOUT, arrived)
        });
        join_all(marks).await;
    }

    /// Delivers for as long as the tenure.
    pub(super) async fn deliver(&self, shared: &Arc<Shared>) {
        let Some(mut all) = self.outbox.receive.lock().take() else { return };
        let mut by_shard: HashMap<ShardNo, UnboundedSender<Letter>> = HashMap::new();
        let mut tasks = tokio::task::JoinSet::new();
        while let Some((shard, letter)) = all.recv().await {
            let queue = by_shard.entry(shard).or_insert_with(|| {
                let (send, receive) = unbounded_channel();
                tasks.spawn(deliver_to(Arc::clone(shared), shard, receive));
                send
            });
            let _ = queue.send(letter);
        }
    }

    /// Whether the receiver of a message can still be what it was when the message was made.
    fn is_current(&self, receiver: ShardNo, letter: &Letter) -> bool {
        let Letter::Message { stream, content } = letter else { return false };
        let epoch = match content {
            Content::ToMember(_) => stream.shard_epoch,
            Content::ToHome(_) => ShardEpoch(stream.home.0),
        };
        self.node.topology.view().shard(receiver).is_none_or(|row| row.epoch <= epoch)
    }

    /// Asks a shard what it is to a namespace whose home is here. None if it does not answer.
    pub(super) async fn ask_to_hear(&self, namespace: &str, shard: ShardNo) -> Option<MemberMessage> {
        let asked = Hear { namespace: namespace.to_owned(), from: self.shard.0, home: self.epoch.0 };
        let call = ShardCall::post(HEAR, message::write(&asked), POST_TIMEOUT);
        let answer = self.node.ask_shard(shard, &call).await.ok()?;
        let answer: ToHome = message::read_answer(answer.status(), answer.body()).ok()?;
        Some(answer.message())
    }
}

async fn deliver_to(shared: Arc<Shared>, shard: ShardNo, mut letters: UnboundedReceiver<Letter>) {
    let Some(membership) = &shared.membership else { return };
    let mut waiting = Vec::new();
    while letters.recv_many(&mut waiting, BATCH_LEN_MAX).await > 0 {
        let marks: Vec<Letter> = waiting.extract_if(.., |letter| matches!(letter, Letter::Mark(_))).collect();
        let (mut pause, mut is_repeated) = (PAUSE, false);
        loop {
            waiting.retain(|letter| membership.is_current(shard, letter));
            if waiting.is_empty() || try_deliver(&shared, membership, shard, (&waiting, is_repeated)).await {
                break;
            }
            is_repeated = true;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        waiting.clear();
        // Some came after them; that does no harm.
        for mark in marks {
            if let Letter::Mark(arrived) = mark {
                let _ = arrived.send(());
            }
        }
    }
}

async fn try_deliver(
    shared: &Arc<Shared>,
    membership: &Membership,
    shard: ShardNo,
    (waiting, is_repeated): (&[Letter], bool),
) -> bool {
    let call = ShardCall::post(POST, write_batch(waiting, is_repeated), POST_TIMEOUT);
    let Ok(answer) = membership.node.ask_shard(shard, &call).await else { return false };
    match message::read_answer::<Batch>(answer.status(), answer.body()) {
        Ok(answers) => {
            // What cannot be taken in now is said again: as the answer is lost then, the members are asked again.
            receive_of_members(shared, answers.to_homes).await.is_ok()
        }
        Err(trouble) if matches!(trouble.code, Code::ShardUnreachable | Code::Draining) => false,
        Err(trouble) => {
            tracing::warn!(shard = shard.0, code = ?trouble.code, message = %trouble.message, "tell a shard about guards");
            false
        }
    }
}

fn write_batch(letters: &[Letter], is_repeated: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        to_members: Vec<&'a ToMember>,
        to_homes: Vec<&'a ToHome>,
        is_repeated: bool,
    }
    let mut batch = Borrowed { to_members: Vec::new(), to_homes: Vec::new(), is_repeated };
    for letter in letters {
        match letter {
            Letter::Message { content: Content::ToMember(message), .. } => batch.to_members.push(message),
            Letter::Message { content: Content::ToHome(message), .. } => batch.to_homes.push(message),
            Letter::Mark(_) => {}
        }
    }
    message::write(&batch)
}

/// Carries out what another shard has sent; gives the answer.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    membership: &Membership,
    batch: Batch,
) -> Result<Batch, Trouble> {
    receive_of_members(shared, batch.to_homes).await?;
    let mut answers = Batch::default();
    let mut answer =
        |namespace: &str, said: &MemberMessage| answers.to_homes.push(ToHome::new(namespace, said));
    let mut named: BTreeMap<String, ShardNo> = BTreeMap::new();
    for sent in batch.to_members {
        named.insert(sent.namespace.clone(), ShardNo(sent.from));
        let (namespace, answered) = membership.receive_of_home(sent)?;
        answered.iter().for_each(|said| answer(&namespace, said));
    }
    if batch.is_repeated {
        // What was answered before may be lost: the home is told again where this shard stands.
        for (namespace, home) in &named {
            answer(namespace, &membership.reconnected(namespace, *home));
        }
    }
    Ok(answers)
}

/// Takes in all messages that can be; fails if some cannot, so that all are said again, which is harmless.
async fn receive_of_members(shared: &Arc<Shared>, messages: Vec<ToHome>) -> Result<(), Trouble> {
    let mut by_namespace: BTreeMap<String, Vec<MemberMessage>> = BTreeMap::new();
    for sent in messages {
        let message = sent.message();
        by_namespace.entry(sent.namespace).or_default().push(message);
    }
    let mut received = Ok(());
    for (name, messages) in by_namespace {
        let namespace = match shared.locate(&name).await {
            Ok(()) => shared.registry.ensure(shared, &name),
            Err(trouble) => Err(trouble),
        };
        match namespace {
            Ok(namespace) => messages.iter().for_each(|message| namespace.receive(shared, message)),
            Err(trouble) => {
                tracing::warn!(namespace = %name, message = %trouble.message, "hear of a member");
                received = Err(trouble);
            }
        }
    }
    received
}
