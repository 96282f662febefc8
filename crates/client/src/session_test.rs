//! Sessions against a scripted server on a real socket.

use crate::{Code, Error, Lock, LockId, Mode, Options, Request, Session, Step, Token, Wait};
use futures_util::{SinkExt, StreamExt};
use lockwood_wire::{ClientMessage, HeldLock, Reclaim, ServerMessage, WirePath, WireResource};
use std::time::Duration;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

const ABANDON_MS: u64 = 60_000;

/// A server whose every word is written in the test.
struct Server {
    listener: TcpListener,
}

/// The server's side of one connection.
struct Peer {
    socket: WebSocketStream<TcpStream>,
}

impl Server {
    async fn new() -> Server {
        Server { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn options(&self) -> Options {
        let address = self.listener.local_addr().unwrap().to_string();
        Options { address, name: Some("tester".into()), ..Options::default() }
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = within(self.listener.accept()).await.unwrap();
        Peer { socket: accept_async(stream).await.unwrap() }
    }

    /// A session that has just been opened.
    async fn open(&self) -> (Session, Peer) {
        self.open_with(ABANDON_MS).await
    }

    async fn open_with(&self, abandon_ms: u64) -> (Session, Peer) {
        let (session, peer) = tokio::join!(Session::open(self.options()), async {
            let mut peer = self.accept().await;
            let ClientMessage::Hello { id, name, .. } = peer.hear().await else { panic!("a hello") };
            assert_eq!(name.as_deref(), Some("tester"));
            peer.welcome_for(id, abandon_ms, vec![]).await;
            peer
        });
        (session.unwrap(), peer)
    }

    /// The next connection, on which the client takes up its session again.
    async fn attach(&self) -> (Peer, u64, Vec<Reclaim>) {
        let mut peer = self.accept().await;
        let ClientMessage::Attach { id, session, secret, locks, .. } = peer.hear().await else {
            panic!("an attach");
        };
        assert_eq!((session.as_str(), secret.as_str()), ("s1", "secret"));
        (peer, id, locks)
    }
}

impl Peer {
    /// The next message of the client.
    async fn hear(&mut self) -> ClientMessage {
        loop {
            match within(self.socket.next()).await.expect("a message").unwrap() {
                Message::Text(text) => return ClientMessage::decode(text.as_bytes()).unwrap(),
                Message::Close(_) => panic!("a message, not a close"),
                _ => {}
            }
        }
    }

    async fn say(&mut self, message: ServerMessage) {
        self.socket.send(Message::text(message.encode())).await.unwrap();
    }

    async fn welcome(&mut self, id: u64, locks: Vec<HeldLock>) {
        self.welcome_for(id, ABANDON_MS, locks).await;
    }

    async fn welcome_for(&mut self, id: u64, abandon_timeout_ms: u64, locks: Vec<HeldLock>) {
        let (session, secret) = ("s1".into(), "secret".into());
        self.say(ServerMessage::Welcome { id, session, secret, abandon_timeout_ms, grace_ms: 0, locks })
            .await;
    }

    /// Hears the next message, which must be a request for a lock.
    async fn hear_lock(&mut self) -> u64 {
        match self.hear().await {
            ClientMessage::Lock { id, .. } => id,
            other => panic!("a lock, not {other:?}"),
        }
    }

    /// Hears the next message, which must be the release of this lock, and confirms it.
    async fn hear_release(&mut self, expected: u64) {
        match self.hear().await {
            ClientMessage::Release { id, lock } if lock == expected => {
                self.say(ServerMessage::Released { id, lock }).await;
            }
            other => panic!("the release of {expected}, not {other:?}"),
        }
    }

    async fn grant(&mut self, id: u64, lock: u64) {
        self.say(ServerMessage::Granted { id, lock, token: lock * 10 }).await;
    }

    async fn queue(&mut self, id: u64, lock: u64) {
        let queued = ServerMessage::Queued { id, lock, place: 1, blockers_len: 1, blockers: vec![] };
        self.say(queued).await;
    }

    async fn refuse(&mut self, id: u64, code: Code) {
        let message = "because".into();
        let (lock, blockers, cycle) = (None, vec![], vec![]);
        self.say(ServerMessage::Error { id: Some(id), code, message, lock, blockers, cycle }).await;
    }
}

/// Nothing in these tests takes long, unless it is broken.
async fn within<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(10), future).await.expect("in time")
}

fn request(wait: Wait) -> Request {
    Request::new().subtree("user/42".parse().unwrap(), Mode::Write).wait(wait)
}

fn listed(lock: u64, request: Option<u64>, token: Option<u64>, was: Option<u64>) -> HeldLock {
    HeldLock { lock, request, token, was, resources: vec![resource()] }
}

fn resource() -> WireResource {
    WireResource { path: WirePath("user/42".parse().unwrap()), mode: "write".into(), depth: None }
}

/// Asks for a lock and lets the server grant it as number `lock`.
async fn hold(session: &Session, peer: &mut Peer, lock: u64) -> (Lock, u64) {
    let (held, id) = tokio::join!(session.lock(request(Wait::Forever)), async {
        let id = peer.hear_lock().await;
        peer.grant(id, lock).await;
        id
    });
    (held.unwrap(), id)
}

#[tokio::test]
async fn a_lock_is_granted_and_released() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (held, answer) = tokio::join!(session.lock(request(Wait::Millis(500))), async {
        let message = peer.hear().await;
        let ClientMessage::Lock { id, resources, wait } = message else { panic!("a lock") };
        assert_eq!(resources, [resource()]);
        peer.grant(id, 7).await;
        wait
    });
    assert!(matches!(answer, Wait::Millis(400..=500)), "{answer:?}");
    let lock = held.unwrap();
    assert_eq!((lock.id(), lock.token()), (LockId(7), Token(70)));
    let (released, ()) = tokio::join!(lock.release(), peer.hear_release(7));
    assert_eq!(released, Ok(()));
    let (closed, ()) = tokio::join!(session.close(), async {
        let ClientMessage::Bye { id } = peer.hear().await else { panic!("a bye") };
        peer.say(ServerMessage::Bye { id }).await;
    });
    assert_eq!(closed, Ok(()));
    assert!(matches!(session.lock(request(Wait::Never)).await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_waiter_sees_its_place_and_then_the_grant() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let mut waiting = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    peer.queue(id, 7).await;
    let Ok(Step::Queued(queued)) = within(waiting.next()).await else { panic!("queued") };
    assert_eq!((queued.lock, queued.place), (LockId(7), 1));
    let (place, ()) = tokio::join!(waiting.place(), async {
        let ClientMessage::Place { id, lock: 7 } = peer.hear().await else { panic!("a place") };
        peer.say(ServerMessage::Place { id, lock: 7, place: 2, blockers_len: 3, blockers: vec![] }).await;
    });
    assert_eq!(place.unwrap().place, 2);
    peer.grant(id, 7).await;
    let Ok(Step::Granted(lock)) = within(waiting.next()).await else { panic!("granted") };
    assert_eq!(lock.id(), LockId(7));
}

#[tokio::test]
async fn a_refusal_has_the_servers_code() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (refused, ()) = tokio::join!(session.lock(request(Wait::Never)), async {
        let id = peer.hear_lock().await;
        peer.refuse(id, Code::Locked).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(Code::Locked));
}

#[tokio::test]
async fn an_answer_with_an_unknown_code_is_still_an_answer() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (refused, ()) = tokio::join!(session.lock(request(Wait::Never)), async {
        let id = peer.hear_lock().await;
        let text = format!(r#"{{"type":"error","id":{id},"code":"from_the_future","message":"x"}}"#);
        peer.socket.send(Message::text(text)).await.unwrap();
    });
    assert!(matches!(refused, Err(Error::BadAnswer(_))));
}

#[tokio::test]
async fn no_server_is_unreachable_and_a_refused_hello_is_refused() {
    let server = Server::new().await;
    let (refused, ()) = tokio::join!(Session::open(server.options()), async {
        let mut peer = server.accept().await;
        let ClientMessage::Hello { id, .. } = peer.hear().await else { panic!("a hello") };
        peer.refuse(id, Code::Draining).await;
    });
    assert_eq!(refused.err().and_then(|error| error.code()), Some(Code::Draining));
    let options = server.options();
    drop(server);
    assert!(matches!(Session::open(options).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_lock_survives_a_lost_connection() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, id) = hold(&session, &mut peer, 7).await;
    drop(peer);
    let (mut peer, attach, locks) = server.attach().await;
    assert_eq!(locks, [Reclaim { lock: 7, token: 70, resources: vec![resource()] }]);
    peer.welcome(attach, vec![listed(7, Some(id), Some(70), None)]).await;
    let (released, ()) = tokio::join!(lock.release(), peer.hear_release(7));
    assert_eq!(released, Ok(()));
}

#[tokio::test]
async fn a_lock_put_back_after_a_restart_has_another_number() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    drop(peer);
    let (mut peer, attach, _) = server.attach().await;
    peer.welcome(attach, vec![listed(1007, None, Some(2000), Some(7))]).await;
    let lost = timeout(Duration::from_millis(100), lock.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!((lock.id(), lock.token()), (LockId(1007), Token(2000)));
    let (released, ()) = tokio::join!(lock.release(), peer.hear_release(1007));
    assert_eq!(released, Ok(()));
}

#[tokio::test]
async fn a_lock_missing_from_the_welcome_is_lost() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let (kept, _) = hold(&session, &mut peer, 8).await;
    drop(peer);
    let (mut peer, attach, _) = server.attach().await;
    peer.welcome(attach, vec![listed(8, None, Some(80), None)]).await;
    assert_eq!(within(lock.lost()).await.code, Code::LockLost);
    assert!(matches!(lock.release().await, Err(Error::Lost(_))));
    assert_eq!(kept.id(), LockId(8));
}

#[tokio::test]
async fn a_lock_the_server_ends_is_lost() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let (code, message) = (Code::ReleasedByOperator, "by hand".into());
    peer.say(ServerMessage::Lost { lock: 7, code, message }).await;
    assert_eq!(within(lock.lost()).await.to_string(), "by hand (released_by_operator)");
}

#[tokio::test]
async fn an_unknown_session_loses_all_locks_and_waiters_go_to_a_new_one() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let waiting = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    drop(peer);
    let (mut peer, attach, _) = server.attach().await;
    peer.refuse(attach, Code::UnknownSession).await;
    assert_eq!(within(lock.lost()).await.code, Code::LockLost);
    let mut peer = server.accept().await;
    let ClientMessage::Hello { id: hello, .. } = peer.hear().await else { panic!("a hello") };
    peer.welcome(hello, vec![]).await;
    assert_eq!(peer.hear_lock().await, id);
    peer.grant(id, 9).await;
    assert_eq!(within(waiting.granted()).await.unwrap().id(), LockId(9));
}

#[tokio::test]
async fn a_request_in_flight_is_settled_by_the_welcome() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let granted = session.ask(request(Wait::Forever));
    let granted_id = peer.hear_lock().await;
    let mut kept = session.ask(request(Wait::Forever));
    let kept_id = peer.hear_lock().await;
    let gone = session.ask(request(Wait::Forever));
    let gone_id = peer.hear_lock().await;
    peer.queue(kept_id, 8).await;
    assert!(matches!(within(kept.next()).await, Ok(Step::Queued(_))));
    drop(peer);

    let (mut peer, attach, locks) = server.attach().await;
    assert_eq!(locks, []);
    let list = vec![listed(7, Some(granted_id), Some(70), None), listed(8, Some(kept_id), None, None)];
    peer.welcome(attach, list).await;
    let lock = within(granted.granted()).await.unwrap();
    assert_eq!((lock.id(), lock.token()), (LockId(7), Token(70)));
    assert_eq!(peer.hear_lock().await, gone_id, "only what the server does not have is asked for again");
    peer.grant(gone_id, 9).await;
    assert_eq!(within(gone.granted()).await.unwrap().id(), LockId(9));
    peer.hear_release(9).await;
    peer.grant(kept_id, 8).await;
    assert_eq!(within(kept.granted()).await.unwrap().id(), LockId(8));
    assert_eq!(lock.id(), LockId(7));
}

#[tokio::test]
async fn a_lock_nobody_wants_is_released_after_reattaching() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let waiting = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    drop(peer);
    drop((lock, waiting));
    let (mut peer, attach, _) = server.attach().await;
    let list = vec![listed(7, None, Some(70), None), listed(8, Some(id), Some(80), None)];
    peer.welcome(attach, list).await;
    let mut released = Vec::new();
    for _ in 0..2 {
        match peer.hear().await {
            ClientMessage::Release { lock, .. } => released.push(lock),
            other => panic!("a release, not {other:?}"),
        }
    }
    released.sort_unstable();
    assert_eq!(released, [7, 8]);
}

#[tokio::test]
async fn dropping_the_future_ends_the_waiting() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let mut waiting = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    peer.queue(id, 7).await;
    assert!(matches!(within(waiting.next()).await, Ok(Step::Queued(_))));
    drop(waiting);
    peer.hear_release(7).await;

    let unheard = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    drop(unheard);
    sleep(Duration::from_millis(20)).await;
    peer.grant(id, 8).await;
    peer.hear_release(8).await;

    let granted = session.ask(request(Wait::Forever));
    let id = peer.hear_lock().await;
    peer.grant(id, 9).await;
    sleep(Duration::from_millis(20)).await;
    drop(granted);
    peer.hear_release(9).await;
}

#[tokio::test]
async fn dropping_everything_says_goodbye() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    drop(session);
    drop(lock);
    peer.hear_release(7).await;
    assert!(matches!(peer.hear().await, ClientMessage::Bye { .. }));
}

#[tokio::test]
async fn a_conversion_changes_what_is_reclaimed() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let (converted, ()) = tokio::join!(lock.convert(Mode::Read, Wait::Never), async {
        let ClientMessage::Convert { id, lock: 7, mode: Some(mode), .. } = peer.hear().await else {
            panic!("a conversion");
        };
        assert_eq!(mode, "read");
        peer.say(ServerMessage::Converted { id, lock: 7, token: 71 }).await;
    });
    assert_eq!(converted, Ok(Token(71)));
    drop(peer);
    let (_, _, locks) = server.attach().await;
    let resources = vec![WireResource { mode: "read".into(), ..resource() }];
    assert_eq!(locks, [Reclaim { lock: 7, token: 71, resources }]);
}

#[tokio::test]
async fn a_dropped_conversion_is_cancelled() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let converting = timeout(Duration::from_millis(50), lock.convert(Mode::Read, Wait::Forever));
    assert!(converting.await.is_err());
    assert!(matches!(peer.hear().await, ClientMessage::Convert { .. }));
    assert!(matches!(peer.hear().await, ClientMessage::Cancel { lock: 7, .. }));
}

#[tokio::test]
async fn a_waiting_conversion_is_asked_for_again() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let (converted, ()) = tokio::join!(lock.convert(Mode::Read, Wait::Forever), async {
        assert!(matches!(peer.hear().await, ClientMessage::Convert { .. }));
        drop(peer);
        let (mut peer, attach, _) = server.attach().await;
        peer.welcome(attach, vec![listed(7, None, Some(70), None)]).await;
        let ClientMessage::Convert { id, .. } = peer.hear().await else { panic!("a conversion") };
        // The server had not noticed the loss: the first one still waits, under the same number.
        peer.refuse(id, Code::AlreadyConverting).await;
        peer.say(ServerMessage::Converted { id, lock: 7, token: 71 }).await;
        // The peer must live until the answer is read.
        sleep(Duration::from_millis(50)).await;
    });
    assert_eq!(converted, Ok(Token(71)));
}

#[tokio::test]
async fn an_unreachable_server_costs_the_lock_after_the_abandon_timeout() {
    let server = Server::new().await;
    let (session, mut peer) = server.open_with(300).await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let lost_at = std::time::Instant::now();
    drop((peer, server));
    let loss = within(lock.lost()).await;
    assert_eq!(loss.code, Code::LockLost);
    assert!(lost_at.elapsed() < Duration::from_millis(900), "{:?}", lost_at.elapsed());
    assert!(!session.connected());
    let refused = within(session.lock(request(Wait::Never))).await;
    assert!(matches!(refused, Err(Error::Disconnected { .. })), "{refused:?}");
}

/// The socket stays open, but nothing comes any more: pings are not answered either.
#[tokio::test]
async fn a_silent_server_is_sought_again() {
    let server = Server::new().await;
    let (session, mut peer) = server.open_with(3000).await;
    let (lock, id) = hold(&session, &mut peer, 7).await;
    let (mut next, attach, _) = server.attach().await;
    next.welcome(attach, vec![listed(7, Some(id), Some(70), None)]).await;
    let (released, ()) = tokio::join!(lock.release(), next.hear_release(7));
    assert_eq!(released, Ok(()));
    drop(peer);
}

/// Pings are answered, so the lock outlives any number of abandon timeouts.
#[tokio::test]
async fn a_quiet_but_living_server_keeps_the_lock() {
    let server = Server::new().await;
    let (session, mut peer) = server.open_with(600).await;
    let (lock, _) = hold(&session, &mut peer, 7).await;
    let listening =
        tokio::spawn(async move { while peer.socket.next().await.is_some_and(|frame| frame.is_ok()) {} });
    let lost = timeout(Duration::from_millis(4500), lock.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(session.connected());
    listening.abort();
}

#[tokio::test]
async fn draining_is_passed_on() {
    let server = Server::new().await;
    let (session, mut peer) = server.open().await;
    peer.say(ServerMessage::Draining { timeout_ms: 5, message: "soon".into() }).await;
    assert_eq!(within(session.draining()).await.timeout_ms, 5);
}
