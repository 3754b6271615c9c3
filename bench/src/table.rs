//! Tables on the standard output.

/// Prints rows in columns as wide as their widest cell, the first column to the left and the others to the right.
pub(crate) fn print(header: &[&str], rows: &[Vec<String>]) {
    let mut all = vec![header.iter().map(|&cell| cell.to_owned()).collect()];
    all.extend_from_slice(rows);
    for line in lines(&all) {
        println!("{line}");
    }
}

fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "1000".to_owned()]];
        assert_eq!(lines(&rows), ["a        1", "long  1000"]);
    }
}
