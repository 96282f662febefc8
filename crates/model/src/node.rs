//! Nodes inside a JSON value: how one is found, shown down to a depth, replaced. Knows nothing of documents.

use crate::{
    json::{Json, string_len, unquoted},
    path::Path,
};

/// Why a node cannot be replaced or removed. The number says how many segments lead to the node it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeError {
    /// There is no such node.
    Missing(usize),
    /// The node is neither a list nor an object, so nothing is below it.
    NoContainer(usize),
}

/// A node below a list or an object.
struct Child<'a> {
    /// As it is written; none in a list.
    name: Option<&'a str>,
    value: &'a str,
}

/// The node below `text` that the segments lead to. In a list they are places, counted from 0.
pub fn find<'a, 's>(text: &'a str, segments: impl IntoIterator<Item = &'s str>) -> Option<&'a str> {
    segments.into_iter().try_fold(text, |text, segment| {
        let children = children(text)?;
        Some(children[place(&children, segment)?].value)
    })
}

/// The value of a member of an object; of a name that is there twice the last counts, as everywhere.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    members(text)?.filter(|(found, _)| unquoted(found) == name).last().map(|(_, value)| value)
}

/// The members of an object, their names as they are written; none if `text` is no object.
pub(crate) fn members(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?;
    Some(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (name, after) = rest.split_at(string_len(rest));
        let after = after.get(1..).unwrap_or_default();
        let (value, after) = after.split_at(value_len(after));
        rest = after.get(1..).unwrap_or_default();
        Some((name, value))
    }))
}

/// Writes a node down to a depth: 1 is the node alone. Lists and objects whose children are left out are empty,
/// and are listed in `cut`; `at` leads to the node.
pub fn write_to_depth(text: &str, depth: u64, at: &Path, out: &mut String, cut: &mut Vec<Path>) {
    let Some(children) = children(text).filter(|children| !children.is_empty()) else {
        return out.push_str(text);
    };
    let (open, close) = (&text[..1], &text[text.len() - 1..]);
    out.push_str(open);
    if depth <= 1 {
        cut.push(at.clone());
    } else {
        for (index, Child { name, value }) in children.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            let mut below = at.clone();
            match name {
                Some(name) => {
                    out.push_str(name);
                    out.push(':');
                    below.push(&unquoted(name));
                }
                None => below.push(&index.to_string()),
            }
            write_to_depth(value, depth - 1, &below, out, cut);
        }
    }
    out.push_str(close);
}

/// The value with another node at the end of `path`, or with none there.
///
/// What the node is in must be there. A list can be made longer by the place behind its last element, and what
/// comes after an element that is removed moves up.
pub fn replaced(value: &Json, path: &[&str], node: Option<&Json>) -> Result<Option<Json>, NodeError> {
    let text = replace(value.as_str(), path, 0, node.map(Json::as_str))?;
    Ok(text.map(|text| Json::trusted(&text)))
}

/// `depth` segments lead to `text`.
fn replace(text: &str, path: &[&str], depth: usize, node: Option<&str>) -> Result<Option<String>, NodeError> {
    let Some(segment) = path.get(depth) else { return Ok(node.map(str::to_owned)) };
    let children = children(text).ok_or(NodeError::NoContainer(depth))?;
    let below = depth + 1;
    let found = place(&children, segment);
    let changed = match found {
        Some(place) => replace(children[place].value, path, below, node)?,
        None if below == path.len() && node.is_some() => node.map(str::to_owned),
        None => return Err(NodeError::Missing(below)),
    };
    let is_list = text.starts_with('[');
    if found.is_none() && is_list && **segment != *children.len().to_string() {
        return Err(NodeError::Missing(below));
    }
    Ok(Some(rebuilt(is_list, &children, segment, found, changed.as_deref())))
}

/// The container with one child changed, added or removed.
fn rebuilt(
    is_list: bool,
    children: &[Child<'_>],
    segment: &str,
    found: Option<usize>,
    changed: Option<&str>,
) -> String {
    let mut parts: Vec<String> = Vec::with_capacity(children.len() + 1);
    for (index, Child { name, value }) in children.iter().enumerate() {
        let value = match changed {
            Some(changed) if found == Some(index) => changed,
            // A name that is there twice goes as often.
            None if found == Some(index) || name.is_some_and(|name| unquoted(name) == segment) => continue,
            _ => value,
        };
        parts.push(name.map_or_else(|| value.to_owned(), |name| format!("{name}:{value}")));
    }
    if let (None, Some(changed)) = (found, changed) {
        let name = serde_json::Value::from(segment);
        parts.push(if is_list { changed.to_owned() } else { format!("{name}:{changed}") });
    }
    let (open, close) = if is_list { ('[', ']') } else { ('{', '}') };
    format!("{open}{}{close}", parts.join(","))
}

/// Which child a segment names. Of a name that is there twice the last counts, as everywhere.
fn place(children: &[Child<'_>], segment: &str) -> Option<usize> {
    match children.first()?.name {
        Some(_) => {
            children.iter().rposition(|child| child.name.is_some_and(|name| unquoted(name) == segment))
        }
        None => {
            let place: usize = segment.parse().ok()?;
            (place < children.len() && is_place(segment)).then_some(place)
        }
    }
}

/// Whether a segment is written as places in lists are.
pub fn is_place(segment: &str) -> bool {
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    digits && !segment.is_empty() && (segment == "0" || !segment.starts_with('0'))
}

/// What is in a list or an object, in order; none if `text` is neither.
fn children(text: &str) -> Option<Vec<Child<'_>>> {
    let is_object = match text.as_bytes().first()? {
        b'{' => true,
        b'[' => false,
        _ => return None,
    };
    let mut rest = text.get(1..text.len() - 1)?;
    let mut children = Vec::new();
    while !rest.is_empty() {
        let name = is_object.then(|| {
            let (name, after) = rest.split_at(string_len(rest));
            rest = after.get(1..).unwrap_or_default();
            name
        });
        let (value, after) = rest.split_at(value_len(rest));
        children.push(Child { name, value });
        rest = after.get(1..).unwrap_or_default();
    }
    Some(children)
}

/// How long the value is that `text` starts with.
fn value_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at += string_len(&text[at..]) - 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = r#"{"a":{"b":[1,{"c":"x,]}"},[]],"\u0064":{}},"e":null,"":2}"#;

    fn path(text: &str) -> Vec<&str> {
        if text == "." { Vec::new() } else { text.split('/').collect() }
    }

    #[test]
    fn nodes_are_found() {
        let check = |at: &str, expected: Option<&str>| assert_eq!(find(TREE, path(at)), expected, "{at}");
        check(".", Some(TREE));
        check("a/b", Some(r#"[1,{"c":"x,]}"},[]]"#));
        check("a/b/1/c", Some("\"x,]}\""));
        check("a/d", Some("{}"));
        check("e", Some("null"));
        check("", Some("2"));
        for absent in ["b", "e/x", "a/b/3", "a/b/01", "a/b/+1", "a/b/x", "a/b/2/0", "a/d/x", "a/b/"] {
            check(absent, None);
        }
        assert_eq!(find(r#"{"a":1,"a":2}"#, ["a"]), Some("2"));
    }

    #[track_caller]
    fn shown(depth: u64, expected: &str, cut: &[&str]) {
        let (mut out, mut found) = (String::new(), Vec::new());
        write_to_depth(TREE, depth, &Path::root(), &mut out, &mut found);
        assert_eq!(out, expected);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), cut);
    }

    #[test]
    fn nodes_are_shown_down_to_a_depth() {
        shown(1, "{}", &["/"]);
        shown(2, r#"{"a":{},"e":null,"":2}"#, &["a"]);
        shown(3, r#"{"a":{"b":[],"\u0064":{}},"e":null,"":2}"#, &["a/b"]);
        shown(4, r#"{"a":{"b":[1,{},[]],"\u0064":{}},"e":null,"":2}"#, &["a/b/1"]);
        shown(5, TREE, &[]);
        shown(u64::MAX, TREE, &[]);
    }

    #[track_caller]
    fn set(before: &str, at: &str, node: &str, expected: Result<&str, NodeError>) {
        let node = (!node.is_empty()).then(|| Json::read(node, 9).unwrap());
        let after = replaced(&Json::read(before, 9).unwrap(), &path(at), node.as_ref());
        let after = after.map(|json| json.map_or(String::new(), |json| json.to_string()));
        assert_eq!(after, expected.map(str::to_owned), "{before} {at}");
    }

    #[test]
    fn nodes_are_replaced() {
        set("1", ".", "2", Ok("2"));
        set("1", ".", "", Ok(""));
        set(r#"{"a":1}"#, "a", "[2]", Ok(r#"{"a":[2]}"#));
        set(r#"{"a":1}"#, "b\"", "null", Ok(r#"{"a":1,"b\"":null}"#));
        set("{}", "a", "1", Ok(r#"{"a":1}"#));
        set("[]", "0", "1", Ok("[1]"));
        set("[1,2,3]", "1", "{}", Ok("[1,{},3]"));
        set("[1]", "1", "2", Ok("[1,2]"));
        set("[1]", "2", "2", Err(NodeError::Missing(1)));
        set("[1]", "x", "2", Err(NodeError::Missing(1)));
        set(r#"{"a":[{"b":1},2]}"#, "a/0/b", "\"x\"", Ok(r#"{"a":[{"b":"x"},2]}"#));
        set(r#"{"a":1}"#, "b/c", "1", Err(NodeError::Missing(1)));
        set(r#"{"a":1}"#, "a/c", "1", Err(NodeError::NoContainer(1)));
        set("1", "c", "1", Err(NodeError::NoContainer(0)));
        set(r#"{"a":1,"a":2}"#, "a", "3", Ok(r#"{"a":1,"a":3}"#));
    }

    #[test]
    fn nodes_are_removed() {
        set(r#"{"a":1,"b":{"c":[1,2]}}"#, "a", "", Ok(r#"{"b":{"c":[1,2]}}"#));
        set(r#"{"a":1,"b":{"c":[1,2]}}"#, "b/c/0", "", Ok(r#"{"a":1,"b":{"c":[2]}}"#));
        set(r#"{"a":1}"#, "a", "", Ok("{}"));
        set(r#"{"a":1,"\u0061":2,"b":3}"#, "a", "", Ok(r#"{"b":3}"#));
        set(r#"{"a":1}"#, "b", "", Err(NodeError::Missing(1)));
        set("[]", "0", "", Err(NodeError::Missing(1)));
        set("[[]]", "0/0", "", Err(NodeError::Missing(2)));
    }
}
