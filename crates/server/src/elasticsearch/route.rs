//! Which address means what. Knows nothing of methods' bodies or of what is there.

use super::{answer::Refusal, name::UNTYPED};

/// What the original has below a type.
const ENDPOINTS: &[&str] = &[
    "_bulk",
    "_count",
    "_create",
    "_delete_by_query",
    "_explain",
    "_mapping",
    "_mappings",
    "_mget",
    "_msearch",
    "_mtermvectors",
    "_search",
    "_source",
    "_termvectors",
    "_update",
    "_update_by_query",
    "_validate",
];

/// What an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Info,
    /// With the ids in the address.
    Scroll(Vec<String>),
    Bulk(Scope),
    Search(Scope),
    Count(Scope),
    DeleteByQuery(Scope),
    GetMany(Scope),
    Refresh(Scope),
    Mapping(Scope),
    Health(Scope),
    CatIndices(Scope),
    Index(String),
    /// A document that is to be given an id.
    New {
        index: String,
        collection: String,
    },
    Document {
        index: String,
        collection: String,
        id: String,
        aspect: Aspect,
    },
}

/// What of a document is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aspect {
    All,
    Source,
    Create,
    Update,
}

/// The index and the collection that an address names, if it does; for some, several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scope {
    pub(super) index: Option<String>,
    pub(super) collection: Option<String>,
}

impl Route {
    /// None if there is nothing of this name.
    pub(super) fn read(path: &str) -> Result<Option<Route>, Refusal> {
        let segments = path.split('/').filter(|segment| !segment.is_empty()).map(decode);
        let segments: Vec<String> = segments.collect::<Result<_, _>>()?;
        let names: Vec<&str> = segments.iter().map(String::as_str).collect();
        Ok(find(&names))
    }

    /// The index that the address names, or several with commas between them.
    fn index(&self) -> Option<&str> {
        match self {
            Route::Info | Route::Scroll(_) => None,
            Route::Bulk(scope)
            | Route::Search(scope)
            | Route::Count(scope)
            | Route::DeleteByQuery(scope)
            | Route::GetMany(scope)
            | Route::Refresh(scope)
            | Route::Mapping(scope)
            | Route::Health(scope)
            | Route::CatIndices(scope) => scope.index.as_deref(),
            Route::Index(index) | Route::New { index, .. } | Route::Document { index, .. } => Some(index),
        }
    }
}

/// The indexes that an address names one by one; none if it names all, some by a pattern, or none.
pub(crate) fn indexes_of(path: &str) -> Vec<String> {
    let Ok(Some(route)) = Route::read(path) else { return Vec::new() };
    let Some(index) = route.index() else { return Vec::new() };
    let named = index.split(',').filter(|name| !name.starts_with(['-', '_', '.']) && !name.contains('*'));
    named.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find(names: &[&str]) -> Option<Route> {
    let document = |index: &str, collection: &str, id: &str, aspect| {
        let (index, collection, id) = (index.to_owned(), collection.to_owned(), id.to_owned());
        Some(Route::Document { index, collection, id, aspect })
    };
    match names {
        [] => Some(Route::Info),
        ["_search", "scroll"] => Some(Route::Scroll(Vec::new())),
        ["_search", "scroll", ids] => Some(Route::Scroll(ids.split(',').map(str::to_owned).collect())),
        ["_cat", "indices", rest @ ..] if rest.len() <= 1 => Some(Route::CatIndices(scope(rest))),
        ["_cluster", "health", rest @ ..] if rest.len() <= 1 => Some(Route::Health(scope(rest))),
        ["_mapping" | "_mappings"] => Some(Route::Mapping(Scope::default())),
        ["_mapping" | "_mappings", collection] => Some(Route::Mapping(scope(&["_all", collection]))),
        [index, "_mapping" | "_mappings", collection] if may_be_all(index) => {
            Some(Route::Mapping(scope(&[index, collection])))
        }
        ["_all", action] | [_, "_all", action] | ["_all", _, action]
            if names[..names.len() - 1].iter().all(|name| may_be_all(name)) =>
        {
            over_several(action, scope(&names[..names.len() - 1]))
        }
        [.., last] if names.len() <= 3 && names[..names.len() - 1].iter().all(|name| is_name(name)) => {
            by_action(last, scope(&names[..names.len() - 1])).or_else(|| plain(names))
        }
        [index, "_create", id] => document(index, UNTYPED, id, Aspect::Create),
        [index, "_update", id] => document(index, UNTYPED, id, Aspect::Update),
        [index, "_source", id] => document(index, UNTYPED, id, Aspect::Source),
        [index, collection, id, aspect] if is_name(index) && is_name(collection) => {
            let aspect = match *aspect {
                "_create" => Aspect::Create,
                "_update" => Aspect::Update,
                "_source" => Aspect::Source,
                _ => return None,
            };
            document(index, collection, id, aspect)
        }
        _ => None,
    }
}

fn scope(names: &[&str]) -> Scope {
    let name = |at: usize| names.get(at).map(|name| (*name).to_owned());
    Scope { index: name(0), collection: name(1) }
}

fn by_action(name: &str, scope: Scope) -> Option<Route> {
    match name {
        "_bulk" => Some(Route::Bulk(scope)),
        "_mget" => Some(Route::GetMany(scope)),
        _ => over_several(name, scope),
    }
}

/// What can be asked of several indexes and types at once.
fn over_several(name: &str, scope: Scope) -> Option<Route> {
    Some(match name {
        "_search" => Route::Search(scope),
        "_count" => Route::Count(scope),
        "_refresh" if scope.collection.is_none() => Route::Refresh(scope),
        "_mapping" | "_mappings" => Route::Mapping(scope),
        "_delete_by_query" if scope.index.is_some() => Route::DeleteByQuery(scope),
        _ => return None,
    })
}

fn may_be_all(name: &str) -> bool {
    name == "_all" || is_name(name)
}

fn plain(names: &[&str]) -> Option<Route> {
    match names {
        [index] if is_name(index) => Some(Route::Index((*index).to_owned())),
        [index, collection] if is_name(collection) => {
            Some(Route::New { index: (*index).to_owned(), collection: (*collection).to_owned() })
        }
        [_, collection, id] if is_endpoint(collection, id) => None,
        [index, collection, id] => Some(Route::Document {
            index: (*index).to_owned(),
            collection: (*collection).to_owned(),
            id: (*id).to_owned(),
            aspect: Aspect::All,
        }),
        _ => None,
    }
}

/// Whether what stands below a type is an endpoint, be it one that is not offered, and not the id of a document. Ids that
/// begin with an underscore are for documents without types only.
fn is_endpoint(collection: &str, id: &str) -> bool {
    id.starts_with('_') && (collection != UNTYPED || ENDPOINTS.contains(&id))
}

fn is_name(name: &str) -> bool {
    name == UNTYPED || !name.starts_with('_')
}

fn decode(segment: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::argument(format!("the address has a part that is not UTF-8 text: [{segment}]"));
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|digit| (*digit as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(wrong()) };
        bytes.push((high * 16 + low) as u8);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: impl Into<Option<Route>>) {
        assert_eq!(Route::read(path).unwrap(), expected.into(), "{path}");
    }

    fn document(names: [&str; 3], aspect: Aspect) -> Option<Route> {
        let [index, collection, id] = names.map(str::to_owned);
        Some(Route::Document { index, collection, id, aspect })
    }

    #[test]
    fn addresses() {
        check("/", Some(Route::Info));
        check("/fs", Some(Route::Index("fs".to_owned())));
        check("/_bulk", Some(Route::Bulk(scope(&[]))));
        check("/fs/_bulk", Some(Route::Bulk(scope(&["fs"]))));
        check("/fs/lock/_bulk", Some(Route::Bulk(scope(&["fs", "lock"]))));
        check("/fs/lock/_search", Some(Route::Search(scope(&["fs", "lock"]))));
        check("/fs/_refresh", Some(Route::Refresh(scope(&["fs"]))));
        check("/fs/lock/_delete_by_query", Some(Route::DeleteByQuery(scope(&["fs", "lock"]))));
        check("/fs/_doc/_delete_by_query", Some(Route::DeleteByQuery(scope(&["fs", "_doc"]))));
        check("/fs,x/_delete_by_query", Some(Route::DeleteByQuery(scope(&["fs,x"]))));
        check("/_all/_search", Some(Route::Search(scope(&["_all"]))));
        check("/fs/_all/_search", Some(Route::Search(scope(&["fs", "_all"]))));
        check("/_all/a,b/_count", Some(Route::Count(scope(&["_all", "a,b"]))));
        check("/*/_search", Some(Route::Search(scope(&["*"]))));
        check("/_mapping", Some(Route::Mapping(scope(&[]))));
        check("/fs/_mapping", Some(Route::Mapping(scope(&["fs"]))));
        check("/fs/_mapping/file", Some(Route::Mapping(scope(&["fs", "file"]))));
        check("/fs/file/_mapping", Some(Route::Mapping(scope(&["fs", "file"]))));
        check("/_cluster/health", Some(Route::Health(scope(&[]))));
        check("/_cat/indices/f*", Some(Route::CatIndices(scope(&["f*"]))));
        check("/_search/scroll", Some(Route::Scroll(Vec::new())));
        check("/_search/scroll/a,b", Some(Route::Scroll(vec!["a".to_owned(), "b".to_owned()])));
        check("/fs/lock/1", document(["fs", "lock", "1"], Aspect::All));
        check("/fs/lock/1/_update", document(["fs", "lock", "1"], Aspect::Update));
        check("/fs/lock/%2Fa%2fb%20c/_create", document(["fs", "lock", "/a/b c"], Aspect::Create));
        check("/fs/_doc/1", document(["fs", "_doc", "1"], Aspect::All));
        check("/fs/_doc/_weird", document(["fs", "_doc", "_weird"], Aspect::All));
        check("/fs/_create/1", document(["fs", "_doc", "1"], Aspect::Create));
        check("/fs/_update/1", document(["fs", "_doc", "1"], Aspect::Update));
        check("/fs/_doc/1/_update", document(["fs", "_doc", "1"], Aspect::Update));
        let new = |collection: &str| Route::New { index: "fs".to_owned(), collection: collection.to_owned() };
        check("/fs/_doc", Some(new("_doc")));
        check("/fs/file/", Some(new("file")));
        for path in [
            "/_delete_by_query",
            "/fs/lock/_x",
            "/_cat/nodes",
            "/_cat/indices/a/b",
            "/_cluster/state",
            "/_all",
            "/_all/_bulk",
            "/_all/lock/1",
            "/_all/_x",
            "/_nothing",
            "/fs/_nothing",
            "/fs/a/1/_x",
            "/a/b/c/d/e",
            "/_x/a/b",
            "/fs/_x/1",
        ] {
            check(path, None);
        }
        assert!(Route::read("/%FF").is_err());
        assert!(Route::read("/fs/%2").is_err());
    }
}
