//! Which shards a request is for, by what its address says. Knows nothing of where shards are.

use crate::{arriving::Arriving, cluster::dispatch::decoded, config::Config, elasticsearch, schema_registry};
use hyper::{Method, Request, Uri, header};

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One namespace.
    Namespace(Named),
    /// Several namespaces, which have to have one home.
    Namespaces(Vec<Named>),
    /// Nothing that only one shard knows, or what the interface keeps on the first one.
    Any,
    /// All shards; the answers are merged.
    All(Gathered),
    /// The one that the parameter `shard` names, for what it has of a namespace.
    Shard(u32, Named),
}

/// A namespace that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Whether the request may begin to use it.
    pub(crate) creates: bool,
    /// Where it begins, if it does.
    pub(crate) beside: Beside,
}

/// Where a namespace that is used for the first time gets its home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Anywhere: its name decides.
    Nothing,
    /// With this namespace.
    Namespace(String),
    /// On the first shard, with all that this interface may ask for at once.
    First,
}

/// What is asked of all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathered {
    Namespaces,
    Status,
    Grace,
    Purges,
    Backup,
    /// What a step of resharding did, by collection.
    Rows,
}

impl Named {
    fn anywhere(name: String, creates: bool) -> Named {
        Named { name, creates, beside: Beside::Nothing }
    }
}

/// Whether a request may begin to use a namespace: all but plain reads.
fn creates<B>(request: &Request<B>) -> bool {
    let is_plain_read = matches!(*request.method(), Method::GET | Method::HEAD);
    !is_plain_read || request.headers().contains_key(header::UPGRADE)
}

/// Of the native interface.
pub(super) fn native<B>(request: &Request<B>) -> Scope {
    let segments: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    match segments[..] {
        ["v1", "namespaces"] => Scope::All(Gathered::Namespaces),
        ["v1", "status"] => Scope::All(Gathered::Status),
        ["v1", "grace"] => Scope::All(Gathered::Grace),
        ["v1", "purges"] => Scope::All(Gathered::Purges),
        ["v1", "backup"] => Scope::All(Gathered::Backup),
        // About the map, whatever namespace it is asked through.
        ["v1", _, "shard", "map" | "config" | "is_valid" | "transition"] => Scope::Any,
        ["v1", namespace, "shard", "copy" | "cleanup"] => {
            let step = Named::anywhere(decoded(namespace), false);
            named_shard(request.uri()).map_or(Scope::All(Gathered::Rows), |shard| Scope::Shard(shard, step))
        }
        ["v1", namespace, "shard", "raw", _] => {
            let named = Named::anywhere(decoded(namespace), creates(request));
            match named_shard(request.uri()) {
                Some(shard) => Scope::Shard(shard, named),
                None => Scope::Namespace(named),
            }
        }
        // Who follows a namespace must hear of what happens to it later, wherever that is.
        ["v1", namespace, "changes"] if !namespace.is_empty() => {
            Scope::Namespace(Named::anywhere(decoded(namespace), true))
        }
        ["v1", namespace, _, ..] if !namespace.is_empty() => {
            Scope::Namespace(Named::anywhere(decoded(namespace), creates(request)))
        }
        _ => Scope::Any,
    }
}

/// The shard that a request names, if it does.
fn named_shard(uri: &Uri) -> Option<u32> {
    let mut named = form_urlencoded::parse(uri.query()?.as_bytes());
    named.find(|(name, _)| name == "shard")?.1.parse().ok()
}

/// An address without that name: a shard need not be told which one it is.
pub(super) fn without_shard(uri: &Uri) -> Uri {
    let query = uri.query().unwrap_or_default();
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("shard=")).collect();
    let rest = rest.join("&");
    let target = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    target.parse().unwrap_or_else(|_| uri.clone())
}

/// Of the Locktopus facade.
pub(super) fn locktopus<B>(request: &Request<B>) -> Scope {
    let query = request.uri().query().unwrap_or_default();
    let named = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "namespace");
    match named {
        Some((_, name)) if !name.is_empty() => {
            Scope::Namespace(Named::anywhere(name.into_owned(), creates(request)))
        }
        _ => Scope::Any,
    }
}

/// Of the OpenSlides facade, which has one namespace.
pub(super) fn openslides(config: &Config) -> Scope {
    let namespace = config.openslides.as_ref().map(|facade| facade.namespace.clone());
    namespace.map_or(Scope::Any, |name| Scope::Namespace(Named::anywhere(name, true)))
}

/// Of the Elasticsearch facade: indexes are namespaces, and those that it makes are kept together.
pub(super) fn elasticsearch(request: &Request<Arriving>) -> Scope {
    let creates = creates(request);
    let named = |name: String| Named { name, creates, beside: Beside::First };
    let mut names: Vec<Named> =
        elasticsearch::indexes_of(request.uri().path()).into_iter().map(named).collect();
    match names.len() {
        0 => Scope::Any,
        1 => Scope::Namespace(names.remove(0)),
        _ => Scope::Namespaces(names),
    }
}

/// Of the Schema Registry facade: contexts are namespaces, and those that it makes are kept with the default one.
pub(super) fn schema_registry(config: &Config, request: &Request<Arriving>) -> Scope {
    let Some(facade) = &config.schema_registry else { return Scope::Any };
    let default = &facade.namespace;
    let name = schema_registry::namespace_of(request.uri().path(), default, &config.limits);
    let name = name.unwrap_or_else(|| default.clone());
    let beside = if name == *default { Beside::Nothing } else { Beside::Namespace(default.clone()) };
    Scope::Namespace(Named { name, creates: creates(request), beside })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;

    fn request(method: &str, target: &str) -> Request<Arriving> {
        let body = Arriving::Whole(Full::new(Bytes::new()));
        Request::builder().method(method).uri(target).body(body).unwrap()
    }

    #[test]
    fn native_requests_name_their_namespace() {
        let check = |method: &str, target: &str, expected: Scope| {
            assert_eq!(native(&request(method, target)), expected, "{method} {target}");
        };
        let shop = |creates| Scope::Namespace(Named::anywhere("shop".into(), creates));
        check("GET", "/v1/shop/locks", shop(false));
        check("POST", "/v1/shop/write", shop(true));
        check("PUT", "/v1/sh%6fp/documents/a/b?x=1", shop(true));
        check("GET", "/v1/namespaces", Scope::All(Gathered::Namespaces));
        check("GET", "/v1/backup", Scope::All(Gathered::Backup));
        check("GET", "/v1/shop/shard/map", Scope::Any);
        check("POST", "/v1/shop/shard/copy", Scope::All(Gathered::Rows));
        check("POST", "/v1/shop/shard/copy?shard=2", Scope::Shard(2, Named::anywhere("shop".into(), false)));
        check(
            "POST",
            "/v1/shop/shard/raw/len?operator=a&shard=3",
            Scope::Shard(3, Named::anywhere("shop".into(), true)),
        );
        let raw = "/v1/a/shard/raw/len?shard=3&operator=a".parse().unwrap();
        assert_eq!(without_shard(&raw), "/v1/a/shard/raw/len?operator=a");
        check("GET", "/v1//locks", Scope::Any);
        check("GET", "/openapi.json", Scope::Any);
        let upgrade =
            Request::builder().uri("/v1/shop/session").header("upgrade", "websocket").body(()).unwrap();
        assert_eq!(native(&upgrade), shop(true));
    }

    #[test]
    fn locktopus_requests_name_it_in_their_query() {
        let named = |target: &str| locktopus(&request("GET", target));
        let expected = |name: &str| Scope::Namespace(Named::anywhere(name.into(), false));
        assert_eq!(named("/v1?namespace=a%20b&abandon-timeout-ms=1"), expected("a b"));
        assert_eq!(named("/stats_v1?namespace=a+b"), expected("a b"));
        assert_eq!(named("/v1?namespace="), Scope::Any);
        assert_eq!(named("/"), Scope::Any);
    }

    #[test]
    fn several_indexes_are_several_namespaces() {
        let named = |name: &str| Named { name: name.into(), creates: false, beside: Beside::First };
        let check = |target: &str, expected: Scope| {
            assert_eq!(elasticsearch(&request("GET", target)), expected, "{target}");
        };
        check("/a/_search", Scope::Namespace(named("a")));
        check("/a/t/1", Scope::Namespace(named("a")));
        check("/a,b/_search", Scope::Namespaces(vec![named("a"), named("b")]));
        check("/a,-c*/_search", Scope::Namespace(named("a")));
        for target in ["/", "/_bulk", "/_cat/indices", "/_all/_search", "/*/_search", "/_search/scroll"] {
            check(target, Scope::Any);
        }
    }
}
