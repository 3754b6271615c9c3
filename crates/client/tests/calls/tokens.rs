//! The token on the way.

use std::sync::Mutex;

use task_broker_client::{Error, TokenError, TokenProvider, TokenSource};

use crate::script::{Script, Step, snapshot};

fn refused() -> Step {
    Step::Http("401 Unauthorized", vec![("www-authenticate", "Bearer".to_owned())], String::new())
}

#[tokio::test]
async fn a_call_says_who_sends_it_and_what_it_takes() {
    let script = Script::new([Step::Result(snapshot()), Step::Result(snapshot())]).await;
    script.client().get("8c1f").await.unwrap();
    let client = script.builder().token("secret").user_agent("reports/1").build().unwrap();
    client.get("8c1f").await.unwrap();
    assert!(!format!("{client:?}").contains("secret"));
    let seen = script.seen();
    assert_eq!(seen[0].header("authorization"), None);
    assert!(seen[0].header("user-agent").unwrap().starts_with("task-broker-client/"));
    assert_eq!(seen[1].header("authorization"), Some("Bearer secret"));
    assert_eq!(seen[1].header("user-agent"), Some("reports/1"));
    assert_eq!(seen[1].header("accept"), Some("application/json"));
    assert!(seen[1].head.starts_with("POST /rpc HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_token_that_was_replaced_in_its_file_is_taken_up_after_a_401() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "old\n").unwrap();
    let script = Script::new([Step::Result(snapshot()), refused(), Step::Result(snapshot())]).await;
    let client = script.builder().token(TokenSource::file(&path)).build().unwrap();
    client.get("8c1f").await.unwrap();
    std::fs::write(&path, "new\n").unwrap();
    client.get("8c1f").await.unwrap();
    let seen = script.seen();
    let sent: Vec<_> = seen.iter().map(|seen| seen.header("authorization").unwrap()).collect();
    assert_eq!(sent, ["Bearer old", "Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn a_token_that_cannot_change_is_not_tried_twice() {
    let script = Script::new([refused()]).await;
    let error = script.builder().token("secret").build().unwrap().get("8c1f").await.unwrap_err();
    assert!(error.is_unauthorized(), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"));
    assert_eq!(script.seen().len(), 1);
}

/// Gives numbers, and remembers whether each was asked for because of a 401.
#[derive(Default)]
struct Counting(Mutex<Vec<bool>>);

#[async_trait::async_trait]
impl TokenProvider for &'static Counting {
    async fn token(&self, refused: bool) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let mut asked = self.0.lock().unwrap();
        asked.push(refused);
        Ok(asked.len().to_string())
    }
}

#[tokio::test]
async fn a_provider_is_told_of_a_401_and_two_in_a_row_are_the_end() {
    let script = Script::new([refused(), Step::Result(snapshot()), refused(), refused()]).await;
    let provider: &'static Counting = Box::leak(Box::default());
    let client = script.builder().token(TokenSource::provider(provider)).build().unwrap();
    client.get("8c1f").await.unwrap();
    assert!(client.get("8c1f").await.unwrap_err().is_unauthorized());
    assert_eq!(*provider.0.lock().unwrap(), [false, true, false, true]);
    assert_eq!(script.seen()[3].header("authorization"), Some("Bearer 4"));
}

#[tokio::test]
async fn without_its_file_nothing_is_sent() {
    let script = Script::new([]).await;
    let client = script.builder().token(TokenSource::file("/nowhere/at/all"));
    let client = client.retry_budget(std::time::Duration::ZERO).build().unwrap();
    let error = client.get("8c1f").await.unwrap_err();
    assert!(matches!(error, Error::Token(TokenError::File { .. })), "{error:?}");
    assert!(script.seen().is_empty());
}
