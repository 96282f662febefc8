//! One suite for every back end: the same tests run on a store in memory, on one that loses power whenever it
//! is restarted, on the disk, and on PostgreSQL with a cache on the disk. Knows nothing of how any of them works.
//!
//! `LOCKWOOD_MODEL_HISTORIES` and `LOCKWOOD_MODEL_SEED` make the random ones longer or start them elsewhere; a
//! history that fails prints its seed.
//!
//! Mistakes that were planted to see whether these tests, those of the disk and those of the shard notice,
//! and a test that did:
//!
//! | mistake | noticed by |
//! | --- | --- |
//! | an append is not synced | `the_state_and_the_log_change_in_one_step`, losing power |
//! | an earlier owner is not fenced | `a_claim_fences_every_earlier_owner` |
//! | a snapshot shows a later commit | `a_snapshot_stays_as_it_was` |
//! | history is kept under the position before | `random_histories_are_remembered_as_a_list_of_versions_does` |
//! | a whole record does not clear what came later | the same |
//! | "as of" takes in the change after it | the same |
//! | the horizon of a trim is one too low | the same |
//! | an update leaves its old place in an index | the same |
//! | a document that is taken away stays in an index | the same |
//! | emptying a namespace leaves its answers | the same |
//! | a snapshot is saved without its last piece | `a_damaged_snapshot_or_log_is_not_rebuilt_from` |
//! | the number of the seal is not compared | `a_journal_that_lost_its_end_is_reported` |
//! | its digest is not compared | `a_number_that_went_back_is_reported` |
//! | the engine's lists of tables are trusted | `every_damaged_byte_of_a_list_of_tables_is_noticed` |
//! | a call is answered before the sync | `what_was_acknowledged_survives_a_loss_of_power` |
//! | a refusal does not wait | `a_refusal_waits_for_what_it_rests_on` |
//! | deciding does not see the batch in flight | `a_repeated_call_gets_the_first_answer_even_before_there_is_one` |
//! | a failed sync is answered like a good one | `a_failed_disk_acknowledges_nothing_and_loses_nothing` |
//! | a failed shard goes on | the same |
//! | a trim takes what is a moment too young | `what_is_younger_is_not_trimmed` |
//! | an index is ready after its first piece | `an_index_that_is_built_while_others_write_finds_what_a_scan_finds` |

mod log;
mod model;
pub(crate) mod moving;
mod purge;
mod state;
mod store;

use crate::{Embedded, Forgetful, Memory, Store, postgres::postgres_test::Cluster};
use std::sync::Arc;

/// Something that runs a store and can go down and come back.
pub(super) trait Machine {
    /// How many random histories it is quick enough for.
    fn histories(&self) -> u64;

    /// The store as it is now; to be let go of before a restart.
    fn store(&self) -> Arc<dyn Store>;

    /// Goes down without warning and comes back with what was synced.
    fn restart(&mut self);
}

#[derive(Default)]
struct InMemory(Memory);

impl Machine for InMemory {
    fn histories(&self) -> u64 {
        6
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn restart(&mut self) {}
}

#[derive(Default)]
struct LosingPower(Forgetful);

impl Machine for LosingPower {
    fn histories(&self) -> u64 {
        4
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn restart(&mut self) {
        self.0 = self.0.lose_power();
    }
}

struct OnDisk {
    directory: tempfile::TempDir,
    store: Option<Arc<dyn Store>>,
}

impl Default for OnDisk {
    fn default() -> OnDisk {
        let mut machine = OnDisk { directory: tempfile::tempdir().unwrap(), store: None };
        machine.restart();
        machine
    }
}

impl Machine for OnDisk {
    fn histories(&self) -> u64 {
        2
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    fn restart(&mut self) {
        self.store = None;
        self.store = Some(Arc::new(Embedded::open(self.directory.path()).unwrap()));
    }
}

/// A node that owns a shard; it claims it again whenever it is restarted.
struct OnPostgres {
    directory: tempfile::TempDir,
    cluster: Cluster,
    shard: u64,
    store: Option<Arc<dyn Store>>,
}

impl Default for OnPostgres {
    fn default() -> OnPostgres {
        let (cluster, shard) = (Cluster::shared(), Cluster::new_shard());
        let mut machine = OnPostgres { directory: tempfile::tempdir().unwrap(), cluster, shard, store: None };
        machine.restart();
        machine
    }
}

impl Machine for OnPostgres {
    fn histories(&self) -> u64 {
        1
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    fn restart(&mut self) {
        self.store = None;
        let (store, _) = self.cluster.open("a", self.shard, self.directory.path()).unwrap();
        self.store = Some(store);
    }
}

macro_rules! on_every_back_end {
    ($($module:ident :: $name:ident),* $(,)?) => {
        on_every_back_end!(@one memory InMemory [$($module :: $name),*]);
        on_every_back_end!(@one forgetful LosingPower [$($module :: $name),*]);
        on_every_back_end!(@one embedded OnDisk [$($module :: $name),*]);
        on_every_back_end!(@one clustered OnPostgres [$($module :: $name),*]);
    };
    (@one $back_end:ident $machine:ident [$($module:ident :: $name:ident),*]) => {
        mod $back_end {
            $(#[test]
            fn $name() {
                super::$module::$name(&mut super::$machine::default());
            })*
        }
    };
}

on_every_back_end! {
    store::what_is_synced_is_there_after_a_restart,
    store::a_snapshot_stays_as_it_was,
    store::a_snapshot_sees_the_whole_of_a_batch_or_nothing,
    store::a_range_that_ends_before_it_starts_is_empty,
    store::random_batches_do_what_a_plain_map_does,
    log::a_claim_fences_every_earlier_owner,
    log::an_append_at_another_place_is_refused,
    log::records_are_read_in_order_and_trimmed,
    log::a_gap_or_a_damaged_record_is_reported,
    log::the_state_and_the_log_change_in_one_step,
    state::random_histories_are_remembered_as_a_list_of_versions_does,
    state::what_was_tampered_with_is_found,
    state::a_damaged_snapshot_or_log_is_not_rebuilt_from,
    state::an_index_finds_what_a_scan_finds,
    state::an_answer_of_a_later_life_outlives_the_trim_of_an_earlier_one,
    moving::what_moves_keeps_its_past,
    purge::the_log_leads_to_the_state_after_every_step_of_a_purge,
}

/// A small random source, the same as that of the lock table's model.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Says which seed it was if the test fails while it is alive.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Seed(seed) = self;
            eprintln!("to see it again: LOCKWOOD_MODEL_SEED={seed} LOCKWOOD_MODEL_HISTORIES=1");
        }
    }
}

/// Runs `history` for as many seeds as the machine is quick enough for.
fn for_seeds(machine: &mut dyn Machine, history: fn(&mut dyn Machine, Random)) {
    let setting = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let first = setting("LOCKWOOD_MODEL_SEED", 0);
    for seed in first..first + setting("LOCKWOOD_MODEL_HISTORIES", machine.histories()) {
        let _seed = Seed(seed);
        history(machine, Random::new(seed));
    }
}
