//! Guards: how the locks of a namespace, decided at its home, are enforced at the shards that store its documents. Knows
//! nothing of lock queues, connections, time or storage.
//!
//! ```text
//!  client ──lock──► home: decides ──guard──► covered members: drain admitted operations ──ack──► home ──grant──► client
//!  writer ──write─► member: conflicting guard?   no: execute   yes: queue at the home
//! ```
//!
//! [`Home`] is the guard side of a namespace's home, [`Member`] the side of one shard. Both are state machines: an event
//! goes in, messages come out, and the caller delivers them. Deliver what one home sends to one shard in order; losing,
//! repeating or delaying messages is safe, and a member that notices a gap joins again; after a lost connection the caller
//! tells it to ([`Member::reconnected`]). What the caller has to guarantee:
//!
//! - Appends of a shard are guarded by its epoch, and operations start only while the shard's ownership is fresh.
//! - A new owner of the home reads the owners of all shards from PostgreSQL *after* its claim ([`Home::takeover`]).
//! - [`Ownership::Fresh`] is true when it is said: no other owner of the home has been named by then.
//! - A lease is recorded after its guards are acknowledged ([`Action::Granted`]) and before they are lifted or weakened.
//!   A successor therefore finds no lease in the log that a shard has not been closed for.

mod coverage;
mod fault;
mod home;
mod index;
mod member;
mod message;

#[cfg(test)]
mod definitions_test;
#[cfg(test)]
mod explore_test;
#[cfg(test)]
mod home_test;
#[cfg(test)]
mod member_test;
#[cfg(test)]
mod random_test;
#[cfg(test)]
mod scenario_test;
#[cfg(test)]
mod world_test;

pub use coverage::{Coverage, Covered};
pub use home::{Action, Decision, Home, Ownership};
pub use member::{Admission, Caller, HoldReason, Member, MemberState, Operation};
pub use message::{
    DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HomeContent, HomeEpoch, HomeMessage, JoinNo,
    MapEpoch, MemberContent, MemberMessage, OperationId, Phase, SequenceNo, Stream,
};
