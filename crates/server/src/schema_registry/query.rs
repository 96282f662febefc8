//! The parameters of a request, as its clients spell them. Knows nothing of what they mean.

use super::answer::Refusal;
use hyper::StatusCode;
use std::collections::HashMap;

/// What is not known is overlooked, as the original does.
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn read(text: &str) -> Query {
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// `true`, also in Python's spelling; everything else is false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// One page of a list: `offset` and `limit`, of which nothing and what is below 1 is all.
    pub(super) fn page<T>(&self, all: Vec<T>) -> Result<Vec<T>, Refusal> {
        let offset = usize::try_from(self.number("offset")?.unwrap_or(0)).unwrap_or(0);
        let limit = self.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Ok(all.into_iter().skip(offset).take(limit).collect())
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse().map(Some);
        number.map_err(|_| {
            Refusal::plain(StatusCode::BAD_REQUEST, &format!("{name} is {text:?}; write a whole number"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_spell_as_they_like() {
        let query = Query::read("deleted=True&normalize=False&x=1&offset=1&limit=2&y");
        assert!(query.flag("deleted") && !query.flag("normalize") && !query.flag("other"));
        assert_eq!(query.page(vec![1, 2, 3, 4]), Ok(vec![2, 3]));
        assert_eq!(Query::read("offset=0&limit=-1").page(vec![1, 2]), Ok(vec![1, 2]));
        assert_eq!(Query::read("limit=many").page(vec![1]).unwrap_err().code, 400);
    }
}
