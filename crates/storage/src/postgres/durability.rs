//! How many machines an acknowledged write is on, by PostgreSQL's own settings. Knows nothing of what replicates below it.

use super::{link::CallError, log::get};
use tokio_postgres::{Row, error::SqlState};

/// The standby names are not shown to everybody; what is not shown counts as none.
pub(super) const SQL: &str = "select current_setting('synchronous_commit'),
    coalesce(current_setting('synchronous_standby_names', true), ''), current_setting('server_version'),
    pg_is_in_recovery()";

/// Details of a standby are null for roles that may not see them. Behind is what it has not replayed.
pub(super) const STANDBYS: &str =
    "select coalesce(application_name, ''), coalesce(host(client_addr), ''), state,
    sync_state, (extract(epoch from replay_lag) * 1000)::bigint from pg_stat_replication order by 1, 2, pid";

/// What a database without such a view answers, or one that keeps it to itself.
pub(super) const NOT_SHOWN: [SqlState; 3] =
    [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN, SqlState::INSUFFICIENT_PRIVILEGE];

/// A standby that is connected to the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// Its `application_name`.
    pub name: String,
    /// Where it connects from; empty for a socket of this machine.
    pub address: String,
    /// `streaming`, or what it does before that.
    pub state: String,
    /// `sync`, `quorum`, `potential` or `async`.
    pub sync_state: String,
    /// How long ago it replayed the last record, while there are some.
    pub lag_ms: Option<u64>,
}

/// None if the role may not see it.
pub(super) fn standby(row: &Row) -> Result<Option<Standby>, CallError> {
    let (state, sync_state): (Option<String>, Option<String>) = (get(row, 2)?, get(row, 3)?);
    let lag_ms: Option<i64> = get(row, 4)?;
    let (name, address) = (get(row, 0)?, get(row, 1)?);
    Ok(state.zip(sync_state).map(|(state, sync_state)| Standby {
        name,
        address,
        state,
        sync_state,
        lag_ms: lag_ms.and_then(|ms| u64::try_from(ms).ok()),
    }))
}

/// How durable an acknowledged write is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityReport {
    /// The setting in force, which is never `off` here.
    pub synchronous_commit: String,
    /// Which standbys are waited for; empty if none is.
    pub synchronous_standby_names: String,
    /// On so many machines a write is at least, when it is acknowledged. Storage that replicates below PostgreSQL, as managed
    /// services have it, is not counted.
    pub machines: u32,
    /// The version of the server.
    pub server_version: String,
    /// Whether it is a standby, which takes no writes.
    pub in_recovery: bool,
}

pub(super) fn read(row: &Row) -> Result<DurabilityReport, CallError> {
    let (synchronous_commit, synchronous_standby_names): (String, String) = (get(row, 0)?, get(row, 1)?);
    let standbys = match synchronous_commit.as_str() {
        "on" | "remote_apply" | "remote_write" => standbys(&synchronous_standby_names),
        _ => 0,
    };
    Ok(DurabilityReport {
        synchronous_commit,
        synchronous_standby_names,
        machines: 1 + standbys,
        server_version: get(row, 2)?,
        in_recovery: get(row, 3)?,
    })
}

/// For how many standbys a commit waits: `FIRST 2 (a, b, c)`, `ANY 2 (a, b, c)`, `2 (a, b, c)`, or one of `a, b, c`.
fn standbys(names: &str) -> u32 {
    let names = names.trim();
    if names.is_empty() {
        return 0;
    }
    let Some((method, _)) = names.split_once('(') else { return 1 };
    method.split_whitespace().last().and_then(|count| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_counted_as_commits_wait_for_them() {
        for (names, count) in [
            ("", 0),
            (" ", 0),
            ("a", 1),
            ("a, b", 1),
            ("*", 1),
            ("FIRST 2 (a, b, c)", 2),
            ("ANY 3 (*)", 3),
            ("2 (a, b)", 2),
            ("any 1(a,b)", 1),
        ] {
            assert_eq!(standbys(names), count, "{names:?}");
        }
    }
}
