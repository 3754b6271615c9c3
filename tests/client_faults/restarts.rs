//! A broker that is killed or stopped in the middle of the work and comes back on its data.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::driver::Driver;
use crate::replies::nothing_is_lost_or_doubled;
use crate::scene::{self, Account};
use crate::seed;

const DRIVERS: u64 = 6;
const KILLS: usize = 8;
/// Calls, of all drivers together, between a restart and the next kill.
const CALLS_BETWEEN: usize = 80;
/// How long those may take.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(15);

/// How long an orderly end may take.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_ends_in_the_middle_costs_no_call_and_no_task() {
    let seed = seed();
    let mut broker = scene::broker();
    let (done, mut progress) = watch::channel(0_usize);
    let (done, killed) = (Arc::new(done), Arc::new(AtomicUsize::new(0)));
    let (mut drivers, mut lines) = (Vec::new(), Vec::new());
    for number in 0..DRIVERS {
        let account = Account::new(&broker, "restarts");
        let (here, other) = (account.instance(&broker).await, account.instance(&broker).await);
        lines.extend([here.proxy, other.proxy]);
        let mut driver = Driver::new(here.store, other.store, seed.wrapping_mul(1_000_003) + number);
        driver.shaky = true;
        let (done, killed) = (Arc::clone(&done), Arc::clone(&killed));
        drivers.push(tokio::spawn(async move {
            // Everybody works until the last restart is over, and once around after it.
            loop {
                let last = killed.load(Ordering::SeqCst) == KILLS;
                driver.round_with(|| done.send_modify(|calls| *calls += 1)).await;
                if last {
                    return (driver, account);
                }
            }
        }));
    }
    for number in 0..KILLS {
        let target = *progress.borrow() + CALLS_BETWEEN;
        let reached =
            tokio::time::timeout(PROGRESS_DEADLINE, progress.wait_for(|calls| *calls >= target)).await;
        assert!(reached.is_ok(), "the stores did not recover within {PROGRESS_DEADLINE:?}");
        tokio::task::block_in_place(|| {
            if number % 2 == 0 {
                broker.kill9();
            } else {
                // The orderly way: new calls are refused, waits are sent home, streams end.
                broker.sigterm();
                assert!(broker.wait_exit(EXIT_DEADLINE).success());
            }
            broker.restart();
        });
        for line in &lines {
            line.lead_to(broker.address());
        }
        killed.fetch_add(1, Ordering::SeqCst);
    }
    for driver in drivers {
        let (mut driver, account) = scene::finished(driver).await;
        driver.look = Some(account.client(&broker));
        for at in 0..driver.tasks.len() {
            driver.look_at(at).await;
        }
        nothing_is_lost_or_doubled(&driver).await;
    }
    broker.assert_no_error_logged();
}
