//! Documents that stand for locks. They are leases: to create one is to take a lease on its path, so everybody else
//! sees it and is kept out by it, and to delete it is to release the lease. Knows nothing of how requests and answers
//! are written.

use super::{
    answer::Refusal,
    change::{Current, Expected, Step, Write},
    document::{ATTEMPTS_MAX, blocked},
    index,
    name::{At, UNTYPED},
    outcome::{Done, Outcome},
    source::Source,
};
use crate::shared::Shared;
use lockwood_model::{Depth, Json, Lease, LeaseVia, Mode, Path, Resource, Scalar, Wait};
use lockwood_node::{
    gate,
    lease::{self, LeaseRequest, Taken, Which},
};
use lockwood_wire::Code;
use std::sync::Arc;

/// Who has a lock whose document names no process.
const NOBODY: &str = "elasticsearch";

/// Whether the documents of a collection stand for locks: those of type `lock`, and those without a type in an
/// index that is called `lock` or `locks`, or ends so after a dash or an underscore.
pub(super) fn is_lock(index: &str, collection: &str) -> bool {
    if collection != UNTYPED {
        return collection == "lock";
    }
    ["lock", "locks"].into_iter().any(|word| {
        index.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with(['-', '_']))
    })
}

/// A lock's document as it is.
pub(super) async fn get(shared: &Arc<Shared>, at: &At) -> Result<Option<Current>, Refusal> {
    Ok(look(shared, at).await?.map(|lease| current(&lease)))
}

async fn look(shared: &Arc<Shared>, at: &At) -> Result<Option<Lease>, Refusal> {
    let lease = lease::at_path(shared, &at.index, &gate::document_path(&at.key));
    // What is told of it must be true for good.
    lease::settle(shared, &at.index).await?;
    Ok(lease)
}

/// The token of the lease is told as its sequence number: like that, it grows with every grant.
pub(super) fn current(lease: &Lease) -> Current {
    let source = Source::of_note(lease.note.as_ref());
    Current { source, version: lease.version, seq_no: lease.token.0 }
}

/// Writes a lock's document, again from the beginning if somebody else was faster.
pub(super) async fn write(shared: &Arc<Shared>, at: &At, write: &Write) -> Result<Done, Refusal> {
    let Expected { seq_no, .. } = write.expected;
    if seq_no.is_some() {
        let reason = "the sequence number of a lock's document is its token, not a version; use [version] instead of \
                      [if_seq_no]";
        return Err(Refusal::argument(reason));
    }
    let attempts = write.retries.map_or(ATTEMPTS_MAX, |retries| retries + 1);
    for _ in 0..attempts {
        let lease = look(shared, at).await?;
        let seen = lease.as_ref().map(current);
        let step = write.decide(at, seen.as_ref())?;
        let done = match (step, lease) {
            (Step::Create(source), _) => create(shared, at, &source).await?,
            (Step::Replace(source), Some(lease)) => replace(shared, at, &lease, &source).await?,
            (Step::Remove, Some(lease)) => remove(shared, at, &lease).await?,
            (Step::Noop, lease) => Some(unchanged(Outcome::Noop, lease.as_ref())),
            (Step::NotFound, _) | (Step::Replace(_) | Step::Remove, None) => {
                Some(unchanged(Outcome::NotFound, None))
            }
        };
        if let Some(done) = done {
            return Ok(done);
        }
    }
    let reason = "the lock changed while its document was being written; read it again, or let retry_on_conflict be higher";
    Err(at.conflict(reason))
}

fn unchanged(outcome: Outcome, lease: Option<&Lease>) -> Done {
    let (version, seq_no) = lease.map_or((1, 0), |lease| (lease.version, lease.token.0));
    Done { outcome, version, seq_no }
}

/// Takes the lease; none if there is a document by now.
async fn create(shared: &Arc<Shared>, at: &At, source: &Source) -> Result<Option<Done>, Refusal> {
    // An index stays when its last lock goes.
    index::ensure(shared, &at.index).await?;
    let path = gate::document_path(&at.key);
    let request = LeaseRequest {
        owner: owner(source),
        via: LeaseVia::Elasticsearch,
        resources: vec![Resource::new(path, mode(source), Depth::SUBTREE)],
        ttl_ms: ttl_ms(source)?,
        wait: Wait::Never,
        note: Some(Json::trusted(&source.to_text())),
    };
    match lease::take(shared, &at.index, request).await {
        Ok(Taken::Granted(lease)) => {
            Ok(Some(Done { outcome: Outcome::Created, version: lease.version, seq_no: lease.token.0 }))
        }
        Ok(Taken::Held(lease)) if lease.via == LeaseVia::Elasticsearch => Ok(None),
        Ok(Taken::Held(lease)) => Err(at.conflict(&format!(
            "{:?} has held it (lock {}) since {} and not through Elasticsearch; release that lock first",
            lease.owner,
            lease.lock,
            lockwood_node::clock::rfc3339(lease.granted_at)
        ))),
        Ok(Taken::Queued(..)) => unreachable!("it did not want to wait"),
        Err(trouble) => Err(blocked(at, trouble)),
    }
}

/// Writes something else on the lease; none if it is not as it was.
async fn replace(
    shared: &Arc<Shared>,
    at: &At,
    lease: &Lease,
    source: &Source,
) -> Result<Option<Done>, Refusal> {
    let held = Source::of_note(lease.note.as_ref());
    if owner(source) != *lease.owner || mode(source) != mode(&held) {
        let reason = format!(
            "{:?} has held it (lock {}) since {}; process_id and whether lock_type is shared cannot be written over, \
             delete the document first",
            lease.owner,
            lease.lock,
            lockwood_node::clock::rfc3339(lease.granted_at)
        );
        return Err(at.conflict(&reason));
    }
    let ttl_ms = ttl_ms(source)?;
    let note = Json::trusted(&source.to_text());
    let written = lease::rewrite(shared, &at.index, (lease.lock, lease.version), note, ttl_ms).await;
    let Some(written) = or_gone(at, written)? else { return Ok(None) };
    Ok(Some(Done { outcome: Outcome::Updated, version: written.version, seq_no: written.token.0 }))
}

/// Releases the lease; none if it is not as it was.
pub(super) async fn remove(shared: &Arc<Shared>, at: &At, lease: &Lease) -> Result<Option<Done>, Refusal> {
    let ended = lease::release_unchanged(shared, &at.index, lease.lock, lease.version).await;
    let ended = or_gone(at, ended)?;
    Ok(ended.map(|ended| Done {
        outcome: Outcome::Deleted,
        version: ended.version + 1,
        seq_no: ended.token.0,
    }))
}

/// A lease that is over by now is one that is not as it was.
fn or_gone<T>(
    at: &At,
    done: Result<Option<T>, lockwood_node::trouble::Trouble>,
) -> Result<Option<T>, Refusal> {
    match done {
        Err(trouble) if trouble.code == Code::LockLost => Ok(None),
        done => done.map_err(|trouble| blocked(at, trouble)),
    }
}

/// Releases all locks of an index that have documents.
pub(super) async fn remove_all(shared: &Arc<Shared>, index: &str) -> Result<(), Refusal> {
    for lease in lease::below_path(shared, index, &Path::root()) {
        let which = Which::Lock { lock: lease.lock, token: None, owner: None };
        match lease::release(shared, index, &which).await {
            Err(trouble) if trouble.code == Code::LockLost => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// The process that a document names, in its own words.
fn owner(source: &Source) -> String {
    let named = source.get("process_id").map(|id| match Scalar::read(id.as_str()) {
        Scalar::Null => String::new(),
        Scalar::Text(text) => text.into_owned(),
        _ => id.as_str().to_owned(),
    });
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| NOBODY.to_owned())
}

fn mode(source: &Source) -> Mode {
    let is_shared = source.get("lock_type").is_some_and(|kind| kind.as_str() == "\"shared\"");
    if is_shared { Mode::Read } else { Mode::Write }
}

/// How long it is held without being written again; until it is deleted if absent.
fn ttl_ms(source: &Source) -> Result<Option<u64>, Refusal> {
    let Some(ttl) = source.get("ttl_ms").filter(|ttl| !ttl.is_null()) else { return Ok(None) };
    let ttl_ms = ttl.as_str().parse().map_err(|_| {
        Refusal::argument(format!("ttl_ms is {ttl}; it is the time the lock is held, in milliseconds"))
    })?;
    Ok(Some(ttl_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_documents_are_locks() {
        for (index, collection) in
            [("fs", "lock"), ("lock", "_doc"), ("fs-lock", "_doc"), ("a_locks", "_doc")]
        {
            assert!(is_lock(index, collection), "{index}/{collection}");
        }
        for (index, collection) in [
            ("fs", "_doc"),
            ("fs", "file"),
            ("lock", "file"),
            ("clock", "_doc"),
            ("locksmith", "_doc"),
            ("fs", "locks"),
        ] {
            assert!(!is_lock(index, collection), "{index}/{collection}");
        }
    }

    #[test]
    fn whose_locks_they_are() {
        let source = |json: &str| Source::read(json, 9).unwrap();
        for (json, expected) in [
            (r#"{"process_id":123}"#, "123"),
            (r#"{"process_id":"p:1"}"#, "p:1"),
            (r#"{"process_id":""}"#, "elasticsearch"),
            (r#"{"process_id":null}"#, "elasticsearch"),
            (r#"{"process_id":[1]}"#, "[1]"),
            ("{}", "elasticsearch"),
        ] {
            assert_eq!(owner(&source(json)), expected, "{json}");
        }
        assert_eq!(mode(&source(r#"{"lock_type":"shared"}"#)), Mode::Read);
        assert_eq!(mode(&source(r#"{"lock_type":"exclusive"}"#)), Mode::Write);
        assert_eq!(ttl_ms(&source(r#"{"ttl_ms":5}"#)).unwrap(), Some(5));
        assert!(ttl_ms(&source(r#"{"ttl_ms":-5}"#)).is_err());
    }
}
