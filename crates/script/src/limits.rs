//! How much a function may take. Knows nothing of how that is measured.

/// What a function may take, its text included. The same call always takes the same, whatever the machine
/// does beside it: there is no limit in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Bytes that one call may take, all together: nothing is reclaimed before it ends.
    pub memory_bytes_max: u64,
    /// Steps that one call may take. A step is a function call or one round of a loop; it counts for more the
    /// longer the text is and the more memory the call has taken, and reading or writing a document counts as a hundred or more.
    pub steps_max: u64,
    /// Bytes of the text.
    pub source_bytes_max: u64,
    /// Bytes of JSON that one call may answer and write, all together.
    pub result_bytes_max: u64,
}

impl ScriptLimits {
    /// For what is called with every request.
    pub const SHARD_FUNCTION: ScriptLimits = ScriptLimits {
        memory_bytes_max: 1 << 20,
        steps_max: 100_000,
        source_bytes_max: 64 << 10,
        result_bytes_max: 1 << 10,
    };

    /// For what works on documents.
    pub const PROCEDURE: ScriptLimits = ScriptLimits {
        memory_bytes_max: 16 << 20,
        steps_max: 1_000_000,
        source_bytes_max: 64 << 10,
        result_bytes_max: 4 << 20,
    };
}
