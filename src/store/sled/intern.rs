//! One allocation for each name, however many tasks carry it.

use std::collections::HashSet;
use std::sync::Arc;

/// Subjects and tool names. A million tasks usually share a handful of them.
#[derive(Debug, Default)]
pub(super) struct Interner {
    names: HashSet<Arc<str>>,
    /// At this size, names that nobody uses any more are looked for.
    clean_at: usize,
}

impl Interner {
    /// The shared copy of `name`.
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        self.clean();
        let shared: Arc<str> = Arc::from(name);
        self.names.insert(Arc::clone(&shared));
        shared
    }

    /// Drops unused names whenever their number has doubled: bounded by what is in use, and cheap on average.
    fn clean(&mut self) {
        if self.names.len() >= self.clean_at.max(1024) {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.clean_at = self.names.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_share_one_allocation_and_unused_ones_go() {
        let mut interner = Interner::default();
        let kept = interner.get("kept");
        assert!(Arc::ptr_eq(&kept, &interner.get("kept")));
        for n in 0..10_000 {
            drop(interner.get(&format!("name {n}")));
        }
        assert!(interner.names.len() <= 2048, "{}", interner.names.len());
        assert!(Arc::ptr_eq(&kept, &interner.get("kept")));
    }
}
