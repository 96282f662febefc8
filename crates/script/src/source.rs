//! From the text of a function to what a sandbox can load. Knows nothing of sandboxes.

use crate::{error::ScriptError, limits::ScriptLimits, sandbox};
use mlua::chunk::Compiler;
use xxhash_rust::xxh3::xxh3_128;

/// The name under which Luau knows the text; it tells lines of the text from lines of our own.
pub(crate) const CHUNK: &str = "script";

/// The version of a text: 32 hex digits, the same everywhere and in every release.
pub fn hash(source: &str) -> String {
    format!("{:032x}", xxh3_128(source.as_bytes()))
}

/// A text that was compiled, and what it may take.
#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) bytecode: Vec<u8>,
    pub(crate) limits: ScriptLimits,
}

/// A loop with a body of so many bytes takes about as long as another step.
const BYTES_PER_STEP: u64 = 2048;

impl Code {
    /// What a step counts for. Between two steps the function can run through all of its text once, so a long text
    /// makes every step longer.
    pub(crate) fn step_cost(&self) -> u64 {
        1 + self.bytecode.len() as u64 / BYTES_PER_STEP
    }

    pub(crate) fn compile(source: &str, limits: ScriptLimits) -> Result<Code, ScriptError> {
        if source.len() as u64 > limits.source_bytes_max {
            let (what, name) = ("the text of the function", "source_bytes_max");
            return Err(ScriptError::TooLarge { what, name, limit: limits.source_bytes_max });
        }
        // The compiler knows some functions by name and calls them past their tables, removed or not.
        let compiler = Compiler::new().set_disabled_builtins(sandbox::REMOVED_BUILTINS);
        let bytecode = compiler.compile(source).map_err(|error| syntax(&error))?;
        Ok(Code { bytecode, limits })
    }
}

fn syntax(error: &mlua::Error) -> ScriptError {
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    // The compiler has no name for the text and writes `:3: message`.
    let rest = text.trim_start_matches(':');
    match rest.split_once(':').map(|(line, message)| (line.trim().parse(), message)) {
        Some((Ok(line), message)) => {
            ScriptError::Syntax { message: message.trim().to_owned(), line: Some(line) }
        }
        _ => ScriptError::Syntax { message: rest.trim().to_owned(), line: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(source: &str) -> Result<Code, ScriptError> {
        Code::compile(source, ScriptLimits::SHARD_FUNCTION)
    }

    #[test]
    fn the_hash_is_what_it_always_was() {
        assert_eq!(hash(""), "99aa06d3014798d86001c324468d497f");
        assert_ne!(hash("return 1"), hash("return 2"));
    }

    #[test]
    fn what_is_not_luau_is_refused_with_its_line() {
        let Err(ScriptError::Syntax { message, line }) = compile("local a = 1\nreturn +") else {
            panic!("it is no Luau")
        };
        assert_eq!(line, Some(2));
        assert!(message.contains("Expected identifier"), "{message}");
        assert!(compile("return 1").is_ok());
    }

    #[test]
    fn a_long_text_is_refused() {
        let long = format!("return 1 --{}", "x".repeat(64 << 10));
        assert!(matches!(compile(&long), Err(ScriptError::TooLarge { name: "source_bytes_max", .. })));
    }
}
