//! Two collections put together where a field of the one equals a field of the other. Knows nothing of how
//! questions and answers are written, nor of locks.

use super::{Find, Found, PageError, Reading, partners::Partners};
use lockwood_model::{Condition, DocumentKey, FieldPath, Fields, Filter, Json, Key, Operator};
use lockwood_storage::{DocumentRef, IndexState, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// So many partners are looked up in an index before it is taken for quicker to look at all of them once.
const LOOKUPS_MAX: u64 = 1000;

/// A join to be made.
#[derive(Debug, Clone)]
pub struct Join {
    /// The documents that rows begin with.
    pub left: JoinSide,
    /// The documents that are looked up for them.
    pub right: JoinSide,
    /// Documents on the left without a partner are rows too.
    pub keeps_left: bool,
    /// Rows up to this one are left out.
    pub after: Option<JoinPlace>,
    /// How many rows a page has at most.
    pub len_max: usize,
    /// No more documents of the right side than this are remembered.
    pub rows_max: u64,
}

/// One side of it.
#[derive(Debug, Clone)]
pub struct JoinSide {
    /// Which documents.
    pub find: Find,
    /// The field that both sides have in common.
    pub field: FieldPath,
}

/// Where a page ends and the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinPlace {
    /// The document of the left side.
    pub left: Key,
    /// None if the row has no partner.
    pub right: Option<Key>,
}

/// A document and its partner.
pub(crate) type JoinRow = (Found, Option<Found>);

/// Some of the rows, by the keys of the left side and then of the right.
#[derive(Debug, Default)]
pub struct JoinRows {
    /// The rows found, in order.
    pub rows: Vec<JoinRow>,
    /// Where the next page begins, if there is one.
    pub next: Option<JoinPlace>,
}

/// The only documents that count, if not all do: of the left side and of the right.
pub type Only = Option<(BTreeSet<Key>, BTreeSet<Key>)>;

/// Where the documents of a join are.
pub trait Source {
    /// Shows what is found in the order of the keys, until told to stop.
    fn each(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<(), PageError>;

    /// Some documents, deleted or not.
    fn get_all(&self, find: &Find, keys: Vec<DocumentKey>) -> Result<Vec<Option<Found>>, PageError>;

    /// Whether an index finds documents by the field that is compared.
    fn has_index(&self, side: &JoinSide) -> Result<bool, PageError>;
}

/// One page of a join.
pub fn join(source: &dyn Source, join: &Join, only: &Only) -> Result<JoinRows, PageError> {
    let looks_left = join.right.find.looks_max;
    let mut joiner = Joiner {
        source,
        join,
        only,
        partners: None,
        lookups_left: if source.has_index(&join.right)? { LOOKUPS_MAX } else { 0 },
        looks_left,
        rows: Vec::new(),
        next: None,
    };
    joiner.run()?;
    joiner.finish()
}

impl Source for Reading {
    fn each(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<(), PageError> {
        Reading::each(self, find, after, see)
    }

    fn get_all(&self, find: &Find, keys: Vec<DocumentKey>) -> Result<Vec<Option<Found>>, PageError> {
        Reading::get_all(self, find, keys)
    }

    /// It knows the present only.
    fn has_index(&self, side: &JoinSide) -> Result<bool, PageError> {
        let indexes = self.state().indexes(side.find.namespace, &side.find.collection)?;
        let mut indexes = indexes.iter();
        let is_ready = indexes.any(|index| index.field == side.field && index.state == IndexState::Ready);
        Ok(is_ready && side.find.at.is_none())
    }
}

/// A join being made.
struct Joiner<'a> {
    source: &'a dyn Source,
    join: &'a Join,
    only: &'a Only,
    /// The whole right side by value, once it was looked at.
    partners: Option<Partners<Key>>,
    lookups_left: u64,
    looks_left: u64,
    /// Documents and the keys of their partners.
    rows: Vec<(Found, Option<Key>)>,
    next: Option<JoinPlace>,
}

impl Joiner<'_> {
    fn run(&mut self) -> Result<(), PageError> {
        let after = self.join.after.as_ref();
        if let Some(JoinPlace { left, right }) = after
            && !self.finish_left(left, right.as_ref())?
        {
            return Ok(());
        }
        let (source, join) = (self.source, self.join);
        let mut outcome = Ok(true);
        source.each(&join.left.find, after.map(|place| &place.left), &mut |found, document| {
            outcome = self.take_left(found, document, None);
            matches!(outcome, Ok(true))
        })?;
        outcome.map(drop)
    }

    /// The rest of the partners of the document at which the page before ended.
    fn finish_left(&mut self, left: &Key, right: Option<&Key>) -> Result<bool, PageError> {
        let Some(right) = right else { return Ok(true) };
        let find = &self.join.left.find;
        let at = DocumentKey { collection: find.collection.clone(), key: left.clone() };
        let Some(found) = self.source.get_all(find, vec![at])?.pop().flatten() else { return Ok(true) };
        let document = found.document()?;
        if !Reading::is_found(find, &document)? {
            return Ok(true);
        }
        self.take_left(&mut || found.clone(), &document, Some(right))
    }

    /// Adds the rows of one document on the left, those with partners after `after`. Says whether there is room
    /// for more.
    fn take_left(
        &mut self,
        found: &mut dyn FnMut() -> Found,
        document: &DocumentRef<'_>,
        after: Option<&Key>,
    ) -> Result<bool, PageError> {
        let value = document.at(&self.join.left.field).filter(|value| **value != *"null");
        if value.is_none() && !self.join.keeps_left {
            return Ok(true);
        }
        let left = found();
        if self.only.as_ref().is_some_and(|(only, _)| !only.contains(&left.at.key)) {
            return Ok(true);
        }
        let partners = value.map_or(Ok(Vec::new()), |value| self.partners(&value))?;
        if partners.is_empty() && self.join.keeps_left && after.is_none() {
            return Ok(self.push(left, None));
        }
        for key in partners.into_iter().filter(|key| after.is_none_or(|after| key > after)) {
            if !self.push(left.clone(), Some(key)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn push(&mut self, left: Found, right: Option<Key>) -> bool {
        if self.rows.len() < self.join.len_max {
            self.rows.push((left, right));
            return true;
        }
        let place = |(left, right): &(Found, Option<Key>)| JoinPlace {
            left: left.at.key.clone(),
            right: right.clone(),
        };
        self.next = self.rows.last().map(place);
        false
    }

    /// The rows with the partners themselves.
    fn finish(self) -> Result<JoinRows, PageError> {
        let find = &self.join.right.find;
        let at = |key: &Key| DocumentKey { collection: find.collection.clone(), key: key.clone() };
        let keys: BTreeSet<DocumentKey> =
            self.rows.iter().filter_map(|(_, key)| key.as_ref()).map(at).collect();
        let found = self.source.get_all(find, keys.iter().cloned().collect())?;
        let found: BTreeMap<&Key, Found> =
            keys.iter().map(|at| &at.key).zip(found).filter_map(there).collect();
        let partner = |key: &Key| {
            let found = found.get(key).cloned();
            found.ok_or_else(|| StoreError::damaged("a document that was just there"))
        };
        let rows =
            self.rows.into_iter().map(|(left, key)| Ok((left, key.as_ref().map(partner).transpose()?)));
        Ok(JoinRows { rows: rows.collect::<Result<_, StoreError>>()?, next: self.next })
    }

    /// The keys of the documents on the right with an equal value.
    fn partners(&mut self, value: &str) -> Result<Vec<Key>, PageError> {
        if self.partners.is_none() && self.lookups_left > 0 {
            self.lookups_left -= 1;
            return self.look_up(value);
        }
        if self.partners.is_none() {
            self.partners = Some(self.remember_right()?);
        }
        let partners = self.partners.as_ref().expect("it was just put there");
        Ok(partners.of(Some(value)).to_vec())
    }

    fn look_up(&mut self, value: &str) -> Result<Vec<Key>, PageError> {
        let JoinSide { find, field } = &self.join.right;
        let equal = Condition::new(field.clone(), Operator::Equal, Json::trusted(value));
        let equal = Filter::Is(equal.expect("any value can be equal"));
        let filter = match &find.filter {
            // In front, as the index to be used is chosen in this order.
            Some(filter) => Filter::All(vec![equal, filter.clone()]),
            None => equal,
        };
        let find = Find { filter: Some(filter), looks_max: self.looks_left, ..find.clone() };
        let mut keys = Vec::new();
        self.source.each(&find, None, &mut |found, _| {
            keys.push(found().at.key);
            true
        })?;
        self.looks_left = self.looks_left.saturating_sub(keys.len() as u64 + 1);
        keys.retain(|key| self.only.as_ref().is_none_or(|(_, only)| only.contains(key)));
        Ok(keys)
    }

    fn remember_right(&self) -> Result<Partners<Key>, PageError> {
        let JoinSide { find, field } = &self.join.right;
        let mut partners = Partners::default();
        self.source.each(find, None, &mut |found, document| {
            if let Some(value) = document.at(field) {
                let key = found().at.key;
                if self.only.as_ref().is_none_or(|(_, only)| only.contains(&key)) {
                    partners.add(Some(&value), key);
                }
            }
            partners.len() <= self.join.rows_max
        })?;
        if partners.len() > self.join.rows_max {
            return Err(PageError::TooManyRows(self.join.rows_max));
        }
        Ok(partners)
    }
}

fn there((key, found): (&Key, Option<Found>)) -> Option<(&Key, Found)> {
    Some((key, found?))
}
