//! Why something was not done, in a form every interface can put into its own words.

use lockwood_model::Path;
use lockwood_router::ShardNo;
use lockwood_wire::{
    Blocker, Code, CycleStep, Problem, SchemaReason, ServerMessage, WirePath, documents::BrokenLock,
};

/// A refusal with everything there is to say about it.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// What programs tell it by.
    pub code: Code,
    /// What people are told.
    pub message: String,
    /// Locks that are in the way.
    pub blockers: Vec<Blocker>,
    /// The owners that would wait for each other.
    pub cycle: Vec<CycleStep>,
    /// What was wanted and others have.
    pub paths: Vec<Path>,
    /// What else there is to say.
    pub why: Option<Box<Why>>,
}

/// What there is to say about a refusal that is not about locks on paths.
#[derive(Debug, Clone)]
pub enum Why {
    /// Position locks that do not hold.
    Broken(Vec<BrokenLock>),
    /// A schema does not go with earlier ones.
    Incompatible(Vec<SchemaReason>),
    /// A grace period lasts so much longer.
    Grace {
        /// In milliseconds.
        left_ms: u64,
    },
    /// A shard has no owner, or its owner does not answer.
    Unreachable {
        /// Which shard.
        shard: ShardNo,
    },
}

impl Trouble {
    /// A refusal with a code and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Trouble {
        let (blockers, cycle, paths) = (Vec::new(), Vec::new(), Vec::new());
        Trouble { code, message: message.into(), blockers, cycle, paths, why: None }
    }

    /// A shard has no owner, or its owner does not answer. The message names it as well.
    pub fn unreachable(shard: ShardNo, message: impl Into<String>) -> Trouble {
        let why = Some(Box::new(Why::Unreachable { shard }));
        Trouble { why, ..Trouble::new(Code::ShardUnreachable, message) }
    }

    /// More than the limit called `name` allows.
    pub fn over(name: &str, limit: u64, what: &str) -> Trouble {
        Trouble::new(
            Code::OverLimit,
            format!("{what}; the limit {name} is {limit} (flag --{})", name.replace('_', "-")),
        )
    }

    /// The server has as many of something as it takes.
    pub fn too_many(name: &str, limit: u64, what: &str) -> Trouble {
        let flag = name.replace('_', "-");
        Trouble::new(Code::TooMany, format!("{what}; the limit {name} is {limit} (flag --{flag}); try later"))
    }

    pub(crate) fn unknown_lock(lock: u64) -> Trouble {
        Trouble::new(
            Code::UnknownLock,
            format!(
                "there is no lock {lock}, or it is not this session's; it may have been released or lost"
            ),
        )
    }

    /// That the server is about to stop.
    pub fn draining() -> Trouble {
        Trouble::new(Code::Draining, "the server is about to stop and takes no new locks; try again later")
    }

    /// That the disk failed.
    pub fn storage_failed() -> Trouble {
        Trouble::new(
            Code::StorageFailed,
            "the server's disk failed, so it promises nothing new; it must be restarted with a sound disk",
        )
    }

    /// The message of a session about one of its requests.
    pub fn into_message(self, id: Option<u64>, lock: Option<u64>) -> ServerMessage {
        let Trouble { code, message, blockers, cycle, .. } = self;
        ServerMessage::Error { id, code, message, lock, blockers, cycle }
    }

    /// What another shard has refused.
    pub fn from_problem(problem: Problem) -> Trouble {
        let Problem { code, detail, blockers, paths, broken, reasons, grace_ms, shard, .. } = problem;
        let why = match (grace_ms, shard) {
            (Some(left_ms), _) => Some(Why::Grace { left_ms }),
            (None, Some(shard)) => Some(Why::Unreachable { shard: ShardNo(shard) }),
            (None, None) if !broken.is_empty() => Some(Why::Broken(broken)),
            (None, None) if !reasons.is_empty() => Some(Why::Incompatible(reasons)),
            (None, None) => None,
        };
        let paths = paths.into_iter().map(|WirePath(path)| path).collect();
        Trouble { blockers, paths, why: why.map(Box::new), ..Trouble::new(code, detail) }
    }

    /// The refusal as HTTP tells it.
    pub fn into_problem(self) -> Problem {
        let paths = self.paths.into_iter().map(WirePath).collect();
        let mut problem = Problem { blockers: self.blockers, paths, ..Problem::new(self.code, self.message) };
        match self.why.map(|why| *why) {
            None => {}
            Some(Why::Broken(broken)) => problem.broken = broken,
            Some(Why::Incompatible(reasons)) => problem.reasons = reasons,
            Some(Why::Grace { left_ms }) => problem.grace_ms = Some(left_ms),
            Some(Why::Unreachable { shard }) => problem.shard = Some(shard.0),
        }
        problem
    }
}
