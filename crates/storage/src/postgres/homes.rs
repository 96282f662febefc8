//! How homes of spread namespaces move, in the directory. Knows nothing of what a home has.
//!
//! A home moves in two statements. The first notes where it is wanted (`target`). The second names the new home; it holds only
//! while its writer owns the shard that the home leaves, so that of a mover and the next owner of that shard one comes first.
//! Both count: the setting `homes` is a number that every change of homes increases, one after the other, so a reader who has
//! seen a number has seen all changes up to it.

use super::{
    directory::{Directory, HomeRow, Parameters, home_row, parameters},
    link::CallError,
    log::{get, get_number},
    schema::to_sql,
};
use crate::log::Epoch;

/// Takes the next number. The row stays locked until the statement is over, so numbers are seen in their order.
const TURN: &str = "turn as (update lockwood.setting
    set value = convert_to((convert_from(value, 'UTF8')::bigint + 1)::text, 'UTF8')
    where name = 'homes' returning convert_from(value, 'UTF8')::bigint as number)";

impl Directory {
    /// How many changes of homes there were.
    pub async fn home_changes(&self) -> Result<u64, CallError> {
        let sql = "select convert_from(value, 'UTF8')::bigint from lockwood.setting where name = 'homes'";
        let rows = self.rows(sql, parameters![]).await?;
        rows.first().map_or(Ok(0), |row| get_number(row, 0))
    }

    /// The homes that were moved after so many changes, by name.
    pub async fn moved_homes(&self, after: u64) -> Result<Vec<(String, HomeRow)>, CallError> {
        let sql = "select home, spread, moved, name from lockwood.namespace where moved > $1 order by name";
        let rows = self.rows(sql, parameters![to_sql(after)]).await?;
        rows.iter().map(|row| Ok((get(row, 3)?, home_row(row)?))).collect()
    }

    /// Notes where a home is wanted; where it is ends that. Gives where it is; none if there is no such namespace, or its
    /// documents are not on several shards.
    pub async fn want_home(&self, namespace: &str, target: u64) -> Result<Option<u64>, CallError> {
        let sql = format!(
            "with {TURN} update lockwood.namespace set target = nullif($2::bigint, home) from turn
            where name = $1 and spread returning home"
        );
        let rows = self.rows(&sql, parameters![namespace.to_owned(), to_sql(target)]).await?;
        rows.first().map(|row| get_number(row, 0)).transpose()
    }

    /// Where the home of a namespace is wanted, if that is not where it is.
    pub async fn home_target(&self, namespace: &str) -> Result<Option<u64>, CallError> {
        let sql = "select target from lockwood.namespace where name = $1 and target is not null";
        let rows = self.rows(sql, parameters![namespace.to_owned()]).await?;
        rows.first().map(|row| get_number(row, 0)).transpose()
    }

    /// The shards with homes that are wanted elsewhere.
    pub async fn shards_to_leave(&self) -> Result<Vec<u64>, CallError> {
        let sql = "select distinct home from lockwood.namespace where target is not null order by home";
        let rows = self.rows(sql, parameters![]).await?;
        rows.iter().map(|row| get_number(row, 0)).collect()
    }

    /// Some of the homes at a shard that are wanted elsewhere, with where, by name.
    pub async fn homes_to_move(&self, from: u64, len_max: u32) -> Result<Vec<(String, u64)>, CallError> {
        let sql = "select name, target from lockwood.namespace where home = $1 and target is not null
            order by name limit $2";
        let rows = self.rows(sql, parameters![to_sql(from), i64::from(len_max)]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get_number(row, 1)?))).collect()
    }

    /// Some of the homes of spread namespaces at these shards, with the shard of each, that are wanted nowhere else.
    pub async fn homes_at(&self, shards: &[u64], len_max: u32) -> Result<Vec<(String, u64)>, CallError> {
        let shards: Vec<i64> = shards.iter().copied().map(to_sql).collect();
        let sql = "select name, home from lockwood.namespace
            where spread and target is null and home = any($1::bigint[]) order by name limit $2";
        let rows = self.rows(sql, parameters![shards, i64::from(len_max)]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get_number(row, 1)?))).collect()
    }

    /// Moves a home, if `owner` is the epoch of the owner of the shard that it leaves, and it is still there. Gives the number of
    /// this change.
    pub async fn move_home(
        &self,
        namespace: &str,
        (from, owner): (u64, Epoch),
        to: u64,
    ) -> Result<Option<u64>, CallError> {
        let sql = format!(
            "with {TURN}, owner as (select 1 from lockwood.shard where number = $2 and epoch = $4 for update)
            update lockwood.namespace set home = $3, moved = turn.number, target = null from turn, owner
            where name = $1 and home = $2 and spread returning moved"
        );
        let parameters = parameters![namespace.to_owned(), to_sql(from), to_sql(to), to_sql(owner.0)];
        let rows = self.rows(&sql, parameters).await?;
        rows.first().map(|row| get_number(row, 0)).transpose()
    }
}
