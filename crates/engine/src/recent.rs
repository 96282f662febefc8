//! Which values documents had that changed lately. A memory that may forget, never one that errs: it can say
//! "nothing with this value has changed", and otherwise "look for yourself". Knows nothing of filters.

use crate::fault::{Fault, is_planted};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use lockwood_model::{Document, Json, META_DELETED, META_POSITION, Number, Position, Scalar};
use std::hash::{BuildHasher, Hash, Hasher};

/// So many values are remembered before everything is forgotten.
pub(crate) const RECENT_LEN_MAX: usize = 1 << 18;
/// Longer text is not remembered.
const TEXT_BYTES_MAX: usize = 64;

/// The last position at which a document with a value in a field changed, for many fields and values of many
/// namespaces. Different values may share an entry, which can only make the answer more careful.
#[derive(Debug, Default)]
pub struct Recent {
    last: HashMap<u64, Position, FixedState>,
    /// Per namespace: everything after this position is remembered. A namespace that is missing has not
    /// been seen since the last time everything was forgotten.
    floors: HashMap<u32, Position, FixedState>,
}

impl Recent {
    /// Notes that a document changed at `position`; to be called for what it was and for what it became.
    pub fn note(&mut self, namespace: u32, collection: &str, document: &Document, position: Position) {
        if self.last.len() >= RECENT_LEN_MAX {
            self.last.clear();
            self.floors.clear();
        }
        // Several documents may change at one position, so it is not known whether this is the first.
        self.floors.entry(namespace).or_insert(position);
        for (name, value) in document.present() {
            if let Some(hash) = hash(namespace, collection, name, value) {
                let last = self.last.entry(hash).or_insert(position);
                *last = (*last).max(position);
            }
        }
        for deleted in [true, false] {
            if deleted == document.deleted {
                let value = Json::trusted(if deleted { "true" } else { "false" });
                let hash = hash(namespace, collection, META_DELETED, &value);
                hash.map(|hash| self.last.insert(hash, position));
            }
        }
    }

    /// Lets go of a namespace in which something changed that was not noted, or that is another one now.
    pub fn forget(&mut self, namespace: u32) {
        self.floors.remove(&namespace);
    }

    /// A position after which no document with this value in this field has changed, if everything after
    /// `from` is remembered.
    pub fn quiet_since(
        &self,
        namespace: u32,
        collection: &str,
        field: &str,
        value: &Json,
        from: Position,
    ) -> Option<Position> {
        let is_unknown = self.floors.get(&namespace).is_none_or(|floor| from < *floor);
        if is_unknown && !is_planted(Fault::IgnoreFloor) {
            return None;
        }
        // It is not among the values that are noted.
        if field == META_POSITION {
            return None;
        }
        let hash = hash(namespace, collection, field, value)?;
        Some(self.last.get(&hash).copied().unwrap_or_default())
    }
}

/// None for values that are not remembered. Equal values have equal hashes.
fn hash(namespace: u32, collection: &str, field: &str, value: &Json) -> Option<u64> {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    (namespace, collection, field).hash(&mut hasher);
    match Scalar::read(value.as_str()) {
        _ if is_planted(Fault::RecentByText) => value.as_str().hash(&mut hasher),
        Scalar::Bool(value) => (1u8, value).hash(&mut hasher),
        // Adding zero makes one of the two zeros.
        Scalar::Number(number) => (2u8, (Number::as_f64(number) + 0.0).to_bits()).hash(&mut hasher),
        // Not the text as it is written, which may be longer for one of two equal values.
        Scalar::Text(text) if text.len() > TEXT_BYTES_MAX => return None,
        Scalar::Text(text) => (3u8, &*text).hash(&mut hasher),
        Scalar::Null | Scalar::Compound(_) => return None,
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::Change;

    fn document(value: &str, position: u64) -> Document {
        let mut document = Document::unborn();
        let fields = vec![("f".into(), Json::read(value, 1).unwrap())];
        document.apply(&Change::Created { fields }, Position(position));
        document
    }

    fn ask(recent: &Recent, value: &str, from: u64) -> Option<u64> {
        let value = Json::read(value, 1).unwrap();
        recent.quiet_since(1, "c", "f", &value, Position(from)).map(|position| position.0)
    }

    #[test]
    fn it_knows_what_it_saw_and_says_when_it_does_not() {
        let mut recent = Recent::default();
        assert_eq!(ask(&recent, "1", 5), None);
        recent.note(1, "c", &document("1", 5), Position(5));
        recent.note(1, "c", &document("\"x\"", 7), Position(7));
        assert_eq!(ask(&recent, "1.0", 5), Some(5));
        assert_eq!(ask(&recent, "\"x\"", 5), Some(7));
        assert_eq!(ask(&recent, "\"1\"", 6), Some(0));
        assert_eq!(ask(&recent, "1", 4), None, "what was before the first note is not known");
        assert_eq!(ask(&recent, "[1]", 6), None);
        let deleted = Json::trusted("false");
        assert_eq!(recent.quiet_since(1, "c", META_DELETED, &deleted, Position(6)), Some(Position(7)));
        let position = Json::trusted("5");
        assert_eq!(recent.quiet_since(1, "c", META_POSITION, &position, Position(6)), None);
    }

    #[test]
    fn it_knows_equal_values_however_long_they_are_written() {
        let mut recent = Recent::default();
        recent.note(1, "c", &document(&format!("1.{}", "0".repeat(99)), 5), Position(5));
        recent.note(1, "c", &document(&format!("\"{}\"", "\\u0061".repeat(20)), 6), Position(6));
        assert_eq!(ask(&recent, "1", 5), Some(5));
        assert_eq!(ask(&recent, &format!("\"{}\"", "a".repeat(20)), 5), Some(6));
        assert_eq!(ask(&recent, &format!("\"{}\"", "a".repeat(99)), 5), None);
    }

    #[test]
    fn it_knows_nothing_of_what_it_was_told_to_forget() {
        let mut recent = Recent::default();
        recent.note(1, "c", &document("1", 5), Position(5));
        recent.forget(1);
        assert_eq!(ask(&recent, "2", 6), None);
        recent.note(1, "c", &document("1", 9), Position(9));
        assert_eq!((ask(&recent, "2", 8), ask(&recent, "2", 9)), (None, Some(0)));
    }

    #[test]
    fn it_forgets_everything_at_once() {
        let mut recent = Recent::default();
        recent.note(2, "c", &document("1", 5), Position(5));
        for position in 1..=(RECENT_LEN_MAX as u64 + 1) {
            recent.note(1, "c", &document(&position.to_string(), position), Position(position));
        }
        assert!(recent.last.len() <= RECENT_LEN_MAX);
        assert_eq!(ask(&recent, "1", 1), None);
        assert_eq!(recent.quiet_since(2, "c", "f", &Json::trusted("1"), Position(5)), None);
    }
}
