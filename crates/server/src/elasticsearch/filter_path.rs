//! Leaves out parts of an answer, as `filter_path` asks for. What stays, stays as it was written. Knows nothing of what
//! the parts mean.

use super::{
    answer::{Answer, Object, Refusal, list},
    several::fits,
    source::Members,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::value::RawValue;

/// Larger answers are filtered where they keep nobody waiting.
const IN_PASSING_BYTES_MAX: usize = 64 * 1024;
/// The names of all filters together; each is compared with the names in the answer.
const NAMES_MAX: usize = 256;
/// Any number of names, also none.
const ANY_PATH: &str = "**";

/// Which parts of an answer are wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilterPath {
    /// Only these; all if there are none.
    wanted: Vec<Pattern>,
    /// Without these.
    unwanted: Vec<Pattern>,
}

/// Names from the top of an answer, in which `*` stands for any text.
type Pattern = Vec<String>;

impl FilterPath {
    /// Filters with commas between them; those that begin with `-` say what is not wanted.
    pub(super) fn read(text: &str) -> Result<FilterPath, Refusal> {
        let filters = text.split(',').map(str::trim).filter(|filter| !filter.is_empty());
        let (unwanted, wanted): (Vec<&str>, Vec<&str>) = filters.partition(|filter| filter.starts_with('-'));
        let wanted: Vec<Pattern> = wanted.into_iter().map(names).collect();
        let unwanted: Vec<Pattern> = unwanted.into_iter().map(|filter| names(&filter[1..])).collect();
        if wanted.iter().chain(&unwanted).map(Vec::len).sum::<usize>() > NAMES_MAX {
            return Err(Refusal::argument(format!("[filter_path] has at most {NAMES_MAX} names")));
        }
        Ok(FilterPath { wanted, unwanted })
    }

    /// The same answer without what is not wanted. Errors are said in full, and so are tables.
    pub(super) async fn apply(&self, answer: Answer) -> Answer {
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return answer;
        }
        let (mut head, body) = answer.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let filter = || self.filtered(std::str::from_utf8(&body).ok()?).map(Bytes::from);
        let is_large = body.len() > IN_PASSING_BYTES_MAX;
        let filtered = if is_large { tokio::task::block_in_place(filter) } else { filter() };
        head.headers.remove(CONTENT_LENGTH);
        Answer::from_parts(head, Full::new(filtered.unwrap_or(body)))
    }

    /// None if it is no JSON.
    fn filtered(&self, json: &str) -> Option<String> {
        let state = State {
            wanted: (!self.wanted.is_empty()).then(|| self.wanted.iter().map(Vec::as_slice).collect()),
            unwanted: self.unwanted.iter().map(Vec::as_slice).collect(),
        };
        let empty = if json.trim_start().starts_with('[') { "[]" } else { "{}" };
        Some(state.value(json)?.unwrap_or_else(|| empty.to_owned()))
    }
}

/// The names of a filter. A dot inside a name is written `\.`.
fn names(filter: &str) -> Pattern {
    let mut names = vec![String::new()];
    let mut chars = filter.chars();
    while let Some(char) = chars.next() {
        match char {
            '.' => names.push(String::new()),
            '\\' => names.last_mut().expect("there is one").extend(chars.next()),
            char => names.last_mut().expect("there is one").push(char),
        }
    }
    names
}

/// What is left of the filters at a place in the answer.
struct State<'a> {
    /// None if everything is wanted.
    wanted: Option<Vec<&'a [String]>>,
    unwanted: Vec<&'a [String]>,
}

impl<'a> State<'a> {
    /// What is wanted of a value, if anything is; the outer none if it is no JSON.
    fn value(&self, json: &str) -> Option<Option<String>> {
        if self.wanted.is_none() && self.unwanted.is_empty() {
            return Some(Some(json.to_owned()));
        }
        match json.trim_start().as_bytes().first()? {
            b'{' => self.object(json),
            b'[' => self.list(json),
            _ => Some(self.wanted.is_none().then(|| json.to_owned())),
        }
    }

    fn object(&self, json: &str) -> Option<Option<String>> {
        let Members(members) = serde_json::from_str(json).ok()?;
        let (was_empty, mut object, mut is_empty) = (members.is_empty(), Object::new(), true);
        for (name, value) in members {
            if let Some(below) = self.below(&name)
                && let Some(value) = below.value(value.get())?
            {
                object = object.raw(&name, &value);
                is_empty = false;
            }
        }
        Some(self.keeps(was_empty, is_empty).then(|| object.done()))
    }

    /// A list is no level of its own.
    fn list(&self, json: &str) -> Option<Option<String>> {
        let elements: Vec<Box<RawValue>> = serde_json::from_str(json).ok()?;
        let was_empty = elements.is_empty();
        let mut kept = Vec::new();
        for element in elements {
            kept.extend(self.value(element.get())?);
        }
        Some(self.keeps(was_empty, kept.is_empty()).then(|| list(kept)))
    }

    /// What the filters have emptied is not shown; what was empty is, unless something else is wanted.
    fn keeps(&self, was_empty: bool, is_empty: bool) -> bool {
        !is_empty || was_empty && self.wanted.is_none()
    }

    /// The filters for a member; none if it is not wanted.
    fn below(&self, name: &str) -> Option<State<'a>> {
        let (is_unwanted, unwanted) = advance(&self.unwanted, name);
        if is_unwanted {
            return None;
        }
        let Some(wanted) = &self.wanted else { return Some(State { wanted: None, unwanted }) };
        match advance(wanted, name) {
            (true, _) => Some(State { wanted: None, unwanted }),
            (false, below) => (!below.is_empty()).then_some(State { wanted: Some(below), unwanted }),
        }
    }
}

/// Whether a pattern is met by a name, and what is left of those that may be met below it.
fn advance<'a>(patterns: &[&'a [String]], name: &str) -> (bool, Vec<&'a [String]>) {
    let (mut is_met, mut below) = (false, Vec::new());
    for pattern in patterns {
        is_met |= step(pattern, name, &mut below);
    }
    (is_met, below)
}

fn step<'a>(pattern: &'a [String], name: &str, below: &mut Vec<&'a [String]>) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return false };
    let is_any = |name: &String| name == ANY_PATH;
    if is_any(first) {
        if rest.iter().all(is_any) {
            return true;
        }
        if !below.contains(&pattern) {
            below.push(pattern);
        }
        return step(rest, name, below);
    }
    if !fits(first, name) {
        return false;
    }
    if rest.iter().all(is_any) {
        return true;
    }
    if !below.contains(&rest) {
        below.push(rest);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"took":1,"hits":{"total":{"value":2},"hits":[{"_id":"1","_score":1.0,"_source":{"a":1,"tags":[],"b":{"c":12345678901234567890}}},{"_id":"2","_score":1.0}]},"_shards":{"total":5}}"#;

    #[track_caller]
    fn check(filter: &str, expected: &str) {
        assert_eq!(FilterPath::read(filter).unwrap().filtered(ANSWER).unwrap(), expected, "{filter}");
    }

    #[test]
    fn wanted_parts_stay_as_they_were_written() {
        check("took", r#"{"took":1}"#);
        check("hits.hits._id", r#"{"hits":{"hits":[{"_id":"1"},{"_id":"2"}]}}"#);
        check("took,hits.total.value", r#"{"took":1,"hits":{"total":{"value":2}}}"#);
        check("hits.hits._source.b", r#"{"hits":{"hits":[{"_source":{"b":{"c":12345678901234567890}}}]}}"#);
        check("_sh*.t*l", r#"{"_shards":{"total":5}}"#);
        check("*.total", r#"{"hits":{"total":{"value":2}},"_shards":{"total":5}}"#);
        check("**.c", r#"{"hits":{"hits":[{"_source":{"b":{"c":12345678901234567890}}}]}}"#);
        check("hits.**._score", r#"{"hits":{"hits":[{"_score":1.0},{"_score":1.0}]}}"#);
        check("_shards.**", r#"{"_shards":{"total":5}}"#);
        for all in ["", ",", "**", "*", "took.**,**"] {
            check(all, ANSWER);
        }
        for none in ["nothing", "took.x", "hits.hits._id.x"] {
            check(none, "{}");
        }
    }

    #[test]
    fn unwanted_parts_are_left_out() {
        check("-hits", r#"{"took":1,"_shards":{"total":5}}"#);
        check(
            "-**._source,-took,-_shards.total",
            r#"{"hits":{"total":{"value":2},"hits":[{"_id":"1","_score":1.0},{"_id":"2","_score":1.0}]}}"#,
        );
        check("hits.hits,-hits.hits._s*", r#"{"hits":{"hits":[{"_id":"1"},{"_id":"2"}]}}"#);
        check(
            "-hits.hits._source.b,-hits.hits._score",
            r#"{"took":1,"hits":{"total":{"value":2},"hits":[{"_id":"1","_source":{"a":1,"tags":[]}},{"_id":"2"}]},"_shards":{"total":5}}"#,
        );
        check("-**", "{}");
        check("took,-took", "{}");
    }

    #[test]
    fn lists_dots_and_limits() {
        let filter = |text: &str, json: &str| FilterPath::read(text).unwrap().filtered(json).unwrap();
        assert_eq!(
            filter("index", r#"[{"index":"a","rep":1},{"index":"b"}]"#),
            r#"[{"index":"a"},{"index":"b"}]"#
        );
        assert_eq!(filter("x", "[]"), "[]");
        assert_eq!(filter(r"a\.b", r#"{"a.b":1,"a":{"b":2}}"#), r#"{"a.b":1}"#);
        assert!(FilterPath::read(&"a.".repeat(300)).is_err());
        assert!(FilterPath::read(&"**.".repeat(80)).unwrap().filtered(ANSWER).is_some());
    }
}
