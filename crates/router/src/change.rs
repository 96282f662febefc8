//! A change of the map: only what it names becomes different. Knows nothing of how nodes learn of it.

use crate::{Function, Host, MapError, host::shards_from_json};
use serde_json::Value;

/// What `schema.config` names; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The shards and their hosts.
    pub list: Option<Vec<Vec<Host>>>,
    /// Where keys are to be.
    pub curr: Option<Function>,
    /// Where they come from; `Some(None)` is written `false` and ends the transition.
    pub prev: Option<Option<Function>>,
}

impl Change {
    /// The change that is written as `value`.
    pub fn from_json(value: &Value) -> Result<Change, MapError> {
        let Value::Object(fields) = value else { return Err(MapError::json("config", "not an object")) };
        let mut change = Change::default();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("list", list) => change.list = Some(shards_from_json("list", list)?),
                ("curr", function) => change.curr = Some(Function::from_json("curr", function)?),
                ("prev", Value::Bool(false)) => change.prev = Some(None),
                ("prev", function) => change.prev = Some(Some(Function::from_json("prev", function)?)),
                ("this" | "mode", _) => {
                    return Err(MapError::json(
                        name,
                        "belongs to one node; it is given when the node starts",
                    ));
                }
                _ => return Err(MapError::json(name, "unknown; list, curr and prev can be given")),
            }
        }
        Ok(change)
    }
}
