//! `task_broker::fuzzing::journal`; docs/fuzzing.md says what it holds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    task_broker::fuzzing::journal(data, |act| allocation_counter::measure(act).bytes_max);
});
