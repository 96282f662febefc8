//! Omissions that end-to-end tests plant in real nodes to show that their checks would notice them. Without the feature
//! `planted` no fault can be planted: [`is_planted`] is a constant, and nothing of this is in the binary.

/// Something a node does to keep its promises, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// PostgreSQL takes appends of previous owners.
    NoFence,
    /// A write is acknowledged when the local cache has it, before PostgreSQL does.
    AnswerBeforeCommit,
    /// An owner whose ownership is not fresh by its clock goes on answering and granting.
    NoSelfStop,
    /// A member acknowledges a guard before the operations it had admitted are finished.
    EarlyAck,
    /// A member drops a guard when it has acknowledged it.
    LostGuard,
    /// A follower answers a read that wants what the owner knows.
    FollowerForOwner,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 6] = [
        Fault::NoFence,
        Fault::AnswerBeforeCommit,
        Fault::NoSelfStop,
        Fault::EarlyAck,
        Fault::LostGuard,
        Fault::FollowerForOwner,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::NoFence => "no-fence",
            Fault::AnswerBeforeCommit => "answer-before-commit",
            Fault::NoSelfStop => "no-self-stop",
            Fault::EarlyAck => "early-ack",
            Fault::LostGuard => "lost-guard",
            Fault::FollowerForOwner => "follower-for-owner",
        }
    }
}

/// Whether a fault is planted in this process.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_planted(_: Fault) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use planting::{is_planted, plant};

#[cfg(feature = "planted")]
mod planting {
    use super::Fault;
    use std::{str::FromStr, sync::OnceLock};

    static PLANTED: OnceLock<Fault> = OnceLock::new();

    /// Plants a fault in this process, once.
    pub fn plant(fault: Fault) {
        PLANTED.set(fault).expect("one fault is planted at a time");
    }

    /// Whether a fault is planted in this process.
    pub fn is_planted(fault: Fault) -> bool {
        PLANTED.get() == Some(&fault)
    }

    impl FromStr for Fault {
        type Err = String;

        fn from_str(text: &str) -> Result<Fault, String> {
            let found = Fault::ALL.into_iter().find(|fault| fault.name() == text);
            found.ok_or_else(|| format!("no fault is called {text:?}"))
        }
    }
}
