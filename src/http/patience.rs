//! Time limits for what is mostly ready at once.

use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// As `tokio::time::timeout`, but makes a timer only if the future is not ready when it is polled first. A timer is large, and
/// would be a part of the future of every request.
///
/// # Errors
/// When the future is not ready in time.
pub(super) async fn within<F: Future + Unpin>(time: Duration, mut future: F) -> Result<F::Output, Elapsed> {
    if let Poll::Ready(output) = poll!(&mut future) {
        return Ok(output);
    }
    Box::pin(timeout(time, future)).await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use tokio::time::{Instant, sleep};

    use super::*;

    const TIME: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_needs_no_time_and_what_is_not_has_all_of_it_and_no_more() {
        assert_eq!(within(Duration::ZERO, ready(1)).await.ok(), Some(1));
        assert!(within(TIME, pin!(sleep(Duration::from_millis(999)))).await.is_ok());
        let began = Instant::now();
        assert!(within(TIME, pending::<()>()).await.is_err());
        assert_eq!(began.elapsed(), TIME);
    }
}
