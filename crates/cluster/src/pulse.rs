//! Whether another node answers: one that is called every second and of which nothing is heard for a while is silent, until
//! something is heard again. Knows nothing of how it is called.
//!
//! ```text
//!   heard        beat         beat          beat times out
//!   ──┼────────────┼────────────┼──────────────┼────────────► silent: calls under way fail, new ones are not sent
//!     0 s          1 s          2 s            3 s
//! ```

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// How often a node is called.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a beat may take.
pub(crate) const BEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// A node of which nothing was heard for this time is silent; as long as an ownership lasts.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(3);
/// A beat that ends so long after its time says more about this node, which was paused, than about the other one.
const LATE: Duration = Duration::from_secs(1);

/// What is known of one other node. Written by its beats and by whatever else comes from it, read by all calls to it.
pub(crate) struct Pulse {
    begun: Instant,
    /// When something was heard last, in milliseconds since `begun`.
    heard_ms: AtomicU64,
    is_silent: watch::Sender<bool>,
}

impl Pulse {
    /// Of a node that may answer as well as not.
    pub(crate) fn new() -> Pulse {
        Pulse { begun: Instant::now(), heard_ms: AtomicU64::new(0), is_silent: watch::Sender::new(false) }
    }

    /// Something came from the node.
    pub(crate) fn hear(&self) {
        let since_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(since_ms, Ordering::Relaxed);
        if self.is_silent() {
            self.is_silent.send_replace(false);
        }
    }

    /// A beat that began at this time was not answered; whether the node is silent now and was not before.
    pub(crate) fn miss(&self, begun: Instant) -> bool {
        if begun.elapsed() > BEAT_TIMEOUT + LATE {
            self.hear();
        }
        if self.unheard() < SILENT_AFTER {
            return false;
        }
        !self.is_silent.send_replace(true)
    }

    pub(crate) fn is_silent(&self) -> bool {
        *self.is_silent.borrow()
    }

    /// Waits until the node is silent.
    pub(crate) async fn silenced(&self) {
        // The sender is here, so it cannot be gone.
        let _ = self.is_silent.subscribe().wait_for(|is_silent| *is_silent).await;
    }

    /// Waits until the node is not silent, but not for long; whether it is not.
    pub(crate) async fn answers_within(&self, timeout: Duration) -> bool {
        let mut is_silent = self.is_silent.subscribe();
        tokio::time::timeout(timeout, is_silent.wait_for(|is_silent| !*is_silent)).await.is_ok()
    }

    /// Why the node is not called, in words.
    pub(crate) fn silence(&self) -> String {
        format!("nothing has come from it for {} s", self.unheard().as_secs())
    }

    /// How long nothing has come from the node.
    pub(crate) fn unheard(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep};

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A beat that nothing answers.
    async fn missed(pulse: &Pulse) -> bool {
        let begun = Instant::now();
        sleep(BEAT_TIMEOUT).await;
        pulse.miss(begun)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_of_which_nothing_is_heard_is_silent_until_something_is() {
        let pulse = Pulse::new();
        advance(second(60)).await;
        pulse.hear();
        assert!(!missed(&pulse).await && !pulse.is_silent(), "one beat may get lost");
        assert!(missed(&pulse).await && pulse.is_silent());
        assert!(!missed(&pulse).await, "it is said once");
        assert!(pulse.silence().contains("6 s"), "{}", pulse.silence());
        assert!(!pulse.answers_within(second(1)).await);
        pulse.hear();
        assert!(!pulse.is_silent() && pulse.answers_within(second(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn anything_that_comes_from_a_node_counts() {
        let pulse = Pulse::new();
        for _ in 0..9 {
            let begun = Instant::now();
            sleep(second(1)).await;
            pulse.hear();
            sleep(second(1)).await;
            assert!(!pulse.miss(begun));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_paused_itself_does_not_take_others_for_silent() {
        let pulse = Pulse::new();
        let begun = Instant::now();
        advance(second(30)).await;
        assert!(!pulse.miss(begun) && !pulse.is_silent());
        assert!(!missed(&pulse).await);
        assert!(missed(&pulse).await, "but if they say nothing afterwards");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_hear_of_silence() {
        let pulse = Pulse::new();
        let missing = async {
            sleep(second(5)).await;
            pulse.miss(Instant::now());
        };
        tokio::join!(pulse.silenced(), missing);
        assert!(pulse.is_silent());
    }
}
