//! The bearer token: where it comes from, and how it stays out of sight.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::TokenError;

/// How long the text of a token file is used before the file is read again. Files are small, so the text itself is
/// compared, and no time stamp has to be trusted.
const FILE_CHECK: Duration = Duration::from_secs(1);

/// A token with many claims has a few kilobytes; a larger file is the wrong file.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Gives tokens, for instance from an OAuth client or a cloud's metadata service.
///
/// It is asked before each request, so it should keep what it has until shortly before that expires.
///
/// ```
/// use task_broker_client::TokenProvider;
///
/// struct FromVault;
///
/// #[async_trait::async_trait]
/// impl TokenProvider for FromVault {
///     async fn token(&self, refused: bool) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
///         // With `refused` the one that was given last was answered with 401: fetch another.
///         let _ = refused;
///         Ok("eyJhbGciOi...".to_owned())
///     }
/// }
/// ```
#[async_trait]
pub trait TokenProvider: Send + Sync + 'static {
    /// A token that is good now. `refused`: the broker has answered 401 to the last one.
    ///
    /// # Errors
    /// When there is none. The call is repeated within its retry budget.
    async fn token(&self, refused: bool) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
}

/// Where the bearer token comes from. `Debug` never shows it.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum TokenSource {
    /// No token: for a broker with authentication switched off.
    #[default]
    None,
    /// Always this one.
    Fixed(String),
    /// The text of a file, without white space at its ends. It is read again about once per second, and after a 401
    /// at once, so that a token that is rotated in place is taken up.
    File(PathBuf),
    /// From somewhere else.
    Provider(Arc<dyn TokenProvider>),
}

impl TokenSource {
    /// The text of a file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    /// From a provider.
    #[must_use]
    pub fn provider(provider: impl TokenProvider) -> Self {
        Self::Provider(Arc::new(provider))
    }
}

impl From<&str> for TokenSource {
    /// An empty text is no token.
    fn from(token: &str) -> Self {
        Self::from(token.to_owned())
    }
}

impl From<String> for TokenSource {
    fn from(token: String) -> Self {
        if token.is_empty() { Self::None } else { Self::Fixed(token) }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Provider(_) => f.write_str("Provider(..)"),
        }
    }
}

/// A source together with what was read from it.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: TokenSource,
    file: Mutex<Option<ReadFile>>,
}

#[derive(Debug)]
struct ReadFile {
    header: HeaderValue,
    read_at: Instant,
}

impl Tokens {
    pub(crate) fn new(source: TokenSource) -> Self {
        Self { source, file: Mutex::new(None) }
    }

    /// Whether asking again after a 401 can give another one.
    pub(crate) fn can_change(&self) -> bool {
        matches!(self.source, TokenSource::File(_) | TokenSource::Provider(_))
    }

    /// The value of the `Authorization` header, marked as sensitive. `refused`: the last one was answered with 401.
    pub(crate) async fn header(&self, refused: bool) -> Result<Option<HeaderValue>, TokenError> {
        match &self.source {
            TokenSource::None => Ok(None),
            TokenSource::Fixed(token) => bearer(token).map(Some),
            TokenSource::File(path) => self.in_file(path, refused).await.map(Some),
            TokenSource::Provider(provider) => {
                let token = provider.token(refused).await.map_err(TokenError::Provider)?;
                bearer(&token).map(Some)
            }
        }
    }

    async fn in_file(&self, path: &Path, refused: bool) -> Result<HeaderValue, TokenError> {
        let mut file = self.file.lock().await;
        let now = Instant::now();
        if let Some(kept) = file.as_ref().filter(|kept| !refused && now - kept.read_at < FILE_CHECK) {
            return Ok(kept.header.clone());
        }
        match (read(path).await, file.as_mut()) {
            (Ok(header), _) => {
                *file = Some(ReadFile { header: header.clone(), read_at: now });
                Ok(header)
            }
            // A file that is being replaced may be missing for a moment; the token from before is still good then.
            (Err(error), Some(kept)) if !refused => {
                tracing::warn!(%error, "the token file cannot be read; the token from before is used");
                kept.read_at = now;
                Ok(kept.header.clone())
            }
            (Err(error), _) => Err(error),
        }
    }
}

async fn read(path: &Path) -> Result<HeaderValue, TokenError> {
    let name = path.display().to_string();
    let path = path.to_owned();
    let text = tokio::task::spawn_blocking(move || -> std::io::Result<Option<String>> {
        use std::io::Read as _;
        let mut text = String::new();
        let read = std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        Ok(u64::try_from(read).ok().filter(|read| *read <= MAX_FILE_BYTES).map(|_| text))
    })
    .await
    .unwrap_or_else(|error| Err(std::io::Error::other(error)));
    match text {
        Ok(Some(text)) => bearer(text.trim()),
        Ok(None) => Err(TokenError::TooLarge { path: name, maximum: MAX_FILE_BYTES }),
        Err(source) => Err(TokenError::File { path: name, source }),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, TokenError> {
    let sendable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = sendable.then(|| HeaderValue::from_str(&format!("Bearer {token}")).ok()).flatten();
    let mut header = header.ok_or(TokenError::Unsendable)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn debug_and_headers_never_show_a_token() {
        let tokens = Tokens::new(TokenSource::from("very-secret"));
        let header = tokens.header(false).await.unwrap().unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer very-secret");
        assert!(!format!("{tokens:?} {header:?}").contains("very-secret"));
    }

    #[tokio::test]
    async fn an_empty_text_is_no_token_and_an_odd_one_is_refused_without_repeating_it() {
        assert!(Tokens::new("".into()).header(false).await.unwrap().is_none());
        let error = Tokens::new("odd\nsecret".into()).header(false).await.unwrap_err();
        assert!(matches!(error, TokenError::Unsendable));
        assert!(!format!("{error} {error:?}").contains("odd"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_read_again_when_it_is_old_and_at_once_after_a_401() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let tokens = Tokens::new(TokenSource::file(&path));
        let mut seen = vec![tokens.header(false).await.unwrap().unwrap()];
        std::fs::write(&path, "two\n").unwrap();
        seen.push(tokens.header(false).await.unwrap().unwrap());
        seen.push(tokens.header(true).await.unwrap().unwrap());
        std::fs::write(&path, "three\n").unwrap();
        tokio::time::advance(FILE_CHECK).await;
        seen.push(tokens.header(false).await.unwrap().unwrap());
        let seen: Vec<_> = seen.iter().map(|header| header.to_str().unwrap()).collect();
        assert_eq!(seen, ["Bearer one", "Bearer one", "Bearer two", "Bearer three"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_that_is_away_for_a_moment_does_no_harm_unless_the_token_was_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let tokens = Tokens::new(TokenSource::file(&path));
        tokens.header(false).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(FILE_CHECK).await;
        assert!(tokens.header(false).await.is_ok());
        assert!(matches!(tokens.header(true).await, Err(TokenError::File { .. })));
    }
}
