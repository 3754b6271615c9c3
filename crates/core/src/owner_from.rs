//! From whom a token comes to whom a task belongs.

use std::fmt;
use std::str::FromStr;

/// What in a token makes the subject that tasks belong to.
///
/// A store remembers it: the same person has another name in the other mode, so a store that is opened with the other
/// one would show nobody their tasks, and could show them to somebody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerFrom {
    /// The claim `sub` alone: for tokens of one issuer.
    #[default]
    Sub,
    /// The claims `iss` and `sub`, with one space between them: for tokens of several issuers, who may have given the
    /// same `sub` to different people.
    IssSub,
}

impl OwnerFrom {
    /// The name, as the setting `--owner-from` spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sub => "sub",
            Self::IssSub => "iss-sub",
        }
    }
}

impl fmt::Display for OwnerFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is no [`OwnerFrom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of sub, iss-sub")]
pub struct UnknownOwnerFrom;

impl FromStr for OwnerFrom {
    type Err = UnknownOwnerFrom;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Sub, Self::IssSub].into_iter().find(|mode| mode.as_str() == name).ok_or(UnknownOwnerFrom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_back_from_its_name_and_nothing_else_is_a_mode() {
        for mode in [OwnerFrom::Sub, OwnerFrom::IssSub] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for name in ["", "SUB", "iss_sub", "sub "] {
            assert_eq!(name.parse::<OwnerFrom>(), Err(UnknownOwnerFrom), "{name:?}");
        }
    }
}
