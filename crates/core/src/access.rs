//! Who may do what. Visibility is equality, never "protect what is owned and leave the rest open".

use std::sync::Arc;

use crate::{Rejection, Subject, Task};

/// Who sends a request, as far as it was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The `sub` claim of the verified token; `None` for an anonymous caller.
    pub subject: Subject,
    /// Whether the caller may name another owner at creation: the scope `tasks:delegate`, or authentication is off.
    pub may_delegate: bool,
    /// Whether the caller may look at everything: the scope `tasks:admin`, or authentication is off and only this
    /// machine can call.
    pub may_administer: bool,
}

impl Caller {
    /// The caller without a token, who may not name owners.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { subject: None, may_delegate: false, may_administer: false }
    }

    /// The caller with this subject and without scopes.
    #[must_use]
    pub fn named(subject: &str) -> Self {
        Self { subject: Some(Arc::from(subject)), may_delegate: false, may_administer: false }
    }

    /// The same caller with the right to name owners.
    #[must_use]
    pub fn with_delegation(self) -> Self {
        Self { may_delegate: true, ..self }
    }

    /// The same caller with the right to look at everything.
    #[must_use]
    pub fn with_administration(self) -> Self {
        Self { may_administer: true, ..self }
    }
}

/// In which role a method acts on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// `store/*`: for the creator, the worker's side.
    Creator,
    /// `tasks/*` and listening: for the owner, and for a creator that has a subject.
    Owner,
}

/// The scope that allows naming another owner at creation.
pub const DELEGATE_SCOPE: &str = "tasks:delegate";

/// The scope that allows looking at everything, and changes nothing.
pub const ADMIN_SCOPE: &str = "tasks:admin";

/// Whether `caller` may have all tasks of all owners.
///
/// # Errors
/// [`Rejection::Forbidden`] with the missing scope.
pub const fn may_export(caller: &Caller) -> Result<(), Rejection> {
    if caller.may_administer { Ok(()) } else { Err(Rejection::Forbidden { scope: ADMIN_SCOPE }) }
}

/// Whether `caller` may act on `task` in this role.
///
/// | owner (creator for [`Right::Creator`]) | caller | |
/// |---|---|---|
/// | none | none | yes |
/// | alice | alice | yes |
/// | alice | bob | no |
/// | alice | none | no |
/// | none | alice | no |
///
/// In addition a creator with a subject has the owner's rights on its own tasks. Subjects are compared byte by
/// byte.
#[must_use]
pub fn allows(task: &Task, caller: &Caller, right: Right) -> bool {
    match right {
        Right::Creator => task.creator == caller.subject,
        Right::Owner => {
            task.owner == caller.subject || (caller.subject.is_some() && task.creator == caller.subject)
        }
    }
}

/// Whether `caller` may create a task that belongs to `owner`.
///
/// # Errors
/// [`Rejection::Forbidden`] with the missing scope when the owner is anybody but the caller itself.
pub fn may_create_for(caller: &Caller, owner: &Subject) -> Result<(), Rejection> {
    if *owner == caller.subject || caller.may_delegate {
        Ok(())
    } else {
        Err(Rejection::Forbidden { scope: DELEGATE_SCOPE })
    }
}
