//! Requests by interface, and refusals by code. Knows nothing of routes.

use super::{Histogram, text::Text};
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};

/// One of the interfaces that listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// HTTP and sessions of our own.
    Native,
    /// The sessions of Locktopus.
    Locktopus,
    /// The reader of the OpenSlides datastore.
    OpenslidesReader,
    /// The writer of the OpenSlides datastore.
    OpenslidesWriter,
    /// The documents of Elasticsearch.
    Elasticsearch,
    /// The registry of schemas.
    SchemaRegistry,
    /// Other nodes of the cluster.
    Peer,
}

impl Interface {
    const ALL: [Interface; 7] = [
        Interface::Native,
        Interface::Locktopus,
        Interface::OpenslidesReader,
        Interface::OpenslidesWriter,
        Interface::Elasticsearch,
        Interface::SchemaRegistry,
        Interface::Peer,
    ];

    /// How it is called in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Interface::Native => "native",
            Interface::Locktopus => "locktopus",
            Interface::OpenslidesReader => "openslides_reader",
            Interface::OpenslidesWriter => "openslides_writer",
            Interface::Elasticsearch => "elasticsearch",
            Interface::SchemaRegistry => "schema_registry",
            Interface::Peer => "peer",
        }
    }
}

/// Why a request was refused: one of our codes, or the status of an interface that has codes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Code(&'static str),
    Status(u16),
}

/// Counts requests as they are answered.
#[derive(Debug, Default)]
pub struct Requests {
    times: [Histogram; Interface::ALL.len()],
    /// Refusals only, so the mutex is off the way of requests that succeed. At most codes and statuses × interfaces.
    refusals: Mutex<BTreeMap<(Interface, Reason), u64>>,
}

impl Requests {
    /// An HTTP request was answered; the body may still be on its way.
    pub fn answered(&self, interface: Interface, time: Duration, status: u16, code: Option<Code>) {
        self.times[interface as usize].observe_duration(time);
        if (400..600).contains(&status) {
            let reason = code.map_or(Reason::Status(status), |code| Reason::Code(code.as_str()));
            self.count(interface, reason);
        }
    }

    /// A message of a session was refused.
    pub fn refused(&self, interface: Interface, code: Code) {
        self.count(interface, Reason::Code(code.as_str()));
    }

    fn count(&self, interface: Interface, reason: Reason) {
        *self.refusals.lock().entry((interface, reason)).or_default() += 1;
    }

    pub(super) fn render(&self, text: &mut Text) {
        let name = "lockwood_request_seconds";
        text.head(name, "Time from an HTTP request to its answer, waits for locks included.", "histogram");
        for (interface, histogram) in Interface::ALL.iter().zip(&self.times) {
            histogram.render(text, name, &format!("interface=\"{}\",", interface.as_str()));
        }
        let name = "lockwood_errors_total";
        text.head(name, "Refused requests and session messages, by code.", "counter");
        for ((interface, reason), count) in &*self.refusals.lock() {
            let interface = interface.as_str();
            match reason {
                Reason::Code(code) => {
                    text.line(format_args!("{name}{{interface=\"{interface}\",code=\"{code}\"}} {count}"));
                }
                Reason::Status(status) => text
                    .line(format_args!("{name}{{interface=\"{interface}\",code=\"http_{status}\"}} {count}")),
            }
        }
    }
}
