//! Encrypted connections between nodes: both sides show a certificate of the same authority. The files may be replaced
//! while a node runs. Knows nothing of what is said on the connections.
//!
//! ```text
//!   caller                                     receiver
//!     │ hello ─────────────────────────────────► plain HTTP? told so, and closed
//!     │ ◄───────────────── certificate ───────── of the authority, for the host that is called?
//!     │ certificate ───────────────────────────► of the authority?
//! ```
//!
//! Only TLS 1.3 is spoken, and no session is resumed: every handshake verifies both certificates.

use parking_lot::RwLock;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    version::TLS13,
};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// With this header a node refuses calls that are not encrypted.
pub const TLS_REQUIRED: &str = "lockwood-tls-required";

/// What all nodes of a cluster have in common, in words.
const ALL_OR_NONE: &str = "start all nodes with --peer-cert, --peer-key and --peer-ca, or none";
/// A certificate that ends within this time should have been replaced.
const RENEWED_BEFORE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The first byte of a TLS handshake. No method of HTTP begins with it.
const HANDSHAKE: u8 = 0x16;
/// A caller that is refused may take so long to read why.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// Permission bits of users that are neither the owner of a file nor in its group.
const OTHERS: u32 = 0o007;

/// Where certificates and key are; PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The node's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of authorities that sign those of nodes.
    pub authority: PathBuf,
}

/// Why files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// Everybody can read the private key.
    #[error(
        "{} has a private key, and all users of this machine can get to it; close it with `chmod 600 {}`",
        .0.display(), .0.display()
    )]
    OpenKey(PathBuf),
    /// A file has something else in it.
    #[error("{} has no {what} in it that can be read; it has to be in PEM, with lines of BEGIN and END", file.display())]
    Content {
        /// Which.
        file: PathBuf,
        /// What should be there.
        what: &'static str,
    },
    /// The key is another one's.
    #[error("the private key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// Where the key is.
        key: PathBuf,
        /// Where the certificate is.
        certificate: PathBuf,
    },
    /// Other nodes would not accept this one.
    #[error("other nodes would reject the certificate in {}: {cause}", file.display())]
    Rejected {
        /// Where the certificate is.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// The address that the node advertises has no host for which there can be a certificate.
    #[error("there can be no certificate for {0}; advertise a host name or an IP address")]
    Host(String),
}

/// Why a caller is not let in.
#[derive(Debug)]
pub enum Refused {
    /// It left before it said anything.
    Gone,
    /// It does not speak TLS. It has been told.
    Plain,
    /// The handshake failed, in words.
    Failed(String),
}

/// Why a node that is called cannot be talked to.
#[derive(Debug)]
pub(crate) enum Unconnected {
    /// The two do not understand or trust each other, in words.
    Misfit(String),
    /// The connection was lost.
    Lost(String),
}

/// An encrypted connection.
pub type Encrypted = TlsStream<TcpStream>;

/// What this node shows to others and expects of them.
pub struct PeerTls {
    files: TlsFiles,
    /// The host that this node advertises.
    advertised: ServerName<'static>,
    state: RwLock<State>,
}

struct State {
    identity: Arc<Identity>,
    /// That of the files that the identity is made of.
    digest: [u8; 32],
    /// Why other files that are there now are not used.
    broken: Option<TlsError>,
}

/// What three files make.
struct Identity {
    generation: u64,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    chain: Vec<CertificateDer<'static>>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl PeerTls {
    /// Reads the files of a node that advertises this address. They must be such that other nodes accept them.
    pub fn load(files: TlsFiles, advertised: &str) -> Result<PeerTls, TlsError> {
        let advertised = host_of(advertised).ok_or_else(|| TlsError::Host(advertised.to_owned()))?;
        let contents = Contents::read(&files)?;
        let identity = Arc::new(contents.identity(&files, &advertised, 0)?);
        let state = State { identity, digest: contents.digest(), broken: None };
        Ok(PeerTls { files, advertised, state: RwLock::new(state) })
    }

    /// Reads the files again. New ones are used from the next handshake on; with those that cannot be used nothing changes.
    pub fn refresh(&self) {
        let read = Contents::read(&self.files).and_then(|contents| self.replacement(&contents));
        let mut state = self.state.write();
        match read {
            Ok(None) => state.broken = None,
            Ok(Some((identity, digest))) => {
                tracing::info!(certificate = %self.files.certificate.display(), "new files for TLS between nodes are in use");
                *state = State { identity: Arc::new(identity), digest, broken: None };
            }
            Err(error) => {
                if state.broken.as_ref() != Some(&error) {
                    tracing::warn!(%error, "new files for TLS between nodes are not used; what was read before stays in use");
                }
                state.broken = Some(error);
            }
        }
    }

    /// None if the files are those in use.
    fn replacement(&self, contents: &Contents) -> Result<Option<(Identity, [u8; 32])>, TlsError> {
        let (digest, generation) = {
            let state = self.state.read();
            (state.digest, state.identity.generation)
        };
        if contents.digest() == digest {
            return Ok(None);
        }
        let identity = contents.identity(&self.files, &self.advertised, generation + 1)?;
        Ok(Some((identity, contents.digest())))
    }

    /// Which of the files that were there one after the other are in use.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.state.read().identity.generation
    }

    /// What an operator has to know of the files.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let identity = {
            let state = self.state.read();
            if let Some(error) = &state.broken {
                return Some(format!("{error}; until that is mended it goes on with what it read before"));
            }
            Arc::clone(&state.identity)
        };
        let soon =
            UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + RENEWED_BEFORE);
        let cause = match identity.verify_as(&self.advertised, soon) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                until(not_after)
            }
            _ => return None,
        };
        Some(format!(
            "the certificate in {} {cause}; replace it, no restart is needed",
            self.files.certificate.display()
        ))
    }

    /// Makes a connection to an address of the `node` table encrypted.
    pub(crate) async fn connect(&self, address: &str, tcp: TcpStream) -> Result<Encrypted, Unconnected> {
        let host = host_of(address).ok_or_else(|| TlsError::Host(address.to_owned()));
        let host = host.map_err(|error| Unconnected::Misfit(error.to_string()))?;
        let connector = self.state.read().identity.connector.clone();
        let connected = connector.connect(host, tcp).await;
        connected.map(TlsStream::from).map_err(|error| match tls_error(&error) {
            Some(_) => Unconnected::Misfit(failure(&error)),
            None => Unconnected::Lost(failure(&error)),
        })
    }

    /// Lets a caller in that has a certificate.
    pub async fn accept(&self, tcp: TcpStream) -> Result<Encrypted, Refused> {
        match speaks_tls(&tcp).await {
            None => return Err(Refused::Gone),
            Some(false) => {
                say_and_close(tcp, plain_refusal().as_bytes()).await;
                return Err(Refused::Plain);
            }
            Some(true) => {}
        }
        let acceptor = self.state.read().identity.acceptor.clone();
        match acceptor.accept(tcp).into_fallible().await {
            Ok(stream) => Ok(TlsStream::from(stream)),
            Err((error, tcp)) => {
                // The reason has been sent; a connection that is closed with something unread would take it back.
                say_and_close(tcp, b"").await;
                Err(Refused::Failed(failure(&error)))
            }
        }
    }
}

/// Whether a caller begins with a handshake; none if it leaves before it says anything. Takes nothing of what it says.
pub async fn speaks_tls(tcp: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(1) => Some(first[0] == HANDSHAKE),
        _ => None,
    }
}

/// Why a node does not take a call that is not encrypted.
#[must_use]
pub fn requires_tls() -> String {
    format!("it takes encrypted calls only: {ALL_OR_NONE}")
}

/// Whether the receiver has ended the handshake over a certificate, so that nothing that was sent after it was read.
pub(crate) fn rejection(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        if let Some(Error::AlertReceived(alert)) = io.and_then(tls_error)
            && is_about_certificates(*alert)
        {
            return io.map(failure);
        }
        next = error.source();
    }
    None
}

/// What is in the files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Vec<u8>,
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
        let read = |file: &Path| fs::read(file).map_err(|error| unreadable(file, &error));
        Ok(Contents {
            certificate: read(&files.certificate)?,
            key: read_key(&files.key)?,
            authority: read(&files.authority)?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut all = Sha256::new();
        for content in [&self.certificate, &self.key, &self.authority] {
            all.update(Sha256::digest(content));
        }
        all.finalize().into()
    }

    fn identity(
        &self,
        files: &TlsFiles,
        advertised: &ServerName<'static>,
        generation: u64,
    ) -> Result<Identity, TlsError> {
        let rejected = |error: &Error| {
            let cause = match error {
                Error::InvalidCertificate(error) => flaw(error),
                other => other.to_string(),
            };
            TlsError::Rejected { file: files.certificate.clone(), cause }
        };
        let chain = certificates(&self.certificate, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| TlsError::Content { file: files.key.clone(), what: "private key" })?;
        let (servers, clients) = verifiers(&self.authority, &files.authority)?;
        let (server, client) = configs((&servers, &clients), &chain, &key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::OtherKey { key: files.key.clone(), certificate: files.certificate.clone() }
            }
            error => rejected(&error),
        })?;
        let (connector, acceptor) =
            (TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server)));
        let identity = Identity { generation, connector, acceptor, chain, verifier: servers };
        let now = UnixTime::now();
        identity.verify_as(advertised, now).map_err(|error| rejected(&error))?;
        let (first, others) = identity.split();
        clients.verify_client_cert(first, others, now).map_err(|error| rejected(&error))?;
        Ok(identity)
    }
}

impl Identity {
    fn split(&self) -> (&CertificateDer<'static>, &[CertificateDer<'static>]) {
        self.chain.split_first().expect("a chain without certificates is not taken")
    }

    /// Verifies the own certificate as callers of this host would at that time.
    fn verify_as(&self, host: &ServerName<'static>, time: UnixTime) -> Result<(), Error> {
        let (first, others) = self.split();
        self.verifier.verify_server_cert(first, others, host, &[], time).map(drop)
    }
}

fn read_key(file: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error: io::Error| unreadable(file, &error);
    let mut open = File::open(file).map_err(failed)?;
    if open.metadata().map_err(failed)?.permissions().mode() & OTHERS != 0 {
        return Err(TlsError::OpenKey(file.to_owned()));
    }
    let mut content = Vec::new();
    open.read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

fn unreadable(file: &Path, error: &io::Error) -> TlsError {
    TlsError::Read { file: file.to_owned(), cause: error.to_string() }
}

fn certificates(content: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(content).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsError::Content { file: file.to_owned(), what: "certificate" })
}

type Verifiers = (Arc<WebPkiServerVerifier>, Arc<dyn ClientCertVerifier>);

/// For those who are called, and for those who call.
fn verifiers(content: &[u8], file: &Path) -> Result<Verifiers, TlsError> {
    let unusable = || TlsError::Content { file: file.to_owned(), what: "certificate of an authority" };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(content, file)? {
        roots.add(certificate).map_err(|_| unusable())?;
    }
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider);
    Ok((servers.build().map_err(|_| unusable())?, clients.build().map_err(|_| unusable())?))
}

fn configs(
    (servers, clients): (&Arc<WebPkiServerVerifier>, &Arc<dyn ClientCertVerifier>),
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(ServerConfig, ClientConfig), Error> {
    let provider = Arc::new(ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::clone(clients))
        .with_single_cert(chain.to_vec(), key.clone_key())?;
    server.send_tls13_tickets = 0;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(Arc::clone(servers))
        .with_client_auth_cert(chain.to_vec(), key.clone_key())?;
    client.resumption = Resumption::disabled();
    Ok((server, client))
}

/// The host of `HOST:PORT`, as certificates name it.
fn host_of(address: &str) -> Option<ServerName<'static>> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Why a handshake failed, for those who mend it.
fn failure(error: &io::Error) -> String {
    match tls_error(error) {
        Some(Error::InvalidMessage(_)) => format!("it does not speak TLS: {ALL_OR_NONE}"),
        Some(Error::NoCertificatesPresented) => "it has no certificate".to_owned(),
        Some(Error::InvalidCertificate(error)) => format!("its certificate is rejected: {}", flaw(error)),
        Some(Error::AlertReceived(alert)) if is_about_certificates(*alert) => format!(
            "it rejects the certificate of this node ({alert:?}): give both one of the same authority, for the host that \
             the node advertises"
        ),
        _ => format!("no connection over TLS: {error}"),
    }
}

/// Alerts that end a handshake, and are sent for nothing else.
fn is_about_certificates(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::CertificateRequired
            | A::UnknownCA
            | A::DecryptError
    )
}

/// What is wrong with a certificate.
fn flaw(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => "it has expired".to_owned(),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet; are the clocks of the nodes right?".to_owned()
        }
        // Another authority may have the same name.
        E::UnknownIssuer | E::BadSignature => "it is not signed by an authority of --peer-ca".to_owned(),
        E::NotValidForNameContext { expected, presented } => format!(
            "it is not for {}, which the node advertises, but for {}",
            expected.to_str(),
            match &presented[..] {
                [] => "no host; name one as subjectAltName".to_owned(),
                names => names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "),
            }
        ),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "its extended key usage has to name both serverAuth and clientAuth, or nothing".to_owned()
        }
        other => other.to_string(),
    }
}

/// The host in `DnsName("n1.example")`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn until(end: UnixTime) -> String {
    let left_s = end.as_secs().saturating_sub(UnixTime::now().as_secs());
    match left_s / 3600 {
        0 if left_s == 0 => "has expired".to_owned(),
        hours @ 0..48 => format!("expires in {hours} hours"),
        hours => format!("expires in {} days", hours / 24),
    }
}

/// An answer for those who do not speak TLS.
fn plain_refusal() -> String {
    let text = format!("this listener is for nodes of the cluster, and {}\n", requires_tls());
    format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: text/plain\r\n{TLS_REQUIRED}: 1\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{text}",
        text.len()
    )
}

/// Ends a connection so that the other side gets to read what was said last.
async fn say_and_close(mut tcp: TcpStream, last: &[u8]) {
    let saying = async {
        let _ = tcp.write_all(last).await;
        let _ = tcp.shutdown().await;
        let mut scrap = [0; 4096];
        while tcp.read(&mut scrap).await.is_ok_and(|count| count > 0) {}
    };
    let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, saying).await;
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
