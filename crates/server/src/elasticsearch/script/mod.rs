//! Scripts of updates: the small part of Groovy and Painless that lock documents need. There are no loops and
//! no calls, so a script ends after as many steps as it has words. Knows nothing of documents or requests.

mod lex;
mod parse;
mod run;
#[cfg(test)]
mod script_fuzz;
#[cfg(test)]
mod script_test;

use self::parse::Statement;
use serde_json::{Map, Value};

/// Blocks and brackets inside each other.
const DEPTH_MAX: usize = 50;

/// A script that was understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    text: Box<str>,
    statements: Vec<Statement>,
}

/// What a script works on, and what it leaves.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Context {
    pub(super) op: String,
    pub(super) source: Map<String, Value>,
    /// What can be read but not written: `_index`, `_type`, `_id`, `_version`.
    pub(super) about: Map<String, Value>,
}

/// Why a script was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misread {
    pub(super) reason: String,
    /// At which byte.
    pub(super) at: usize,
}

/// Why a script stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// As Elasticsearch calls it, for example `power_assertion_error`.
    pub(super) kind: String,
    pub(super) reason: String,
}

impl Script {
    pub(super) fn read(text: &str) -> Result<Script, Misread> {
        let statements = parse::parse(text)?;
        Ok(Script { text: text.into(), statements })
    }

    /// As it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn run(&self, context: &mut Context, params: &Map<String, Value>) -> Result<(), Failure> {
        run::run(self, context, params)
    }
}

impl Failure {
    fn new(kind: &str, reason: impl Into<String>) -> Failure {
        Failure { kind: kind.to_owned(), reason: reason.into() }
    }
}
