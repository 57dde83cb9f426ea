//! Names that a model may have misspelt: when two are too alike, and which one was meant.

/// The form in which two names must differ, so that no model confuses them.
pub fn folded_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// The one of `known` that is most similar to `asked`, if any is near enough.
pub fn nearest_name<'a>(asked: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = folded_name(asked);
    known
        .map(|name| (edit_distance(&folded, &folded_name(name)), name))
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions and replacements between the two; both are short, so the square is small.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(128).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, here) in left.chars().take(128).enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (place, there) in right.iter().enumerate() {
            let replaced = corner + usize::from(here != *there);
            corner = row[place + 1];
            row[place + 1] = replaced.min(corner + 1).min(row[place] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["read_file", "write_file", "echo"];
        let near = |asked| nearest_name(asked, known.into_iter());
        assert_eq!(near("readFile"), Some("read_file"));
        assert_eq!(near("ecko"), Some("echo"));
        assert_eq!(near("launch_rocket"), None);
        assert_eq!(folded_name("Read-File"), folded_name("read_file"));
    }
}
