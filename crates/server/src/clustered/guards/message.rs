//! What shards tell each other about guards and operations, as JSON. Knows nothing of how it is sent.

use hyper::StatusCode;
use lockwood_model::{LockId, OwnerId, Resource, Token, Wait};
use lockwood_node::trouble::Trouble;
use lockwood_router::{
    ShardEpoch, ShardNo,
    guards::{
        self, DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HomeContent, HomeEpoch, HomeMessage,
        JoinNo, MapEpoch, MemberContent, MemberMessage, Phase, SequenceNo,
    },
};
use lockwood_wire::{Code, Problem, WireResource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;

/// An operation at a shard, named by the shard's owner. A number is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) shard: u32,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// An operation queues at the home of its namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Enter {
    pub(super) namespace: String,
    pub(super) attempt: Attempt,
    /// Without resources only the tokens are verified.
    pub(super) resources: Vec<WireResource>,
    pub(super) tokens: Vec<u64>,
    /// Absent is for ever.
    pub(super) wait_ms: Option<u64>,
    /// Operations of the same request that are over.
    pub(super) left: Vec<Attempt>,
}

/// The home has granted the operation a lock, or verified its tokens: it runs as this owner.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Entered {
    /// Of the home.
    pub(super) epoch: u64,
    pub(super) owner: u64,
}

/// The operation is durable or rejected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Leave {
    pub(super) attempt: Attempt,
    /// Whether the home has said that it granted the lock; otherwise the request itself may still arrive.
    pub(super) entered: bool,
}

/// A home asks a shard what it is to a namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Hear {
    pub(super) namespace: String,
    /// The shard of the home, and its epoch.
    pub(super) from: u32,
    pub(super) home: u64,
}

/// Messages of one home to one member, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToMember {
    pub(super) namespace: String,
    /// The shard of the home.
    pub(super) from: u32,
    message: WireHomeMessage,
}

/// A message of a member to its home.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToHome {
    pub(super) namespace: String,
    message: WireMemberMessage,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Stream {
    home: u64,
    shard: u32,
    shard_epoch: u64,
    join: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireMemberMessage {
    stream: Stream,
    content: WireMemberContent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireMemberContent {
    Join,
    Leave,
    Acknowledge(u64),
    Defined(u64),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireHomeMessage {
    stream: Stream,
    sequence: u64,
    content: WireHomeContent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireHomeContent {
    Part(Vec<WireGuard>),
    Snapshot { in_grace: bool, map: u64, definitions: u64, guards: Vec<WireGuard> },
    Guard(WireGuard),
    Lift(u64),
    Map(u64),
    Definitions(u64),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireGuard {
    home: u64,
    number: u64,
    lock: u64,
    owner: u64,
    token: u64,
    resources: Vec<WireResource>,
    is_pending: bool,
}

impl ToMember {
    pub(super) fn new(namespace: &str, from: ShardNo, message: &HomeMessage) -> ToMember {
        let content = match &message.content {
            HomeContent::Part(guards) => WireHomeContent::Part(guards.iter().map(WireGuard::from).collect()),
            HomeContent::Snapshot { phase, map, definitions, guards } => WireHomeContent::Snapshot {
                in_grace: *phase == Phase::Grace,
                map: map.0,
                definitions: definitions.0,
                guards: guards.iter().map(WireGuard::from).collect(),
            },
            HomeContent::Guard(guard) => WireHomeContent::Guard(guard.into()),
            HomeContent::Lift(number) => WireHomeContent::Lift(number.0),
            HomeContent::Map(map) => WireHomeContent::Map(map.0),
            HomeContent::Definitions(definitions) => WireHomeContent::Definitions(definitions.0),
        };
        let message =
            WireHomeMessage { stream: message.stream.into(), sequence: message.sequence.0, content };
        ToMember { namespace: namespace.to_owned(), from: from.0, message }
    }

    pub(super) fn message(self) -> Result<HomeMessage, Trouble> {
        let read = |guards: Vec<WireGuard>| -> Result<Vec<Guard>, Trouble> {
            guards.into_iter().map(WireGuard::into_model).collect()
        };
        let content = match self.message.content {
            WireHomeContent::Part(guards) => HomeContent::Part(read(guards)?),
            WireHomeContent::Snapshot { in_grace, map, definitions, guards } => HomeContent::Snapshot {
                phase: if in_grace { Phase::Grace } else { Phase::Serving },
                map: MapEpoch(map),
                definitions: DefinitionsNo(definitions),
                guards: read(guards)?,
            },
            WireHomeContent::Guard(guard) => HomeContent::Guard(guard.into_model()?),
            WireHomeContent::Lift(number) => HomeContent::Lift(GuardNo(number)),
            WireHomeContent::Map(map) => HomeContent::Map(MapEpoch(map)),
            WireHomeContent::Definitions(definitions) => HomeContent::Definitions(DefinitionsNo(definitions)),
        };
        let (stream, sequence) = (self.message.stream.into(), SequenceNo(self.message.sequence));
        Ok(HomeMessage { stream, sequence, content })
    }
}

impl ToHome {
    pub(super) fn new(namespace: &str, message: &MemberMessage) -> ToHome {
        let content = match &message.content {
            MemberContent::Join => WireMemberContent::Join,
            MemberContent::Leave => WireMemberContent::Leave,
            MemberContent::Acknowledge(number) => WireMemberContent::Acknowledge(number.0),
            MemberContent::Defined(definitions) => WireMemberContent::Defined(definitions.0),
        };
        let message = WireMemberMessage { stream: message.stream.into(), content };
        ToHome { namespace: namespace.to_owned(), message }
    }

    pub(super) fn message(&self) -> MemberMessage {
        let content = match self.message.content {
            WireMemberContent::Join => MemberContent::Join,
            WireMemberContent::Leave => MemberContent::Leave,
            WireMemberContent::Acknowledge(number) => MemberContent::Acknowledge(GuardNo(number)),
            WireMemberContent::Defined(definitions) => MemberContent::Defined(DefinitionsNo(definitions)),
        };
        MemberMessage { stream: self.message.stream.into(), content }
    }
}

impl From<guards::Stream> for Stream {
    fn from(stream: guards::Stream) -> Stream {
        let guards::Stream { home, shard, shard_epoch, join } = stream;
        Stream { home: home.0, shard: shard.0, shard_epoch: shard_epoch.0, join: join.0 }
    }
}

impl From<Stream> for guards::Stream {
    fn from(stream: Stream) -> guards::Stream {
        guards::Stream {
            home: HomeEpoch(stream.home),
            shard: ShardNo(stream.shard),
            shard_epoch: ShardEpoch(stream.shard_epoch),
            join: JoinNo(stream.join),
        }
    }
}

impl From<&Guard> for WireGuard {
    fn from(guard: &Guard) -> WireGuard {
        WireGuard {
            home: guard.id.home.0,
            number: guard.id.number.0,
            lock: guard.lock.0,
            owner: guard.owner.0,
            token: guard.token.0,
            resources: guard.resources.iter().map(WireResource::from).collect(),
            is_pending: guard.state == GuardState::Pending,
        }
    }
}

impl WireGuard {
    fn into_model(self) -> Result<Guard, Trouble> {
        Ok(Guard {
            id: GuardId { home: HomeEpoch(self.home), number: GuardNo(self.number) },
            lock: LockId(self.lock),
            owner: OwnerId(self.owner),
            token: Token(self.token),
            resources: read_resources(self.resources)?.into(),
            state: if self.is_pending { GuardState::Pending } else { GuardState::Held },
        })
    }
}

fn read_resources(resources: Vec<WireResource>) -> Result<Vec<Resource>, Trouble> {
    let read = resources.into_iter().map(WireResource::into_model).collect::<Result<_, _>>();
    read.map_err(|error| Trouble::new(error.code, error.message))
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.epoch, self.number)
    }
}

impl Attempt {
    /// Reads what was displayed.
    pub(super) fn parse(text: &str) -> Option<Attempt> {
        let mut parts = text.split('.');
        let (shard, epoch) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Attempt { shard, epoch, number })
    }

    pub(super) fn owner(&self) -> (ShardNo, ShardEpoch) {
        (ShardNo(self.shard), ShardEpoch(self.epoch))
    }
}

impl Enter {
    pub(super) fn wait(&self) -> Wait {
        self.wait_ms.map_or(Wait::Forever, |ms| if ms == 0 { Wait::Never } else { Wait::Millis(ms) })
    }

    pub(super) fn resources(&self) -> Result<Vec<Resource>, Trouble> {
        read_resources(self.resources.clone())
    }
}

pub(super) fn wait_ms(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Never => Some(0),
        Wait::Millis(ms) => Some(ms),
        Wait::Forever => None,
    }
}

pub(super) fn write(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("names and numbers can be written")
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(body)
        .map_err(|error| Trouble::new(Code::BadBody, format!("a call from another shard: {error}")))
}

/// What a shard says, or why it refuses.
pub(super) fn read_answer<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, Trouble> {
    if status.is_success() {
        return read(body);
    }
    let problem: Problem = read(body)?;
    Err(Trouble::from_problem(problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Depth, Mode};

    #[test]
    fn attempts_are_read_as_they_are_written() {
        let attempt = Attempt { shard: 3, epoch: 17, number: u64::MAX };
        assert_eq!(Attempt::parse(&attempt.to_string()), Some(attempt));
        for text in ["", "1", "1.2", "1.2.3.4", "a.2.3", "1.2.-3"] {
            assert_eq!(Attempt::parse(text), None, "{text}");
        }
    }

    #[test]
    fn waits_keep_their_meaning() {
        for wait in [Wait::Never, Wait::Millis(7), Wait::Forever] {
            let attempt = Attempt { shard: 1, epoch: 1, number: 1 };
            let (resources, tokens) = (Vec::new(), Vec::new());
            let left = Vec::new();
            let wait_ms = wait_ms(wait);
            let asked = Enter { namespace: "n".into(), attempt, resources, tokens, wait_ms, left };
            let read: Enter = read(&write(&asked)).unwrap();
            assert_eq!(read.wait(), wait);
        }
    }

    #[test]
    fn messages_of_homes_and_members_are_read_as_they_are_written() {
        let stream = guards::Stream {
            home: HomeEpoch(7),
            shard: ShardNo(2),
            shard_epoch: ShardEpoch(9),
            join: JoinNo(3),
        };
        let guard = |state| Guard {
            id: GuardId { home: HomeEpoch(7), number: GuardNo(4) },
            lock: LockId(5),
            owner: OwnerId(6),
            token: Token(8),
            resources: [("user/a%2Fb", Mode::Write, Depth::SUBTREE), ("/", Mode::List, Depth::NODE)]
                .map(|(path, mode, depth)| Resource::new(path.parse().unwrap(), mode, depth))
                .to_vec()
                .into(),
            state,
        };
        let contents = [
            HomeContent::Snapshot {
                phase: Phase::Grace,
                map: MapEpoch(2),
                definitions: DefinitionsNo(12),
                guards: vec![guard(GuardState::Held), guard(GuardState::Pending)],
            },
            HomeContent::Part(vec![guard(GuardState::Held)]),
            HomeContent::Guard(guard(GuardState::Pending)),
            HomeContent::Lift(GuardNo(4)),
            HomeContent::Map(MapEpoch(11)),
            HomeContent::Definitions(DefinitionsNo(13)),
        ];
        for content in contents {
            let message = HomeMessage { stream, sequence: SequenceNo(1), content };
            let read: ToMember = read(&write(&ToMember::new("n", ShardNo(1), &message))).unwrap();
            assert_eq!((&*read.namespace, read.from), ("n", 1));
            assert_eq!(read.message().unwrap(), message);
        }
        let contents = [
            MemberContent::Join,
            MemberContent::Leave,
            MemberContent::Acknowledge(GuardNo(4)),
            MemberContent::Defined(DefinitionsNo(14)),
        ];
        for content in contents {
            let message = MemberMessage { stream, content };
            let read: ToHome = read(&write(&ToHome::new("n", &message))).unwrap();
            assert_eq!(read.message(), message);
        }
    }
}
