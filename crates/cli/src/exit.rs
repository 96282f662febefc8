//! Exit codes, and which error has which. Knows nothing of commands.

use crate::output;
use lockwood_client::{Code, Error, Refusal};
use serde_json::{Value, json};
use std::{
    io::Read,
    net::ToSocketAddrs,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

/// Something here does not work: a file, the terminal, the server that was to be started.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;

/// The data is not what it should be: no JSON, or a dump that broke off.
pub(crate) const BAD_DATA: u8 = 65;
/// There is no such document.
pub(crate) const NO_DOCUMENT: u8 = 66;
/// No server answers, or it takes no locks now.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The server refused for a reason that waiting does not change.
pub(crate) const REFUSED: u8 = 70;
/// There is such a document already.
pub(crate) const EXISTS: u8 = 73;
/// The lock was not obtained in time.
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lock is over: lost while the program ran, or before something was done under it.
pub(crate) const LOST: u8 = 76;
/// What was read has changed since.
pub(crate) const CHANGED: u8 = 77;
/// A schema does not go with earlier versions.
pub(crate) const INCOMPATIBLE: u8 = 78;
/// The program could not be started.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Whether errors are told in JSON, because the command line has `--json`.
static IN_JSON: AtomicBool = AtomicBool::new(false);

/// From now on errors are told in JSON.
pub(crate) fn tell_in_json() {
    IN_JSON.store(true, Ordering::Relaxed);
}

/// An error with its exit code and what to tell the user.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// What the server said, if it was the server that refused.
    pub(crate) refusal: Option<Box<Refusal>>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), refusal: None }
    }

    /// Tells the user.
    pub(crate) fn report(&self) -> ExitCode {
        match IN_JSON.load(Ordering::Relaxed) {
            true => eprint!("{}", output::json_line(&self.in_json())),
            false => eprintln!("lockwood: {}", self.message),
        }
        ExitCode::from(self.code)
    }

    /// The error for programs. Members are only ever added.
    pub(crate) fn in_json(&self) -> Value {
        let name = self.refusal.as_ref().map_or_else(|| name_of(self.code), |refusal| refusal.code.as_str());
        let message = self.refusal.as_ref().map_or(&self.message, |refusal| &refusal.message);
        let mut error = json!({ "code": name, "message": message, "exit_code": self.code });
        if let Some(refusal) = &self.refusal {
            let details = [
                ("lock", json!(refusal.lock)),
                ("blockers", json!(refusal.blockers)),
                ("cycle", json!(refusal.cycle)),
                ("broken", json!(refusal.broken)),
                ("reasons", json!(refusal.reasons)),
                ("shard", json!(refusal.shard)),
            ];
            for (name, value) in details {
                if !value.is_null() && value != json!([]) {
                    error[name] = value;
                }
            }
        }
        json!({ "error": error })
    }
}

/// Tells the user something that is no error of the command itself.
pub(crate) fn warn(message: &str) {
    match IN_JSON.load(Ordering::Relaxed) {
        true => eprint!("{}", output::json_line(&json!({ "warning": { "message": message } }))),
        false => eprintln!("lockwood: {message}"),
    }
}

/// What an error is called that is not the server's.
fn name_of(exit_code: u8) -> &'static str {
    match exit_code {
        USAGE => "usage",
        BAD_DATA => "bad_data",
        NO_DOCUMENT => "not_found",
        UNAVAILABLE => "unavailable",
        REFUSED => "refused",
        NOT_OBTAINED => "not_obtained",
        LOST => "lock_lost",
        CANNOT_RUN | NOT_FOUND => "cannot_run",
        _ => "failed",
    }
}

/// What is wrong with the command line, or the help that was asked for.
pub(crate) fn misused(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && IN_JSON.load(Ordering::Relaxed) {
        let text = error.render().to_string();
        return Failure::new(USAGE, text.trim_start_matches("error: ").trim_end()).report();
    }
    error.exit()
}

/// What stands in a file, or on standard input if that is `-`.
pub(crate) fn read_file(path: &str) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| bad_data(format!("cannot read {path}: {error}"));
    if path != "-" {
        return std::fs::read_to_string(path).map_err(wrong);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(wrong)?;
    Ok(text)
}

/// Something that was given is not what it should be.
pub(crate) fn bad_data(message: String) -> Failure {
    Failure::new(BAD_DATA, message)
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let code = match error {
            Error::Unreachable { .. } | Error::Disconnected { .. } => UNAVAILABLE,
            Error::Lost(_) => NOT_OBTAINED,
            Error::Refused(refusal) => match refusal.code {
                Code::Locked | Code::Timeout => NOT_OBTAINED,
                Code::NoDocument
                | Code::NoNode
                | Code::NoCollection
                | Code::NoSubject
                | Code::NoVersion
                | Code::NoProcedure => NO_DOCUMENT,
                Code::BadSchema | Code::SchemaNotObjects | Code::BadMap | Code::BadScript => BAD_DATA,
                Code::SchemaIncompatible => INCOMPATIBLE,
                Code::DocumentExists => EXISTS,
                Code::PositionLocked => CHANGED,
                Code::LockLost | Code::ReleasedByOperator => LOST,
                code if code.status() >= 500 => UNAVAILABLE,
                _ => REFUSED,
            },
            Error::Incomplete { .. } => BAD_DATA,
            Error::Closed | Error::BadAnswer(_) => REFUSED,
        };
        let message = match error {
            Error::Unreachable { address, reason } => unreachable(address, reason),
            other if code == CHANGED => {
                format!("{other}\nread it again, decide again, and write with the position of what you read")
            }
            other => other.to_string(),
        };
        let refusal = match error {
            Error::Refused(refusal) => Some(refusal.clone()),
            _ => None,
        };
        Failure { code, message, refusal }
    }
}

fn unreachable(address: &str, reason: &str) -> String {
    let mut nodes = address.split(',').map(|node| node.to_socket_addrs().map(drop));
    // Starting a server does not help if the name leads nowhere.
    match nodes.try_fold(None, |_, found| found.err().map(Some)) {
        Some(Some(error)) => format!(
            "the host in {address} cannot be found ({error}); check the name in --server or LOCKWOOD_SERVER"
        ),
        _ => format!("no Lockwood server answers at {address}; start one with `lockwood serve` ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_client::Refusal;

    #[track_caller]
    fn check(code: Code, exit: u8) {
        let refusal = Refusal::new(code, "m");
        assert_eq!(Failure::from(&Error::from(refusal)).code, exit, "{code}");
    }

    #[test]
    fn codes() {
        check(Code::Locked, 75);
        check(Code::Timeout, 75);
        check(Code::Draining, 69);
        check(Code::GracePeriod, 69);
        check(Code::OverLimit, 70);
        check(Code::Deadlock, 70);
        check(Code::NoDocument, 66);
        check(Code::DocumentExists, 73);
        check(Code::DocumentDeleted, 70);
        check(Code::PositionLocked, 77);
        check(Code::PositionTooOld, 70);
        check(Code::LockLost, 76);
        check(Code::SchemaIncompatible, 78);
        check(Code::NoSubject, 66);
        check(Code::NoProcedure, 66);
        check(Code::BadMap, 65);
        check(Code::Moving, 69);
        let broken = Failure::from(&Error::from(Refusal::new(Code::PositionLocked, "m")));
        assert!(broken.message.contains("read it again"), "{broken:?}");
        let error = Error::Unreachable { address: "127.0.0.1:1".into(), reason: "refused".into() };
        assert_eq!(
            Failure::from(&error),
            Failure::new(
                69,
                "no Lockwood server answers at 127.0.0.1:1; start one with `lockwood serve` (refused)"
            )
        );
    }

    #[test]
    fn errors_for_programs_have_a_stable_shape() {
        let refused =
            Failure::from(&Error::from(Refusal { lock: Some(7), ..Refusal::new(Code::Locked, "m") }));
        let expected = json!({"error": {"code": "locked", "message": "m", "exit_code": 75, "lock": 7}});
        assert_eq!(refused.in_json(), expected);
        let expected = json!({"error": {"code": "bad_data", "message": "no JSON", "exit_code": 65}});
        assert_eq!(bad_data("no JSON".into()).in_json(), expected);
    }
}
