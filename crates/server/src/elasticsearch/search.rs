//! Searches and counts: what is asked for, and how what is found is told. Knows nothing of where it is looked for, nor of
//! scrolls' ids or of HTTP.

use super::{
    answer::{Object, Refusal, list},
    name::UNTYPED,
    place::{Cursor, Hit, Looker, Place},
    query::Query,
    request::{Params, part, unambiguous_members},
    source::object,
};
use lockwood_model::{FieldPath, Projection};
use lockwood_node::limits::Limits;
use serde_json::Value;
use std::{collections::BTreeMap, time::Instant};

/// How many hits are shown without asking for more or less.
const SIZE: u64 = 10;
/// Shards of an index that answer a search, as clients are used to.
pub(super) const SHARDS: u64 = 5;

/// A question about indexes.
#[derive(Debug, Clone)]
pub(super) struct Search {
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
    pub(super) fn of_params(params: &Params) -> Result<Wanted, Refusal> {
        let names = |text: &str| Wanted::only(text.split(','));
        let includes = params.get("_source_includes").or_else(|| params.get("_source_include"));
        match (includes, params.get("_source")) {
            (Some(includes), _) => names(includes),
            (None, None | Some("" | "true")) => Ok(Wanted::All),
            (None, Some("false")) => Ok(Wanted::Nothing),
            (None, Some(text)) => names(text),
        }
    }

    /// Everything in an object can be written with a star; other patterns are not understood.
    fn only<'a>(names: impl Iterator<Item = &'a str>) -> Result<Wanted, Refusal> {
        let read = |name: &'a str| match name.strip_suffix(".*").unwrap_or(name) {
            "*" => Ok("*".to_owned()),
            plain if !plain.contains('*') => Ok(plain.to_owned()),
            _ => Err(Refusal::argument(format!(
                "[_source] takes fields, [*], and [FIELD.*]; the pattern [{name}] is not supported"
            ))),
        };
        names.map(read).collect::<Result<_, _>>().map(Wanted::Only)
    }

    fn read(value: &Value) -> Result<Wanted, Refusal> {
        let wrong = || Refusal::parse("[_source] is true, false, a field or a list of fields");
        match value {
            Value::Bool(true) => Ok(Wanted::All),
            Value::Bool(false) => Ok(Wanted::Nothing),
            Value::String(name) => Wanted::only([name.as_str()].into_iter()),
            Value::Array(list) => {
                let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
                Wanted::only(names.ok_or_else(wrong)?.into_iter())
            }
            _ => Err(wrong()),
        }
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
        is_typed: bool,
        json: &str,
        params: &Params,
        is_scroll: bool,
    ) -> Result<Search, Refusal> {
        let plain_total = params.flag("rest_total_hits_as_int")?.unwrap_or(is_typed);
        let shape = Shape { source: Wanted::of_params(params)?, version: false, seq_no: false, plain_total };
        let mut search = Search { query: Query::All, size: SIZE, from: 0, shape };
        for (name, raw) in unambiguous_members("search", json)? {
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

impl Search {
    /// A page of hits from `start` on.
    pub(super) fn page(
        &self,
        looker: Looker<'_>,
        place: &Place,
        start: Cursor,
        extent: Extent,
    ) -> Result<Page, Refusal> {
        let limit = looker.shared.config.limits.answer_bytes_max;
        let mut page = Page { hits: Vec::new(), seen: 0, next: start.clone() };
        let (mut bytes, mut is_full, mut is_over) = (0, extent.size == 0, false);
        place.visit(looker, &self.query, start, &mut |found| {
            page.seen += 1;
            if page.seen > extent.from && !is_full {
                let hit = self.hit(found);
                bytes += hit.len() as u64;
                is_over = bytes > limit && !extent.cut;
                page.hits.push(hit);
                page.next = found.cursor();
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

    fn hit(&self, hit: &Hit<'_>) -> String {
        let collection = hit.stage.collection.as_str();
        Object::new()
            .text("_index", &hit.stage.index)
            .when(collection != UNTYPED, |object| object.text("_type", collection))
            .text("_id", hit.id)
            .when(self.shape.version, |object| object.number("_version", hit.version()))
            .when(self.shape.seq_no, |object| {
                object.number("_seq_no", hit.seq_no()).number("_primary_term", 1)
            })
            .number("_score", 1)
            .when(self.shape.source != Wanted::Nothing, |object| {
                object.raw("_source", &self.shape.source.of(hit.fields()))
            })
            .done()
    }

    /// The answer to a search, or the next part of it.
    pub(super) fn answer(
        &self,
        hits: Vec<String>,
        total: u64,
        (began, indexes): (Instant, usize),
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
            .raw("_shards", &shards(indexes))
            .raw("hits", &hits)
            .done()
    }
}

/// All of them, always.
pub(super) fn shards(indexes: usize) -> String {
    let shards = SHARDS * indexes as u64;
    let object = Object::new().number("total", shards).number("successful", shards);
    object.number("skipped", 0).number("failed", 0).done()
}
