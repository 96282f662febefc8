//! How a place in a document is written: `$.address.lines[0]`. Knows nothing of schemas.

use serde_json::Value;
use std::fmt::Write;

/// The whole document.
pub(crate) const ROOT: &str = "$";

/// The path of a member: `.name`, or `['odd name']` when it is not a plain word.
pub(crate) fn member(parent: &str, name: &str) -> String {
    let mut path = String::with_capacity(parent.len() + name.len() + 1);
    path.push_str(parent);
    if is_plain(name) {
        path.push('.');
        path.push_str(name);
    } else {
        path.push_str("['");
        // Escaped, so that no name can steer the terminal it is read in.
        path.extend(name.escape_debug());
        path.push_str("']");
    }
    path
}

/// The path of an element of a list.
pub(crate) fn element(parent: &str, index: usize) -> String {
    let mut path = parent.to_owned();
    let _ = write!(path, "[{index}]");
    path
}

/// The path that a JSON pointer has in `document`: only the document tells the member `0` from element 0.
pub(crate) fn of_pointer(document: &Value, pointer: &str) -> String {
    let mut path = ROOT.to_owned();
    let mut value = Some(document);
    for written in pointer.split('/').skip(1) {
        let name = written.replace("~1", "/").replace("~0", "~");
        let index = name.parse::<usize>().ok();
        path = match (value, index) {
            (Some(Value::Array(_)), Some(index)) => element(&path, index),
            _ => member(&path, &name),
        };
        value = match value {
            Some(Value::Array(list)) => index.and_then(|index| list.get(index)),
            Some(Value::Object(object)) => object.get(&name),
            _ => None,
        };
    }
    path
}

fn is_plain(name: &str) -> bool {
    let starts_well = name.starts_with(|char: char| char.is_alphabetic() || char == '_');
    starts_well && name.chars().all(|char| char.is_alphanumeric() || char == '_' || char == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_and_elements_are_told_apart() {
        let document = json!({"a": [{"0": 1}], "odd name": {"it's": 2}, "x/y": 3});
        let check = |pointer, expected| assert_eq!(of_pointer(&document, pointer), expected);
        check("", "$");
        check("/a/0/0", "$.a[0]['0']");
        check("/odd name/it's", "$['odd name']['it\\'s']");
        check("/x~1y", "$['x/y']");
        check("/gone/0", "$.gone['0']");
        check("/\u{1b}[2J\u{202e}", "$['\\u{1b}[2J\\u{202e}']");
    }
}
