//! `lockwood shard copy` and `cleanup`: the steps of resharding that can be taken by hand, each on one node.

use super::{Common, Shown};
use crate::{
    exit::Failure,
    output::{self, Table},
};

/// Copy what moves away from the node that is asked, and wait for it
#[derive(clap::Args)]
pub(super) struct Copy {
    #[command(flatten)]
    common: Common,
}

pub(super) async fn copy(args: &Copy) -> Shown {
    let rows = args.common.shards().copy().await.map_err(|error| Failure::from(&error))?;
    if args.common.json {
        return Ok(output::json_line(&rows));
    }
    let rows = rows.into_iter().map(|row| vec![row.namespace, row.collection, row.copied.to_string()]);
    Ok(table("copied", &rows.collect::<Vec<_>>()))
}

/// Remove what has moved away from the node that is asked, and wait for it
#[derive(clap::Args)]
pub(super) struct Cleanup {
    #[command(flatten)]
    common: Common,
}

pub(super) async fn cleanup(args: &Cleanup) -> Shown {
    let rows = args.common.shards().cleanup().await.map_err(|error| Failure::from(&error))?;
    if args.common.json {
        return Ok(output::json_line(&rows));
    }
    let rows = rows.into_iter().map(|row| vec![row.namespace, row.collection, row.removed.to_string()]);
    Ok(table("removed", &rows.collect::<Vec<_>>()))
}

fn table(what: &str, rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return format!("nothing {what}\n");
    }
    let header = ["namespace", "collection", what].map(str::to_owned);
    Table::default().render(&header, rows)
}
