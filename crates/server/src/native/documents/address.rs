//! Which document, or node of one, an address of the server names. Knows nothing of what is done there.

use super::decode::Decoder;
use crate::{
    native::{HttpError, http::check_namespace},
    shared::Shared,
};
use axum::extract::FromRequestParts;
use hyper::http::request::Parts;
use lockwood_model::{AddressError, DocumentKey, NodeAddress, Path};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use std::sync::Arc;

/// `/v1/NAMESPACE/documents/COLLECTION/KEY/PATH`, and the same with another word instead of `documents`.
///
/// What follows the word is a path of the tree, as locks and commands write it, with the same escapes.
pub(in crate::native) struct Addressed {
    pub(super) namespace: String,
    pub(super) document: DocumentKey,
    /// The node that the address leads to; none if it ends with the document.
    node: Option<Path>,
}

impl FromRequestParts<Arc<Shared>> for Addressed {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Addressed, HttpError> {
        let read = |text: &str| text.parse::<Path>().map_err(|error| wrong(&AddressError::Path(error)));
        let whole = parts.uri.path();
        let namespace = read(whole.split('/').nth(2).unwrap_or_default())?;
        let namespace = namespace.segments().next().unwrap_or_default().to_owned();
        check_namespace(shared, &namespace)?;
        // `v1`, the namespace and the word come before it.
        let path = read(whole.match_indices('/').nth(3).map_or("", |(start, _)| &whole[start..]))?;
        let NodeAddress { document, path } = NodeAddress::of(&path).map_err(|error| wrong(&error))?;
        let decoder = Decoder(&shared.config.limits);
        decoder.document_key(&document)?;
        decoder.node(&path)?;
        Ok(Addressed { namespace, document, node: Some(path).filter(|path| !path.is_empty()) })
    }
}

impl Addressed {
    /// The node that is meant: in the address, or in the parameter `path`.
    pub(super) fn node(&self, path: Option<&str>) -> Result<Option<Path>, Trouble> {
        let Some(path) = path else { return Ok(self.node.clone()) };
        if self.node.is_some() {
            let message = "the address leads to a node already; leave out path, or what follows the key";
            return Err(Trouble::new(Code::BadQuery, message));
        }
        lockwood_node::listing::read_path(path).map(Some)
    }
}

fn wrong(error: &AddressError) -> Trouble {
    let code = match error {
        AddressError::Key(_) | AddressError::Spelling { .. } => Code::BadKey,
        AddressError::Path(_) | AddressError::Namespace | AddressError::Collection(_) => Code::BadPath,
    };
    Trouble::new(code, error.to_string())
}
