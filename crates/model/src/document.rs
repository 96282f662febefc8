//! A document with the position at which each of its fields was last touched. Knows nothing of where it is
//! kept.

use crate::{
    event::{Change, META_DELETED, META_POSITION},
    filter::Fields,
    json::Json,
    position::Position,
};
use std::borrow::Cow;

/// So many removed fields are remembered one by one.
pub const REMOVED_FIELDS_LEN_MAX: usize = 64;

/// More fields than this are not put in their places one by one.
const TOUCH_LEN: usize = 16;

/// The content of a document, deleted or not.
///
/// Invariant: `fields` is sorted by name; [`Document::apply`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// When it came into being for the first time.
    pub created: Position,
    /// When it last changed.
    pub position: Position,
    /// When it was last created, deleted or restored.
    pub existence: Position,
    /// When it was last deleted or restored.
    pub hidden: Position,
    /// Whether it is deleted.
    pub deleted: bool,
    /// How many write requests have changed it, the one that created it included.
    pub version: u64,
    /// No removed field that is not among `fields` was touched later than this.
    pub forgotten: Position,
    /// Its fields, and those it had.
    pub fields: Vec<Field>,
}

/// A field of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Box<str>,
    /// When it was last touched.
    pub position: Position,
    /// Its value; none if it was removed.
    pub value: Option<Json>,
}

impl Document {
    /// A document before it comes into being.
    pub fn unborn() -> Document {
        Document {
            created: Position::START,
            position: Position::START,
            existence: Position::START,
            hidden: Position::START,
            deleted: false,
            version: 0,
            forgotten: Position::START,
            fields: Vec::new(),
        }
    }

    /// Whether it has ever been created.
    pub fn is_born(&self) -> bool {
        self.existence > Position::START
    }

    /// Makes a change that was done at `position`.
    pub fn apply(&mut self, change: &Change, position: Position) {
        if position != self.position {
            self.version += 1;
        }
        match change {
            Change::Created { fields } => {
                (self.created, self.existence, self.deleted) = (position, position, false);
                self.fields.clear();
                self.touch_all(fields.iter().map(|(name, value)| (&**name, Some(value))), position);
            }
            Change::Updated { set, removed } => {
                self.touch_all(set.iter().map(|(name, value)| (&**name, Some(value))), position);
                self.touch_all(removed.iter().map(|name| (&**name, None)), position);
                self.forget_removed();
            }
            Change::Deleted { .. } => self.exist(true, position),
            Change::Restored { .. } => self.exist(false, position),
            Change::Recreated { fields, removed } => {
                (self.deleted, self.existence, self.hidden) = (false, position, position);
                self.touch_all(removed.iter().map(|name| (&**name, None)), position);
                self.touch_all(fields.iter().map(|(name, value)| (&**name, Some(value))), position);
                self.forget_removed();
            }
        }
        self.position = position;
    }

    fn exist(&mut self, deleted: bool, position: Position) {
        (self.deleted, self.existence, self.hidden) = (deleted, position, position);
        let present = self.fields.iter_mut().filter(|field| field.value.is_some());
        present.for_each(|field| field.position = position);
    }

    /// Touches one field after the other; the last touch of a field counts.
    fn touch_all<'a>(
        &mut self,
        touches: impl ExactSizeIterator<Item = (&'a str, Option<&'a Json>)>,
        position: Position,
    ) {
        if touches.len() <= TOUCH_LEN {
            touches.for_each(|(name, value)| self.touch(name, position, value));
            return;
        }
        let field = |(name, value): (&str, Option<&Json>)| Field {
            name: name.into(),
            position,
            value: value.cloned(),
        };
        self.fields.extend(touches.map(field));
        self.fields.reverse();
        // Stable, so of several touches the last one comes first and stays.
        self.fields.sort_by(|a, b| a.name.cmp(&b.name));
        self.fields.dedup_by(|later, first| later.name == first.name);
    }

    fn touch(&mut self, name: &str, position: Position, value: Option<&Json>) {
        match self.fields.binary_search_by(|field| (*field.name).cmp(name)) {
            Ok(index) => {
                self.fields[index].position = position;
                self.fields[index].value = value.cloned();
            }
            Err(index) => {
                self.fields.insert(index, Field { name: name.into(), position, value: value.cloned() });
            }
        }
    }

    /// Lets the oldest removed fields go when there are too many.
    fn forget_removed(&mut self) {
        let mut removed: Vec<Position> =
            self.fields.iter().filter(|field| field.value.is_none()).map(|field| field.position).collect();
        if removed.len() <= REMOVED_FIELDS_LEN_MAX {
            return;
        }
        removed.sort_unstable();
        let oldest_kept = removed[removed.len() - REMOVED_FIELDS_LEN_MAX];
        let forgotten = removed.iter().copied().filter(|position| *position < oldest_kept).max();
        self.forgotten = self.forgotten.max(forgotten.unwrap_or_default());
        self.fields.retain(|field| field.value.is_some() || field.position >= oldest_kept);
    }

    /// The fields that have a value.
    pub fn present(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.fields.iter().filter_map(|field| Some((&*field.name, field.value.as_ref()?)))
    }

    /// A field by its name, if it has a value.
    pub fn get(&self, name: &str) -> Option<&Json> {
        let index = self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        self.fields[index].value.as_ref()
    }

    /// When a field was last touched, be it there or not. Never too early, and for most fields exact.
    pub fn touched(&self, name: &str) -> Position {
        match name {
            META_DELETED => self.existence,
            META_POSITION => self.hidden,
            _ => match self.fields.binary_search_by(|field| (*field.name).cmp(name)) {
                Ok(index) => self.fields[index].position,
                Err(_) => self.forgotten,
            },
        }
    }
}

impl Fields for Document {
    fn value(&self, field: &str) -> Option<Cow<'_, str>> {
        match field {
            META_DELETED => Some(Cow::Borrowed(if self.deleted { "true" } else { "false" })),
            META_POSITION => (self.position > Position::START).then(|| Cow::Owned(self.position.to_string())),
            _ => self.get(field).map(|value| Cow::Borrowed(value.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Json {
        Json::read("1", 1).unwrap()
    }

    fn set(name: &str) -> Change {
        Change::Updated { set: vec![(name.into(), one())], removed: Vec::new() }
    }

    fn remove(name: &str) -> Change {
        Change::Updated { set: Vec::new(), removed: vec![name.into()] }
    }

    fn created() -> Document {
        let mut document = Document::unborn();
        document
            .apply(&Change::Created { fields: vec![("b".into(), one()), ("a".into(), one())] }, Position(1));
        document
    }

    #[test]
    fn a_new_life_keeps_the_positions_of_the_last_one() {
        let mut document = created();
        document.apply(&set("b"), Position(2));
        document.apply(&Change::Deleted { fields: vec!["b".into()] }, Position(3));
        let removed = document.present().map(|(name, _)| name.into()).collect();
        document.apply(&Change::Recreated { fields: vec![("c".into(), one())], removed }, Position(4));
        assert_eq!(document.present().map(|(name, _)| name).collect::<Vec<_>>(), ["c"]);
        assert_eq!((document.created, document.deleted, document.version), (Position(1), false, 4));
        for name in ["b", "c", META_DELETED, META_POSITION] {
            assert_eq!(document.touched(name), Position(4), "{name}");
        }
    }

    #[test]
    fn touches_are_kept_per_field() {
        let mut document = created();
        document.apply(&set("a"), Position(2));
        document.apply(&remove("b"), Position(3));
        document.apply(&remove("c"), Position(4));
        let touched = |name| document.touched(name).0;
        assert_eq!((touched("a"), touched("b"), touched("c"), touched("d")), (2, 3, 4, 0));
        assert_eq!((touched(META_DELETED), touched(META_POSITION)), (1, 0));
        assert_eq!(document.present().collect::<Vec<_>>(), [("a", &one())]);
    }

    #[test]
    fn delete_and_restore_touch_what_is_there() {
        let mut document = created();
        document.apply(&remove("b"), Position(2));
        document.apply(&Change::Deleted { fields: vec!["a".into()] }, Position(3));
        assert_eq!((document.touched("a").0, document.touched("b").0), (3, 2));
        assert_eq!(document.value(META_DELETED).unwrap(), "true");
        document.apply(&Change::Restored { fields: vec![("a".into(), one())] }, Position(4));
        assert_eq!((document.touched("a").0, document.touched(META_POSITION).0), (4, 4));
        assert_eq!(document.value(META_POSITION).unwrap(), "4");
    }

    #[test]
    fn delete_and_restore_in_the_request_that_creates() {
        let mut document = created();
        document.apply(&Change::Deleted { fields: vec!["a".into(), "b".into()] }, Position(1));
        assert_eq!(document.touched(META_POSITION), Position(1));
        document.apply(&Change::Restored { fields: vec![("a".into(), one())] }, Position(1));
        assert_eq!(document.touched(META_POSITION), Position(1));
    }

    #[test]
    fn many_fields_at_once_are_as_many_one_by_one() {
        let names: Vec<String> = (0..40).map(|number| format!("f{}", number * 7 % 30)).collect();
        let value = |index: usize| Json::read(&index.to_string(), 1).unwrap();
        let pairs = || names.iter().enumerate().map(|(index, name)| (name.as_str().into(), value(index)));
        let (mut at_once, mut one_by_one) = (created(), created());
        at_once.apply(&Change::Updated { set: pairs().collect(), removed: Vec::new() }, Position(2));
        for pair in pairs() {
            one_by_one.apply(&Change::Updated { set: vec![pair], removed: Vec::new() }, Position(2));
        }
        assert_eq!(at_once, one_by_one);
    }

    #[test]
    fn removed_fields_are_forgotten_soundly() {
        let mut document = created();
        for number in 0..100 {
            document.apply(&remove(&format!("x{number}")), Position(2 + number));
        }
        assert_eq!(
            document.fields.iter().filter(|field| field.value.is_none()).count(),
            REMOVED_FIELDS_LEN_MAX
        );
        // x35 was touched at 37 and is forgotten; what is said of it now is no earlier.
        assert!(document.touched("x35") >= Position(37));
        assert_eq!(document.touched("x99"), Position(101));
    }
}
