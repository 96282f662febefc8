//! A snapshot with a batch laid over it that is not committed yet. Knows nothing of what the keys mean.

use crate::store::{Batch, Order, Pair, Range, Slice, Snapshot, Space, StoreError};
use std::cmp::Ordering;

/// What the store will show once `above` is committed.
pub struct Overlay<'a> {
    /// What is there.
    pub below: &'a dyn Snapshot,
    /// What will change.
    pub above: &'a Batch,
}

impl Snapshot for Overlay<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        match self.above.get(space, key) {
            Some(change) => Ok(change.clone()),
            None => self.below.get(space, key),
        }
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        let below = self.below.scan(space, range.clone(), order).peekable();
        let changes = self.above.range(space, range);
        let above: Changes<'_> = match order {
            Order::Forward => Box::new(changes),
            Order::Backward => Box::new(changes.rev()),
        };
        Box::new(Merge { below, above: above.peekable(), order })
    }
}

type Changes<'a> = Box<dyn Iterator<Item = (&'a Slice, &'a Option<Slice>)> + 'a>;

/// Two sorted sequences as one; the upper one wins.
struct Merge<'a, B: Iterator<Item = Pair>> {
    below: std::iter::Peekable<B>,
    above: std::iter::Peekable<Changes<'a>>,
    order: Order,
}

impl<B: Iterator<Item = Pair>> Iterator for Merge<'_, B> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        loop {
            let order = match (self.below.peek(), self.above.peek()) {
                (Some(Err(_)), _) | (_, None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(Ok((below, _))), Some((above, _))) => match self.order {
                    Order::Forward => below.cmp(above),
                    Order::Backward => (*above).cmp(below),
                },
            };
            match order {
                Ordering::Less => return self.below.next(),
                Ordering::Equal => drop(self.below.next()),
                Ordering::Greater => {}
            }
            let (key, value) = self.above.next()?;
            if let Some(value) = value {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::Memory,
        store::{Durability, Store, with_prefix},
    };

    #[test]
    fn what_is_above_hides_what_is_below() {
        let memory = Memory::default();
        let mut below = Batch::default();
        for key in ["a", "c", "e", "g"] {
            below.put(Space::Meta, key, "old");
        }
        memory.commit(&below, Durability::Synced).unwrap();
        let mut above = Batch::default();
        above.put(Space::Meta, "b", "new");
        above.put(Space::Meta, "c", "new");
        above.remove(Space::Meta, "e");
        above.remove(Space::Meta, "f");
        above.put(Space::Meta, "h", "new");
        let snapshot = memory.snapshot();
        let overlay = Overlay { below: &*snapshot, above: &above };
        let expected = ["a=old", "b=new", "c=new", "g=old", "h=new"];
        let all = |order| {
            let pairs = overlay.scan(Space::Meta, with_prefix(b""), order).map(Result::unwrap);
            let text = |bytes: &Slice| String::from_utf8(bytes.to_vec()).unwrap();
            pairs.map(|(key, value)| format!("{}={}", text(&key), text(&value))).collect::<Vec<_>>()
        };
        assert_eq!(all(Order::Forward), expected);
        assert_eq!(all(Order::Backward), expected.iter().rev().copied().collect::<Vec<_>>());
        assert!(overlay.get(Space::Meta, b"e").unwrap().is_none());
        assert_eq!(&*overlay.get(Space::Meta, b"c").unwrap().unwrap(), b"new");
    }
}
