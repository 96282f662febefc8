//! Field paths: which value of a document is meant, inside objects too. Knows nothing of where documents are kept.
//!
//! ```text
//! path = name { "." name }        the first name is a field of the document, each other one a member of an object
//! name = plain | quoted
//! plain = characters without a dot, the first of which is no double quote
//! quoted = a JSON string           for names with dots in them: "zip.code"
//! list = path { "," path }        commas inside quotes separate nothing
//! ```
//!
//! A path leads through objects only: a list has no members, so what is inside one is absent, and so is whatever
//! is below text, numbers, truth values and null.

use crate::{
    json::{string_len, unquoted},
    node,
};
use std::{borrow::Cow, collections::BTreeMap, fmt, str::FromStr};

/// From a document down to one of its values: the name of a field, and names of members below it.
///
/// Invariant: there is at least one name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

/// The text is no field path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    /// Nothing before, after or between dots.
    #[error("the field {0:?} has an empty name; a name with a dot in it is written in quotes: \"zip.code\"")]
    EmptyName(String),
    /// A quote that does not end, or ends in the middle of a name.
    #[error(
        "the field {0:?} has a name that starts with a quote and is no JSON string, as in address.\"zip.code\""
    )]
    BadQuotes(String),
}

impl FieldPath {
    /// The field of a document with this name, dots and all.
    pub fn name(name: &str) -> FieldPath {
        FieldPath(Box::new([name.into()]))
    }

    /// The path of these names; none if there are none.
    pub fn from_names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Option<FieldPath> {
        let names: Box<[Box<str>]> = names.into_iter().map(|name| name.as_ref().into()).collect();
        (!names.is_empty()).then_some(FieldPath(names))
    }

    /// Several paths with commas between them.
    pub fn read_list(text: &str) -> Result<Vec<FieldPath>, FieldPathError> {
        let mut paths = Vec::new();
        let mut rest = text;
        loop {
            let (path, after) = read(text, rest, |char| matches!(char, '.' | ','))?;
            paths.push(path);
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None if after.is_empty() => return Ok(paths),
                None => return Err(FieldPathError::BadQuotes(text.to_owned())),
            }
        }
    }

    /// The field of the document that it begins with.
    pub fn root(&self) -> &str {
        &self.0[0]
    }

    /// The names after the first.
    pub fn below(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0[1..].iter().map(|name| &**name)
    }

    /// All names from the document down.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Whether it is a field of the document itself, with nothing below.
    pub fn is_top_level(&self) -> bool {
        self.0.len() == 1
    }

    /// Its value, given that of the field it begins with. A member that is null counts as absent, as a field does.
    pub fn find<'a>(&self, field: &'a str) -> Option<&'a str> {
        if self.is_top_level() {
            return Some(field);
        }
        let found = self.below().try_fold(field, node::member)?;
        Some(found).filter(|found| *found != "null")
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |name| !name.is_empty() && !name.starts_with('"') && !name.contains(['.', ',']))
    }
}

impl FieldPath {
    /// Writes it with quotes around the names that are not plain.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, is_plain: impl Fn(&str) -> bool) -> fmt::Result {
        for (index, name) in self.names().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            match is_plain(name) {
                true => f.write_str(name)?,
                false => write!(f, "{}", serde_json::Value::from(name))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldPath({self})")
    }
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<FieldPath, FieldPathError> {
        match read(text, text, |char| char == '.')? {
            (path, "") => Ok(path),
            _ => Err(FieldPathError::BadQuotes(text.to_owned())),
        }
    }
}

/// The path that `rest` begins with, and what comes after it.
fn read<'a>(
    text: &str,
    rest: &'a str,
    ends_name: fn(char) -> bool,
) -> Result<(FieldPath, &'a str), FieldPathError> {
    let (first, mut rest) = read_name(text, rest, ends_name)?;
    let mut names = vec![first];
    while let Some(after) = rest.strip_prefix('.') {
        let (name, after) = read_name(text, after, ends_name)?;
        names.push(name);
        rest = after;
    }
    Ok((FieldPath(names.into()), rest))
}

fn read_name<'a>(
    text: &str,
    rest: &'a str,
    ends_name: fn(char) -> bool,
) -> Result<(Box<str>, &'a str), FieldPathError> {
    if !rest.starts_with('"') {
        let (name, after) = rest.split_at(rest.find(ends_name).unwrap_or(rest.len()));
        return match name {
            "" => Err(FieldPathError::EmptyName(text.to_owned())),
            name => Ok((name.into(), after)),
        };
    }
    let bad = || FieldPathError::BadQuotes(text.to_owned());
    let (quoted, after) = rest.split_at_checked(string_len(rest)).ok_or_else(bad)?;
    let name: String = serde_json::from_str(quoted).map_err(|_| bad())?;
    Ok((name.into(), after))
}

/// Some fields of a document, each with all that is in it or with some members only.
///
/// What is shown has the shape of the document: `address.zip` shows as `{"address":{"zip":"53111"}}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Projection {
    /// In the order they were asked for.
    wanted: Vec<(Box<str>, Shown)>,
    /// Where each name is among them.
    places: BTreeMap<Box<str>, usize>,
}

/// What of a value is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    All,
    Members(Projection),
}

impl Projection {
    /// Everything that one of the paths leads to.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a FieldPath>) -> Projection {
        let mut projection = Projection::default();
        for path in paths {
            projection.add(&path.0[0], &path.0[1..]);
        }
        projection
    }

    fn add(&mut self, name: &str, below: &[Box<str>]) {
        let place = self.places.get(name).copied().unwrap_or_else(|| {
            self.places.insert(name.into(), self.wanted.len());
            self.wanted.push((name.into(), Shown::Members(Projection::default())));
            self.wanted.len() - 1
        });
        match (below, &mut self.wanted[place].1) {
            (_, Shown::All) => {}
            ([], shown) => *shown = Shown::All,
            ([name, below @ ..], Shown::Members(members)) => members.add(name, below),
        }
    }

    /// The names and values that are shown of a document with these fields, in the order they were asked for.
    pub fn fields<'a, 'p: 'a>(
        &'p self,
        get: impl Fn(&str) -> Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        self.wanted.iter().filter_map(move |(name, shown)| Some((&**name, shown.of(get(name)?)?)))
    }
}

impl Shown {
    /// None if nothing of the value is shown.
    fn of<'a>(&self, value: &'a str) -> Option<Cow<'a, str>> {
        let Shown::Members(Projection { wanted, places }) = self else { return Some(value.into()) };
        // One pass, however many members are wanted; of a name that is there twice the last counts.
        let mut found: Vec<Option<&str>> = vec![None; wanted.len()];
        for (name, value) in node::members(value)? {
            if let Some(place) = places.get(&*unquoted(name)) {
                found[*place] = Some(value);
            }
        }
        let mut out = String::new();
        for ((name, shown), value) in wanted.iter().zip(found) {
            if let Some(value) = value.and_then(|value| shown.of(value)) {
                out.push(if out.is_empty() { '{' } else { ',' });
                out.push_str(&serde_json::Value::from(&**name).to_string());
                out.push(':');
                out.push_str(&value);
            }
        }
        (!out.is_empty()).then(|| (out + "}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, names: &[&str], written: &str) {
        let path: FieldPath = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(path.names().collect::<Vec<_>>(), names, "{text}");
        assert_eq!(path.to_string(), written, "{text}");
        assert_eq!(written.parse(), Ok(path.clone()), "{text}");
        assert_eq!(FieldPath::from_names(names), Some(path));
    }

    #[test]
    fn paths_are_read_and_written() {
        check("name", &["name"], "name");
        check("address.zip", &["address", "zip"], "address.zip");
        check("a b.c/d.é", &["a b", "c/d", "é"], "a b.c/d.é");
        check("\"zip.code\"", &["zip.code"], "\"zip.code\"");
        check("a.\"b.c\".d", &["a", "b.c", "d"], "a.\"b.c\".d");
        check("a.\"\"", &["a", ""], "a.\"\"");
        check("\"plain\".x", &["plain", "x"], "plain.x");
        check("in\"side", &["in\"side"], "in\"side");
        check("a,b", &["a,b"], "\"a,b\"");
        check("\"\\\"\".\"a\\u002eb\"", &["\"", "a.b"], "\"\\\"\".\"a.b\"");
        assert_eq!(FieldPath::name("a.b").to_string(), "\"a.b\"");
        assert_eq!(FieldPath::from_names([""; 0]), None);
    }

    #[test]
    fn text_that_is_no_path_is_refused() {
        for text in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(text.parse::<FieldPath>(), Err(FieldPathError::EmptyName(text.into())), "{text}");
        }
        for text in ["\"", "\"a", "a.\"b", "\"a\"b", "\"a\\", "\"\\x\"", "\"a\".\"b\"c"] {
            assert_eq!(text.parse::<FieldPath>(), Err(FieldPathError::BadQuotes(text.into())), "{text}");
        }
    }

    #[test]
    fn lists_are_separated_by_commas_outside_quotes() {
        let read = |text: &str| {
            FieldPath::read_list(text).map(|paths| paths.iter().map(ToString::to_string).collect())
        };
        assert_eq!(read("a,b.c,\"d,e\".f"), Ok(vec!["a".to_owned(), "b.c".into(), "\"d,e\".f".into()]));
        for text in ["", ",", "a,", "a,,b", "a.,b"] {
            assert!(matches!(read(text), Err(FieldPathError::EmptyName(_))), "{text}");
        }
        assert!(matches!(read("\"a\"b,c"), Err(FieldPathError::BadQuotes(_))));
    }

    #[track_caller]
    fn found(path: &str, field: &str, expected: Option<&str>) {
        assert_eq!(path.parse::<FieldPath>().unwrap().find(field), expected, "{path} {field}");
    }

    #[test]
    fn paths_lead_through_objects_only() {
        let value = r#"{"b":{"c":1,"d":null,"\u0065":[{"f":2}],"x,\"}":3},"b.c":4,"":5}"#;
        found("a", value, Some(value));
        found("a.b.c", value, Some("1"));
        found("a.b.e", value, Some(r#"[{"f":2}]"#));
        found("a.\"b.c\"", value, Some("4"));
        found("a.\"\"", value, Some("5"));
        found("a.b.\"x,\\\"}\"", value, Some("3"));
        for absent in ["a.c", "a.b.d", "a.b.c.x", "a.b.e.0", "a.b.e.f", "a.b.d.x"] {
            found(absent, value, None);
        }
        for top in ["1", "\"{}\"", "null", "[]", "{}", "true"] {
            found("a.b", top, None);
        }
        found("a.b", r#"{"b":1,"b":2}"#, Some("2"));
    }

    #[track_caller]
    fn shown(paths: &str, expected: &str) {
        let fields = [("a", r#"{"b":{"c":1,"d":null},"e":[1],"\u0066":"x"}"#), ("g", "1"), ("h.i", "2")];
        let paths = FieldPath::read_list(paths).unwrap();
        let get = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let projection = Projection::new(&paths);
        let shown: Vec<String> =
            projection.fields(get).map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn projections_have_the_shape_of_the_document() {
        shown("a.b.c", r#"a={"b":{"c":1}}"#);
        shown("g,a.f,a.b.d,a.b.c", r#"g=1 a={"f":"x","b":{"d":null,"c":1}}"#);
        shown("a.b.c,a.b", r#"a={"b":{"c":1,"d":null}}"#);
        shown("a.b,a.b.c", r#"a={"b":{"c":1,"d":null}}"#);
        shown("g,g", "g=1");
        shown("a.x,g.y,a.e.0,a.b.c.d,h.i,k", "");
        shown("\"h.i\"", "h.i=2");
    }
}
