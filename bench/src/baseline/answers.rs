//! Fixed answers, one for each method.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The part of a request that an echo must understand to answer it.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    method: Cow<'a, str>,
}

/// The result for each method.
#[derive(Debug)]
pub(super) struct Answers {
    results: HashMap<String, Box<RawValue>>,
}

impl Answers {
    /// Reads them from a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let results = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        Ok(Self { results })
    }

    /// The answer to a request.
    pub(super) fn answer(&self, request: &[u8]) -> Result<Vec<u8>> {
        const BEFORE_ID: &str = r#"{"jsonrpc":"2.0","id":"#;
        const BEFORE_RESULT: &str = r#","result":"#;
        let Envelope { id, method } = serde_json::from_slice(request).context("the envelope")?;
        let result = self.results.get(method.as_ref()).context("a method without an answer")?;
        let parts = [BEFORE_ID, id.get(), BEFORE_RESULT, result.get(), "}"];
        Ok(parts.concat().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_requests_id_and_the_methods_result() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"a/b": {"x": 1}}"#).unwrap();
        let answers = Answers::read(file.path()).unwrap();
        let answer =
            answers.answer(br#"{"jsonrpc":"2.0","id":"seven","method":"a\/b","params":{}}"#).unwrap();
        assert_eq!(answer, br#"{"jsonrpc":"2.0","id":"seven","result":{"x": 1}}"#);
        answers.answer(br#"{"jsonrpc":"2.0","id":1,"method":"c"}"#).unwrap_err();
        answers.answer(b"{").unwrap_err();
    }
}
