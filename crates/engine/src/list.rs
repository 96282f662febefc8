//! Adding elements to a list and removing them. Knows nothing of documents.

use crate::{
    fault::{Fault, is_planted},
    request::ListChange,
};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use lockwood_model::{Json, Number, Scalar};

/// The value is not a list of whole numbers and strings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAList;

/// What a list can hold, so that equal elements are equal however they are written.
#[derive(PartialEq, Eq, Hash)]
enum Element {
    Whole(i128),
    Text(String),
}

/// What the list becomes, or none if there is nothing to touch: removing from what is not there.
pub(crate) fn changed(stored: Option<&Json>, change: &ListChange) -> Result<Option<Json>, NotAList> {
    if stored.is_none() && change.add.is_none() && !is_planted(Fault::RemoveTouchesAbsent) {
        return Ok(None);
    }
    let mut list = stored.map_or(Ok(Vec::new()), elements)?;
    if let Some(add) = &change.add {
        let known = set(&list)?;
        // Only against what was stored: what is given twice is added twice.
        for element in add {
            if !known.contains(&read(element.as_str())?) {
                list.push(element.as_str().to_owned());
            }
        }
    }
    // Nothing is removed from a field that was absent, not even what was just added.
    if let Some(remove) = change.remove.as_ref().filter(|_| stored.is_some()) {
        let gone = remove
            .iter()
            .map(|element| read(element.as_str()))
            .collect::<Result<HashSet<_, FixedState>, _>>()?;
        let mut kept = Vec::with_capacity(list.len());
        for element in list {
            if !gone.contains(&read(&element)?) {
                kept.push(element);
            }
        }
        list = kept;
    }
    Ok(Some(Json::trusted(&format!("[{}]", list.join(",")))))
}

fn set(list: &[String]) -> Result<HashSet<Element, FixedState>, NotAList> {
    list.iter().map(|element| read(element)).collect()
}

fn elements(stored: &Json) -> Result<Vec<String>, NotAList> {
    let raw: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(stored.as_str()).map_err(|_| NotAList)?;
    let list: Vec<String> = raw.into_iter().map(|element| element.get().to_owned()).collect();
    // Even what is not touched must be what a list holds.
    list.iter().try_for_each(|element| read(element).map(drop))?;
    Ok(list)
}

fn read(element: &str) -> Result<Element, NotAList> {
    match Scalar::read(element) {
        Scalar::Number(Number::Whole(whole)) => Ok(Element::Whole(whole)),
        Scalar::Text(text) => Ok(Element::Text(text.into_owned())),
        _ => Err(NotAList),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<Vec<Json>> {
        let raw: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
        Some(raw.into_iter().map(Json::from).collect())
    }

    /// Empty text is an absent value.
    #[track_caller]
    fn check(stored: &str, add: &str, remove: &str, expected: Result<&str, NotAList>) {
        let before = Json::read(stored, 9).ok();
        let change = ListChange { field: "f".into(), add: list(add), remove: list(remove) };
        let after = changed(before.as_ref(), &change);
        let after = after.map(|json| json.map_or(String::new(), |json| json.to_string()));
        assert_eq!(after, expected.map(str::to_owned), "{stored} +{add} -{remove}");
    }

    #[test]
    fn adding() {
        check("", "[1]", "", Ok("[1]"));
        check("[]", "[\"a\"]", "", Ok("[\"a\"]"));
        check("[42]", "[1]", "", Ok("[42,1]"));
        check("[42]", "[42]", "", Ok("[42]"));
        check("", "[1,1,2]", "", Ok("[1,1,2]"));
        check("[1]", "[\"1\"]", "", Ok("[1,\"1\"]"));
        check("5", "[1]", "", Err(NotAList));
        check("[[1]]", "[1]", "", Err(NotAList));
    }

    #[test]
    fn removing() {
        check("", "", "[1]", Ok(""));
        check("[]", "", "[1]", Ok("[]"));
        check("[1]", "", "[1]", Ok("[]"));
        check("[1,2,1]", "", "[1,7]", Ok("[2]"));
        check("[\"\\u0061\"]", "", "[\"a\"]", Ok("[]"));
        check("5", "", "[1]", Err(NotAList));
        check("[{}]", "", "[1]", Err(NotAList));
    }

    #[test]
    fn adding_comes_first() {
        check("[1]", "[2]", "[1]", Ok("[2]"));
        check("[]", "[2]", "[2]", Ok("[]"));
    }

    #[test]
    fn nothing_is_removed_from_an_absent_field() {
        check("", "[1,2]", "[1]", Ok("[1,2]"));
        check("", "[2]", "[2]", Ok("[2]"));
        check("[]", "[1,2]", "[1]", Ok("[2]"));
    }
}
