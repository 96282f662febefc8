//! What keeps the protocol right, one switch for each. Knows nothing of what a guard does.

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Which guards are on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct Guards {
            $($(#[$doc])* pub(super) $name: bool,)*
        }

        impl Guards {
            pub(super) const ON: Guards = Guards { $($name: true,)* };
        }
    };
}

guards! {
    /// An owner remembers which keys it knows, deleted ones too.
    tombstones,
    /// A copy that the owner has without a mark does not count.
    marks_only,
    /// A copy is installed only where the owner knows nothing.
    only_unknown,
    /// A write to an unknown key first asks the donor.
    pull_before_write,
    /// A write looks again at what the owner knows when the donor has answered.
    recheck,
    /// So does a read.
    read_recheck,
    /// Both by the map that the owner has then: one without `prev` leaves nothing to be asked.
    map_of_now,
    /// Only the owner decides about a key; a donor's copy is never written.
    owner_decides,
    /// A node serves only what its own map gives it.
    fence,
    /// A node says so when what it had begun is over.
    drain,
    /// Leases move before their keys are served.
    lease_moves,
    /// Tokens and positions go on above those of the old shard.
    floors,
    /// What was left over from earlier is removed before a shard is the only one to be asked.
    purge,
    /// The mark is written with the document.
    durable_mark,
    /// A map is kept before it is acknowledged.
    durable_map,
    /// So are leases and floors.
    durable_lease,
    /// A donor's cursor moves on when the owner has what is behind it.
    cursor_after,
    /// `prev` is dropped when every donor has copied.
    drop_after_copy,
    /// And when both sides were found equal.
    verify,
    /// A donor removes only what the owner confirms.
    confirm,
    /// A copy that arrives in another transition is refused.
    copy_epoch,
    /// On the way back, what the donor never knew is still as the owner has it.
    reverse_keep,
    /// On the way back, deletions are copied too.
    reverse_tombstones,
}
