//! Many writes in one request, each on its own: reads the lines and tells what came of each. Knows nothing of how
//! writes are done.

use super::{
    answer::{Object, Refusal, list},
    change::{Order, Write},
    name::{At, UNTYPED},
    query::id,
    request::{Params, Reader},
    route::Scope,
};
use lockwood_node::secret::random;
use serde_json::{Map, Value};

/// One of the writes, or why it cannot be one.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) action: &'static str,
    pub(super) at: At,
    pub(super) write: Result<Write, Refusal>,
}

/// The members of an action that name neither a document nor a condition, and change nothing here.
const IGNORED: [&str; 7] =
    ["routing", "_routing", "version_type", "_version_type", "require_alias", "dynamic_templates", "_parent"];

impl Reader<'_> {
    /// The writes of a body; a mistake in an action spoils all, one in a document only its own write.
    pub(super) fn bulk(self, text: &str, scope: &Scope) -> Result<Vec<Item>, Refusal> {
        let limit = self.limits.bulk_items_max;
        let mut lines = text.split('\n').enumerate();
        let mut items = Vec::new();
        while let Some((number, line)) = lines.next() {
            let number = number + 1;
            if line.trim().is_empty() {
                continue;
            }
            if items.len() as u64 == limit {
                return Err(Refusal::over("bulk_items_max", limit, "the body has too many actions"));
            }
            let (action, meta) = action(line).map_err(|reason| malformed(number, &reason))?;
            let (at, params) = self.target(meta, scope, number)?;
            let mut body = || match lines.next() {
                Some((_, body)) if !body.trim().is_empty() => Ok(body),
                _ => Err(malformed(number, "its document is missing")),
            };
            let write = match action {
                "delete" => Ok(Write::new(Order::Delete)),
                "update" => self.update(body()?, &params),
                _ => self.index(body()?, action == "create"),
            };
            let write = write.and_then(|write| write.expecting(&params));
            items.push(Item { action, at, write });
        }
        if items.is_empty() {
            return Err(super::request::validation("no requests added"));
        }
        Ok(items)
    }

    fn target(
        self,
        mut meta: Map<String, Value>,
        scope: &Scope,
        line: usize,
    ) -> Result<(At, Params), Refusal> {
        let mut text = |name: &str| match meta.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                id(&value).map(Some).ok_or_else(|| malformed(line, &format!("[{name}] is text or a number")))
            }
        };
        let index = text("_index")?.or_else(|| scope.index.clone());
        let index = index.ok_or_else(|| super::request::validation("index is missing"))?;
        let collection = text("_type")?.or_else(|| scope.collection.clone());
        let id = text("_id")?.unwrap_or_else(new_id);
        let mut conditions = Vec::new();
        for (name, old) in [
            ("retry_on_conflict", "_retry_on_conflict"),
            ("version", "_version"),
            ("if_seq_no", "if_seq_no"),
            ("if_primary_term", "if_primary_term"),
        ] {
            if let Some(value) = text(name)?.or(text(old)?) {
                conditions.push((name.to_owned(), value));
            }
        }
        if let Some(name) = meta.keys().find(|name| !IGNORED.contains(&name.as_str())) {
            return Err(malformed(line, &format!("it contains an unknown parameter [{name}]")));
        }
        let at = At::new(self.limits, &index, collection.as_deref().unwrap_or(UNTYPED), &id)?;
        Ok((at, Params::of(conditions)))
    }
}

/// What is to be done, and to what.
fn action(line: &str) -> Result<(&'static str, Map<String, Value>), String> {
    let read: Map<String, Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let mut members = read.into_iter();
    let (Some((name, meta)), None) = (members.next(), members.next()) else {
        return Err("it must have one member, the action".to_owned());
    };
    let action = ["index", "create", "update", "delete"].into_iter().find(|action| *action == name);
    let action = action
        .ok_or_else(|| format!("expected one of [create, delete, index, update] but found [{name}]"))?;
    match meta {
        Value::Object(meta) => Ok((action, meta)),
        Value::Null => Ok((action, Map::new())),
        _ => Err("an action takes an object".to_owned()),
    }
}

fn malformed(line: usize, reason: &str) -> Refusal {
    Refusal::argument(format!("Malformed action/metadata line [{line}]: {reason}"))
}

/// An id that nobody else has.
pub(super) fn new_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    random::<20>().iter().map(|byte| LETTERS[usize::from(*byte % 64)] as char).collect()
}

/// The answer of a write that was not done.
pub(super) fn failed(at: &At, refusal: &Refusal) -> String {
    Object::new()
        .text("_index", &at.index)
        .when(at.is_typed(), |object| object.text("_type", at.collection()))
        .text("_id", &at.id)
        .number("status", refusal.status.as_u16().into())
        .raw("error", &refusal.object())
        .done()
}

/// The answer to all of them.
pub(super) fn answer(took_ms: u64, has_errors: bool, items: Vec<(&'static str, String)>) -> String {
    let items = items.into_iter().map(|(action, item)| Object::new().raw(action, &item).done());
    Object::new().number("took", took_ms).flag("errors", has_errors).raw("items", &list(items)).done()
}

#[cfg(test)]
mod tests {
    use super::super::library::Library;
    use super::*;
    use lockwood_node::limits::Limits;

    fn read(text: &str, limits: &Limits) -> Result<Vec<Item>, Refusal> {
        let library = Library::open(None, 1000).unwrap();
        let scope = Scope { index: Some("fs".to_owned()), collection: Some("lock".to_owned()) };
        Reader { limits, library: &library }.bulk(text, &scope)
    }

    #[test]
    fn lines() {
        let text = "{ \"delete\": { \"_id\": 1}}\n\n{\"index\":{\"_index\":\"a\",\"_type\":\"b\",\"_id\":\"x\"}}\r\n{\"f\":1}\r\n\
                    {\"create\":{}}\n[]\n{\"update\":{\"_id\":2,\"retry_on_conflict\":3}}\n{\"doc\":{}}";
        let items = read(text, &Limits::default()).unwrap();
        let at = |item: &Item| format!("{}/{}/{}", item.at.index, item.at.collection(), item.at.id);
        assert_eq!(
            items.iter().map(|item| item.action).collect::<Vec<_>>(),
            ["delete", "index", "create", "update"]
        );
        assert_eq!((at(&items[0]).as_str(), at(&items[1]).as_str()), ("fs/lock/1", "a/b/x"));
        assert!(matches!(items[0].write.as_ref().unwrap().order, Order::Delete));
        assert_eq!(items[2].at.id.len(), 20);
        assert_eq!(items[2].write.as_ref().unwrap_err().status, hyper::StatusCode::BAD_REQUEST);
        assert_eq!(items[3].write.as_ref().unwrap().retries, Some(3));
    }

    #[test]
    fn what_is_no_bulk() {
        for text in [
            "",
            "\n",
            "x",
            "[]",
            "{}",
            "{\"index\":{},\"create\":{}}",
            "{\"drop\":{}}",
            "{\"delete\":[]}",
            "{\"delete\":{\"_id\":[]}}",
            "{\"delete\":{\"_id\":1,\"x\":2}}",
            "{\"delete\":{\"_id\":\"\"}}",
            "{\"delete\":{\"_index\":\"a*\",\"_id\":1}}",
            "{\"index\":{}}",
            "{\"index\":{}}\n",
        ] {
            assert_eq!(
                read(text, &Limits::default()).expect_err(text).status,
                hyper::StatusCode::BAD_REQUEST,
                "{text}"
            );
        }
        let limits = Limits { bulk_items_max: 2, ..Limits::default() };
        let line = "{\"delete\":{\"_id\":1}}\n";
        assert!(read(&line.repeat(2), &limits).is_ok());
        assert!(read(&line.repeat(3), &limits).unwrap_err().reason.contains("bulk_items_max is 2"));
    }
}
