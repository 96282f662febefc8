//! Deliberate faults of ownership and of followers that tests plant to show that they would notice them. Absent from every other build:
//! there [`is_planted`] is a constant.

/// A small mistake that an implementation could contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Freshness counts from when the answer arrived.
    FreshFromAnswer,
    /// A node stays fresh for the whole time after which others may claim.
    NoMargin,
    /// An ownership counts although it is not fresh.
    NoSelfStop,
    /// A shard is served as soon as it is claimed.
    ServeBeforeCatchUp,
    /// A renewal counts for a shard whose row has our name but another epoch.
    ReviveLowerEpoch,
    /// A renewal resumes a shard whose release was sent.
    RenewalUndoesRelease,
    /// A late or repeated answer to a claim begins a tenure that has ended.
    LateClaimCounts,
    /// A node that finds its own name in a row claims it as its holder.
    ClaimByName,
    /// A renewal counts that was sent in the millisecond of the claim's answer, before it. Random histories hardly ever
    /// meet it; schedules do.
    SameMillisecond,
    /// The age of an ownership is that by the database's clock.
    DatabaseClock,
    /// A copy counts as compared with the log from when the answer arrived.
    LagFromAnswer,
    /// A follower answers a read that wants what the owner knows.
    FollowerForOwner,
    /// The database lets a node claim a shard whose ownership is not stale.
    #[cfg(test)]
    ClaimFresh,
    /// The database accepts appends of any epoch.
    #[cfg(test)]
    AppendUnguarded,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(test)]
pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Only what end-to-end tests plant in real nodes, too.
#[cfg(not(test))]
#[inline]
pub(crate) fn is_planted(fault: Fault) -> bool {
    match fault {
        Fault::NoSelfStop => lockwood_planted::is_planted(lockwood_planted::Fault::NoSelfStop),
        _ => false,
    }
}

#[cfg(test)]
impl Fault {
    /// Those that random histories notice.
    pub(crate) const ALL: [Fault; 11] = [
        Fault::FreshFromAnswer,
        Fault::NoMargin,
        Fault::NoSelfStop,
        Fault::ServeBeforeCatchUp,
        Fault::ReviveLowerEpoch,
        Fault::RenewalUndoesRelease,
        Fault::LateClaimCounts,
        Fault::ClaimByName,
        Fault::DatabaseClock,
        Fault::ClaimFresh,
        Fault::AppendUnguarded,
    ];
}
