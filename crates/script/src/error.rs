//! Why a function did not answer, in sentences. Knows nothing of how it was run.

/// A function could not be compiled, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not Luau.
    #[error("{}{message}; correct the text and register it again", at(*.line))]
    Syntax {
        /// What the compiler says.
        message: String,
        /// Where, counted from 1, if that is known.
        line: Option<u32>,
    },
    /// The function raised an error.
    #[error("{}{message}", at(*.line))]
    Runtime {
        /// What it says.
        message: String,
        /// Where, counted from 1, if that is known.
        line: Option<u32>,
    },
    /// The function did not come to an end.
    #[error(
        "the function was stopped after {limit} steps (steps_max); look for a loop that does not end, or do \
         less at once"
    )]
    OutOfSteps {
        /// How many it may take.
        limit: u64,
    },
    /// The caller does not wait for the function any more.
    #[error("the function was stopped, because nobody waits for it any more")]
    Cancelled,
    /// The function needs too much.
    #[error(
        "the function was stopped: it needs more than {limit} bytes of memory (memory_bytes_max); nothing is \
         reclaimed while it runs, so build fewer tables and shorter texts, and look for a function that calls \
         itself without end"
    )]
    OutOfMemory {
        /// How many bytes it may take in one call, all together.
        limit: u64,
    },
    /// The function answered something that cannot be used.
    #[error("{message}")]
    BadResult {
        /// What it answered, and what it should.
        message: String,
    },
    /// The function cannot be given what it was called with.
    #[error("{message}")]
    BadArgument {
        /// What, and why.
        message: String,
    },
    /// Text or values that are larger than allowed.
    #[error("{what} would be larger than {limit} bytes ({name}); make it smaller, or raise the limit")]
    TooLarge {
        /// What would be.
        what: &'static str,
        /// The limit's name.
        name: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The procedure refused, in its own words.
    #[error("{message}")]
    Refused {
        /// What programs read.
        code: String,
        /// What people read.
        message: String,
    },
    /// Documents could not be read, or writes not taken.
    #[error("{message}")]
    Documents {
        /// Why.
        message: String,
    },
}

impl ScriptError {
    /// The sandbox in which this happened may be short of what it needs to go on.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(
            self,
            ScriptError::OutOfSteps { .. } | ScriptError::OutOfMemory { .. } | ScriptError::Cancelled
        )
    }
}

fn at(line: Option<u32>) -> String {
    line.map_or(String::new(), |line| format!("line {line}: "))
}
