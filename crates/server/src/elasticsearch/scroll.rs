//! Searches that are shown page by page. Each keeps what it looks through and how far it came, not its hits. Knows
//! nothing of how pages are made.

use super::{
    answer::{Refusal, list, quoted},
    place::{Cursor, Place},
    request::time_ms,
    search::Search,
};
use crate::shared::Shared;
use hyper::StatusCode;
use lockwood_node::{limits::Limits, purge::Purges, secret::random, trouble::Trouble};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A search whose next page may be asked for.
pub(super) struct Scroll {
    pub(super) search: Search,
    pub(super) place: Place,
    pub(super) cursor: Cursor,
    pub(super) total: u64,
    pub(super) until: Instant,
}

impl Scroll {
    /// Whether its next page may be shown. What was purged since it began must not be; and its view is given up, as the
    /// purge waits for that.
    fn is_over(&self, purges: &Purges) -> bool {
        let Place { indexes, seen, .. } = &self.place;
        self.until <= Instant::now() || indexes.iter().any(|index| purges.is_shown(index, *seen))
    }
}

/// All of them. Those that are being looked at are not among them.
#[derive(Default)]
pub(super) struct Scrolls(Arc<Mutex<HashMap<String, Scroll>>>);

/// One that is being looked at. It is put back when this is dropped, as it is then: also if looking fails or its client
/// leaves.
pub(super) struct Taken {
    id: String,
    scroll: Option<Scroll>,
    scrolls: Arc<Mutex<HashMap<String, Scroll>>>,
}

impl Taken {
    pub(super) fn scroll(&mut self) -> &mut Scroll {
        self.scroll.as_mut().expect("it is there until it is put back")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(scroll) = self.scroll.take() {
            self.scrolls.lock().insert(std::mem::take(&mut self.id), scroll);
        }
    }
}

impl Scrolls {
    /// Keeps a new one; gives its id.
    pub(super) fn insert(&self, shared: &Shared, scroll: Scroll) -> Result<String, Refusal> {
        self.drop_old(&shared.purges);
        let mut scrolls = self.0.lock();
        let limit = shared.config.limits.scrolls_max;
        if scrolls.len() as u64 >= limit {
            return Err(
                Trouble::too_many("scrolls_max", limit, "there are too many scrolls; clear some").into()
            );
        }
        let id: String = random::<24>().iter().map(|byte| format!("{byte:02x}")).collect();
        scrolls.insert(id.clone(), scroll);
        Ok(id)
    }

    pub(super) fn take(&self, purges: &Purges, id: &str) -> Result<Taken, Refusal> {
        let found = self.0.lock().remove(id).filter(|scroll| !scroll.is_over(purges));
        let scroll = Some(found.ok_or_else(|| missing(id))?);
        Ok(Taken { id: id.to_owned(), scroll, scrolls: Arc::clone(&self.0) })
    }

    /// True if it was there.
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = self.0.lock().remove(id);
        removed.is_some()
    }

    /// How many there were.
    pub(super) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.0.lock());
        all.len()
    }

    pub(super) fn drop_old(&self, purges: &Purges) {
        self.0.lock().retain(|_, scroll| !scroll.is_over(purges));
    }
}

fn missing(id: &str) -> Refusal {
    let reason = format!("No search context found for id [{id}]");
    let kind = "search_context_missing_exception";
    let refusal =
        Refusal::new(StatusCode::NOT_FOUND, "search_phase_execution_exception", "all shards failed");
    refusal
        .with("phase", quoted("query"))
        .with("grouped", "true".to_owned())
        .with("failed_shards", list([]))
        .rooted(kind, reason)
}

/// How long a scroll is to be kept, written like `5m`.
pub(super) fn keep_alive(limits: &Limits, text: &str) -> Result<Duration, Refusal> {
    let wrong = || {
        Refusal::argument(format!(
            "failed to parse setting [scroll] with value [{text}] as a time value; write 1m"
        ))
    };
    let ms = time_ms(text).ok_or_else(wrong)?;
    let limit = limits.scroll_ttl_ms_max;
    if ms > limit {
        return Err(Refusal::over(
            "scroll_ttl_ms_max",
            limit,
            &format!("Keep alive for request ({text}) is too large"),
        ));
    }
    if ms == 0 {
        return Err(wrong());
    }
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let limits = Limits::default();
        for (text, ms) in
            [("1ms", 1), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(keep_alive(&limits, text).unwrap(), Duration::from_millis(ms));
        }
        for text in ["", "1", "m", "-1m", "1 m", "0s", "1w", "99999999999999999999d", "2d"] {
            assert!(keep_alive(&limits, text).is_err(), "{text}");
        }
    }
}
