//! A document on its way from one shard to another, with its past, as it is kept in the log and sent. Knows
//! nothing of shards.

use crate::entry::{StoredDocument, StoredKey, key, stored_key};
use lockwood_model::{Document, DocumentKey, Json, Position, Timestamp};
use serde::{Deserialize, Serialize};

/// Everything a shard knows of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Which.
    pub at: DocumentKey,
    /// As it is, deleted or not; none if there is nothing.
    pub document: Option<Document>,
    /// Whether nothing is known of it there, so that what the other side has is what counts.
    pub kept: bool,
    /// How it became so, oldest first.
    pub steps: Vec<MovedStep>,
    /// The calls with an idempotency key that made it so.
    pub answers: Vec<MovedAnswer>,
}

/// One step of a moved document's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedStep {
    /// Where it was done.
    pub position: Position,
    /// How it is undone, as the state keeps it; none if the document came into being.
    pub undo: Option<Vec<u8>>,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub user: Option<Json>,
    /// Why.
    pub note: Option<Json>,
}

/// What was answered to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAnswer {
    /// The idempotency key.
    pub key: Box<str>,
    /// The digest of the call.
    pub fingerprint: [u8; 16],
    /// The position of its first request.
    pub first: Position,
    /// And of its last.
    pub last: Position,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredMoved<'a> {
    #[serde(borrow)]
    at: StoredKey<'a>,
    document: Option<StoredDocument<'a>>,
    kept: bool,
    steps: Vec<StoredStep<'a>>,
    answers: Vec<(&'a str, [u8; 16], u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct StoredStep<'a> {
    position: u64,
    #[serde(borrow)]
    undo: Option<&'a [u8]>,
    at: u64,
    user: Option<&'a str>,
    note: Option<&'a str>,
}

impl Moved {
    /// That there is nothing at a key.
    pub fn nothing(at: &DocumentKey) -> Moved {
        let (steps, answers) = (Vec::new(), Vec::new());
        Moved { at: at.clone(), document: None, kept: false, steps, answers }
    }

    /// That nothing is known of a key.
    pub fn kept(at: &DocumentKey) -> Moved {
        Moved { kept: true, ..Moved::nothing(at) }
    }
}

impl<'a> From<&'a Moved> for StoredMoved<'a> {
    fn from(moved: &'a Moved) -> StoredMoved<'a> {
        let step = |step: &'a MovedStep| StoredStep {
            position: step.position.0,
            undo: step.undo.as_deref(),
            at: step.at.0,
            user: step.user.as_ref().map(Json::as_str),
            note: step.note.as_ref().map(Json::as_str),
        };
        let answer =
            |answer: &'a MovedAnswer| (&*answer.key, answer.fingerprint, answer.first.0, answer.last.0);
        StoredMoved {
            at: stored_key(&moved.at),
            document: moved.document.as_ref().map(StoredDocument::from),
            kept: moved.kept,
            steps: moved.steps.iter().map(step).collect(),
            answers: moved.answers.iter().map(answer).collect(),
        }
    }
}

impl StoredMoved<'_> {
    /// None if it is not what was written.
    pub(crate) fn to_moved(&self) -> Option<Moved> {
        let step = |step: &StoredStep<'_>| MovedStep {
            position: Position(step.position),
            undo: step.undo.map(Vec::from),
            at: Timestamp(step.at),
            user: step.user.map(Json::trusted),
            note: step.note.map(Json::trusted),
        };
        let answer = |&(key, fingerprint, first, last): &(&str, [u8; 16], u64, u64)| MovedAnswer {
            key: key.into(),
            fingerprint,
            first: Position(first),
            last: Position(last),
        };
        Some(Moved {
            at: key(self.at.clone())?,
            document: self.document.as_ref().map(StoredDocument::to_document),
            kept: self.kept,
            steps: self.steps.iter().map(step).collect(),
            answers: self.answers.iter().map(answer).collect(),
        })
    }
}
