//! The brokers that tests share, and the macro that runs a test on both stores.

use std::sync::OnceLock;
use std::time::Duration;

use crate::harness::{Broker, BrokerOptions, Store};

/// A test that takes longer hangs, and should say so.
pub(crate) const TEST_DEADLINE: Duration = Duration::from_mins(1);

/// The broker on an embedded store, with authentication `optional`.
pub(crate) fn sled() -> &'static Broker {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    BROKER.get_or_init(|| BrokerOptions::new(Store::Sled).start())
}

/// The broker that keeps nothing on disk, with authentication `optional`.
pub(crate) fn memory() -> &'static Broker {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    BROKER.get_or_init(|| BrokerOptions::new(Store::Memory).start())
}

/// Runs a test with a deadline.
pub(crate) async fn run(test: impl Future<Output = ()>) {
    tokio::time::timeout(TEST_DEADLINE, test).await.expect("the test ends in time");
}

/// Makes a test on each store of each function named. One that is forgotten here is reported as dead code.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod sled {
            $(#[tokio::test]
            async fn $name() {
                $crate::shared::run(super::$name($crate::shared::sled())).await;
            })+
        }

        mod memory {
            $(#[tokio::test]
            async fn $name() {
                $crate::shared::run(super::$name($crate::shared::memory())).await;
            })+
        }
    };
}

/// Makes a test on the shared broker without a disk of each function named, where the store can make no difference.
macro_rules! on_memory {
    ($($name:ident),+ $(,)?) => {
        mod once {
            $(#[tokio::test]
            async fn $name() {
                $crate::shared::run(super::$name($crate::shared::memory())).await;
            })+
        }
    };
}
