//! A TCP proxy that fails on command: it cuts, delays, refuses, or swallows answers. Knows nothing of what is sent.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

/// What goes wrong from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Connections are cut, and new ones refused.
    Refuse,
    /// Requests do not get through, and are delivered when the fault is over.
    HoldRequests,
    /// Requests get through; the connection is cut when the server begins to answer.
    CutAnswers,
    /// Requests get through; answers do not, and are delivered when the fault is over.
    HoldAnswers,
    /// Everything takes so much longer.
    Delay(Duration),
}

/// A proxy before one server. Clones are the same proxy.
#[derive(Clone)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    fault: Fault,
    /// Bytes of requests that are replaced by others, and how often they were.
    replace: Option<(&'static [u8], &'static [u8])>,
    replaced: u64,
    /// Those that are open, by number.
    connections: HashMap<u64, Connection>,
    /// So many connections were made.
    made: u64,
    /// What clients have sent since it is to be recorded, by connection.
    recorded: Option<BTreeMap<u64, Vec<u8>>>,
}

/// Both ends.
#[derive(Clone)]
struct Connection {
    number: u64,
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Proxy {
    /// Listens on a port of its own, before a server on this machine.
    pub fn start(server_port: u16) -> Proxy {
        Proxy::before(SocketAddr::from(([127, 0, 0, 1], server_port)))
    }

    /// The same before a server at this address.
    pub fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a port");
        let port = listener.local_addr().expect("it has an address").port();
        let state = Mutex::new(State {
            fault: Fault::None,
            replace: None,
            replaced: 0,
            connections: HashMap::new(),
            made: 0,
            recorded: None,
        });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|client| own.accept(client, server));
        });
        Proxy { port, shared }
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What goes wrong from now on.
    pub fn set(&self, fault: Fault) {
        let mut state = self.shared.state();
        state.fault = fault;
        if fault == Fault::Refuse {
            state.cut();
        }
        self.shared.changed.notify_all();
    }

    /// Records what clients send from now on.
    pub fn record(&self) {
        self.shared.state().recorded = Some(BTreeMap::new());
    }

    /// What clients have sent since, connection by connection.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.shared.state().recorded.iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Replaces bytes of requests by others of the same length from now on. They must be sent at once, and not encrypted.
    pub fn replace(&self, from: &'static [u8], to: &'static [u8]) {
        assert_eq!(from.len(), to.len(), "what is sent says its length");
        self.shared.state().replace = Some((from, to));
    }

    /// How often bytes were replaced.
    pub fn replaced(&self) -> u64 {
        self.shared.state().replaced
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut(&self) {
        self.shared.state().cut();
    }
}

impl State {
    fn record(&mut self, connection: u64, sent: &[u8]) {
        if let Some(recorded) = &mut self.recorded {
            recorded.entry(connection).or_default().extend(sent);
        }
    }

    fn add(&mut self, client: TcpStream, server: TcpStream) -> Connection {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        self.made += 1;
        let connection = Connection { number: self.made, client: Arc::new(client), server: Arc::new(server) };
        self.connections.insert(connection.number, connection.clone());
        connection
    }

    fn change(&mut self, bytes: &mut [u8]) {
        let Some((from, to)) = self.replace else { return };
        while let Some(place) = bytes.windows(from.len()).position(|found| found == from) {
            bytes[place..place + to.len()].copy_from_slice(to);
            self.replaced += 1;
        }
    }

    fn cut(&mut self) {
        self.connections.drain().for_each(|(_, connection)| connection.cut());
    }
}

impl Connection {
    fn cut(&self) {
        let _ = (self.client.shutdown(Shutdown::Both), self.server.shutdown(Shutdown::Both));
    }

    /// Where bytes come from, and where they go.
    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::Requests => (&self.client, &self.server),
            Direction::Answers => (&self.server, &self.client),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }

    fn accept(self: &Arc<Shared>, client: TcpStream, server: SocketAddr) {
        let mut state = self.state();
        if state.fault == Fault::Refuse {
            return;
        }
        let Ok(server) = TcpStream::connect(server) else { return };
        let connection = state.add(client, server);
        for direction in [Direction::Requests, Direction::Answers] {
            let (own, connection) = (Arc::clone(self), connection.clone());
            thread::spawn(move || own.pump(&connection, direction));
        }
    }

    /// Passes bytes on until either end is gone, and cuts the connection then.
    fn pump(&self, connection: &Connection, direction: Direction) {
        let (mut from, mut to) = connection.ends(direction);
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if direction == Direction::Requests {
                let mut state = self.state();
                state.record(connection.number, &buffer[..len]);
                state.change(&mut buffer[..len]);
            }
            if !self.pass(direction) || to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        self.state().connections.remove(&connection.number);
        connection.cut();
    }

    /// Waits until bytes may pass; false if the connection is to be cut.
    fn pass(&self, direction: Direction) -> bool {
        let mut state = self.state();
        loop {
            match (state.fault, direction) {
                (Fault::Refuse, _) | (Fault::CutAnswers, Direction::Answers) => return false,
                (Fault::HoldRequests, Direction::Requests) | (Fault::HoldAnswers, Direction::Answers) => {
                    state = self.changed.wait(state).expect("nothing panics with it");
                }
                (Fault::Delay(time), _) => {
                    drop(state);
                    thread::sleep(time);
                    return true;
                }
                _ => return true,
            }
        }
    }
}
