//! Which connection speaks for which session, as far as this node has heard: that of the node it was taken up at last.
//! What an earlier one still asks for is refused. Knows nothing of locks.

use crate::trouble::Trouble;
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

/// How many sessions are remembered; whoever is forgotten was taken up again long ago.
const LEN_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Seats {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By namespace and session.
    seats: HashMap<(String, String), u64>,
    /// The oldest first.
    order: VecDeque<(String, String)>,
}

impl Seats {
    /// From now on this connection speaks for a session.
    pub(crate) fn take(&self, namespace: &str, session: &str, seat: u64) {
        let at = (namespace.to_owned(), session.to_owned());
        let mut known = self.known.lock();
        if known.seats.insert(at.clone(), seat).is_none() {
            known.order.push_back(at);
        }
        while known.order.len() > LEN_MAX {
            let Some(oldest) = known.order.pop_front() else { return };
            known.seats.remove(&oldest);
        }
    }

    /// Forgets all of them: this node does not hear any more who speaks for whom.
    pub(crate) fn clear(&self) {
        *self.known.lock() = Known::default();
    }

    /// That no other connection has begun to speak for a session.
    pub(crate) fn check(&self, namespace: &str, session: &str, seat: u64) -> Result<(), Trouble> {
        let known = self.known.lock();
        let at = (namespace.to_owned(), session.to_owned());
        match known.seats.get(&at).is_none_or(|known| *known == seat) {
            true => Ok(()),
            false => Err(Trouble::new(Code::Replaced, "another connection has taken over this session")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_speaks_and_the_oldest_are_forgotten() {
        let seats = Seats::default();
        seats.check("a", "x", 1).unwrap();
        seats.take("a", "x", 1);
        seats.take("a", "x", 2);
        assert!(seats.check("a", "x", 1).is_err_and(|trouble| trouble.code == Code::Replaced));
        seats.check("a", "x", 2).unwrap();
        seats.check("b", "x", 1).unwrap();
        (0..LEN_MAX as u64).for_each(|number| seats.take("a", &number.to_string(), number));
        seats.check("a", "x", 1).unwrap();
        assert_eq!(seats.known.lock().seats.len(), LEN_MAX);
        seats.clear();
        seats.check("a", "5", 1).unwrap();
    }
}
