//! Aligned columns for people.

/// The rows as lines of aligned columns: the first column to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A whole number with its thousands set apart: `12,345`.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value <= -0.5 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1,000"], ["long", "2"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows), "a     1,000\nlong      2\n");
        assert_eq!(
            ["7", "-999", "1,000", "1,234,567"],
            [7.2, -999.0, 1000.0, 1234567.0].map(thousands).each_ref().map(String::as_str)
        );
    }
}
