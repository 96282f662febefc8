//! Secondary indexes: which there are, and which there shall be. Knows nothing of how they are built.

use super::{answer::json_of, decode::Decoder, read::Moment};
use crate::{
    native::{
        HttpError,
        http::{App, InPath},
    },
    shared::Shared,
};
use axum::{extract::State, response::Response};
use lockwood_model::FieldPath;
use lockwood_node::{schemas::check_fields, trouble::Trouble, work::Job};
use lockwood_storage::IndexState as Stored;
use lockwood_wire::{
    Code, Problem,
    documents::{IndexInfo, IndexState, Indexes},
};
use std::sync::Arc;

/// The indexes of a namespace, by collection.
#[utoipa::path(get, path = "/v1/{namespace}/indexes", params(("namespace" = String, Path)),
    responses((status = 200, body = Indexes), (status = 400, body = Problem)))]
pub(in crate::native) async fn indexes(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    Ok(json_of(&Indexes { indexes: all(&shared, &namespace)? }))
}

fn all(shared: &Shared, namespace: &str) -> Result<Vec<IndexInfo>, Trouble> {
    let moment = Moment::now(shared, namespace)?;
    let found = moment.namespace.map_or(Ok(Vec::new()), |id| moment.reading.state().all_indexes(id))?;
    let info = found.into_iter().map(|(collection, index)| IndexInfo {
        collection,
        field: index.field.to_string(),
        state: match index.state {
            Stored::Building => IndexState::Building,
            Stored::Ready => IndexState::Ready,
        },
    });
    Ok(info.collect())
}

fn one(shared: &Shared, namespace: &str, collection: &str, field: &FieldPath) -> Result<IndexInfo, Trouble> {
    let field = field.to_string();
    let found = all(shared, namespace)?;
    let found = found.into_iter().find(|index| index.collection == collection && index.field == field);
    found.ok_or_else(|| {
        Trouble::new(Code::NoIndex, format!("there is no index for the field {field:?} of {collection:?}"))
    })
}

/// Declares an index, which then makes filters quicker that compare its field, or what is inside one: `address.zip`. It is built in the background.
#[utoipa::path(put, path = "/v1/{namespace}/indexes/{collection}/{field}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("field" = String, Path)),
    responses((status = 200, body = IndexInfo), (status = 400, body = Problem)))]
pub(in crate::native) async fn declare(
    State(shared): App,
    InPath((namespace, collection, field)): InPath<(String, String, String)>,
) -> Result<Response, HttpError> {
    let field = check(&shared, &namespace, &collection, &field)?;
    check_known(&shared, &namespace, &collection, &field).await?;
    let limit = shared.config.limits.indexes_max;
    if shared.shard.declare_index(&namespace, (&collection, &field), true, limit).await? {
        build(&shared);
    }
    Ok(json_of(&one(&shared, &namespace, &collection, &field)?))
}

/// Takes an index away; answers what it was.
#[utoipa::path(delete, path = "/v1/{namespace}/indexes/{collection}/{field}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("field" = String, Path)),
    responses((status = 200, body = IndexInfo), (status = 404, body = Problem)))]
pub(in crate::native) async fn drop_index(
    State(shared): App,
    InPath((namespace, collection, field)): InPath<(String, String, String)>,
) -> Result<Response, HttpError> {
    let field = check(&shared, &namespace, &collection, &field)?;
    let index = one(&shared, &namespace, &collection, &field)?;
    shared.shard.declare_index(&namespace, (&collection, &field), false, u64::MAX).await?;
    Ok(json_of(&index))
}

/// An index on a field that the collection's schema does not know would stay empty, unless its policy is lenient.
async fn check_known(
    shared: &Shared,
    namespace: &str,
    collection: &str,
    field: &FieldPath,
) -> Result<(), Trouble> {
    if shared.schemas.active(shared, namespace)?.is_lenient(collection) {
        return Ok(());
    }
    check_fields(&Job::new(shared), namespace, vec![(collection, field)]).await
}

fn check(shared: &Shared, namespace: &str, collection: &str, field: &str) -> Result<FieldPath, Trouble> {
    crate::native::http::check_namespace(shared, namespace)?;
    let decoder = Decoder(&shared.config.limits);
    decoder.collection(collection)?;
    let path = decoder.path(field)?;
    if super::answer::is_reserved(path.root()) {
        return Err(Trouble::new(Code::ReservedField, format!("{field:?} cannot be indexed")));
    }
    Ok(path)
}

/// Builds what is not built yet, beside everything else.
pub(crate) fn build(shared: &Arc<Shared>) {
    let shard = Arc::clone(&shared.shard);
    tokio::spawn(async move {
        if let Err(error) = shard.fill_indexes().await {
            tracing::error!(?error, "build indexes");
        }
    });
}
