//! Where a request is to go: to a shard, or to the home of a namespace, which may move meanwhile. A call to a home names the namespace,
//! so that a shard which is the home no longer says so. Knows nothing of what requests ask for.

use super::{ClusterNode, Place, Served};
use hyper::{HeaderMap, header::HeaderValue};
use lockwood_node::secret::{hex, unhex};
use lockwood_router::ShardNo;

/// The header of a call with the namespace, in hexadecimal digits, for whose home it is.
const HOME_OF: &str = "lockwood-home-of";

/// Where a request is to go.
pub(super) enum Aim {
    /// To this shard.
    Shard(ShardNo),
    /// To the home of this namespace. That was this shard, as far as the node knew.
    Home(ShardNo, String),
}

impl Aim {
    /// The shard that it goes to now.
    pub(super) fn shard(&self, node: &ClusterNode) -> ShardNo {
        match self {
            Aim::Shard(shard) => *shard,
            Aim::Home(shard, namespace) => {
                node.homes.remembered(namespace).map_or(*shard, |placed| placed.home)
            }
        }
    }

    /// Who owns that shard; none if the owner is this node and the shard is not the home.
    pub(super) async fn place(&self, node: &ClusterNode, shard: ShardNo) -> Place {
        let place = node.place(shard);
        if let (Place::Here(served), Aim::Home(_, namespace)) = (&place, self)
            && !served.decides(namespace).await
        {
            return Place::Nowhere;
        }
        place
    }

    /// Says in a call for what it is. Whatever a client says of that is taken away.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        headers.remove(HOME_OF);
        if let Aim::Home(_, namespace) = self {
            let named = HeaderValue::try_from(hex(namespace.as_bytes()));
            headers.insert(HOME_OF, named.expect("hexadecimal digits can be in a header"));
        }
    }
}

/// Whether a shard is what a call takes it for. Takes the mark away.
pub(super) async fn is_met(headers: &mut HeaderMap, served: &Served) -> bool {
    let Some(named) = headers.remove(HOME_OF) else { return true };
    let named = named.to_str().ok().and_then(unhex).and_then(|bytes| String::from_utf8(bytes).ok());
    match named {
        Some(namespace) => served.decides(&namespace).await,
        None => false,
    }
}
