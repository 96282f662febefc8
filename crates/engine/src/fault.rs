//! Deliberate faults that tests plant to show that they would notice them. Absent from every other build:
//! there [`is_planted`] is a constant.

/// A small mistake somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A filter is only asked about what documents became.
    FilterAfterOnly,
    /// A filter is only asked about what documents were.
    FilterBeforeOnly,
    /// Of the fields a search depends on only the locked one is watched.
    OwnFieldOnly,
    /// Every lock is judged by the lowest position of all.
    LowestPosition,
    /// A lock is broken by what it has seen.
    BrokenBySeen,
    /// Locks older than what is kept are judged by what is left.
    IgnoreHorizon,
    /// Only one broken lock is reported.
    StopAtFirstBroken,
    /// A value that a document must not have is taken for one it must have.
    QuietForAnyOperator,
    /// The memory of values is asked about what is inside objects, which it does not know.
    QuietBelowFields,
    /// The memory of values answers for times before it began.
    IgnoreFloor,
    /// The memory of values tells values apart that are equal.
    RecentByText,
    /// The memory of values is not told what documents were.
    #[cfg(test)]
    RecentNotesAfterOnly,
    /// What a document was between two intents of one request counts.
    #[cfg(test)]
    SeeBetweenIntents,
    /// Removing elements touches lists that are not there.
    RemoveTouchesAbsent,
    /// A deleted document's fields are not touched.
    DeleteTouchesNothing,
    /// A field created as null is there.
    NullIsValue,
    /// A put leaves fields alone that are not given.
    PutKeepsRest,
    /// A node stays although it is to be removed.
    UnsetKeeps,
    /// A deleted document can be created again.
    CreateDeleted,
    /// An intent does not see what the ones before it did.
    BlindIntents,
    /// A request does not see what the ones before it in its call did.
    BlindRequests,
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

#[cfg(not(test))]
#[inline]
pub(crate) fn is_planted(_: Fault) -> bool {
    false
}

#[cfg(test)]
impl Fault {
    pub(crate) const ALL: [Fault; 21] = [
        Fault::FilterAfterOnly,
        Fault::FilterBeforeOnly,
        Fault::OwnFieldOnly,
        Fault::LowestPosition,
        Fault::BrokenBySeen,
        Fault::IgnoreHorizon,
        Fault::StopAtFirstBroken,
        Fault::QuietForAnyOperator,
        Fault::QuietBelowFields,
        Fault::IgnoreFloor,
        Fault::RecentByText,
        Fault::RecentNotesAfterOnly,
        Fault::SeeBetweenIntents,
        Fault::RemoveTouchesAbsent,
        Fault::DeleteTouchesNothing,
        Fault::NullIsValue,
        Fault::PutKeepsRest,
        Fault::UnsetKeeps,
        Fault::CreateDeleted,
        Fault::BlindIntents,
        Fault::BlindRequests,
    ];
}
