//! docs/cases.md against the sources: each case is there once, and each test that it names exists.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

use std::path::Path;

const PAGE: &str = include_str!("../docs/cases.md");

/// The cases of the list, whose numbers are not consecutive.
const CASES: [&str; 30] = [
    "B01", "B03", "B04", "B05", "B06", "B08", "B10", "B11", "B12", "B15", "C01", "C03", "C04", "C05", "C06",
    "C08", "C09", "C11", "C12", "C13", "F01", "F02", "F03", "F04", "F06", "F08", "F09", "F10", "F12", "F13",
];

/// Rows of the table: case, and what the last column says.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cells = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = cells.map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        (cells[0], cells[cells.len() - 1])
    });
    rows.filter(|(case, _)| *case != "case").collect()
}

/// Whether this source has a test of this name: marked as one, or handed to a macro that makes tests of functions.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<_> = source.lines().map(str::trim_start).collect();
    let (alone, waiting) = (format!("fn {name}("), format!("async fn {name}("));
    let defines = |line: &str| line.starts_with(&alone) || line.starts_with(&waiting);
    let Some(at) = lines.iter().position(|line| defines(line)) else { return false };
    // The attributes right above it. What only a script runs holds nothing.
    let attributes: Vec<_> = lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect();
    let marked = attributes.iter().any(|line| line.contains("#[test]") || line.contains("#[tokio::test"));
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return false;
    }
    // As the last argument or among others, in the list of a macro.
    marked || source.contains(&format!("    {name},\n"))
}

#[test]
fn every_case_has_tests_and_they_exist() {
    let rows = rows();
    assert_eq!(rows.iter().map(|(case, _)| *case).collect::<Vec<_>>(), CASES);
    for (case, tests) in rows {
        let mut count = 0;
        for of_one_file in tests.split("; ") {
            let (file, names) =
                of_one_file.split_once(": ").unwrap_or_else(|| panic!("{case}: {of_one_file}"));
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file.trim_matches('`'));
            let source =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{case}: {file}: {error}"));
            for name in names.split(", ") {
                assert!(has_test(&source, name.trim_matches('`')), "{case}: {file}: {name}");
                count += 1;
            }
        }
        assert!(count > 0, "{case}");
    }
}

#[test]
fn a_function_that_is_no_test_does_not_pass_for_one() {
    let source = "\n#[test]\n#[ignore = \"long\"]\nfn five() {}\n#[test]\nfn one() {}\n\nfn two() {}\n\nasync fn three() {}\n\non_memory!(\n    three,\n);\n";
    assert_eq!(
        ["one", "two", "three", "four", "five"].map(|name| has_test(source, name)),
        [true, false, true, false, false]
    );
}
