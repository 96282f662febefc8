//! Exit codes, and which error has which. Knows nothing of commands.

use lockwood_client::{Code, Error};
use std::{io::Read, process::ExitCode};

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

/// An error with its exit code and what to tell the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    /// Tells the user.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("lockwood: {}", self.message);
        ExitCode::from(self.code)
    }
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
    Failure { code: BAD_DATA, message }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let code = match error {
            Error::Unreachable { .. } | Error::Disconnected { .. } => UNAVAILABLE,
            Error::Lost(_) => NOT_OBTAINED,
            Error::Refused(refusal) => match refusal.code {
                Code::Locked | Code::Timeout => NOT_OBTAINED,
                Code::NoDocument | Code::NoNode | Code::NoSubject | Code::NoVersion | Code::NoProcedure => {
                    NO_DOCUMENT
                }
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
            Error::Unreachable { address, reason } => {
                format!("no Lockwood server answers at {address}; start one with `lockwood serve` ({reason})")
            }
            other if code == CHANGED => {
                format!("{other}\nread it again, decide again, and write with the position of what you read")
            }
            other => other.to_string(),
        };
        Failure { code, message }
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
        let error = Error::Unreachable { address: "h:1".into(), reason: "refused".into() };
        assert_eq!(
            Failure::from(&error),
            Failure {
                code: 69,
                message: "no Lockwood server answers at h:1; start one with `lockwood serve` (refused)"
                    .into()
            }
        );
    }
}
