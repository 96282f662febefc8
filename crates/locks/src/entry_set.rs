//! An ordered set of entries that finds the latest one of a kind. Knows nothing of trees or conflicts.

use crate::entry::{Class, EntryKey, Order};
use std::{
    collections::BTreeMap,
    ops::{RangeBounds, RangeInclusive},
};

/// Entries ordered by (granted or waiting, class, span, order), packed into one number.
///
/// The *span* is a small number whose meaning is the user's: at a node's own entries it is their depth, in
/// the collection of everything below a node it is the level they stand on. A question names a range of
/// spans, and costs one search per span that is present in it.
///
/// Most sets have one entry, which needs no map.
#[derive(Debug)]
pub(crate) enum EntrySet {
    Few(Option<(u64, EntryKey)>),
    #[expect(clippy::box_collection, reason = "an empty set, of which there are two a node, stays small")]
    Many(Box<BTreeMap<u64, EntryKey>>),
}

impl Default for EntrySet {
    fn default() -> EntrySet {
        EntrySet::Few(None)
    }
}

const ORDER_BITS: u32 = 53;
const ORDER_MASK: u64 = (1 << ORDER_BITS) - 1;

/// The leading parts of the packed number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) granted: bool,
    pub(crate) class: Class,
}

fn pack(kind: Kind, span: u8, order: u64) -> u64 {
    u64::from(kind.granted) << 63 | (kind.class as u64) << 61 | u64::from(span) << ORDER_BITS | order
}

fn span_of(packed: u64) -> u8 {
    (packed >> ORDER_BITS) as u8
}

fn order_of(packed: u64) -> Order {
    Order(packed & ORDER_MASK)
}

impl EntrySet {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, EntrySet::Few(None))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            EntrySet::Few(only) => usize::from(only.is_some()),
            EntrySet::Many(map) => map.len(),
        }
    }

    pub(crate) fn insert(&mut self, kind: Kind, span: u8, order: Order, entry: EntryKey) {
        let packed = pack(kind, span, order.0);
        let before = match self {
            EntrySet::Few(None) => {
                *self = EntrySet::Few(Some((packed, entry)));
                None
            }
            EntrySet::Few(Some(only)) => {
                let mut map = BTreeMap::from([*only]);
                let before = map.insert(packed, entry);
                *self = EntrySet::Many(Box::new(map));
                before
            }
            EntrySet::Many(map) => map.insert(packed, entry),
        };
        assert!(before.is_none(), "two entries with one order");
    }

    pub(crate) fn remove(&mut self, kind: Kind, span: u8, order: Order) {
        let packed = pack(kind, span, order.0);
        let entry = match self {
            EntrySet::Few(only) => only.take_if(|(key, _)| *key == packed).map(|(_, entry)| entry),
            EntrySet::Many(map) => map.remove(&packed),
        };
        assert!(entry.is_some(), "an entry is removed where it was put");
        if matches!(self, EntrySet::Many(map) if map.is_empty()) {
            *self = EntrySet::Few(None);
        }
    }

    fn range(&self, range: impl RangeBounds<u64>) -> impl DoubleEndedIterator<Item = (u64, EntryKey)> {
        let (few, many) = match self {
            EntrySet::Few(only) => (only.filter(|(packed, _)| range.contains(packed)), None),
            EntrySet::Many(map) => (None, Some(map.range(range))),
        };
        few.into_iter().chain(many.into_iter().flatten().map(|(packed, entry)| (*packed, *entry)))
    }

    /// The latest entry of `kind` before `before`, within `spans`, for which `wanted` holds.
    pub(crate) fn latest(
        &self,
        kind: Kind,
        spans: RangeInclusive<u8>,
        before: Order,
        wanted: impl Fn(EntryKey) -> bool,
    ) -> Option<(Order, EntryKey)> {
        let mut best: Option<(Order, EntryKey)> = None;
        self.each_span(kind, spans, |span| {
            let earlier = self.range(pack(kind, span, 0)..pack(kind, span, before.0)).rev();
            for (packed, entry) in earlier {
                let order = order_of(packed);
                if best.is_some_and(|(latest, _)| latest > order) {
                    return;
                }
                if wanted(entry) {
                    best = Some((order, entry));
                    return;
                }
            }
        });
        best
    }

    /// Every entry of `kind` within `spans` and from `orders`, the earliest of each span first; of each span
    /// no more than `visit` says it wants.
    pub(crate) fn each(
        &self,
        kind: Kind,
        spans: RangeInclusive<u8>,
        orders: std::ops::Range<Order>,
        mut visit: impl FnMut(EntryKey) -> bool,
    ) {
        self.each_span(kind, spans, |span| {
            let range = pack(kind, span, orders.start.0)..pack(kind, span, orders.end.0);
            let _ = self.range(range).all(|(_, entry)| visit(entry));
        });
    }

    /// How many entries there are of `kind`, whatever their span.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.range(pack(kind, 0, 0)..=pack(kind, u8::MAX, ORDER_MASK)).count()
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntryKey> {
        self.range(..).map(|(_, entry)| entry)
    }

    /// Visits each span of `spans` that has entries of `kind`, from the largest down.
    fn each_span(&self, kind: Kind, spans: RangeInclusive<u8>, mut visit: impl FnMut(u8)) {
        let (low, mut high) = spans.into_inner();
        while low <= high {
            let range = pack(kind, low, 0)..=pack(kind, high, ORDER_MASK);
            let Some((packed, _)) = self.range(range).next_back() else { return };
            let span = span_of(packed);
            visit(span);
            if span == 0 {
                return;
            }
            high = span - 1;
        }
    }
}
