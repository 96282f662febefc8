//! What is registered in a spread namespace: schemas, procedures and indexes, as one shard has them and as another one takes
//! them over from the home. Knows nothing of when that is to happen.

use super::{received, work::EVERYWHERE};
use crate::{native::build_indexes, shared::Shared};
use lockwood_model::{DocumentKey, FieldPath, Position};
use lockwood_node::{
    secret::{hex, unhex},
    shard::in_place,
    trouble::Trouble,
};
use lockwood_storage::{DocumentRef, Entry, Order, StoreError};
use lockwood_wire::{Code, documents::read_field};
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, sync::Arc};

/// Everything that is registered in a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Definitions {
    /// The documents, as a record.
    documents: String,
    /// Collection and field.
    indexes: Vec<(String, String)>,
}

/// What names a state of everything that is registered: as long as it is the same, so is the state.
pub(crate) fn digest(shared: &Shared, namespace: &str) -> Result<String, Trouble> {
    in_place(|| {
        let reading = shared.shard.read();
        let Some((id, _)) = reading.namespace(namespace)? else { return Ok(lockwood_script::hash("")) };
        let mut text = String::new();
        for collection in EVERYWHERE {
            for found in reading.state().documents(id, collection, None, Order::Forward) {
                let (at, bytes) = found?;
                let document = DocumentRef::read(&bytes)?;
                let _ = writeln!(text, "{at} {} {}", document.position(), document.deleted());
            }
        }
        for (collection, index) in reading.state().all_indexes(id)? {
            let _ = writeln!(text, "{collection:?} {:?}", index.field.to_string());
        }
        Ok(lockwood_script::hash(&text))
    })
}

/// What is registered, as this shard has it.
pub(crate) fn read(shared: &Shared, namespace: &str) -> Result<Definitions, Trouble> {
    in_place(|| {
        let reading = shared.shard.read();
        let (mut documents, mut indexes) = (Vec::new(), Vec::new());
        if let Some((id, _)) = reading.namespace(namespace)? {
            let state = reading.state();
            for collection in EVERYWHERE {
                let found = state.documents(id, collection, None, Order::Forward);
                let keys: Vec<DocumentKey> =
                    found.map(|found| Ok(found?.0)).collect::<Result<_, StoreError>>()?;
                documents.extend(state.export(id, &keys)?);
            }
            let all = state.all_indexes(id)?.into_iter();
            indexes.extend(all.map(|(collection, index)| (collection, index.field.to_string())));
        }
        let (namespace, horizon) = (namespace.into(), Position::START);
        let entry = Entry::Installed { namespace, transition: 0, horizon, documents };
        Ok(Definitions { documents: hex(&entry.encode()), indexes })
    })
}

/// Has this shard go by what the home has; durable when it answers.
pub(crate) async fn take_over(
    shared: &Arc<Shared>,
    namespace: &str,
    definitions: Definitions,
) -> Result<(), Trouble> {
    let Definitions { documents, indexes } = definitions;
    let bad = || Trouble::new(Code::BadBody, "what is registered is not a record of this namespace");
    let Entry::Installed { namespace: named, documents, .. } =
        received::read_entry(&unhex(&documents).ok_or_else(bad)?)?
    else {
        return Err(bad());
    };
    if *named != *namespace {
        return Err(bad());
    }
    let indexes = read_indexes(namespace, indexes)?;
    {
        let _changing = shared.schemas.changing.lock().await;
        let index = shared.shard.make_same(namespace, &EVERYWHERE, documents)?;
        shared.shard.shown(index).await?;
        shared.schemas.reread(shared, namespace);
        // What was decided by the earlier schemas is durable and shown before this shard says that it goes by these.
        shared.shard.shown(shared.shard.last_index()).await?;
    }
    take_indexes(shared, namespace, &indexes).await
}

fn read_indexes(
    namespace: &str,
    indexes: Vec<(String, String)>,
) -> Result<Vec<(String, FieldPath)>, Trouble> {
    let read = |(collection, field): (String, String)| {
        received::check_index(namespace, &collection, &field)?;
        Ok((collection, read_field(&field)?))
    };
    indexes.into_iter().map(read).collect()
}

/// Declares the indexes that are missing and takes away those that should not be there.
async fn take_indexes(
    shared: &Arc<Shared>,
    namespace: &str,
    wanted: &[(String, FieldPath)],
) -> Result<(), Trouble> {
    let reading = shared.shard.read();
    let known = match reading.namespace(namespace)? {
        Some((id, _)) => reading.state().all_indexes(id)?,
        None => Vec::new(),
    };
    drop(reading);
    let known = known.into_iter().map(|(collection, index)| (collection, index.field));
    for (collection, field) in known.filter(|index| !wanted.contains(index)) {
        shared.shard.declare_index(namespace, (&collection, &field), false, u64::MAX).await?;
    }
    let mut is_new = false;
    for (collection, field) in wanted {
        is_new |= shared.shard.declare_index(namespace, (collection, field), true, u64::MAX).await?;
    }
    if is_new {
        build_indexes(shared);
    }
    Ok(())
}
