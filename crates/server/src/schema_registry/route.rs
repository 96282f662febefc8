//! Which thing an address names. Knows nothing of methods, nor of what there is.

use super::{
    answer::Refusal,
    context::{Contexts, Place},
};
use hyper::Method;
use lockwood_node::limits::Limits;

/// What can be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Root,
    /// In the namespace of the address.
    Subjects(String),
    Subject(Place),
    Metadata(Place),
    Versions(Place),
    Version(Place, Number),
    VersionText(Place, Number),
    ReferencedBy(Place, Number),
    Schemas(String),
    Types,
    /// A schema by its id, and what of it.
    Id(String, String, OfId),
    /// A schema by its GUID, in whatever context.
    Guid(String),
    /// The ids that a GUID has, context by context.
    GuidIds(String),
    Compatibility(Place, Option<Number>),
    Config(Place),
    Mode(Place),
    Contexts,
    ServerId,
    ServerVersion,
}

/// What is asked about an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfId {
    Schema,
    Text,
    Subjects,
    Versions,
}

/// A version in an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Latest,
    Exactly(u32),
}

impl Number {
    fn read(text: &str) -> Result<Number, Refusal> {
        match text.parse::<i64>() {
            _ if text == "latest" => Ok(Number::Latest),
            Ok(-1) => Ok(Number::Latest),
            Ok(number @ 1..=0x7fff_ffff) => Ok(Number::Exactly(number as u32)),
            _ => Err(Refusal::bad_version(text)),
        }
    }
}

/// The namespace that an address is about; none if it cannot be read.
pub(crate) fn namespace_of(path: &str, default: &str, limits: &Limits) -> Option<String> {
    match Route::read(path, Contexts { default, limits }).ok()? {
        Route::Subjects(namespace) | Route::Schemas(namespace) | Route::Id(namespace, ..) => Some(namespace),
        Route::Subject(place)
        | Route::Metadata(place)
        | Route::Versions(place)
        | Route::Version(place, _)
        | Route::VersionText(place, _)
        | Route::ReferencedBy(place, _)
        | Route::Compatibility(place, _)
        | Route::Config(place)
        | Route::Mode(place) => Some(place.namespace),
        Route::Root
        | Route::Types
        | Route::Guid(_)
        | Route::GuidIds(_)
        | Route::Contexts
        | Route::ServerId
        | Route::ServerVersion => None,
    }
}

impl Route {
    pub(super) fn read(path: &str, contexts: Contexts<'_>) -> Result<Route, Refusal> {
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect::<Result<_, _>>()?;
        let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if segments.last() == Some(&"") {
            segments.pop();
        }
        let mut namespace = contexts.default.to_owned();
        let mut rest = &segments[..];
        if let ["contexts", context, after @ ..] = rest
            && !after.is_empty()
        {
            namespace = contexts.namespace(context)?;
            rest = after;
        }
        let place = |text: &str| contexts.read(&namespace, text);
        let all = || Place { namespace: namespace.clone(), subject: None };
        Ok(match rest {
            [] => Route::Root,
            ["contexts"] => Route::Contexts,
            ["subjects"] => Route::Subjects(namespace),
            ["subjects", subject] => Route::Subject(place(subject)?),
            ["subjects", subject, "metadata"] => Route::Metadata(place(subject)?),
            ["subjects", subject, "versions"] => Route::Versions(place(subject)?),
            ["subjects", subject, "versions", version] => {
                Route::Version(place(subject)?, Number::read(version)?)
            }
            ["subjects", subject, "versions", version, "schema"] => {
                Route::VersionText(place(subject)?, Number::read(version)?)
            }
            ["subjects", subject, "versions", version, "referencedby"] => {
                Route::ReferencedBy(place(subject)?, Number::read(version)?)
            }
            ["schemas"] => Route::Schemas(namespace),
            ["schemas", "types"] => Route::Types,
            ["schemas", "ids", id] => Route::Id(namespace, (*id).to_owned(), OfId::Schema),
            ["schemas", "ids", id, "schema"] => Route::Id(namespace, (*id).to_owned(), OfId::Text),
            ["schemas", "ids", id, "subjects"] => Route::Id(namespace, (*id).to_owned(), OfId::Subjects),
            ["schemas", "ids", id, "versions"] => Route::Id(namespace, (*id).to_owned(), OfId::Versions),
            ["schemas", "guids", guid] => Route::Guid((*guid).to_owned()),
            ["schemas", "guids", guid, "ids"] => Route::GuidIds((*guid).to_owned()),
            ["compatibility", "subjects", subject, "versions"] => Route::Compatibility(place(subject)?, None),
            ["compatibility", "subjects", subject, "versions", version] => {
                Route::Compatibility(place(subject)?, Some(Number::read(version)?))
            }
            ["config"] => Route::Config(all()),
            ["config", subject] => Route::Config(place(subject)?),
            ["mode"] => Route::Mode(all()),
            ["mode", subject] => Route::Mode(place(subject)?),
            ["v1", "metadata", "id"] => Route::ServerId,
            ["v1", "metadata", "version"] => Route::ServerVersion,
            _ => return Err(Refusal::not_found()),
        })
    }
}

impl Route {
    /// Whether there is anything behind this address for a method.
    pub(super) fn takes(&self, method: &Method) -> bool {
        let is_posted = matches!(self, Route::Versions(_) | Route::Subject(_) | Route::Compatibility(..));
        let is_setting = matches!(self, Route::Config(_) | Route::Mode(_));
        match *method {
            Method::GET | Method::HEAD => !matches!(self, Route::Subject(_) | Route::Compatibility(..)),
            Method::POST => is_posted,
            Method::PUT => is_setting,
            Method::DELETE => is_setting || matches!(self, Route::Subject(_) | Route::Version(..)),
            _ => false,
        }
    }

    /// The subject in the address, where an alias counts. The original looks for aliases below `subjects` only, so that
    /// their own settings can be reached.
    pub(super) fn subject_mut(&mut self) -> Option<&mut Place> {
        match self {
            Route::Subject(place)
            | Route::Metadata(place)
            | Route::Versions(place)
            | Route::Version(place, _)
            | Route::VersionText(place, _)
            | Route::ReferencedBy(place, _)
            | Route::Compatibility(place, _) => Some(place),
            _ => None,
        }
    }
}

/// A segment with its percent signs resolved; a plus sign stands for itself.
fn decoded(segment: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).map_err(|_| Refusal::bad_subject("a name in the address is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_node::limits::Limits;

    fn read(path: &str) -> Result<Route, Refusal> {
        let limits = Limits::default();
        Route::read(path, Contexts { default: "main", limits: &limits })
    }

    fn place(namespace: &str, subject: &str) -> Place {
        Place { namespace: namespace.into(), subject: Some(subject.into()) }
    }

    #[test]
    fn addresses() {
        let check = |path: &str, route: Route| assert_eq!(read(path), Ok(route), "{path}");
        check("/", Route::Root);
        check("/subjects", Route::Subjects("main".into()));
        check("/subjects/", Route::Subjects("main".into()));
        check("/subjects/a%2Fb", Route::Subject(place("main", "a/b")));
        check("/subjects/a+b%zz", Route::Subject(place("main", "a+b%zz")));
        check("/subjects/%3A.shop%3Auser/versions", Route::Versions(place("shop", "user")));
        check("/contexts/.shop/subjects/user", Route::Subject(place("shop", "user")));
        check("/contexts/:.shop:/subjects", Route::Subjects("shop".into()));
        check("/contexts", Route::Contexts);
        check("/subjects/a/versions/-1", Route::Version(place("main", "a"), Number::Latest));
        check("/subjects/a/versions/latest/schema", Route::VersionText(place("main", "a"), Number::Latest));
        check("/schemas/guids/x", Route::Guid("x".into()));
        check("/contexts/.shop/schemas/guids/x/ids", Route::GuidIds("x".into()));
        check("/config/:.shop:", Route::Config(Place { namespace: "shop".into(), subject: None }));
        for (path, code) in [
            ("/associations/resources/-/topic", 404),
            ("/x", 404),
            ("/subjects/a/versions/0", 42202),
            ("/subjects/a/versions/earliest", 42202),
            ("/subjects/a/versions/2147483648", 42202),
            ("/subjects/%ff", 42208),
        ] {
            assert_eq!(read(path).unwrap_err().code, code, "{path}");
        }
    }
}
