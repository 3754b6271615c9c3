//! The table of methods: what exists, who may call it, and what kind of call it is.

use std::fmt;

/// Who may call a method (WIRE.md, Who may). What a method without a task shows is limited to the caller's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Any caller that is let in at all.
    Anyone,
    /// The creator of the task, or of the tasks shown.
    Creator,
    /// The owner of the task, or its creator if it has a subject.
    Owner,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The method.
    pub method: MethodName,
    /// The name on the wire.
    pub name: &'static str,
    /// It can change a task, and so takes `idempotencyKey` and `expectedRevision`.
    pub changes: bool,
    /// Who may call it.
    pub audience: Audience,
    /// It is about one task and has `taskId`.
    pub takes_task: bool,
    /// It may take long to answer, and is refused inside a batch (`invalid_request`).
    pub single_only: bool,
}

/// Declares the methods once: the enum, the names, and the table in the same order.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal { changes: $changes:literal, audience: $audience:ident,
        takes_task: $takes_task:literal, single_only: $single_only:literal })*) => {
        /// Every method, for a dispatch that the compiler checks for completeness.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum MethodName {
            $($(#[$doc])* $variant,)*
        }

        impl MethodName {
            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        /// Every method of `POST /rpc`, in the order of WIRE.md.
        pub const TABLE: &[Entry] = &[$(Entry {
            method: MethodName::$variant,
            name: $name,
            changes: $changes,
            audience: Audience::$audience,
            takes_task: $takes_task,
            single_only: $single_only,
        },)*];
    };
}

methods! {
    /// [`super::info`]
    Info "store/info" { changes: false, audience: Anyone, takes_task: false, single_only: false }
    /// [`super::create`]
    Create "store/create" { changes: true, audience: Creator, takes_task: false, single_only: false }
    /// [`super::get`]
    Get "store/get" { changes: false, audience: Creator, takes_task: true, single_only: false }
    /// [`super::wait`]
    Wait "store/wait" { changes: false, audience: Creator, takes_task: true, single_only: true }
    /// [`super::list`]
    List "store/list" { changes: false, audience: Creator, takes_task: false, single_only: false }
    /// [`super::statuses`]
    Statuses "store/statuses" { changes: false, audience: Creator, takes_task: false, single_only: false }
    /// [`super::resume`]
    Resume "store/resume" { changes: false, audience: Creator, takes_task: true, single_only: false }
    /// [`super::require_input`]
    RequireInput "store/requireInput" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::apply_input`]
    ApplyInput "store/applyInput" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::set_status`]
    SetStatus "store/setStatus" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::set_ttl`]
    SetTtl "store/setTtl" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::set_meta`]
    SetMeta "store/setMeta" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::discard`]
    Discard "store/discard" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::complete`]
    Complete "store/complete" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::fail`]
    Fail "store/fail" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::cancel`]
    Cancel "store/cancel" { changes: true, audience: Creator, takes_task: true, single_only: false }
    /// [`super::watch`]
    Watch "store/watch" { changes: false, audience: Creator, takes_task: false, single_only: true }
    /// [`super::tasks_get`]
    TasksGet "tasks/get" { changes: false, audience: Owner, takes_task: true, single_only: false }
    /// [`super::tasks_update`]
    TasksUpdate "tasks/update" { changes: true, audience: Owner, takes_task: true, single_only: false }
    /// [`super::tasks_cancel`]
    TasksCancel "tasks/cancel" { changes: true, audience: Owner, takes_task: true, single_only: false }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The line of a method; `None` is `method_not_found`. Names are case-sensitive.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.name == name)
}
