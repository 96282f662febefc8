//! The listeners of a server, one for each interface that is wanted, and why one is left out. Knows nothing of
//! what is spoken on them.

use crate::{
    config::Config,
    front::Front,
    listener::{Service, listen},
    runtime::Services,
    serve::{Bound, LeftOut, ServeError},
};
use lockwood_wire::{GraceInfo, Interface};
use std::{net::SocketAddr, sync::Arc};
use tokio::{net::TcpListener, task::JoinSet};

/// The listeners, bound before anything else is done so that a second server fails early.
pub(crate) struct Listeners {
    pub(crate) native: TcpListener,
    pub(crate) locktopus: Option<TcpListener>,
    /// The reader and the writer.
    pub(crate) openslides: Option<(TcpListener, TcpListener)>,
    pub(crate) elasticsearch: Option<TcpListener>,
    pub(crate) schema_registry: Option<TcpListener>,
    left_out: Vec<LeftOut>,
}

impl Listeners {
    /// Binds what the configuration asks for, and takes out of it the facades that are left out.
    pub(crate) async fn bind(config: &mut Config) -> Result<Listeners, ServeError> {
        let native = bind(config, config.listen, "--listen ADDR").await?;
        let mut left_out = Vec::new();
        let locktopus = match &config.locktopus {
            Some(facade) => {
                let bound = bind(config, facade.listen, "--locktopus ADDR").await;
                or_left_out(config, "locktopus", bound, &mut left_out)?
            }
            None => None,
        };
        let openslides = match &config.openslides {
            Some(facade) => {
                let bound = bind_two(config, facade.reader, facade.writer).await;
                or_left_out(config, "openslides", bound, &mut left_out)?
            }
            None => None,
        };
        let elasticsearch = match &config.elasticsearch {
            Some(facade) => {
                let bound = bind(config, facade.listen, "--elasticsearch ADDR").await;
                or_left_out(config, "elasticsearch", bound, &mut left_out)?
            }
            None => None,
        };
        let schema_registry = match &config.schema_registry {
            Some(facade) => {
                let bound = bind(config, facade.listen, "--schema-registry ADDR").await;
                or_left_out(config, "schema_registry", bound, &mut left_out)?
            }
            None => None,
        };
        config.locktopus = config.locktopus.take().filter(|_| locktopus.is_some());
        config.openslides = config.openslides.take().filter(|_| openslides.is_some());
        config.elasticsearch = config.elasticsearch.take().filter(|_| elasticsearch.is_some());
        config.schema_registry = config.schema_registry.take().filter(|_| schema_registry.is_some());
        Ok(Listeners { native, locktopus, openslides, elasticsearch, schema_registry, left_out })
    }

    /// The listener for other nodes. One that asks for certificates may be anywhere.
    pub(crate) async fn bind_peers(
        config: &Config,
        address: SocketAddr,
        is_encrypted: bool,
    ) -> Result<TcpListener, ServeError> {
        let flag = "--peer-listen ADDR";
        if is_encrypted { bind_anywhere(address, flag).await } else { bind(config, address, flag).await }
    }

    /// Has each listener answer by its interface, until what this gives is dropped.
    pub(crate) fn serve(self, front: &Arc<Front>, services: &Services) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let Services {
            native,
            locktopus,
            openslides_reader,
            openslides_writer,
            elasticsearch,
            schema_registry,
        } = services.clone();
        let (reader, writer) = self.openslides.unzip();
        tasks.spawn(listen(self.native, Arc::clone(front), native));
        serve_if(&mut tasks, front, self.locktopus, locktopus);
        serve_if(&mut tasks, front, reader, openslides_reader);
        serve_if(&mut tasks, front, writer, openslides_writer);
        serve_if(&mut tasks, front, self.elasticsearch, elasticsearch);
        serve_if(&mut tasks, front, self.schema_registry, schema_registry);
        tasks
    }

    /// Where they are, for the one who started the server.
    pub(crate) fn bound(&self, grace: Vec<GraceInfo>) -> Bound {
        Bound {
            native: address(&self.native),
            locktopus: self.locktopus.as_ref().map(address),
            openslides: self.openslides.as_ref().map(|(reader, writer)| (address(reader), address(writer))),
            elasticsearch: self.elasticsearch.as_ref().map(address),
            schema_registry: self.schema_registry.as_ref().map(address),
            left_out: self.left_out.clone(),
            grace,
        }
    }

    /// The same for everybody.
    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        let pair =
            |place: fn(&(TcpListener, TcpListener)) -> &TcpListener| self.openslides.as_ref().map(place);
        let all = [
            ("native", Some(&self.native)),
            ("locktopus", self.locktopus.as_ref()),
            ("openslides_reader", pair(|(reader, _)| reader)),
            ("openslides_writer", pair(|(_, writer)| writer)),
            ("elasticsearch", self.elasticsearch.as_ref()),
            ("schema_registry", self.schema_registry.as_ref()),
        ];
        let served = |(name, listener): (&str, Option<&TcpListener>)| {
            listener
                .map(|listener| Interface { name: name.to_owned(), address: address(listener).to_string() })
        };
        all.into_iter().filter_map(served).collect()
    }
}

fn serve_if(
    tasks: &mut JoinSet<()>,
    front: &Arc<Front>,
    listener: Option<TcpListener>,
    service: Option<impl Service>,
) {
    if let (Some(listener), Some(service)) = (listener, service) {
        tasks.spawn(listen(listener, Arc::clone(front), service));
    }
}

/// The address a listener has, also if it was left to the system to choose the port.
pub(crate) fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound socket has an address")
}

async fn bind(config: &Config, address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    if !address.ip().is_loopback() && !config.insecure {
        return Err(ServeError::NotLoopback(address));
    }
    bind_anywhere(address, flag).await
}

async fn bind_anywhere(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|cause| ServeError::Listen { address, flag, cause })
}

async fn bind_two(
    config: &Config,
    reader: SocketAddr,
    writer: SocketAddr,
) -> Result<(TcpListener, TcpListener), ServeError> {
    let flag = "--openslides READER,WRITER";
    Ok((bind(config, reader, flag).await?, bind(config, writer, flag).await?))
}

/// A facade that cannot listen is left out if the configuration allows it. What forbids an address is no matter of
/// who listens there, and always an error.
fn or_left_out<T>(
    config: &Config,
    name: &'static str,
    bound: Result<T, ServeError>,
    left_out: &mut Vec<LeftOut>,
) -> Result<Option<T>, ServeError> {
    match bound {
        Ok(bound) => Ok(Some(bound)),
        Err(error @ ServeError::Listen { .. }) if config.skip_unavailable => {
            tracing::warn!(facade = name, reason = %error, "a facade is left out");
            left_out.push(LeftOut { name, reason: error.to_string() });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
