//! Omissions that tests plant in the guard protocol to show that they would notice them. Absent from every other build:
//! there [`is_planted`] is a constant.

/// Something the protocol does, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An acknowledgement does not name its guard: any confirms all.
    BareAck,
    /// A member acknowledges before the operations it had admitted are finished.
    EarlyAck,
    /// A shard serves without joining.
    NoJoin,
    /// Grace ends without hearing from every shard.
    NoAsk,
    /// A member drops its guards when it joins a home in grace.
    DropInGrace,
    /// A new owner of a shard serves while the home is in grace.
    ServeInGrace,
    /// A home grants on stale ownership.
    ZombieHome,
    /// A home lifts on stale ownership.
    StaleLift,
    /// Owners are compared without the home that numbered them.
    BareOwner,
    /// Homes are compared without the moves that brought them to their shards.
    BareHome,
    /// A message that is missing in a stream goes unnoticed.
    IgnoreGaps,
    /// A member drops a guard when it has acknowledged it.
    LostGuard,
    /// A member admits new conflicting operations until it has drained.
    OpenWhileDraining,
    /// An upgrade is granted before it is guarded.
    UpgradeAtOnce,
    /// A downgrade lifts the old guard before it sends the new one.
    LiftFirst,
    /// A member serves arriving keys before it has their guards.
    IgnoreMap,
    /// A member takes the map of a home in grace for one whose guards it has.
    MapInGrace,
    /// A member confirms what is registered before it has it.
    EarlyDefined,
    /// A new owner of a shard serves before it knows what is registered.
    ServeUndefined,
    /// What is registered counts as confirmed before every shard has been heard from.
    DefinedInGrace,
    /// A registration waits for nobody.
    UnawaitedDefined,
    /// A log takes appends of previous owners. Planted in the tests' log.
    #[cfg(test)]
    NoFence,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(test)]
pub(super) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Only what end-to-end tests plant in real nodes, too.
#[cfg(not(test))]
#[inline]
pub(super) fn is_planted(fault: Fault) -> bool {
    match fault {
        Fault::EarlyAck => lockwood_planted::is_planted(lockwood_planted::Fault::EarlyAck),
        Fault::LostGuard => lockwood_planted::is_planted(lockwood_planted::Fault::LostGuard),
        _ => false,
    }
}

#[cfg(test)]
impl Fault {
    pub(super) const ALL: [Fault; 17] = [
        Fault::BareAck,
        Fault::EarlyAck,
        Fault::NoJoin,
        Fault::NoAsk,
        Fault::DropInGrace,
        Fault::ServeInGrace,
        Fault::ZombieHome,
        Fault::StaleLift,
        Fault::BareOwner,
        Fault::IgnoreGaps,
        Fault::LostGuard,
        Fault::OpenWhileDraining,
        Fault::UpgradeAtOnce,
        Fault::LiftFirst,
        Fault::IgnoreMap,
        Fault::MapInGrace,
        Fault::NoFence,
    ];

    /// Those of what is registered.
    pub(super) const OF_DEFINITIONS: [Fault; 4] =
        [Fault::EarlyDefined, Fault::ServeUndefined, Fault::DefinedInGrace, Fault::UnawaitedDefined];
}
