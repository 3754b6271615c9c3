//! The contract of [`Store`](super::Store), sentence by sentence.
//!
//! Every sentence is a plain function on `&dyn Store` and the clock by which the store was opened. The list below
//! is the only one: [`contract!`] makes a test of each of its sentences for the driver that names it, and a sentence
//! that is not in the list is dead code, which the lints refuse. A driver adds nothing here but an `open`.
//!
//! Every sentence gets a store of its own, empty. Stores are shared by many in life, so a sentence never assumes
//! more than the trait says: leftovers may be deleted late, hints may be lost, a step may be decided twice.

mod actions;
pub(in crate::store) mod changes;
pub(in crate::store) mod closing;
pub(in crate::store) mod expiry;
pub(in crate::store) mod insertion;
pub(in crate::store) mod listing;
pub(in crate::store) mod payloads;
pub(in crate::store) mod reading;
pub(in crate::store) mod size;
pub(in crate::store) mod updating;
pub(in crate::store) mod usage;

pub(in crate::store) use actions::*;

/// Makes a test of every sentence for one driver. `$open` is the full path of a function that takes the clock and
/// returns an empty store, with whatever must outlive it.
macro_rules! contract {
    ($open:path) => {
        $crate::store::suite::contract! { $open;
            insertion {
                a_task_reads_back_as_it_was_decided,
                a_create_key_is_taken_while_its_task_lives,
                a_create_key_is_free_for_another_creator,
                a_create_key_is_free_from_the_instant_its_task_expires,
                a_create_key_is_free_when_its_task_is_discarded,
                a_create_key_follows_a_ttl_that_was_moved,
                a_rejected_insertion_writes_nothing,
                of_many_insertions_under_one_key_one_creates,
            }
            updating {
                a_decision_is_made_on_the_newest_state,
                an_update_of_an_unknown_task_is_absent_and_decides_nothing,
                a_rejected_update_writes_nothing,
                a_command_that_changes_nothing_keeps_the_task_as_it_is,
                an_outcome_is_remembered_without_a_revision,
                a_removed_task_is_gone_for_everybody,
                an_expired_task_is_there_until_somebody_removes_it,
                concurrent_updates_lose_nothing,
                of_many_writes_that_expect_one_revision_one_is_carried_out,
                what_was_answered_is_seen_by_every_later_read,
                an_update_shows_the_payloads_of_the_state_that_it_made,
            }
            reading {
                an_unknown_task_reads_as_absent,
                a_read_brings_the_payloads_that_were_asked_for_and_no_others,
                a_read_can_be_refused_by_whoever_selects,
                heads_come_in_the_order_of_their_ids,
                a_reading_is_of_one_revision_while_a_writer_replaces_payloads,
                a_task_that_is_removed_is_read_whole_or_not_at_all,
            }
            payloads {
                payloads_of_every_length_read_back_byte_for_byte,
                a_payload_that_was_replaced_goes,
                payloads_that_are_kept_stay_through_every_change,
                a_payload_that_comes_and_goes_at_once_leaves_the_others_alone,
            }
            listing {
                a_list_is_newest_first_with_ties_in_order_of_their_ids,
                pages_of_every_size_add_up_to_the_whole,
                a_list_shows_the_tasks_of_its_subject_in_its_role,
                filters_leave_out_what_they_say_and_count_for_more,
                expired_tasks_are_left_out_from_their_last_instant,
                changes_while_somebody_pages_neither_double_nor_hide_a_task,
                a_filter_that_matches_little_still_finds_everything,
                a_list_of_somebody_who_owns_and_creates_is_complete,
            }
            usage {
                usage_is_exact_after_every_step,
                a_task_without_an_owner_counts_in_the_total_only,
                tasks_that_have_expired_count_until_they_are_removed,
                of_concurrent_creations_only_as_many_as_fit_are_admitted,
            }
            expiry {
                a_sweep_removes_so_many_at_most_and_says_whether_more_are_due,
                a_sweep_takes_a_task_from_the_instant_it_expires_and_no_earlier,
                a_swept_task_is_gone_and_its_end_is_an_event,
                a_ttl_that_was_moved_in_the_meantime_is_respected,
                concurrent_sweeps_remove_each_task_once,
            }
            changes {
                without_a_position_a_reader_is_reset_and_stands_at_the_end,
                every_change_comes_in_order_with_what_it_left,
                a_reader_goes_on_from_any_position_it_was_given,
                only_changes_to_tasks_of_the_creator_are_told,
                a_command_that_changes_nothing_is_no_event,
                an_unknown_position_is_a_reset,
                concurrent_changes_come_in_revision_order_for_each_task,
                no_event_comes_before_the_state_it_tells_of,
                a_hint_arrives_for_every_change,
            }
            size {
                many_tasks_at_once_are_all_there,
                many_commands_on_one_task_at_once_are_carried_out_in_turn,
                a_task_at_all_of_its_limits_is_kept_whole,
            }
            closing {
                after_close_every_call_fails_with_broken,
                what_was_handed_over_before_close_is_carried_out,
            }
        }
    };
    ($open:path; $($topic:ident { $($sentence:ident,)+ })+) => {
        mod contract {
            $(mod $topic {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $sentence() {
                    use $crate::store::{Store, suite};
                    let clock = $crate::clock::Clock::manual(suite::START);
                    let (store, held) = $open(&clock);
                    suite::$topic::$sentence(&store, &clock).await;
                    store.close().await;
                    drop((store, held));
                })+
            })+
        }
    };
}

pub(in crate::store) use contract;
