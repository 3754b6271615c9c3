//! Panics of libraries that are expected and caught: sled panics where its files are damaged and where its disk fails.
//!
//! Whoever catches one says in its own words what that means. The hook that logs panics asks here whether somebody does.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::Path;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Does what may panic inside a library. The caller tells of a panic, the log does not.
///
/// # Errors
/// The panic.
pub fn catch<T>(act: impl FnOnce() -> T) -> std::thread::Result<T> {
    let outside = CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    CAUGHT.set(outside);
    done
}

/// Whether a panic of this thread at this place is told by whoever catches it. One in a source of this program never
/// is: that is a mistake in it, and must be seen. Sources of this program have relative paths, those of libraries
/// absolute ones.
#[must_use]
pub fn is_told(place: &Location<'_>) -> bool {
    is_told_at(place.file())
}

fn is_told_at(file: &str) -> bool {
    // A thread that is ending has no such values any more.
    CAUGHT.try_with(Cell::get).unwrap_or(false) && Path::new(file).is_absolute()
}

/// A place for the log. Where the libraries lay on the machine that built the program is nobody's business.
#[must_use]
pub fn shown(place: &str) -> &str {
    let within = place.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    within.map_or(place, |(_index, within)| within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLED: &str = "/somewhere/registry/src/an-index/sled-0.34.7/src/result.rs";

    #[test]
    fn only_panics_of_libraries_that_are_caught_are_told_by_others() {
        assert!(!is_told_at(SLED));
        assert!(catch(|| is_told_at(SLED)).unwrap());
        assert!(catch(|| catch(|| ()).is_ok() && is_told_at(SLED)).unwrap(), "also after an inner one");
        assert!(!catch(|| is_told_at(Location::caller().file())).unwrap(), "a source of this program");
        assert!(catch(|| panic!("as sled does")).is_err());
        assert!(!is_told_at(SLED), "and not after it");
    }

    #[test]
    fn a_place_in_a_library_is_shown_without_the_directory_of_the_registry() {
        assert_eq!(shown(&format!("{SLED}:7:5")), "sled-0.34.7/src/result.rs:7:5");
        assert_eq!(shown("src/panics.rs:1:2"), "src/panics.rs:1:2");
    }
}
