//! What came of a write, and how it is told. Knows nothing of how it was done.

use super::{
    answer::{Object, shards},
    change::{Order, Write},
    name::At,
};
use hyper::StatusCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Created,
    Updated,
    Deleted,
    Noop,
    NotFound,
}

/// A write that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) version: u64,
    pub(super) seq_no: u64,
}

impl Done {
    pub(super) fn status(self) -> StatusCode {
        match self.outcome {
            Outcome::Created => StatusCode::CREATED,
            Outcome::Updated | Outcome::Deleted | Outcome::Noop => StatusCode::OK,
            Outcome::NotFound => StatusCode::NOT_FOUND,
        }
    }

    /// The answer; of one of many if `status` is told in it.
    pub(super) fn object(self, at: &At, write: &Write, tell_status: bool) -> String {
        let result = match self.outcome {
            Outcome::Created => "created",
            Outcome::Updated => "updated",
            Outcome::Deleted => "deleted",
            Outcome::Noop => "noop",
            Outcome::NotFound => "not_found",
        };
        let counters = if self.outcome == Outcome::Noop { shards(0, 0) } else { shards(2, 1) };
        let is_delete = matches!(write.order, Order::Delete);
        let is_index = matches!(write.order, Order::Index(_) | Order::Create(_));
        Object::new()
            .when(at.is_typed() && is_delete, |object| object.flag("found", self.outcome == Outcome::Deleted))
            .text("_index", &at.index)
            .when(at.is_typed(), |object| object.text("_type", at.collection()))
            .text("_id", &at.id)
            .number("_version", self.version)
            .text("result", result)
            .raw("_shards", &counters)
            .number("_seq_no", self.seq_no)
            .number("_primary_term", 1)
            .when(at.is_typed() && is_index, |object| {
                object.flag("created", self.outcome == Outcome::Created)
            })
            .when(tell_status, |object| object.number("status", self.status().as_u16().into()))
            .done()
    }
}
