//! Searches and counts over an index: its documents, and the locks that have documents. Knows nothing of scrolls'
//! ids or of HTTP.

use super::{
    answer::{Object, Refusal, list},
    change::Current,
    lock_document::{self, is_lock},
    name::{UNTYPED, id_of},
    query::Query,
    request::{Params, members, part},
    source::object,
};
use crate::{
    lease,
    limits::Limits,
    shard::{Find, PageError, Reading, Selection},
    shared::Shared,
};
use lockwood_model::{Budget, FieldPath, Key, LockId, Path, Projection};
use lockwood_storage::NamespaceId;
use serde_json::Value;
use std::{collections::BTreeMap, time::Instant};

/// How many hits are shown without asking for more or less.
const SIZE: u64 = 10;
/// Shards that answer a search, as clients are used to.
const SHARDS: u64 = 5;

/// A question about an index.
#[derive(Debug, Clone)]
pub(super) struct Search {
    pub(super) index: String,
    pub(super) collection: Option<String>,
    pub(super) query: Query,
    pub(super) size: u64,
    pub(super) from: u64,
    shape: Shape,
}

/// What of a hit is shown, and how.
#[derive(Debug, Clone)]
struct Shape {
    source: Wanted,
    version: bool,
    seq_no: bool,
    /// The total is a number and not an object.
    plain_total: bool,
}

/// Which fields of a source are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    Nothing,
    Only(Vec<String>),
}

impl Wanted {
    pub(super) fn of_params(params: &Params) -> Wanted {
        let names = |text: &str| Wanted::Only(text.split(',').map(str::to_owned).collect());
        let includes = params.get("_source_includes").or_else(|| params.get("_source_include"));
        match (includes, params.get("_source")) {
            (Some(includes), _) => names(includes),
            (None, None | Some("" | "true")) => Wanted::All,
            (None, Some("false")) => Wanted::Nothing,
            (None, Some(text)) => names(text),
        }
    }

    fn read(value: &Value) -> Result<Wanted, Refusal> {
        let names = |list: &[Value]| {
            list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let wanted = match value {
            Value::Bool(true) => Some(Wanted::All),
            Value::Bool(false) => Some(Wanted::Nothing),
            Value::String(name) => Some(Wanted::Only(vec![name.clone()])),
            Value::Array(list) => names(list).map(Wanted::Only),
            _ => None,
        };
        wanted.ok_or_else(|| Refusal::parse("[_source] is true, false, a field or a list of fields"))
    }

    /// What of a source is shown. A dot leads into an object, unless a name has it.
    pub(super) fn of<'a>(&self, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        match self {
            Wanted::All => object(fields),
            Wanted::Nothing => object(std::iter::empty()),
            Wanted::Only(names) if names.iter().any(|name| name == "*") => object(fields),
            Wanted::Only(names) => {
                let fields: BTreeMap<&str, &str> = fields.collect();
                let path = |name: &String| match fields.contains_key(name.as_str()) {
                    true => Some(FieldPath::name(name)),
                    false => FieldPath::from_names(name.split('.')),
                };
                let paths: Vec<FieldPath> = names.iter().filter_map(path).collect();
                let shown = Projection::new(&paths);
                let shown = shown.fields(|name| fields.get(name).copied());
                shown.fold(Object::new(), |object, (name, value)| object.raw(name, &value)).done()
            }
        }
    }
}

impl Search {
    pub(super) fn read(
        limits: &Limits,
        (index, collection): (String, Option<String>),
        json: &str,
        params: &Params,
        is_scroll: bool,
    ) -> Result<Search, Refusal> {
        let plain_total = params.flag("rest_total_hits_as_int")?.unwrap_or(collection.is_some());
        let shape = Shape { source: Wanted::of_params(params), version: false, seq_no: false, plain_total };
        let mut search = Search { index, collection, query: Query::All, size: SIZE, from: 0, shape };
        for (name, raw) in members("search", json)? {
            search.take(limits, &name, &part(&name, raw.get())?)?;
        }
        search.size = params.number("size")?.unwrap_or(search.size);
        search.from = params.number("from")?.unwrap_or(search.from);
        search.shape.version |= params.flag("version")?.unwrap_or(false);
        search.shape.seq_no |= params.flag("seq_no_primary_term")?.unwrap_or(false);
        if let Some(sort) = params.get("sort") {
            check_sort(&Value::from(sort.split(':').next().unwrap_or_default()))?;
        }
        search.check_window(limits, is_scroll)?;
        Ok(search)
    }

    fn take(&mut self, limits: &Limits, name: &str, value: &Value) -> Result<(), Refusal> {
        let number =
            || value.as_u64().ok_or_else(|| Refusal::parse(format!("[{name}] is a whole number, 0 or more")));
        let flag = || value.as_bool().ok_or_else(|| Refusal::parse(format!("[{name}] is true or false")));
        match name {
            "query" => self.query = Query::read(value, limits)?,
            "size" => self.size = number()?,
            "from" => self.from = number()?,
            "sort" => check_sort(value)?,
            "_source" => self.shape.source = Wanted::read(value)?,
            "version" => self.shape.version = flag()?,
            "seq_no_primary_term" => self.shape.seq_no = flag()?,
            // Nothing is estimated, scored or given up here.
            "track_total_hits" | "track_scores" | "timeout" | "min_score" | "terminate_after" => {}
            _ => {
                return Err(Refusal::new(
                    hyper::StatusCode::BAD_REQUEST,
                    "parsing_exception",
                    format!(
                        "Unknown key for [{name}] in a search; query, size, from, sort and _source are supported"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_window(&self, limits: &Limits, is_scroll: bool) -> Result<(), Refusal> {
        let limit = limits.documents_per_page_max;
        if self.from.saturating_add(self.size) > limit {
            let what =
                format!("Result window is too large, from + size is {}", self.from.saturating_add(self.size));
            return Err(Refusal::over("documents_per_page_max", limit, &what));
        }
        if is_scroll && self.size == 0 {
            return Err(Refusal::argument("[size] cannot be [0] in a scroll context"));
        }
        if is_scroll && self.from > 0 {
            return Err(Refusal::argument("using [from] is not allowed in a scroll context"));
        }
        Ok(())
    }
}

/// The order of hits is that of the index, whatever is asked for; so only that may be asked for.
fn check_sort(value: &Value) -> Result<(), Refusal> {
    let is_order = |value: &Value| {
        let name = value.as_str().or_else(|| value.as_object()?.keys().next().map(String::as_str));
        matches!(name, Some("_doc" | "_score"))
    };
    let fine = value.as_array().map_or_else(|| is_order(value), |list| list.iter().all(is_order));
    if fine { Ok(()) } else { Err(Refusal::argument(format!("sort {value} is not supported; _doc is"))) }
}

/// What a search looks through, at one moment.
pub(super) struct Place {
    reading: Reading,
    namespace: Option<NamespaceId>,
    stages: Vec<Stage>,
}

enum Stage {
    Locks(String, Vec<LockId>),
    Documents(String),
}

/// Where to go on.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    stage: usize,
    inside: Inside,
}

#[derive(Debug, Clone, Default)]
enum Inside {
    #[default]
    Start,
    /// After this document.
    Key(Key),
    /// After so many locks.
    Count(usize),
}

/// Who looks, and what that may cost.
#[derive(Clone, Copy)]
pub(super) struct Looker<'a> {
    pub(super) shared: &'a Shared,
    pub(super) budget: &'a Budget,
}

/// Is shown a hit, which it may render, and where to go on behind it; says whether to go on.
type See<'a> = dyn FnMut(&dyn Fn() -> String, &dyn Fn() -> Cursor) -> bool + 'a;

/// Some of the hits.
pub(super) struct Page {
    pub(super) hits: Vec<String>,
    /// How many were seen on the way.
    pub(super) seen: u64,
    pub(super) next: Cursor,
}

/// How much of what is found goes onto a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) from: u64,
    pub(super) size: u64,
    /// Go on behind the page to see how many there are.
    pub(super) count: bool,
    /// Let the page end early if it becomes too large.
    pub(super) cut: bool,
}

impl Place {
    pub(super) fn open(shared: &Shared, search: &Search) -> Result<Place, Refusal> {
        let reading = shared.shard.read();
        let namespace = reading.namespace(&search.index)?.map(|(namespace, _)| namespace);
        let locks = lease::below_path(shared, &search.index, &Path::root());
        if namespace.is_none() && locks.is_empty() {
            return Err(Refusal::no_index(&search.index));
        }
        let collections = match &search.collection {
            Some(collection) => vec![collection.clone()],
            None => {
                let mut names =
                    namespace.map_or(Ok(Vec::new()), |namespace| reading.state().collections(namespace))?;
                let of_locks = locks
                    .iter()
                    .filter_map(|lock| lock.resources.first()?.path.segments().next().map(str::to_owned));
                names.extend(of_locks);
                names.sort_unstable();
                names.dedup();
                names
            }
        };
        let stage = |collection: String| {
            if !is_lock(&search.index, &collection) {
                return Stage::Documents(collection);
            }
            let below = Path::from_segments([&collection]);
            let is_meant = |lock: &&lockwood_model::Lease| {
                lock.resources.iter().any(|one| below.is_prefix_of(&one.path))
            };
            let locks = locks.iter().filter(is_meant).map(|lock| lock.lock).collect();
            Stage::Locks(collection, locks)
        };
        let stages = collections.into_iter().map(stage).collect();
        Ok(Place { reading, namespace, stages })
    }

    /// A page of hits from `start` on.
    pub(super) fn page(
        &self,
        looker: Looker<'_>,
        search: &Search,
        start: Cursor,
        extent: Extent,
    ) -> Result<Page, Refusal> {
        let limit = looker.shared.config.limits.answer_bytes_max;
        let mut page = Page { hits: Vec::new(), seen: 0, next: start.clone() };
        let (mut bytes, mut is_full, mut is_over) = (0, extent.size == 0, false);
        self.visit(looker, search, start, &mut |render, cursor| {
            page.seen += 1;
            if page.seen > extent.from && !is_full {
                let hit = render();
                bytes += hit.len() as u64;
                is_over = bytes > limit && !extent.cut;
                page.hits.push(hit);
                page.next = cursor();
                is_full = page.hits.len() as u64 == extent.size || bytes > limit;
            }
            !is_over && (extent.count || !is_full)
        })?;
        if is_over {
            return Err(Refusal::over(
                "answer_bytes_max",
                limit,
                "the answer would be too long; ask for fewer hits",
            ));
        }
        Ok(page)
    }

    fn visit(
        &self,
        looker: Looker<'_>,
        search: &Search,
        start: Cursor,
        see: &mut See<'_>,
    ) -> Result<(), Refusal> {
        let Cursor { stage: first, mut inside } = start;
        for (number, stage) in self.stages.iter().enumerate().skip(first) {
            let inside = std::mem::take(&mut inside);
            let goes_on = match stage {
                Stage::Locks(collection, locks) => {
                    let skip = if let Inside::Count(count) = inside { count } else { 0 };
                    locks_of(looker, search, (number, collection, locks), skip, see)?
                }
                Stage::Documents(collection) => {
                    let after = if let Inside::Key(key) = inside { Some(key) } else { None };
                    self.documents_of(looker, search, (number, collection), after.as_ref(), see)?
                }
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn documents_of(
        &self,
        Looker { shared, budget }: Looker<'_>,
        search: &Search,
        (stage, collection): (usize, &String),
        after: Option<&Key>,
        see: &mut See<'_>,
    ) -> Result<bool, Refusal> {
        let Some(namespace) = self.namespace else { return Ok(true) };
        let find = Find {
            namespace,
            collection: collection.as_str().into(),
            filter: None,
            deleted: Selection::Without,
            at: None,
            looks_max: shared.config.limits.looks_max,
            budget: budget.clone(),
            custody: None,
        };
        let mut goes_on = true;
        let mut exhausted = Ok(());
        self.reading.each(&find, after, &mut |found, document| {
            let key = found().at.key;
            let id = id_of(&key);
            match search.query.matches(&id, document, budget) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    exhausted = Err(error);
                    return false;
                }
            }
            let render = || {
                let shown = search.shape.source.of(document.fields());
                let version = if search.shape.version { document.to_document().version } else { 0 };
                search.hit((collection, &id), &shown, version, document.position().0)
            };
            let cursor = || Cursor { stage, inside: Inside::Key(key.clone()) };
            goes_on = see(&render, &cursor);
            goes_on
        })?;
        exhausted.map_err(PageError::from)?;
        Ok(goes_on)
    }
}

fn locks_of(
    Looker { shared, budget }: Looker<'_>,
    search: &Search,
    (stage, collection, locks): (usize, &String, &[LockId]),
    skip: usize,
    see: &mut See<'_>,
) -> Result<bool, PageError> {
    let now = shared.clock.now();
    for (number, lock) in locks.iter().enumerate().skip(skip) {
        // It may be over by now.
        let lease = lease::get(shared, &search.index, *lock)
            .filter(|lease| lease.expires_at.is_none_or(|at| at > now));
        let Some(lease) = lease else { continue };
        let Some(id) = lease.resources.first().and_then(|one| one.path.segments().nth(1)) else { continue };
        let id = id.parse::<Key>().map_or_else(|_| id.to_owned(), |key| id_of(&key));
        let Current { source, version, seq_no } = lock_document::current(&lease);
        if !search.query.matches(&id, &source, budget)? {
            continue;
        }
        let render = || {
            let fields = source.0.iter().map(|(name, value)| (&**name, value.as_str()));
            search.hit((collection, &id), &search.shape.source.of(fields), version, seq_no)
        };
        if !see(&render, &|| Cursor { stage, inside: Inside::Count(number + 1) }) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Search {
    fn hit(&self, (collection, id): (&str, &str), source: &str, version: u64, seq_no: u64) -> String {
        Object::new()
            .text("_index", &self.index)
            .when(collection != UNTYPED, |object| object.text("_type", collection))
            .text("_id", id)
            .when(self.shape.version, |object| object.number("_version", version))
            .when(self.shape.seq_no, |object| object.number("_seq_no", seq_no).number("_primary_term", 1))
            .number("_score", 1)
            .when(self.shape.source != Wanted::Nothing, |object| object.raw("_source", source))
            .done()
    }

    /// The answer to a search, or the next part of it.
    pub(super) fn answer(
        &self,
        hits: Vec<String>,
        total: u64,
        began: Instant,
        scroll: Option<&str>,
    ) -> String {
        let total = if self.shape.plain_total {
            total.to_string()
        } else {
            Object::new().number("value", total).text("relation", "eq").done()
        };
        let score = if hits.is_empty() { "null" } else { "1" };
        let hits = Object::new().raw("total", &total).raw("max_score", score).raw("hits", &list(hits)).done();
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let object = scroll.into_iter().fold(Object::new(), |object, id| object.text("_scroll_id", id));
        object
            .number("took", took)
            .flag("timed_out", false)
            .raw("_shards", &shards())
            .raw("hits", &hits)
            .done()
    }
}

/// All of them, always.
pub(super) fn shards() -> String {
    let object = Object::new().number("total", SHARDS).number("successful", SHARDS);
    object.number("skipped", 0).number("failed", 0).done()
}
