//! Reads that tolerate a stale copy: which ones may, how they say so, and how answers say how stale they may be. Knows
//! nothing of copies.

use super::query;
use hyper::{Method, Response, Uri, header::HeaderValue};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use utoipa::openapi::{
    Header, KnownFormat, ObjectBuilder, OpenApi, RefOr, Required, Schema, SchemaFormat, Type,
    path::{Operation, ParameterBuilder, ParameterIn},
};

/// The header of an answer with its lag: everything that was acknowledged so many milliseconds before the request came is in
/// it.
pub(crate) const LAG: &str = "lockwood-lag-ms";
/// The parameter with the lag that a read tolerates.
const MAX_LAG: &str = "max_lag_ms";

/// The reads that may tolerate a lag, below a namespace; all others look at more than documents.
const READS: [(&str, &str); 14] = [
    ("get", "documents/{collection}/{key}"),
    ("get", "documents/{collection}"),
    ("get", "history/{collection}/{key}"),
    ("get", "position"),
    ("get", "collections"),
    ("post", "get"),
    ("post", "filter"),
    ("post", "count"),
    ("post", "exists"),
    ("post", "min"),
    ("post", "max"),
    ("post", "join"),
    ("post", "shard/select"),
    ("post", "shard/eselect"),
];

/// Whether a request reads documents and nothing else.
pub(crate) fn is_read(method: &Method, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let ["v1", _, rest @ ..] = &segments[..] else { return false };
    match *method {
        Method::GET | Method::HEAD => {
            matches!(rest, ["documents", _, ..] | ["history", _, _, ..] | ["position" | "collections"])
        }
        Method::POST => matches!(
            rest,
            ["get" | "filter" | "count" | "exists" | "min" | "max" | "join"]
                | ["shard", "select" | "eselect"]
        ),
        _ => false,
    }
}

/// The lag that a read tolerates, if it says so. Other requests are not looked at, and their routes know no such parameter.
pub(crate) fn tolerated(method: &Method, uri: &Uri) -> Result<Option<u64>, Trouble> {
    let Some(query) = uri.query().filter(|query| query.contains(MAX_LAG)) else { return Ok(None) };
    if !is_read(method, uri.path()) {
        return Ok(None);
    }
    let mut named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == MAX_LAG);
    let Some((_, value)) = named.next() else { return Ok(None) };
    if named.next().is_some() {
        return Err(query::refused(query::twice(MAX_LAG)));
    }
    let read = value.parse().map(Some);
    read.map_err(|_| {
        let message = format!("{MAX_LAG}: {value:?} is no number of milliseconds");
        Trouble::new(Code::BadQuery, message)
    })
}

/// An address without that parameter.
pub(crate) fn without(uri: &Uri) -> Uri {
    let query = uri.query().unwrap_or_default();
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(MAX_LAG);
    let rest: Vec<&str> = query.split('&').filter(is_other).collect();
    let target =
        if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), rest.join("&")) };
    target.parse().unwrap_or_else(|_| uri.clone())
}

/// The same address with another lag, or with one at all.
pub(crate) fn with(uri: &Uri, max_lag_ms: u64) -> Uri {
    let rest = without(uri);
    let mark = if rest.query().is_some() { '&' } else { '?' };
    format!("{rest}{mark}{MAX_LAG}={max_lag_ms}").parse().unwrap_or(rest)
}

/// Says how stale an answer may be.
pub(crate) fn note<B>(answer: &mut Response<B>, lag_ms: u64) {
    answer.headers_mut().insert(LAG, HeaderValue::from(lag_ms));
}

/// Describes the parameter and the header.
pub(super) fn describe(api: &mut OpenApi) {
    for (method, path) in READS {
        let item = api.paths.paths.get_mut(&format!("/v1/{{namespace}}/{path}"));
        let operation =
            item.and_then(|item| if method == "get" { &mut item.get } else { &mut item.post }.as_mut());
        let operation = operation.expect("the read is described");
        describe_one(operation);
    }
}

fn describe_one(operation: &mut Operation) {
    let number = || {
        let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
        let number = ObjectBuilder::new().schema_type(Type::Integer).format(Some(format)).minimum(Some(0));
        RefOr::<Schema>::T(Schema::Object(number.build()))
    };
    let parameter = ParameterBuilder::new()
        .name(MAX_LAG)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "How stale the answer may be, in milliseconds: on a cluster, a node that follows the shard and is no further \
             behind answers itself. Without it, and on a single server, the answer is current.",
        ))
        .schema(Some(number()))
        .build();
    operation.parameters.get_or_insert_default().push(parameter.into());
    if let Some(RefOr::T(response)) = operation.responses.responses.get_mut("200") {
        let mut header = Header::new(number());
        header.description = Some(
            "Only with `max_lag_ms`: everything that was acknowledged so many milliseconds before the request is in the \
             answer; 0 if it is current."
                .to_owned(),
        );
        response.headers.insert("Lockwood-Lag-Ms".to_owned(), RefOr::T(header));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_say_what_they_tolerate_and_others_are_left_alone() {
        let check = |method: Method, target: &str, expected: Option<u64>| {
            let found = tolerated(&method, &target.parse().unwrap()).unwrap();
            assert_eq!(found, expected, "{method} {target}");
        };
        check(Method::GET, "/v1/a/documents/user/1?max_lag_ms=50", Some(50));
        check(Method::HEAD, "/v1/a/documents/user/1/address?fields=b&max_lag_ms=0", Some(0));
        check(Method::GET, "/v1/a/documents/user/1", None);
        check(Method::GET, "/v1/a/documents/user/1?max_lag_ms2=50", None);
        check(Method::POST, "/v1/a/filter?max_lag_ms=5000", Some(5000));
        check(Method::POST, "/v1/a/shard/eselect?max_lag_ms=7", Some(7));
        check(Method::PUT, "/v1/a/documents/user/1?max_lag_ms=50", None);
        check(Method::GET, "/v1/a/locks?max_lag_ms=50", None);
        check(Method::GET, "/v1/a/changes?max_lag_ms=50", None);
        let refused = |target: &str| tolerated(&Method::GET, &target.parse().unwrap()).unwrap_err().message;
        assert!(refused("/v1/a/position?max_lag_ms=soon").contains("soon"));
        assert!(refused("/v1/a/position?max_lag_ms=1&max_lag_ms=2").contains("more than once"));
    }

    #[test]
    fn what_is_left_of_the_address_is_what_it_was() {
        let check = |target: &str, expected: &str| assert_eq!(without(&target.parse().unwrap()), expected);
        check("/v1/a/position?max_lag_ms=5", "/v1/a/position");
        check("/v1/a/documents/a/b?fields=x%26y&max_lag_ms=5&at=3", "/v1/a/documents/a/b?fields=x%26y&at=3");
        check("/v1/a/position", "/v1/a/position");
        let with = |target: &str| with(&target.parse().unwrap(), 7).to_string();
        assert_eq!(with("/v1/a/position?at=3&max_lag_ms=5"), "/v1/a/position?at=3&max_lag_ms=7");
        assert_eq!(with("/v1/a/position"), "/v1/a/position?max_lag_ms=7");
    }
}
