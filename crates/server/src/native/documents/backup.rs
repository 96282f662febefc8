//! Everything a server keeps, of one moment, as one stream of bytes. Knows nothing of what is in it.

use super::{read::aside, stream::stream};
use crate::{
    native::{HttpError, http::App},
    shared::Shared,
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use hyper::header;
use lockwood_node::trouble::Trouble;
use lockwood_storage::BackupWriter;
use lockwood_wire::{ABOUT_BYTES_HEADER, Problem};
use std::sync::{Arc, atomic::Ordering};

/// Everything the server keeps, all namespaces and all it knows of itself, as of one moment: for `lockwood
/// restore-backup`. A backup that does not end with its last block is not complete.
#[utoipa::path(get, path = "/v1/backup",
    responses((status = 200, description = "The backup.", content_type = "application/octet-stream",
        headers(("x-lockwood-about-bytes" = u64, description = "About how many bytes it has; not on every store."))),
    (status = 503, description = "Too many backups are being taken, or memory is used up.", body = Problem)))]
pub(in crate::native) async fn backup(State(shared): App) -> Result<Response, HttpError> {
    let turn = Turn::take(&shared)?;
    let (pieces, body) = stream(&shared)?;
    let (snapshot, now) = (shared.ledger.snapshot(), shared.clock.now());
    let estimated = aside(move || {
        let writer = BackupWriter::new(snapshot, now);
        let about = writer.about_bytes()?;
        Ok((writer, about))
    });
    let (writer, about) = estimated.await?;
    tokio::spawn(async move {
        let _turn = turn;
        // Whoever is gone needs no more of it.
        let _ = pieces.write(writer, |writer| Ok(writer.write()?)).await;
    });
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    if let Some(about) = about {
        response.headers_mut().insert(ABOUT_BYTES_HEADER, about.into());
    }
    Ok(response)
}

/// One of the backups that may be taken at the same time: each keeps what is replaced meanwhile on disk.
struct Turn(Arc<Shared>);

impl Turn {
    fn take(shared: &Arc<Shared>) -> Result<Turn, Trouble> {
        let limit = shared.config.limits.backups_max;
        let turn = Turn(Arc::clone(shared));
        if shared.backups.fetch_add(1, Ordering::AcqRel) >= limit {
            return Err(Trouble::too_many("backups_max", limit, "as many backups are being taken as may be"));
        }
        Ok(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.backups.fetch_sub(1, Ordering::AcqRel);
    }
}
