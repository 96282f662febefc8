//! What nodes show to each other and expect of each other, over real sockets.

use super::*;
use crate::{Call, CallError, CallKind, Incarnation, Peers, Prover};
use hyper::{HeaderMap, Method, Uri};
use lockwood_test_support::{Authority, Issued};
use tempfile::TempDir;
use tokio::net::TcpListener;

const ADVERTISED: &str = "127.0.0.1:7118";
const DAYS: u32 = 30;

/// The files of a node, to be replaced.
struct Files {
    folder: TempDir,
}

impl Files {
    fn of(authority: &Authority, issued: &Issued) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.put(authority, issued);
        files
    }

    /// Those of a node that advertises an address on loopback.
    fn new(authority: &Authority) -> Files {
        Files::of(authority, &authority.issue("node", &["IP:127.0.0.1"], DAYS))
    }

    fn put(&self, authority: &Authority, issued: &Issued) {
        let names = self.names();
        fs::copy(&issued.certificate, &names.certificate).unwrap();
        fs::copy(&issued.key, &names.key).unwrap();
        fs::copy(authority.certificate(), &names.authority).unwrap();
    }

    fn names(&self) -> TlsFiles {
        let at = |name: &str| self.folder.path().join(name);
        TlsFiles { certificate: at("node.pem"), key: at("node.key"), authority: at("ca.pem") }
    }

    fn load(&self) -> Result<PeerTls, TlsError> {
        PeerTls::load(self.names(), ADVERTISED)
    }

    #[track_caller]
    fn refused(&self, part: &str) {
        let error = self.load().map(drop).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// What both sides say of a connection from one node to the other, which has this host in its row.
async fn meet(caller: &PeerTls, receiver: &PeerTls, host: &str) -> (Result<(), String>, Result<(), String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let address = format!("{host}:7118");
    let calling = async {
        let mut stream = caller.connect(&address, tcp).await.map_err(|error| match error {
            Unconnected::Misfit(cause) | Unconnected::Lost(cause) => cause,
        })?;
        stream.write_all(b"call").await.unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.map_err(|error| rejection(&error).unwrap_or_default())?;
        assert_eq!(&answer, b"answer");
        Ok(())
    };
    let answering = async {
        let mut stream = receiver.accept(accepted).await.map_err(|error| format!("{error:?}"))?;
        let mut call = [0; 4];
        stream.read_exact(&mut call).await.map_err(|error| failure(&error))?;
        assert_eq!(&call, b"call");
        stream.write_all(b"answer").await.unwrap();
        stream.flush().await.unwrap();
        Ok(())
    };
    tokio::join!(calling, answering)
}

#[track_caller]
fn says(said: Result<(), String>, part: &str) {
    let said = said.unwrap_err();
    assert!(said.contains(part), "{said}");
}

#[tokio::test]
async fn nodes_of_one_authority_talk() {
    let authority = Authority::new();
    let (one, other) = (Files::new(&authority).load().unwrap(), Files::new(&authority).load().unwrap());
    assert_eq!(meet(&one, &other, "127.0.0.1").await, (Ok(()), Ok(())));
    assert_eq!(meet(&other, &one, "127.0.0.1").await, (Ok(()), Ok(())));
}

#[tokio::test]
async fn a_certificate_for_another_host_is_rejected_by_the_caller() {
    let authority = Authority::new();
    let (one, other) = (Files::new(&authority).load().unwrap(), Files::new(&authority).load().unwrap());
    for host in ["127.0.0.2", "localhost", "[::1]"] {
        let (called, answered) = meet(&one, &other, host).await;
        says(called, "it is not for");
        says(answered, "rejects the certificate of this node");
    }
}

#[tokio::test]
async fn nodes_of_two_authorities_reject_each_other() {
    let one = Files::new(&Authority::new()).load().unwrap();
    let other = Files::new(&Authority::new()).load().unwrap();
    let (called, _) = meet(&one, &other, "127.0.0.1").await;
    says(called, "not signed by an authority of --peer-ca");
}

#[tokio::test]
async fn an_authority_of_the_same_name_is_another_one() {
    let [one, other] = ["nodes", "nodes"].map(|name| Files::new(&Authority::named(name)).load().unwrap());
    let (called, answered) = meet(&one, &other, "127.0.0.1").await;
    says(called, "not signed by an authority of --peer-ca");
    says(answered, "rejects the certificate of this node");
}

/// The caller of TLS 1.3 is done before the receiver has seen its certificate: it is told when it waits for the answer.
#[tokio::test]
async fn a_caller_of_another_authority_is_told_that_nothing_was_done() {
    let (first, second) = (Authority::new(), Authority::new());
    let receiver = Files::new(&first).load().unwrap();
    let trusting = Files::new(&second);
    let both = [first.certificate(), second.certificate()].map(|file| fs::read_to_string(file).unwrap());
    fs::write(trusting.names().authority, both.concat()).unwrap();
    let caller = trusting.load().unwrap();
    let (called, answered) = meet(&caller, &receiver, "127.0.0.1").await;
    says(called, "it rejects the certificate of this node");
    says(answered, "not signed by an authority of --peer-ca");
}

/// What comes of a call to a node with certificates, or with none.
async fn called(caller: Option<PeerTls>, receiver: PeerTls) -> (Result<(), CallError>, Option<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (accepted, _) = listener.accept().await.unwrap();
            let _ = receiver.accept(accepted).await;
        }
    });
    let prover = Arc::new(Prover::new([1; 32], Incarnation::draw()));
    let peers = Peers::new(prover, caller.map(Arc::new));
    let (method, target) = (Method::POST, Uri::from_static("/1/native/v1/a/write"));
    // More than one record, and more than is buffered, is under way when the refusal comes.
    let call = Call {
        kind: CallKind::Node,
        method,
        target,
        headers: HeaderMap::new(),
        body: vec![7; 1 << 20].into(),
    };
    let answer = peers.call(&address, &call, Duration::from_secs(20)).await;
    (answer.map(drop), peers.misfit(&address))
}

#[tokio::test]
async fn a_call_that_was_refused_is_known_not_to_have_been_carried_out() {
    let (first, second) = (Authority::new(), Authority::new());
    let trusting = Files::new(&second);
    let both = [first.certificate(), second.certificate()].map(|file| fs::read_to_string(file).unwrap());
    fs::write(trusting.names().authority, both.concat()).unwrap();
    for (caller, part) in [
        (Some(trusting.load().unwrap()), "rejects the certificate of this node"),
        (Some(Files::new(&second).load().unwrap()), "not signed by an authority"),
        (None, "takes encrypted calls only"),
    ] {
        let (answer, misfit) = called(caller, Files::new(&first).load().unwrap()).await;
        let Err(CallError::NotSent { cause, .. }) = answer else { panic!("{part}: {answer:?}") };
        assert!(cause.contains(part), "{cause}");
        assert_eq!(misfit, Some(cause));
    }
}

#[tokio::test]
async fn a_caller_without_a_certificate_is_rejected() {
    let authority = Authority::new();
    let files = Files::new(&authority);
    let (caller, receiver) = (files.load().unwrap(), files.load().unwrap());
    let (verifier, _) = verifiers(&fs::read(authority.certificate()).unwrap(), Path::new("ca")).unwrap();
    let bare = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    let (chain, verifier) = {
        let state = caller.state.read();
        (state.identity.chain.clone(), Arc::clone(&state.identity.verifier))
    };
    let acceptor = caller.state.read().identity.acceptor.clone();
    let connector = TlsConnector::from(Arc::new(bare));
    caller.state.write().identity =
        Arc::new(Identity { generation: 1, connector, acceptor, chain, verifier });
    let (called, answered) = meet(&caller, &receiver, "127.0.0.1").await;
    says(called, "CertificateRequired");
    says(answered, "it has no certificate");
}

#[tokio::test]
async fn plain_http_is_told_that_calls_have_to_be_encrypted() {
    let receiver = Files::new(&Authority::new()).load().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut plain = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    plain.write_all(b"GET /tell HTTP/1.1\r\n\r\n").await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let mut answer = String::new();
    let (refused, read) = tokio::join!(receiver.accept(accepted), plain.read_to_string(&mut answer));
    assert!(matches!(refused, Err(Refused::Plain)));
    read.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains(TLS_REQUIRED), "{answer}");
}

#[tokio::test]
async fn a_node_that_answers_in_plain_http_is_named_as_such() {
    let caller = Files::new(&Authority::new()).load().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut plain, _) = listener.accept().await.unwrap();
    plain.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let error = caller.connect(ADVERTISED, tcp).await.map(drop).unwrap_err();
    let Unconnected::Misfit(cause) = error else { panic!("{error:?}") };
    assert!(cause.contains("does not speak TLS"), "{cause}");
}

#[tokio::test]
async fn files_that_changed_are_taken_up_and_broken_ones_are_not() {
    let (authority, files) = {
        let authority = Authority::new();
        let files = Files::new(&authority);
        (authority, files)
    };
    let (node, before) = (files.load().unwrap(), Files::new(&authority).load().unwrap());
    assert_eq!((node.generation(), node.problem()), (0, None));
    node.refresh();
    assert_eq!(node.generation(), 0, "nothing has changed");

    let successor = Authority::new();
    let issued = successor.issue("next", &["IP:127.0.0.1"], DAYS);
    fs::copy(&issued.certificate, files.names().certificate).unwrap();
    node.refresh();
    let problem = node.problem().unwrap();
    assert!(problem.contains("does not belong to the certificate"), "{problem}");
    assert_eq!(meet(&before, &node, "127.0.0.1").await, (Ok(()), Ok(())), "what was read before stays");

    files.put(&successor, &issued);
    node.refresh();
    assert_eq!((node.generation(), node.problem()), (1, None));
    says(meet(&before, &node, "127.0.0.1").await.0, "not signed by an authority");
    let after = Files::new(&successor).load().unwrap();
    assert_eq!(meet(&after, &node, "127.0.0.1").await, (Ok(()), Ok(())));

    fs::remove_file(files.names().key).unwrap();
    node.refresh();
    assert!(node.problem().unwrap().contains("node.key"));
    assert_eq!(meet(&after, &node, "127.0.0.1").await, (Ok(()), Ok(())));
}

#[test]
fn a_key_that_others_can_read_is_refused_and_one_of_its_group_is_not() {
    let files = Files::new(&Authority::new());
    let set = |mode| fs::set_permissions(files.names().key, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o604, 0o644, 0o602] {
        set(mode);
        files.refused("chmod 600");
    }
    set(0o640);
    assert!(files.load().is_ok());
}

#[test]
fn files_that_other_nodes_would_reject_are_refused_with_the_reason() {
    let authority = Authority::new();
    Files::of(&authority, &authority.issue("a", &["DNS:n1.example"], DAYS)).refused("but for n1.example");
    Files::of(&authority, &authority.issue_with("b", "keyUsage = digitalSignature", DAYS))
        .refused("subjectAltName");
    let purpose = "subjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth";
    Files::of(&authority, &authority.issue_with("c", purpose, DAYS)).refused("serverAuth and clientAuth");
    let other = Authority::new();
    Files::of(&authority, &other.issue("d", &["IP:127.0.0.1"], DAYS)).refused("not signed by an authority");
    let files = Files::new(&authority);
    fs::write(files.names().authority, "").unwrap();
    files.refused("no certificate in it");
    let files = Files::new(&authority);
    fs::write(files.names().certificate, "-----BEGIN CERTIFICATE-----\n").unwrap();
    files.refused("node.pem has no certificate in it");
    fs::remove_file(files.names().certificate).unwrap();
    files.refused("cannot read");
    let nowhere = PeerTls::load(Files::new(&authority).names(), ":7118").map(drop).unwrap_err();
    assert_eq!(nowhere, TlsError::Host(":7118".to_owned()));
}

#[test]
fn a_certificate_that_ends_soon_is_told() {
    let authority = Authority::new();
    let soon = Files::of(&authority, &authority.issue("soon", &["IP:127.0.0.1"], 5)).load().unwrap();
    let problem = soon.problem().unwrap();
    assert!(problem.contains("expires in") && problem.contains("days"), "{problem}");
    assert_eq!(Files::new(&authority).load().unwrap().problem(), None);
}
