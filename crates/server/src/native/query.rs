//! The parameters behind a `?`: which ones a route takes, as the description says, and what is wrong with one. Knows
//! nothing of what they mean.

use super::openapi;
use crate::native::{HttpError, problem};
use axum::{
    extract::{FromRequestParts, MatchedPath, Query, Request},
    middleware::Next,
    response::Response,
};
use hyper::{Method, Uri, http::request::Parts};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use serde::de::DeserializeOwned;
use std::{borrow::Cow, collections::BTreeSet, sync::LazyLock};

/// The parameters of a request; if they cannot be read it is a problem like any other.
pub(super) struct InQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InQuery<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<InQuery<T>, HttpError> {
        Ok(read(&parts.uri).map(InQuery)?)
    }
}

/// The parameters of an address.
pub(super) fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Trouble> {
    let read = Query::try_from_uri(uri).map(|Query(read)| read);
    read.map_err(|error| refused(in_words(&error.body_text(), uri.query().unwrap_or_default())))
}

/// Refuses parameters that the description of the route does not have, before its handler could overlook them.
pub(super) async fn admit(request: Request, next: Next) -> Response {
    match check(&request) {
        Ok(()) => next.run(request).await,
        Err(trouble) => problem(trouble),
    }
}

fn check(request: &Request) -> Result<(), Trouble> {
    let Some(query) = request.uri().query().filter(|query| !query.is_empty()) else { return Ok(()) };
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    check_names(query, known(request.method(), route))
}

static ROUTES: LazyLock<openapi::Parameters> = LazyLock::new(openapi::parameters);

/// The parameters of a route; none if it is not described. A node inside a document is described as its document is.
fn known(method: &Method, route: &str) -> &'static [String] {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let route = route.strip_suffix("/{*path}").unwrap_or(route);
    ROUTES.get(&(method.clone(), route.to_owned())).map_or(&[], Vec::as_slice)
}

fn check_names(query: &str, known: &[String]) -> Result<(), Trouble> {
    let mut seen = BTreeSet::new();
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        if !known.iter().any(|known| *known == name) {
            return Err(refused(unknown(&name, known)));
        }
        if !seen.insert(name.clone()) {
            return Err(refused(twice(&name)));
        }
    }
    Ok(())
}

fn unknown(name: &str, known: &[String]) -> String {
    let named: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    match &*named {
        [] => format!("`{name}` is no parameter of this address, which takes none"),
        [one] => format!("`{name}` is no parameter of this address; the one it takes is {one}"),
        several => format!("`{name}` is no parameter of this address; it takes {}", several.join(", ")),
    }
}

pub(super) fn twice(name: &str) -> String {
    format!("the parameter `{name}` is given more than once; give it once")
}

/// What the deserialiser found wrong, in words that say which parameter it is and what to write instead.
fn in_words(text: &str, query: &str) -> String {
    let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(text);
    let Some((name, why)) = text.split_once(": ") else { return without_value(text) };
    let given = form_urlencoded::parse(query.as_bytes()).find(|(given, _)| given == name);
    match given {
        Some((_, value)) => with_value(name, &value, why),
        None => without_value(why),
    }
}

fn with_value(name: &str, value: &str, why: &str) -> String {
    match allowed(why) {
        Some(allowed) => format!("the parameter `{name}` must be {allowed}, not {value:?}"),
        None => without_value(why),
    }
}

/// What a value may be, if this is about a value.
fn allowed(why: &str) -> Option<Cow<'_, str>> {
    const NOT_A_NUMBER: [&str; 3] = [
        "invalid digit found in string",
        "cannot parse integer from empty string",
        "number too large to fit in target type",
    ];
    if NOT_A_NUMBER.contains(&why) {
        return Some(format!("a whole number from 0 to {}", u64::MAX).into());
    }
    if why == "provided string was not `true` or `false`" {
        return Some("`true` or `false`".into());
    }
    why.strip_prefix("unknown variant ")?.rsplit_once(", expected ").map(|(_, allowed)| allowed.into())
}

/// The same where no value is at fault.
fn without_value(why: &str) -> String {
    let quoted = || why.split('`').nth(1).unwrap_or_default();
    match () {
        () if why.starts_with("missing field ") => format!("the parameter `{}` is missing", quoted()),
        () if why.starts_with("duplicate field ") => twice(quoted()),
        () if why.starts_with("unknown field ") => {
            let known: Vec<String> = why.split('`').skip(3).step_by(2).map(str::to_owned).collect();
            unknown(quoted(), &known)
        }
        () => format!("the parameters cannot be read: {why}"),
    }
}

pub(super) fn refused(message: String) -> Trouble {
    Trouble::new(Code::BadQuery, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Parameters {
        from: String,
        limit: Option<u64>,
        #[serde(default)]
        force: bool,
        deleted: Option<lockwood_wire::documents::Deleted>,
    }

    #[track_caller]
    fn check(query: &str, message: &str) {
        let trouble = read::<Parameters>(&format!("/a?{query}").parse().unwrap()).unwrap_err();
        assert_eq!((trouble.code, &*trouble.message), (Code::BadQuery, message));
    }

    #[test]
    fn refusals_say_which_parameter_what_was_given_and_what_is_allowed() {
        let number = "the parameter `limit` must be a whole number from 0 to 18446744073709551615, not ";
        for value in ["x", "", "-1", "18446744073709551616", "1.5"] {
            check(&format!("from=1&limit={value}"), &format!("{number}{value:?}"));
        }
        check("from=1&limit=a%20b", &format!("{number}\"a b\""));
        check("from=1&force=maybe", "the parameter `force` must be `true` or `false`, not \"maybe\"");
        check(
            "from=1&deleted=all",
            "the parameter `deleted` must be one of `without`, `only`, `with`, not \"all\"",
        );
        check("limit=1", "the parameter `from` is missing");
        check("from=1&limit=1&limit=2", "the parameter `limit` is given more than once; give it once");
        check(
            "from=1&form=2",
            "`form` is no parameter of this address; it takes `from`, `limit`, `force`, `deleted`",
        );
    }

    #[test]
    fn parameters_are_known_from_the_description() {
        let get = |route| known(&Method::GET, route).join(",");
        assert_eq!(get("/v1/{namespace}/tree"), "path");
        assert_eq!(get("/metrics"), "");
        assert_eq!(get("/openapi.json"), "");
        assert_eq!(known(&Method::HEAD, "/v1/{namespace}/tree"), ["path"]);
        let (whole, node) = (
            "/v1/{namespace}/history/{collection}/{key}",
            "/v1/{namespace}/history/{collection}/{key}/{*path}",
        );
        assert_eq!(get(whole), "limit,after,path");
        assert_eq!(get(whole), get(node));
        assert!(check_names("path=a&path=b", known(&Method::GET, "/v1/{namespace}/tree")).is_err());
        let trouble = check_names("a=b", known(&Method::GET, "/v1/purges")).unwrap_err();
        assert_eq!(trouble.message, "`a` is no parameter of this address, which takes none");
    }
}
