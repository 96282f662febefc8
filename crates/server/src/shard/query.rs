//! Questions about many documents: search, sort, pages, counts, extremes. Knows nothing of how questions and
//! answers are written.

use super::Reading;
use lockwood_model::{Document, DocumentKey, Fields, Filter, Key, Position, Scalar};
use lockwood_storage::{DocumentRef, NamespaceId, Order, Slice, StoreError};
use std::{borrow::Cow, cmp::Ordering, collections::BinaryHeap};

/// Which documents are looked at.
#[derive(Debug, Clone)]
pub(crate) struct Find {
    pub(crate) namespace: NamespaceId,
    pub(crate) collection: Box<str>,
    pub(crate) filter: Option<Filter>,
    pub(crate) deleted: Selection,
    /// As of when; now if absent.
    pub(crate) at: Option<Position>,
    /// No more documents than this are looked at.
    pub(crate) looks_max: u64,
}

/// Whether deleted documents are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Selection {
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
pub(crate) struct Sort {
    pub(crate) field: Box<str>,
    pub(crate) descending: bool,
}

/// Where a page ends and the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The values sorted by, as JSON; `null` for what has none.
    pub(crate) values: Vec<String>,
    pub(crate) key: Key,
}

/// A document that was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) at: DocumentKey,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Current(Slice),
    Past(Document),
}

/// Some of the documents that were found.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) documents: Vec<Found>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<Place>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum PageError {
    /// More documents would have to be looked at than the limit allows.
    TooManyLooks(u64),
    Store(StoreError),
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> PageError {
        PageError::Store(error)
    }
}

impl Selection {
    pub(crate) fn takes(self, deleted: bool) -> bool {
        match self {
            Selection::Without => !deleted,
            Selection::Only => deleted,
            Selection::With => true,
        }
    }
}

impl Found {
    pub(crate) fn current(at: DocumentKey, record: Slice) -> Found {
        Found { at, content: Content::Current(record) }
    }

    pub(crate) fn past(at: DocumentKey, document: Document) -> Found {
        Found { at, content: Content::Past(document) }
    }

    pub(crate) fn document(&self) -> Result<DocumentRef<'_>, StoreError> {
        match &self.content {
            Content::Current(record) => DocumentRef::read(record),
            Content::Past(document) => Ok(document.into()),
        }
    }
}

impl Reading {
    /// One document, as of now or of a position.
    pub(crate) fn get(
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

    /// A page of what is found, sorted, from after `after` on.
    pub(crate) fn page(
        &self,
        find: &Find,
        sort: &[Sort],
        after: Option<&Place>,
        len_max: usize,
    ) -> Result<Page, PageError> {
        if sort.is_empty() {
            self.page_by_key(find, after.map(|place| &place.key), len_max)
        } else {
            self.page_sorted(find, sort, after, len_max)
        }
    }

    fn page_by_key(&self, find: &Find, after: Option<&Key>, len_max: usize) -> Result<Page, PageError> {
        let mut documents = Vec::new();
        let mut next = None;
        self.each(find, after, &mut |found, _| {
            if documents.len() == len_max {
                let last: &Found = documents.last().expect("pages are not empty");
                next = Some(Place { values: Vec::new(), key: last.at.key.clone() });
                return false;
            }
            documents.push(found());
            true
        })?;
        Ok(Page { documents, next })
    }

    fn page_sorted(
        &self,
        find: &Find,
        sort: &[Sort],
        after: Option<&Place>,
        len_max: usize,
    ) -> Result<Page, PageError> {
        let mut best: BinaryHeap<Ranked<'_>> = BinaryHeap::new();
        let mut more = false;
        self.each(find, None, &mut |found, document| {
            let values = sort.iter().map(|sort| sort_value(document, &sort.field)).collect();
            let found = found();
            let place = Place { values, key: found.at.key.clone() };
            if after.is_some_and(|after| order(sort, &place, after) != Ordering::Greater) {
                return true;
            }
            best.push(Ranked { sort, place, found });
            if best.len() > len_max {
                best.pop();
                more = true;
            }
            true
        })?;
        let ranked = best.into_sorted_vec();
        let next = ranked.last().filter(|_| more).map(|last| last.place.clone());
        Ok(Page { documents: ranked.into_iter().map(|ranked| ranked.found).collect(), next })
    }

    /// How many are found.
    pub(crate) fn count(&self, find: &Find) -> Result<u64, PageError> {
        let mut count = 0;
        self.each(find, None, &mut |_, _| {
            count += 1;
            true
        })?;
        Ok(count)
    }

    /// Whether any is found.
    pub(crate) fn exists(&self, find: &Find) -> Result<bool, PageError> {
        let mut found = false;
        self.each(find, None, &mut |_, _| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// The smallest or the largest value of a field among those found, as JSON.
    pub(crate) fn extreme(
        &self,
        find: &Find,
        field: &str,
        wanted: Ordering,
        counts: impl Fn(&Scalar<'_>) -> bool,
    ) -> Result<Option<String>, PageError> {
        let mut best: Option<String> = None;
        self.each(find, None, &mut |_, document| {
            if let Some(value) = document.value(field)
                && counts(&Scalar::read(&value))
                && best
                    .as_ref()
                    .is_none_or(|best| Scalar::read(&value).total_order(&Scalar::read(best)) == wanted)
            {
                best = Some(value.into_owned());
            }
            true
        })?;
        Ok(best)
    }

    /// Shows what is found in the order of the keys, until told to stop.
    pub(crate) fn each(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<(), PageError> {
        let state = self.state();
        let mut looks = 0;
        let mut look = |at: DocumentKey, record: Slice| -> Result<bool, PageError> {
            looks += 1;
            if looks > find.looks_max {
                return Err(PageError::TooManyLooks(find.looks_max));
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
                    break;
                }
            }
            return Ok(());
        }
        for pair in state.documents(find.namespace, &find.collection, after, Order::Forward) {
            let (at, record) = pair?;
            if !look(at, record)? {
                break;
            }
        }
        Ok(())
    }

    fn show(
        &self,
        find: &Find,
        at: &DocumentKey,
        record: &Slice,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<bool, PageError> {
        let current = DocumentRef::read(record)?;
        let matches = |document: &DocumentRef<'_>| {
            find.deleted.takes(document.deleted())
                && find.filter.as_ref().is_none_or(|filter| filter.matches(document))
        };
        let Some(as_of) = find.at.filter(|as_of| current.position() > *as_of) else {
            let go_on =
                !matches(&current) || see(&mut || Found::current(at.clone(), record.clone()), &current);
            return Ok(go_on);
        };
        let Some(past) = self.state().back_to(find.namespace, at, &current.to_document(), as_of)? else {
            return Ok(true);
        };
        let document = DocumentRef::from(&past);
        Ok(!matches(&document) || see(&mut || Found::past(at.clone(), past.clone()), &document))
    }
}

fn sort_value(document: &DocumentRef<'_>, field: &str) -> String {
    document.value(field).map_or_else(|| "null".to_owned(), Cow::into_owned)
}

/// A document with its rank.
struct Ranked<'a> {
    sort: &'a [Sort],
    place: Place,
    found: Found,
}

fn order(sort: &[Sort], a: &Place, b: &Place) -> Ordering {
    for (sort, (a, b)) in sort.iter().zip(a.values.iter().zip(&b.values)) {
        let order = Scalar::read(a).total_order(&Scalar::read(b));
        let order = if sort.descending { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.key.cmp(&b.key)
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.sort, &self.place, &other.place)
    }
}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked<'_> {}
