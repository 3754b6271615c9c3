//! Whether callers must say who they are.

use std::{fmt, str::FromStr};

/// Whether callers must say who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// Everyone is the anonymous caller, who may name owners. Headers are not looked at.
    Off,
    /// A request without a token is anonymous. A token that is present must be good.
    Optional,
    /// Every request needs a good token.
    Required,
}

impl AuthMode {
    /// The name, as the setting `--auth` spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for AuthMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is no [`AuthMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of required, optional, off")]
pub struct UnknownAuthMode;

impl FromStr for AuthMode {
    type Err = UnknownAuthMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Off, Self::Optional, Self::Required]
            .into_iter()
            .find(|mode| mode.as_str() == name)
            .ok_or(UnknownAuthMode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_back_from_its_name_and_nothing_else_is_a_mode() {
        for mode in [AuthMode::Off, AuthMode::Optional, AuthMode::Required] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for name in ["", "OFF", "none", " off"] {
            assert_eq!(name.parse::<AuthMode>(), Err(UnknownAuthMode), "{name:?}");
        }
    }
}
