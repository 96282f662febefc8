//! A held lock in the hands of its user. Knows nothing of how it was obtained.

use crate::{
    error::{Error, Loss},
    ledger::{Change, Command, Grant, Status},
    session::{self, Link, Queued},
};
use lockwood_model::{LockId, Mode, Path, Token, Wait};
use lockwood_wire::Code;
use std::fmt;
use tokio::sync::{oneshot, watch};

/// A held lock. Dropping it releases it in the background; [`Lock::release`] also waits for the server.
///
/// The lock may be lost while the server is out of reach or when an operator ends it: [`Lock::lost`] tells.
/// The client believes in it for no longer than the abandon timeout after the last sign of life that it
/// knows the server to have given. Its clock does not run while the whole machine sleeps; what must be safe
/// even then compares [`Lock::token`] at the resource.
pub struct Lock {
    link: Link,
    /// The number of the message that asked for the lock; unlike the lock's own number it never changes.
    key: u64,
    status: watch::Receiver<Status>,
    /// False once its end was asked for.
    owed: bool,
}

impl Lock {
    pub(crate) fn new(link: Link, grant: Grant) -> Lock {
        Lock { link, key: grant.key, status: grant.status, owed: true }
    }

    /// Its number within the namespace. A lock that is put back after a restart of the server has another.
    pub fn id(&self) -> LockId {
        self.status.borrow().lock
    }

    /// Its fencing token. A larger one after a conversion to a stronger mode.
    pub fn token(&self) -> Token {
        self.status.borrow().token
    }

    /// Releases it and waits for the server to confirm. An error says that it was gone before, or that the
    /// server could not be told; in the latter case it ends with the abandon timeout.
    pub async fn release(mut self) -> Result<(), Error> {
        self.owed = false;
        let (reply, answer) = oneshot::channel();
        let key = self.key;
        let mut ask = self.link.ask(answer, |id| Command::Release { id, key, reply });
        self.explain(ask.answer().await)
    }

    /// Gives all its resources another mode. Dropping the future ends the waiting; the lock keeps the modes
    /// it has then.
    pub async fn convert(&self, mode: Mode, wait: Wait) -> Result<Token, Error> {
        self.change(Change::All(mode), wait).await
    }

    /// Gives its resources at some paths another mode, all in one step.
    pub async fn convert_paths(&self, paths: Vec<(Path, Mode)>, wait: Wait) -> Result<Token, Error> {
        self.change(Change::Paths(paths), wait).await
    }

    /// Where its conversion stands; place 0 if none waits.
    pub async fn place(&self) -> Result<Queued, Error> {
        self.explain(session::place(&self.link, self.key).await)
    }

    /// Resolves when the lock is gone although it was not released. Also when the session was closed.
    pub async fn lost(&self) -> Loss {
        let mut status = self.status.clone();
        match status
            .wait_for(|status| status.loss.is_some())
            .await
            .ok()
            .and_then(|status| status.loss.clone())
        {
            Some(loss) => loss,
            None => Loss { code: Code::UnknownSession, message: "the session of the lock was closed".into() },
        }
    }

    async fn change(&self, change: Change, wait: Wait) -> Result<Token, Error> {
        let (reply, answer) = oneshot::channel();
        let key = self.key;
        let mut ask = self.link.ask(answer, |id| Command::Convert { id, key, change, wait, reply });
        self.explain(ask.answer().await)
    }

    /// An answer that never came because the lock is gone says so.
    fn explain<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match (answer, &self.status.borrow().loss) {
            (Err(Error::Closed), Some(loss)) => Err(Error::Lost(loss.clone())),
            (answer, _) => answer,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.owed {
            self.link.forget(self.key);
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.borrow();
        f.debug_struct("Lock").field("lock", &status.lock).field("token", &status.token).finish()
    }
}
