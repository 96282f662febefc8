//! How reads stand to the locks of others: not at all, once for all they read, or document by document. Knows
//! nothing of what is made of what is read.
//!
//! A read holds no lock while it looks: it looks at a snapshot of a moment at which nobody else's lock was in its
//! way, and a snapshot does not change.

use super::{
    read::Moment,
    terms::{read_terms, terms},
};
use crate::{cluster::custody, native::http::check_namespace, shared::Shared};
use lockwood_model::{
    Budget, Depth, DocumentKey, FieldPath, Filter, Key, META_DELETED, META_POSITION, Mode, Path, Position,
    Resource, Scalar, Wait,
};
use lockwood_node::{
    gate::{self, GateError, Terms},
    schemas::check_fields,
    shard::{Custody, Find, Found, Gather, PageError, Reading, Selection},
    trouble::Trouble,
    work::Job,
};
use lockwood_storage::{DocumentRef, NamespaceId};
use lockwood_wire::{Code, documents::Isolation};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// So many documents are looked at together, if nobody is in the way.
const CHUNK_LEN: usize = 500;

/// On which terms a read is done.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) isolation: Isolation,
    terms: Terms,
    /// From then on it does not wait for anybody.
    deadline: Instant,
    /// The position of the past that is read.
    at: Option<Position>,
}

impl Access {
    /// As a body gives it. What was at an earlier position cannot be locked.
    pub(super) fn new(
        shared: &Shared,
        isolation: Isolation,
        (tokens, wait_ms): (&[u64], Option<u64>),
        at: Option<u64>,
    ) -> Result<Access, Trouble> {
        Access::with(shared, isolation, terms(shared, tokens.to_vec(), wait_ms)?, at)
    }

    /// As a query gives it.
    pub(super) fn of_query(
        shared: &Shared,
        isolation: Isolation,
        (token, wait_ms): (Option<&str>, Option<u64>),
        at: Option<u64>,
    ) -> Result<Access, Trouble> {
        Access::with(shared, isolation, read_terms(shared, token, wait_ms)?, at)
    }

    fn with(shared: &Shared, isolation: Isolation, terms: Terms, at: Option<u64>) -> Result<Access, Trouble> {
        if shared.authority.follows() && (isolation != Isolation::Snapshot || !terms.tokens.is_empty()) {
            let message = "a follower knows nothing of locks; the owner of the shard has to answer";
            return Err(Trouble::new(Code::ShardUnreachable, message));
        }
        if isolation != Isolation::Snapshot && at.is_some() {
            let message = "what was at an earlier position cannot be locked and does not change; leave out at, or \
                           read with isolation snapshot";
            return Err(Trouble::new(Code::LockedPast, message));
        }
        let wait = match terms.wait {
            Wait::Millis(millis) => Duration::from_millis(millis),
            Wait::Never | Wait::Forever => Duration::ZERO,
        };
        Ok(Access { isolation, terms, deadline: Instant::now() + wait, at: at.map(Position) })
    }

    /// A namespace at a moment at which `resources` can be read.
    pub(super) async fn moment(
        &self,
        shared: &Arc<Shared>,
        name: &str,
        resources: impl FnOnce() -> Vec<Resource>,
    ) -> Result<Moment, Trouble> {
        check_namespace(shared, name)?;
        shared.metrics.reads.add(1);
        let reading = match self.isolation {
            Isolation::Snapshot => {
                gate::check_tokens(shared, name, &self.terms).await?;
                shared.shard.read()
            }
            Isolation::Locked | Isolation::Document => {
                match gate::read_unhindered(shared, name, &self.terms) {
                    Some(reading) => reading,
                    None => self.read(shared, name, &resources()).await?,
                }
            }
        };
        let moment = Moment::of(reading, name)?;
        self.at.map_or(Ok(()), |at| moment.check_reached(shared, name, at))?;
        Ok(moment)
    }

    /// What readers see when nobody else's lock is in the way, within what is left of the wait.
    pub(super) async fn read(
        &self,
        shared: &Arc<Shared>,
        name: &str,
        resources: &[Resource],
    ) -> Result<Reading, Trouble> {
        let left = self.deadline.saturating_duration_since(Instant::now()).as_millis();
        let wait = match (self.terms.wait, u64::try_from(left).unwrap_or(u64::MAX)) {
            (Wait::Never, _) | (_, 0) => Wait::Never,
            (_, left) => Wait::Millis(left),
        };
        Ok(gate::read(shared, name, resources, &Terms { wait, ..self.terms.clone() }).await?)
    }

    /// The same without waiting; none if somebody is in the way.
    pub(super) async fn read_now(
        &self,
        shared: &Arc<Shared>,
        name: &str,
        resources: &[Resource],
    ) -> Result<Option<Reading>, Trouble> {
        let terms = Terms { wait: Wait::Never, ..self.terms.clone() };
        match gate::read(shared, name, resources, &terms).await {
            Ok(reading) => Ok(Some(reading)),
            Err(GateError::Refused(trouble)) if trouble.code == Code::Locked => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// How a read stands to locks: as it says, or else as its collections are set, the strongest of them. The past does
/// not change and cannot be locked.
pub(crate) fn in_force<'a>(
    shared: &Shared,
    namespace: &str,
    collections: impl IntoIterator<Item = &'a str>,
    (given, at): (Option<Isolation>, Option<u64>),
) -> Result<Isolation, Trouble> {
    match (given, at) {
        (Some(given), _) => Ok(given),
        (None, Some(_)) => Ok(Isolation::Snapshot),
        (None, None) => {
            let active = shared.schemas.active(shared, namespace)?;
            let isolations = collections.into_iter().map(|collection| active.isolation(collection));
            Ok(isolations.fold(Isolation::Snapshot, Isolation::stronger))
        }
    }
}

/// Whether a read may be done on such terms.
pub(crate) fn check_access(
    shared: &Shared,
    isolation: Isolation,
    terms: (&[u64], Option<u64>),
    at: Option<u64>,
) -> Result<(), Trouble> {
    Access::new(shared, isolation, terms, at).map(drop)
}

/// A node with what is in it down to a depth, to be read.
pub(super) fn node(at: &DocumentKey, path: &Path, depth: Depth) -> Resource {
    let mut whole = gate::document_path(at);
    path.segments().for_each(|segment| whole.push(segment));
    Resource::new(whole, Mode::Read, depth)
}

/// A whole collection, who is in it included.
pub(crate) fn collection(name: &str) -> Resource {
    Resource::new(Path::from_segments([name]), Mode::Read, Depth::SUBTREE)
}

/// What is read of a document.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    Whole,
    /// These fields; if there are none, that it is there.
    Fields(Vec<FieldPath>),
}

impl Scope {
    pub(super) fn of(fields: Option<&[FieldPath]>) -> Scope {
        fields.map_or(Scope::Whole, |fields| Scope::Fields(fields.to_vec()))
    }

    pub(super) fn resources(&self, at: &DocumentKey, out: &mut Vec<Resource>) {
        match self {
            Scope::Whole => out.push(node(at, &Path::root(), Depth::SUBTREE)),
            Scope::Fields(fields) if fields.is_empty() => out.push(node(at, &Path::root(), Depth::NODE)),
            Scope::Fields(fields) => out.extend(fields.iter().map(|path| field(at, path, Depth::SUBTREE))),
        }
    }
}

/// A field to be read. What a document says about itself changes with the document.
fn field(at: &DocumentKey, path: &FieldPath, depth: Depth) -> Resource {
    match path.root() {
        META_DELETED => node(at, &Path::root(), Depth::NODE),
        META_POSITION => node(at, &Path::root(), Depth::SUBTREE),
        _ => node(at, &Path::from_segments(path.names()), depth),
    }
}

/// The fields a filter looks at, and how deep: into a list or an object only to compare it with one.
pub(super) fn looked_at(filter: Option<&Filter>) -> Vec<(FieldPath, Depth)> {
    fn collect(filter: &Filter, fields: &mut BTreeMap<FieldPath, Depth>) {
        match filter {
            Filter::Is(condition) => {
                let compound = matches!(Scalar::read(condition.value().as_str()), Scalar::Compound(_));
                let depth = if compound { Depth::SUBTREE } else { Depth::NODE };
                let known = fields.entry(condition.field().clone()).or_insert(depth);
                *known = (*known).max(depth);
            }
            Filter::All(filters) | Filter::Any(filters) => {
                filters.iter().for_each(|filter| collect(filter, fields));
            }
            Filter::Not(filter) => collect(filter, fields),
        }
    }
    let mut fields = BTreeMap::new();
    filter.into_iter().for_each(|filter| collect(filter, &mut fields));
    fields.into_iter().collect()
}

/// Those fields of a document; if there are none, that it is there.
pub(super) fn look(at: &DocumentKey, fields: &[(FieldPath, Depth)], out: &mut Vec<Resource>) {
    if fields.is_empty() {
        out.push(node(at, &Path::root(), Depth::NODE));
    }
    out.extend(fields.iter().map(|(path, depth)| field(at, path, *depth)));
}

/// A question about a collection.
#[derive(Debug, Clone)]
pub(super) struct Sought {
    pub(super) collection: Box<str>,
    pub(super) filter: Option<Filter>,
    pub(super) deleted: Selection,
    pub(super) at: Option<u64>,
    /// What is read of those that match.
    pub(super) scope: Scope,
}

impl Sought {
    /// Whether the schema of the collection, if it has one, knows everything that is named.
    pub(super) async fn check_names(
        &self,
        job: &Job<'_>,
        namespace: &str,
        also: Option<&FieldPath>,
    ) -> Result<(), Trouble> {
        let shown = match &self.scope {
            Scope::Whole => &[][..],
            Scope::Fields(fields) => fields,
        };
        let compared = self.filter.iter().flat_map(Filter::fields);
        let all = shown.iter().chain(compared).chain(also).map(|field| (&*self.collection, field)).collect();
        check_fields(job, namespace, all).await
    }

    pub(super) fn find(
        &self,
        shared: &Shared,
        (namespace, custody): (NamespaceId, Option<Arc<dyn Custody>>),
        at: Option<Position>,
        budget: &Budget,
    ) -> Find {
        Find {
            namespace,
            collection: self.collection.clone(),
            filter: self.filter.clone(),
            deleted: self.deleted,
            at,
            looks_max: shared.config.limits.looks_max,
            budget: budget.clone(),
            custody,
        }
    }
}

/// Shows the documents that match to `gather`. The answer is true at the position, or at a later one if it was
/// read document by document.
pub(super) async fn search<G: Gather + 'static>(
    shared: Arc<Shared>,
    name: String,
    sought: Sought,
    access: Access,
    gather: G,
) -> Result<(Position, G), Trouble> {
    let own = Arc::clone(&shared);
    let job = Job::new(&own);
    sought.check_names(&job, &name, None).await?;
    if access.isolation != Isolation::Document {
        let moment = access.moment(&shared, &name, || vec![collection(&sought.collection)]).await?;
        return at_once(&job, shared, &name, moment, sought, gather).await;
    }
    check_namespace(&shared, &name)?;
    shared.metrics.reads.add(1);
    // Most of the time nobody is in the way of any of them.
    if let Some(reading) = access.read_now(&shared, &name, &[collection(&sought.collection)]).await? {
        return at_once(&job, shared, &name, Moment::of(reading, &name)?, sought, gather).await;
    }
    Search { shared, name, sought: Arc::new(sought), access, gather }.run(&job).await
}

async fn at_once<G: Gather + 'static>(
    job: &Job<'_>,
    shared: Arc<Shared>,
    name: &str,
    moment: Moment,
    sought: Sought,
    mut gather: G,
) -> Result<(Position, G), Trouble> {
    let custody = custody(&shared, name)?;
    let as_of = moment.as_of(name, sought.at)?;
    let work = move |budget: &Budget| {
        if let Some(namespace) = moment.searched(custody.as_ref()) {
            let find = sought.find(&shared, (namespace, custody), as_of, budget);
            moment.reading.gather(&find, &mut gather)?;
        }
        Ok((moment.told(sought.at), gather))
    };
    job.run(work).await?
}

/// A search that looks at each document when nobody else's lock is in the way of that document.
struct Search<G> {
    shared: Arc<Shared>,
    name: String,
    sought: Arc<Sought>,
    access: Access,
    gather: G,
}

impl<G: Gather + 'static> Search<G> {
    /// Which documents there are is taken from one snapshot; what is in them is read later, each by itself. A
    /// declared index does not help: it may know what somebody else has only half done.
    async fn run(mut self, job: &Job<'_>) -> Result<(Position, G), Trouble> {
        let start = Moment::of(self.shared.shard.read(), &self.name)?;
        let custody = custody(&self.shared, &self.name)?;
        let (position, Some(namespace)) = (start.position, start.searched(custody.as_ref())) else {
            return Ok((start.position, self.gather));
        };
        let find = Arc::new(self.sought.find(&self.shared, (namespace, custody), None, job.budget()));
        let mut after = self.gather.after().cloned();
        let mut looks = 0;
        loop {
            let keys = next_keys(job, &start.reading, &find, after.take()).await?;
            looks += keys.len() as u64;
            if looks > find.looks_max {
                return Err(PageError::TooManyLooks(find.looks_max).into());
            }
            let Some(last) = keys.last() else { return Ok((position, self.gather)) };
            after = Some(last.key.clone());
            if !self.show(job, &find, &keys).await? {
                return Ok((position, self.gather));
            }
        }
    }

    /// Says whether more is wanted.
    async fn show(&mut self, job: &Job<'_>, find: &Arc<Find>, keys: &[DocumentKey]) -> Result<bool, Trouble> {
        if let Some(found) = self.look(job, find, keys, Patience::None).await? {
            return self.gather_all(&found);
        }
        for at in keys {
            let found = self.look(job, find, std::slice::from_ref(at), Patience::All).await?;
            if !self.gather_all(&found.unwrap_or_default())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn gather_all(&mut self, found: &[Found]) -> Result<bool, Trouble> {
        for one in found {
            let document = one.document()?;
            if !self.gather.see(&mut || one.clone(), &document) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of the documents that match: first what the filter looks at is read, then what is wanted of those
    /// that match, together with what the filter looked at, as that must not have changed in between. None if
    /// somebody is in the way and there is no patience.
    async fn look(
        &self,
        job: &Job<'_>,
        find: &Arc<Find>,
        keys: &[DocumentKey],
        patience: Patience,
    ) -> Result<Option<Vec<Found>>, Trouble> {
        let looked_at = looked_at(find.filter.as_ref());
        let mut resources = Vec::with_capacity(keys.len());
        keys.iter().for_each(|at| look(at, &looked_at, &mut resources));
        let Some(reading) = self.read(&resources, patience).await? else { return Ok(None) };
        let matching = matching(job, reading, Arc::clone(find), keys.to_vec()).await?;
        let mut resources = Vec::with_capacity(matching.len());
        for found in &matching {
            look(&found.at, &looked_at, &mut resources);
            self.sought.scope.resources(&found.at, &mut resources);
        }
        if resources.is_empty() {
            return Ok(Some(matching));
        }
        let Some(reading) = self.read(&resources, patience).await? else { return Ok(None) };
        let keys = matching.into_iter().map(|found| found.at).collect();
        self::matching(job, reading, Arc::clone(find), keys).await.map(Some)
    }

    async fn read(&self, resources: &[Resource], patience: Patience) -> Result<Option<Reading>, Trouble> {
        match patience {
            Patience::None => self.access.read_now(&self.shared, &self.name, resources).await,
            Patience::All => self.access.read(&self.shared, &self.name, resources).await.map(Some),
        }
    }
}

/// How long to wait for those in the way.
#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    All,
}

async fn next_keys(
    job: &Job<'_>,
    reading: &Reading,
    find: &Arc<Find>,
    after: Option<Key>,
) -> Result<Vec<DocumentKey>, Trouble> {
    let (reading, find) = (reading.clone(), Arc::clone(find));
    Ok(job.run(move |_| reading.keys(&find, after.as_ref(), CHUNK_LEN)).await??)
}

async fn matching(
    job: &Job<'_>,
    reading: Reading,
    find: Arc<Find>,
    keys: Vec<DocumentKey>,
) -> Result<Vec<Found>, Trouble> {
    job.run(move |_| {
        let mut matching = Vec::new();
        for found in reading.get_all(&find, keys)?.into_iter().flatten() {
            let matches = {
                let document: DocumentRef<'_> = found.document()?;
                Reading::is_found(&find, &document).map_err(PageError::from)?
            };
            if matches {
                matching.push(found);
            }
        }
        Ok(matching)
    })
    .await?
}
