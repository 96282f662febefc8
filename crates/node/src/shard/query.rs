//! Questions about many documents: search, sort, pages, counts, extremes. Knows nothing of how questions and
//! answers are written.

use super::Reading;
use crate::trouble::Trouble;
use lockwood_model::{
    Budget, Document, DocumentKey, Exhausted, FieldPath, Fields, Filter, Key, Position, Scalar,
};
use lockwood_storage::{DocumentRef, NamespaceId, Order, Slice, StoreError};
use std::{borrow::Cow, cmp::Ordering, collections::BinaryHeap, sync::Arc};

/// Which documents are looked at.
#[derive(Debug, Clone)]
pub struct Find {
    /// Where to look.
    pub namespace: NamespaceId,
    /// The collection to look in.
    pub collection: Box<str>,
    /// What documents must fulfil.
    pub filter: Option<Filter>,
    /// Whether deleted documents are meant.
    pub deleted: Selection,
    /// As of when; now if absent.
    pub at: Option<Position>,
    /// No more documents than this are looked at.
    pub looks_max: u64,
    /// What looking may cost.
    pub budget: Budget,
    /// Who answers for which documents; this shard for all it has if absent.
    pub custody: Option<Arc<dyn Custody>>,
}

/// Which documents a shard answers for, if there are others: not for all that it has, and for some that it does
/// not have yet.
pub trait Custody: std::fmt::Debug + Send + Sync {
    /// Whether what this shard has of a key counts.
    fn is_here(&self, reading: &Reading, namespace: NamespaceId, at: &DocumentKey)
    -> Result<bool, PageError>;

    /// What counts and is not here: those that match, after a key, in the order of the keys. None if there cannot
    /// be any.
    fn elsewhere<'a>(
        &'a self,
        reading: &'a Reading,
        find: &'a Find,
        after: Option<&Key>,
    ) -> Result<Option<Elsewhere<'a>>, PageError>;

    /// Some documents wherever they are, deleted or not.
    fn get_all(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        keys: &[DocumentKey],
        as_of: Option<Position>,
    ) -> Result<Vec<Option<Found>>, PageError>;
}

/// Documents that come from elsewhere, in the order of their keys.
pub type Elsewhere<'a> = Box<dyn Iterator<Item = Result<Found, PageError>> + 'a>;

/// Whether deleted documents are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// Only those that are there.
    #[default]
    Without,
    /// Only those that are deleted.
    Only,
    /// All.
    With,
}

/// A field to sort by. What has no value comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// The field to sort by.
    pub field: FieldPath,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// Where a page ends and the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The values sorted by, as JSON; `null` for what has none.
    pub values: Vec<String>,
    /// The key of the last document.
    pub key: Key,
}

/// A document that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Which document it is.
    pub at: DocumentKey,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Current(Slice),
    Past(Document),
}

/// Some of the documents that were found.
#[derive(Debug, Default)]
pub struct Page {
    pub documents: Vec<Found>,
    /// Where the next page begins, if there is one.
    pub next: Option<Place>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum PageError {
    /// More documents would have to be looked at than the limit allows.
    TooManyLooks(u64),
    /// More documents would have to be remembered for a join than the limit allows.
    TooManyRows(u64),
    /// The budget is spent, or the search was cancelled.
    Exhausted(Exhausted),
    /// Another node that would have to be asked cannot be, or has something against it.
    Elsewhere(Box<Trouble>),
    /// The store cannot be read.
    Store(StoreError),
}

impl From<Trouble> for PageError {
    fn from(trouble: Trouble) -> PageError {
        PageError::Elsewhere(Box::new(trouble))
    }
}

impl From<Exhausted> for PageError {
    fn from(exhausted: Exhausted) -> PageError {
        PageError::Exhausted(exhausted)
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> PageError {
        PageError::Store(error)
    }
}

impl Selection {
    /// Whether documents are meant that are deleted, or not.
    pub fn takes(self, deleted: bool) -> bool {
        match self {
            Selection::Without => !deleted,
            Selection::Only => deleted,
            Selection::With => true,
        }
    }
}

impl Found {
    /// A document as it is now.
    pub fn current(at: DocumentKey, record: Slice) -> Found {
        Found { at, content: Content::Current(record) }
    }

    /// A document as it was.
    pub fn past(at: DocumentKey, document: Document) -> Found {
        Found { at, content: Content::Past(document) }
    }

    /// The document, read from its record.
    pub fn document(&self) -> Result<DocumentRef<'_>, StoreError> {
        match &self.content {
            Content::Current(record) => DocumentRef::read(record),
            Content::Past(document) => Ok(document.into()),
        }
    }
}

impl Reading {
    /// One document, as of now or of a position.
    pub fn get(
        &self,
        namespace: NamespaceId,
        at: DocumentKey,
        deleted: Selection,
        as_of: Option<Position>,
    ) -> Result<Option<Found>, StoreError> {
        let Some(record) = self.state().document_bytes(namespace, &at)? else { return Ok(None) };
        let document = DocumentRef::read(&record)?;
        if as_of.is_none_or(|position| document.position() <= position) {
            let found = deleted.takes(document.deleted());
            return Ok(found.then(|| Found::current(at, record)));
        }
        let as_of = as_of.expect("it was just looked at");
        let past = self.state().back_to(namespace, &at, &document.to_document(), as_of)?;
        Ok(past.filter(|document| deleted.takes(document.deleted)).map(|document| Found::past(at, document)))
    }

    /// Shows what is found to someone who makes something of it.
    pub fn gather(&self, find: &Find, gather: &mut dyn Gather) -> Result<(), PageError> {
        let after = gather.after().cloned();
        self.each(find, after.as_ref(), &mut |found, document| gather.see(found, document))
    }

    /// How many are found.
    pub fn count(&self, find: &Find) -> Result<u64, PageError> {
        let mut count = Count(0);
        self.gather(find, &mut count)?;
        Ok(count.0)
    }

    /// Whether any is found.
    pub fn exists(&self, find: &Find) -> Result<bool, PageError> {
        let mut any = Any(false);
        self.gather(find, &mut any)?;
        Ok(any.0)
    }

    /// The smallest or the largest value of a field among those found, as JSON.
    pub fn extreme(
        &self,
        find: &Find,
        field: &FieldPath,
        wanted: Ordering,
        counts: fn(&Scalar<'_>) -> bool,
    ) -> Result<Option<String>, PageError> {
        let mut extreme = Extreme::new(field, wanted, counts);
        self.gather(find, &mut extreme)?;
        Ok(extreme.value)
    }

    /// Whether a document is one of those that are looked for.
    pub fn is_found(find: &Find, document: &DocumentRef<'_>) -> Result<bool, Exhausted> {
        match &find.filter {
            _ if !find.deleted.takes(document.deleted()) => Ok(false),
            Some(filter) => filter.matches_within(document, &find.budget),
            None => Ok(true),
        }
    }

    /// Some documents, deleted or not, as a search sees them.
    pub fn get_all(&self, find: &Find, keys: Vec<DocumentKey>) -> Result<Vec<Option<Found>>, PageError> {
        match &find.custody {
            Some(custody) => custody.get_all(self, find.namespace, &keys, find.at),
            None => {
                let get = |at| Ok(self.get(find.namespace, at, Selection::With, find.at)?);
                keys.into_iter().map(get).collect()
            }
        }
    }

    /// The keys of a collection after one of them, whether their documents match or not.
    pub fn keys(
        &self,
        find: &Find,
        after: Option<&Key>,
        len_max: usize,
    ) -> Result<Vec<DocumentKey>, PageError> {
        let all = Find { filter: None, deleted: Selection::With, ..find.clone() };
        let mut keys = Vec::new();
        self.each(&all, after, &mut |found, _| {
            keys.push(found().at);
            keys.len() < len_max
        })?;
        Ok(keys)
    }

    /// Shows what is found in the order of the keys, until told to stop.
    pub fn each(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<(), PageError> {
        let Some(custody) = &find.custody else { return self.each_here(find, after, see).map(drop) };
        let Some(others) = custody.elsewhere(self, find, after)? else {
            return self.each_here(find, after, see).map(drop);
        };
        let mut others = others.peekable();
        let mut outcome = Ok(true);
        let goes_on = self.each_here(find, after, &mut |found, document| {
            let here = found();
            outcome = show_before(&mut others, Some(&here.at.key), see);
            matches!(outcome, Ok(true)) && see(&mut || here.clone(), document)
        })?;
        if outcome? && goes_on {
            show_before(&mut others, None, see)?;
        }
        Ok(())
    }

    /// Shows what is found of what is here; says whether more is wanted.
    fn each_here(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<bool, PageError> {
        let state = self.state();
        let mut looks = 0;
        let mut look = |at: DocumentKey, record: Slice| -> Result<bool, PageError> {
            looks += 1;
            if looks > find.looks_max {
                return Err(PageError::TooManyLooks(find.looks_max));
            }
            find.budget.spend_bytes(record.len())?;
            if let Some(custody) = &find.custody
                && !custody.is_here(self, find.namespace, &at)?
            {
                return Ok(true);
            }
            self.show(find, &at, &record, see)
        };
        // An index knows the present only.
        if find.at.is_none()
            && let Some(filter) = &find.filter
            && let Some(found) = state.candidates(find.namespace, &find.collection, &filter.required())?
        {
            // Keys only: there may be many, and a document may be large.
            let mut keys: Vec<Key> = Vec::new();
            for key in found {
                let key = key?.key;
                find.budget.spend(1)?;
                if after.is_none_or(|after| key > *after) {
                    keys.push(key);
                }
                if keys.len() as u64 > find.looks_max {
                    return Err(PageError::TooManyLooks(find.looks_max));
                }
            }
            keys.sort_unstable();
            for key in keys {
                let at = DocumentKey { collection: find.collection.clone(), key };
                let record = state.document_bytes(find.namespace, &at)?;
                let record = record.ok_or_else(|| StoreError::damaged("a secondary index"))?;
                if !look(at, record)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for pair in state.documents(find.namespace, &find.collection, after, Order::Forward) {
            let (at, record) = pair?;
            if !look(at, record)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn show(
        &self,
        find: &Find,
        at: &DocumentKey,
        record: &Slice,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<bool, PageError> {
        let current = DocumentRef::read(record)?;
        let Some(as_of) = find.at.filter(|as_of| current.position() > *as_of) else {
            let go_on = !Reading::is_found(find, &current)?
                || see(&mut || Found::current(at.clone(), record.clone()), &current);
            return Ok(go_on);
        };
        let Some(past) = self.state().back_to(find.namespace, at, &current.to_document(), as_of)? else {
            return Ok(true);
        };
        let document = DocumentRef::from(&past);
        Ok(!Reading::is_found(find, &document)?
            || see(&mut || Found::past(at.clone(), past.clone()), &document))
    }
}

/// Shows those that come before a key, or all of them; says whether more is wanted.
fn show_before(
    others: &mut std::iter::Peekable<Elsewhere<'_>>,
    key: Option<&Key>,
    see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
) -> Result<bool, PageError> {
    let comes_first = |next: &Result<Found, PageError>| match (next, key) {
        (Ok(found), Some(key)) => found.at.key < *key,
        _ => true,
    };
    while let Some(found) = others.next_if(comes_first) {
        let found = found?;
        if !see(&mut || found.clone(), &found.document()?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes something of the documents that are found, which it is shown in the order of their keys.
pub trait Gather: Send {
    /// Documents up to this one need not be shown.
    fn after(&self) -> Option<&Key> {
        None
    }

    /// Looks at one; says whether it wants more.
    fn see(&mut self, found: &mut dyn FnMut() -> Found, document: &DocumentRef<'_>) -> bool;
}

/// How many there are.
pub struct Count(pub u64);

impl Gather for Count {
    fn see(&mut self, _: &mut dyn FnMut() -> Found, _: &DocumentRef<'_>) -> bool {
        self.0 += 1;
        true
    }
}

/// Whether there is any.
pub struct Any(pub bool);

impl Gather for Any {
    fn see(&mut self, _: &mut dyn FnMut() -> Found, _: &DocumentRef<'_>) -> bool {
        self.0 = true;
        false
    }
}

/// The smallest or the largest value of a field.
pub struct Extreme {
    field: FieldPath,
    wanted: Ordering,
    counts: fn(&Scalar<'_>) -> bool,
    /// As JSON.
    pub value: Option<String>,
}

impl Extreme {
    /// Of the values that `counts` says yes to, the one that comes before or after all others.
    pub fn new(field: &FieldPath, wanted: Ordering, counts: fn(&Scalar<'_>) -> bool) -> Extreme {
        Extreme { field: field.clone(), wanted, counts, value: None }
    }
}

impl Gather for Extreme {
    fn see(&mut self, _: &mut dyn FnMut() -> Found, document: &DocumentRef<'_>) -> bool {
        let Some(value) = document.at(&self.field) else { return true };
        let read = Scalar::read(&value);
        let is_better = |best: &String| read.total_order(&Scalar::read(best)) == self.wanted;
        if (self.counts)(&read) && self.value.as_ref().is_none_or(is_better) {
            self.value = Some(value.into_owned());
        }
        true
    }
}

/// One page, sorted or by key.
pub struct Pager {
    sort: Arc<[Sort]>,
    after: Option<Place>,
    len_max: usize,
    documents: Vec<Found>,
    best: BinaryHeap<Ranked>,
    more: bool,
}

impl Pager {
    /// A page of at most `len_max` documents that come after `after`.
    pub fn new(sort: Vec<Sort>, after: Option<Place>, len_max: usize) -> Pager {
        let (documents, best) = (Vec::new(), BinaryHeap::new());
        Pager { sort: sort.into(), after, len_max, documents, best, more: false }
    }

    /// The page that was gathered.
    pub fn finish(self) -> Page {
        let Pager { sort, documents, best, more, .. } = self;
        if sort.is_empty() {
            let place = |last: &Found| Place { values: Vec::new(), key: last.at.key.clone() };
            let next = documents.last().filter(|_| more).map(place);
            return Page { documents, next };
        }
        let ranked = best.into_sorted_vec();
        let next = ranked.last().filter(|_| more).map(|last| last.place.clone());
        Page { documents: ranked.into_iter().map(|ranked| ranked.found).collect(), next }
    }
}

impl Gather for Pager {
    fn after(&self) -> Option<&Key> {
        self.after.as_ref().filter(|_| self.sort.is_empty()).map(|place| &place.key)
    }

    fn see(&mut self, found: &mut dyn FnMut() -> Found, document: &DocumentRef<'_>) -> bool {
        if self.sort.is_empty() {
            self.more = self.documents.len() == self.len_max;
            if !self.more {
                self.documents.push(found());
            }
            return !self.more;
        }
        let values = self.sort.iter().map(|sort| sort_value(document, &sort.field)).collect();
        let found = found();
        let place = Place { values, key: found.at.key.clone() };
        if self.after.as_ref().is_none_or(|after| order(&self.sort, &place, after) == Ordering::Greater) {
            self.best.push(Ranked { sort: Arc::clone(&self.sort), place, found });
            if self.best.len() > self.len_max {
                self.best.pop();
                self.more = true;
            }
        }
        true
    }
}

fn sort_value(document: &DocumentRef<'_>, field: &FieldPath) -> String {
    document.at(field).map_or_else(|| "null".to_owned(), Cow::into_owned)
}

/// A document with its rank.
struct Ranked {
    sort: Arc<[Sort]>,
    place: Place,
    found: Found,
}

/// Which of two documents comes first.
pub fn order(sort: &[Sort], a: &Place, b: &Place) -> Ordering {
    for (sort, (a, b)) in sort.iter().zip(a.values.iter().zip(&b.values)) {
        let order = Scalar::read(a).total_order(&Scalar::read(b));
        let order = if sort.descending { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.key.cmp(&b.key)
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.sort, &self.place, &other.place)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}
