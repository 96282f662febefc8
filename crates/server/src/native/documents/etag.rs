//! Versions of documents as HTTP has them: `ETag`, `If-Match`, `If-None-Match`. Knows nothing of routes.
//!
//! The version of a document is the position of its last change, whatever part of the document a request is about.

use crate::native::HttpError;
use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};
use lockwood_engine::{Expectation, Precondition};
use lockwood_model::{DocumentKey, Position};
use lockwood_node::{refusals::unexpected, trouble::Trouble};
use lockwood_wire::Code;

/// No more tags are read from one request.
const TAGS_LEN_MAX: usize = 100;

/// The conditions of a request, in the order in which they are judged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::native) struct Conditions {
    if_match: Option<Expectation>,
    if_none_match: Option<Expectation>,
}

impl<S: Send + Sync> FromRequestParts<S> for Conditions {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Conditions, HttpError> {
        Ok(Conditions::read(&parts.headers)?)
    }
}

impl Conditions {
    fn read(headers: &HeaderMap) -> Result<Conditions, Trouble> {
        let if_match = tags(headers, &header::IF_MATCH)?.map(|tags| match tags {
            Tags::Any => Expectation::Present,
            Tags::These(tags) => {
                Expectation::OneOf(tags.iter().filter(|tag| !tag.is_weak).filter_map(Tag::version).collect())
            }
        });
        let if_none_match = tags(headers, &header::IF_NONE_MATCH)?.map(|tags| match tags {
            Tags::Any => Expectation::Absent,
            Tags::These(tags) => Expectation::NoneOf(tags.iter().filter_map(Tag::version).collect()),
        });
        Ok(Conditions { if_match, if_none_match })
    }

    /// What a write of the document must find.
    pub(super) fn preconditions(self, at: &DocumentKey) -> Vec<Precondition> {
        let expected = self.if_match.into_iter().chain(self.if_none_match);
        expected.map(|expected| Precondition { at: at.clone(), expected }).collect()
    }

    /// The answer to a read of the document, if its version decides that.
    pub(super) fn answer(&self, at: &DocumentKey, version: Position) -> Result<Option<Response>, Trouble> {
        if let Some(expected) = self.if_match.as_ref().filter(|expected| !expected.is_met(Some(version))) {
            return Err(unexpected(at, expected, Some(version)));
        }
        let is_known = self.if_none_match.as_ref().is_some_and(|expected| !expected.is_met(Some(version)));
        Ok(is_known.then(|| tagged(StatusCode::NOT_MODIFIED.into_response(), version)))
    }
}

/// An answer that says which version of a document it is about.
pub(super) fn tagged(mut response: Response, version: Position) -> Response {
    let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("digits in quotes are a header");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

enum Tags<'a> {
    Any,
    These(Vec<Tag<'a>>),
}

struct Tag<'a> {
    is_weak: bool,
    opaque: &'a str,
}

impl Tag<'_> {
    /// None for a tag that no document has.
    fn version(&self) -> Option<Position> {
        let version = self.opaque.parse().ok().map(Position)?;
        (version.to_string() == self.opaque).then_some(version)
    }
}

fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<Tags<'a>>, Trouble> {
    let wrong = || {
        let message = format!(
            "{name} is * or a list of at most {TAGS_LEN_MAX} ETags, in quotes as answers have them: \"7\""
        );
        Trouble::new(Code::BadQuery, message)
    };
    let mut read = Vec::new();
    let mut is_given = false;
    for value in headers.get_all(name) {
        is_given = true;
        let mut rest = value.to_str().map_err(|_| wrong())?.trim();
        if rest == "*" {
            return Ok(Some(Tags::Any));
        }
        while !rest.is_empty() {
            let (tag, after) = first_tag(rest).ok_or_else(wrong)?;
            read.push(tag);
            rest = after;
        }
    }
    if is_given && (read.is_empty() || read.len() > TAGS_LEN_MAX) {
        return Err(wrong());
    }
    Ok(is_given.then_some(Tags::These(read)))
}

/// A tag and what follows its comma.
fn first_tag(text: &str) -> Option<(Tag<'_>, &str)> {
    let (is_weak, quoted) = text.strip_prefix("W/").map_or((false, text), |quoted| (true, quoted));
    let (opaque, after) = quoted.strip_prefix('"')?.split_once('"')?;
    let after = after.trim_start();
    let after = if after.is_empty() { after } else { after.strip_prefix(',')?.trim_start() };
    Some((Tag { is_weak, opaque }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &HeaderName, values: &[&str]) -> Result<Conditions, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Conditions::read(&headers).map_err(|trouble| trouble.code)
    }

    fn if_match(values: &[&str]) -> Option<Expectation> {
        read(&header::IF_MATCH, values).unwrap().if_match
    }

    fn if_none_match(values: &[&str]) -> Option<Expectation> {
        read(&header::IF_NONE_MATCH, values).unwrap().if_none_match
    }

    #[test]
    fn tags_are_read_as_http_writes_them() {
        assert_eq!(if_match(&[]), None);
        assert_eq!(if_match(&["*"]), Some(Expectation::Present));
        assert_eq!(if_none_match(&[" * "]), Some(Expectation::Absent));
        assert_eq!(if_match(&["\"7\""]), Some(Expectation::OneOf(vec![Position(7)])));
        let three = vec![Position(1), Position(2), Position(3)];
        assert_eq!(if_none_match(&["\"1\" , \"2\"", "W/\"3\""]), Some(Expectation::NoneOf(three)));
    }

    #[test]
    fn weak_and_foreign_tags_match_no_document() {
        assert_eq!(if_match(&["W/\"7\", \"abc\", \"07\""]), Some(Expectation::OneOf(Vec::new())));
    }

    #[test]
    fn malformed_tags_are_refused() {
        for wrong in ["7", "\"7", "", "\"7\" \"8\"", "w/\"7\""] {
            assert_eq!(read(&header::IF_MATCH, &[wrong]), Err(Code::BadQuery), "{wrong}");
        }
        let many = "\"1\",".repeat(TAGS_LEN_MAX + 1);
        assert_eq!(read(&header::IF_MATCH, &[&many]), Err(Code::BadQuery));
    }
}
