//! Deliberate faults that tests plant in a table to show that they would notice them. Absent from every
//! other build: there [`Faults::has`] is a constant.

/// A small mistake somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request overtakes those that wait before it.
    SkipQueue,
    /// A cancelled waiter does not wake those behind it.
    ForgetWaiterOnCancel,
    /// Every lock reaches down to the leaves.
    IgnoreDepth,
    /// Of all who wait for the same lock only one is woken.
    WakeOnlyOne,
    /// A released lock stays visible at the root.
    LeakIntent,
    /// An owner is in its own way.
    ConflictWithSelf,
    /// Two grants share a token.
    RepeatToken,
    /// Cycles are not looked for.
    NoDeadlockCheck,
    /// A conversion does not wait for other holders.
    ConvertAtOnce,
    /// A set is granted as soon as one of its parts is free.
    GrantInPart,
    /// A lock that becomes weaker wakes nobody.
    SilentDowngrade,
    /// A waiter whose patience ended is told so, but keeps its place.
    KeepTimedOut,
    /// What was free once is taken to be free still.
    TrustOldLook,
    /// A repeated request for what is already held goes to the end of the queue.
    ReentrantAtBack,
    /// An owner that is gone for too long keeps its locks.
    KeepAbandoned,
    /// A pending conversion lets later requests pass.
    PassConversion,
    /// A lock whose time is over stays.
    KeepExpired,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Faults {
    #[cfg(test)]
    pub(crate) planted: Option<Fault>,
}

impl Faults {
    #[cfg(test)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }

    #[cfg(not(test))]
    #[inline]
    pub(crate) fn has(self, _: Fault) -> bool {
        false
    }
}

#[cfg(test)]
impl Fault {
    pub(crate) const ALL: [Fault; 17] = [
        Fault::SkipQueue,
        Fault::ForgetWaiterOnCancel,
        Fault::IgnoreDepth,
        Fault::WakeOnlyOne,
        Fault::LeakIntent,
        Fault::ConflictWithSelf,
        Fault::RepeatToken,
        Fault::NoDeadlockCheck,
        Fault::ConvertAtOnce,
        Fault::GrantInPart,
        Fault::SilentDowngrade,
        Fault::KeepTimedOut,
        Fault::TrustOldLook,
        Fault::ReentrantAtBack,
        Fault::KeepAbandoned,
        Fault::PassConversion,
        Fault::KeepExpired,
    ];
}
