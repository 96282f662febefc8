//! Delivers what homes and members tell each other: to each shard in the order in which it was said, again and again until it
//! arrives or its receiver is replaced. A namespace whose messages the receiver does not take in keeps none of the others
//! waiting: its two sides join anew. Knows nothing of what is said.

use super::{
    Membership,
    message::{self, Hear, ToHome, ToMember},
    outbox::{LaneName, Letter, Queue, Side},
};
use crate::{clustered::ShardCall, shared::Shared};
use futures_util::future::join_all;
use lockwood_cluster::CallError;
use lockwood_router::{
    ShardNo,
    guards::{HomeMessage, MemberMessage, Stream},
};
use lockwood_wire::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;

pub(super) const POST: &str = "/guards/post";
pub(super) const HEAR: &str = "/guards/hear";

/// How many messages travel in one call, and how many bytes of them; a larger message travels alone.
const BATCH_LEN_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1024 * 1024;
const POST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a lock waits for shards to know of it. A shard that does not answer has another owner by then, unless it
/// can reach the database and not this node.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What one call takes to a shard.
#[derive(Default)]
struct Parcel {
    written: Vec<Written>,
    /// Namespaces whose member is to say anew where it stands.
    hears: Vec<LaneName>,
    /// Of lanes all of whose messages before are in here, or have arrived.
    marks: Vec<(LaneName, oneshot::Sender<()>)>,
}

/// A message as it travels.
struct Written {
    name: LaneName,
    stream: Stream,
    is_snapshot: bool,
    json: Box<RawValue>,
}

/// What came of a call.
enum Delivery {
    Arrived(Arrived),
    /// The receiver takes none of it.
    Refused,
    /// The receiver cannot be reached, or is not the owner any more. It may have taken it in all the same.
    Away {
        is_unknown: bool,
    },
}

/// What became of lanes that were delivered.
#[derive(Default)]
struct Arrived {
    /// The receiver cannot take them in.
    refused: BTreeSet<LaneName>,
    /// The member ignores them: it has joined anew and waits for the snapshot, which says the same.
    ignored: BTreeSet<LaneName>,
}

/// Several messages to one shard, in order.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Batch {
    #[serde(default)]
    to_members: Vec<ToMember>,
    #[serde(default)]
    to_homes: Vec<ToHome>,
    /// Namespaces whose members are to say anew where they stand.
    #[serde(default)]
    hears: Vec<Hear>,
    /// An earlier call with these messages may have been answered, and the answer was lost.
    #[serde(default)]
    is_repeated: bool,
}

/// The same, as it is sent.
#[derive(Serialize)]
struct BatchToSend<'a> {
    to_members: Vec<&'a RawValue>,
    to_homes: Vec<&'a RawValue>,
    hears: Vec<Hear>,
    is_repeated: bool,
}

/// What a shard answers to messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answers {
    #[serde(default)]
    to_homes: Vec<ToHome>,
    /// Namespaces whose members, and whose homes, have not taken in what they were told.
    #[serde(default)]
    refused_members: BTreeSet<String>,
    /// Namespaces whose members ignored what they were told last, because they have joined anew.
    #[serde(default)]
    ignored_members: BTreeSet<String>,
    #[serde(default)]
    refused_homes: BTreeSet<String>,
}

impl Membership {
    pub(crate) fn send_to_member(&self, namespace: &Arc<str>, message: HomeMessage) {
        let name = LaneName { namespace: Arc::clone(namespace), to: Side::Member };
        self.outbox.post(message.stream.shard, name, Letter::ToMember(message));
    }

    pub(super) fn send_to_home(&self, home: ShardNo, namespace: &Arc<str>, message: MemberMessage) {
        let name = LaneName { namespace: Arc::clone(namespace), to: Side::Home };
        self.outbox.post(home, name, Letter::ToHome(message));
    }

    /// Waits until everything that the members of a namespace at these shards were told so far has arrived, but not for long.
    pub(crate) async fn arrived(&self, namespace: &Arc<str>, shards: impl IntoIterator<Item = ShardNo>) {
        let marks = shards.into_iter().map(|shard| {
            let (mark, arrived) = oneshot::channel();
            let name = LaneName { namespace: Arc::clone(namespace), to: Side::Member };
            self.outbox.post(shard, name, Letter::Mark(mark));
            tokio::time::timeout(ARRIVE_TIMEOUT, arrived)
        });
        join_all(marks).await;
    }

    /// Delivers for as long as the tenure.
    pub(super) async fn deliver(&self, shared: &Arc<Shared>) {
        let mut served: BTreeSet<ShardNo> = BTreeSet::new();
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            for (shard, queue) in self.outbox.queues() {
                if served.insert(shard) {
                    tasks.spawn(deliver_to(Arc::clone(shared), shard, queue));
                }
            }
            self.outbox.grown.notified().await;
        }
    }

    /// Whether the receiver of a message can still be what it was when the message was made.
    fn is_current(&self, receiver: ShardNo, written: &Written) -> bool {
        let epoch = match written.name.to {
            Side::Member => written.stream.shard_epoch,
            Side::Home => written.stream.home.owner(),
        };
        self.node.topology.view().shard(receiver).is_none_or(|row| row.epoch <= epoch)
    }

    fn hear_of(&self, name: &LaneName) -> Hear {
        let home = self.home_epoch(&name.namespace).0;
        Hear { namespace: name.namespace.to_string(), from: self.shard.0, home }
    }

    /// Asks a shard what it is to a namespace whose home is here. None if it does not answer.
    pub(crate) async fn ask_to_hear(&self, namespace: &str, shard: ShardNo) -> Option<MemberMessage> {
        let home = self.home_epoch(namespace).0;
        let asked = Hear { namespace: namespace.to_owned(), from: self.shard.0, home };
        let call = ShardCall::post(HEAR, message::write(&asked), POST_TIMEOUT);
        let answer = self.node.ask_shard(shard, &call).await.ok()?;
        let answer: ToHome = message::read_answer(answer.status(), answer.body()).ok()?;
        Some(answer.message())
    }

    fn write(&self, name: LaneName, letter: &Letter) -> Option<Written> {
        let stream = letter.stream()?;
        let json = match letter {
            Letter::ToMember(message) => to_raw_value(&ToMember::new(&name.namespace, self.shard, message)),
            Letter::ToHome(message) => to_raw_value(&ToHome::new(&name.namespace, message)),
            Letter::Mark(_) => return None,
        };
        let json = json.expect("names and numbers can be written");
        Some(Written { name, stream, is_snapshot: letter.is_snapshot(), json })
    }

    /// Takes what one call can take.
    fn pack(&self, home: ShardNo, queue: &Queue, bytes_max: usize) -> Parcel {
        let mut parcel = Parcel::default();
        for name in queue.take_lost(BATCH_LEN_MAX) {
            match name.to {
                Side::Member => parcel.hears.push(name),
                // That is posted, and taken below.
                Side::Home => self.say_again(&name.namespace, home),
            }
        }
        let mut bytes = 0;
        while parcel.written.len() < BATCH_LEN_MAX
            && let Some((name, letter)) = queue.take()
        {
            let Some(written) = self.write(name.clone(), &letter) else {
                if let Letter::Mark(mark) = letter {
                    parcel.marks.push((name, mark));
                }
                continue;
            };
            bytes += written.json.get().len();
            if bytes > bytes_max && !parcel.written.is_empty() {
                queue.put_back(&name, letter);
                break;
            }
            parcel.written.push(written);
        }
        queue.next_turn();
        parcel
    }
}

async fn deliver_to(shared: Arc<Shared>, shard: ShardNo, queue: Arc<Queue>) {
    let Some(membership) = &shared.membership else { return };
    let limit = usize::try_from(shared.config.limits.peer_body_bytes_max).unwrap_or(usize::MAX);
    loop {
        queue.ready().await;
        let mut parcel = membership.pack(shard, &queue, BATCH_BYTES_MAX.min(limit));
        let Arrived { refused, ignored } = deliver(&shared, membership, shard, &mut parcel).await;
        for written in parcel.written.iter().filter(|written| !refused.contains(&written.name)) {
            queue.arrived(&written.name, written.is_snapshot && !ignored.contains(&written.name));
        }
        for name in &refused {
            queue.lose(name.clone());
        }
        for (name, mark) in parcel.marks {
            match () {
                () if refused.contains(&name) => membership.outbox.post(shard, name, Letter::Mark(mark)),
                () if ignored.contains(&name) => queue.keep_mark(name, mark),
                () => drop(mark.send(())),
            }
        }
    }
}

/// Delivers a parcel, however long that takes.
async fn deliver(
    shared: &Arc<Shared>,
    membership: &Membership,
    shard: ShardNo,
    parcel: &mut Parcel,
) -> Arrived {
    let (mut pause, mut is_repeated) = (PAUSE, false);
    loop {
        parcel.written.retain(|written| membership.is_current(shard, written));
        if parcel.written.is_empty() && parcel.hears.is_empty() {
            return Arrived::default();
        }
        // A home that was replaced must lift nothing: the next one may have given it to others.
        if shared.authority.is_fresh() {
            match try_deliver(shared, membership, shard, (parcel, is_repeated)).await {
                Delivery::Arrived(arrived) => return arrived,
                Delivery::Refused => {
                    let names = parcel.written.iter().map(|written| &written.name);
                    let refused = names.chain(&parcel.hears).cloned().collect();
                    return Arrived { refused, ..Arrived::default() };
                }
                Delivery::Away { is_unknown } => is_repeated |= is_unknown,
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn try_deliver(
    shared: &Arc<Shared>,
    membership: &Membership,
    shard: ShardNo,
    (parcel, is_repeated): (&Parcel, bool),
) -> Delivery {
    let call = ShardCall::post(POST, parcel.write(membership, is_repeated), POST_TIMEOUT);
    let answer = match membership.node.ask_shard(shard, &call).await {
        Ok(answer) => answer,
        Err(error) => return Delivery::Away { is_unknown: matches!(error, CallError::Unknown { .. }) },
    };
    match message::read_answer::<Answers>(answer.status(), answer.body()) {
        Ok(Answers { to_homes, refused_members, ignored_members, refused_homes }) => {
            let name = |namespace: &String, to| LaneName { namespace: namespace.as_str().into(), to };
            // What cannot be taken in here is lost with the answer, so the member is asked again.
            let lost = receive_of_members(shared, to_homes).await;
            let members = refused_members.iter().chain(&lost).map(|namespace| name(namespace, Side::Member));
            let homes = refused_homes.iter().map(|namespace| name(namespace, Side::Home));
            let ignored = ignored_members.iter().map(|namespace| name(namespace, Side::Member)).collect();
            Delivery::Arrived(Arrived { refused: members.chain(homes).collect(), ignored })
        }
        Err(trouble) if matches!(trouble.code, Code::ShardUnreachable | Code::Draining) => {
            Delivery::Away { is_unknown: true }
        }
        Err(trouble) => {
            tracing::warn!(shard = shard.0, code = ?trouble.code, message = %trouble.message, "tell a shard about guards");
            Delivery::Refused
        }
    }
}

impl Parcel {
    fn write(&self, membership: &Membership, is_repeated: bool) -> Vec<u8> {
        let to = |side| {
            let written = self.written.iter().filter(move |written| written.name.to == side);
            written.map(|written| &*written.json).collect()
        };
        let hears = self.hears.iter().map(|name| membership.hear_of(name)).collect();
        message::write(&BatchToSend {
            to_members: to(Side::Member),
            to_homes: to(Side::Home),
            hears,
            is_repeated,
        })
    }
}

/// Carries out what another shard has sent; gives the answer.
pub(super) async fn receive(shared: &Arc<Shared>, membership: &Membership, batch: Batch) -> Answers {
    let Batch { to_members, to_homes, hears, is_repeated } = batch;
    let mut answers =
        Answers { refused_homes: receive_of_members(shared, to_homes).await, ..Answers::default() };
    let mut named: BTreeMap<String, ShardNo> = BTreeMap::new();
    for sent in to_members {
        let name = sent.namespace.clone();
        // Without one of its messages the others mean nothing.
        if answers.refused_members.contains(&name) {
            continue;
        }
        named.insert(name.clone(), ShardNo(sent.from));
        match membership.receive_of_home(sent) {
            Ok((said, is_taken_in)) => {
                answers.to_homes.extend(said.iter().map(|said| ToHome::new(&name, said)));
                // The last of its messages counts: a snapshot says what was ignored before it.
                match is_taken_in {
                    true => drop(answers.ignored_members.remove(&name)),
                    false => drop(answers.ignored_members.insert(name)),
                }
            }
            Err(trouble) => {
                tracing::warn!(namespace = %name, message = %trouble.message, "hear of a home");
                answers.refused_members.insert(name);
            }
        }
    }
    if is_repeated {
        // What was answered before may be lost: the home is told again where this shard stands.
        for (name, home) in &named {
            membership.say_again(name, *home);
        }
    }
    for asked in hears {
        match membership.hear(&asked, ShardNo(asked.from)) {
            Ok(said) => answers.to_homes.push(ToHome::new(&asked.namespace, &said)),
            Err(_) => drop(answers.refused_members.insert(asked.namespace)),
        }
    }
    answers
}

/// Takes in all messages that can be; gives the namespaces whose are not.
async fn receive_of_members(shared: &Arc<Shared>, messages: Vec<ToHome>) -> BTreeSet<String> {
    let mut by_namespace: BTreeMap<String, Vec<MemberMessage>> = BTreeMap::new();
    for sent in messages {
        let message = sent.message();
        by_namespace.entry(sent.namespace).or_default().push(message);
    }
    let mut refused = BTreeSet::new();
    for (name, messages) in by_namespace {
        let namespace = match shared.locate(&name).await {
            // The member hears of the home by itself.
            Ok(()) if !shared.is_home(&name) => continue,
            Ok(()) => shared.registry.ensure_home(shared, &name),
            Err(trouble) => Err(trouble),
        };
        match namespace {
            Ok(namespace) => messages.iter().for_each(|message| namespace.receive(shared, message)),
            Err(trouble) => {
                // Its home comes here, or the database is away; the member says it again.
                match trouble.code {
                    Code::ShardUnreachable => {
                        tracing::debug!(namespace = %name, message = %trouble.message, "hear of a member");
                    }
                    _ => tracing::warn!(namespace = %name, message = %trouble.message, "hear of a member"),
                }
                refused.insert(name);
            }
        }
    }
    refused
}
