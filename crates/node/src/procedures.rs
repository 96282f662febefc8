//! Procedures that have been compiled, and how many of them run at once. Knows nothing of what they do, nor of where
//! their texts are kept.

use lockwood_script::{Procedure, ScriptError, ScriptLimits};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::{Semaphore, SemaphorePermit};

/// So many are kept compiled.
const COMPILED_LEN_MAX: usize = 256;

/// The procedures of a node.
pub struct Procedures {
    /// By the version of their texts.
    compiled: Mutex<HashMap<String, Arc<Procedure>>>,
    /// Those that take long must not take every core.
    running: Semaphore,
}

impl Default for Procedures {
    fn default() -> Procedures {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Procedures { compiled: Mutex::default(), running: Semaphore::new(cores) }
    }
}

impl Procedures {
    /// The procedure with a text, compiled before or now.
    pub fn compiled(&self, name: &str, source: &str) -> Result<Arc<Procedure>, ScriptError> {
        let hash = lockwood_script::hash(source);
        if let Some(known) = self.compiled.lock().get(&hash) {
            return Ok(Arc::clone(known));
        }
        let procedure = Arc::new(Procedure::compile(name, source, ScriptLimits::PROCEDURE)?);
        let mut compiled = self.compiled.lock();
        if compiled.len() >= COMPILED_LEN_MAX {
            // Those that are called are soon back.
            compiled.clear();
        }
        compiled.insert(hash, Arc::clone(&procedure));
        Ok(procedure)
    }

    /// Waits until one more may run; it does for as long as this is kept.
    pub async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.running.acquire().await.ok()
    }
}
