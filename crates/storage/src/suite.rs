//! What every store, and the log and the state on it, must do; run on each of them. Knows nothing of any store.
