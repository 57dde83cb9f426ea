//! Tables of cases that people can read: an input, and behind `=>` what is answered.
//!
//! ```text
//! # What the table is about.
//! tool read_file
//!
//! --- the name of the case
//! {"path": "a",}
//! => {"path":"a"}
//!    the arguments: trailing commas were dropped
//! ```
//!
//! `⟦…⟧` stands for what cannot be typed: `⟦[ x 100⟧` for one hundred brackets, `⟦u 0000⟧` for a character.

use std::fmt::Write;
use std::path::PathBuf;

/// One case.
pub struct Case {
    pub tool: String,
    pub name: String,
    /// The input as it is used.
    pub input: String,
    written: String,
    expected: String,
}

/// The file of a table.
pub struct Table {
    path: PathBuf,
    head: String,
    pub cases: Vec<Case>,
}

/// Reads every table in a folder of the corpus, in order of name.
pub fn read(folder: &str) -> Vec<Table> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(Table::read).collect()
}

impl Table {
    fn read(path: PathBuf) -> Table {
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("\ntool ").unwrap_or_else(|| panic!("{path:?} names no tool"));
        let mut cases = Vec::new();
        for section in rest.split("\ntool ") {
            let (tool, rest) = section.split_once('\n').unwrap();
            for case in rest.split("\n--- ").skip(1) {
                let (name, rest) = case.split_once('\n').unwrap_or((case, ""));
                let (written, expected) = rest.split_once("\n=>").unwrap_or((rest, ""));
                let written = written.trim_end_matches('\n').to_string();
                cases.push(Case {
                    tool: tool.trim().to_string(),
                    name: name.trim().to_string(),
                    input: unfolded(&written),
                    written,
                    expected: expected.trim_matches(['\n', ' ']).to_string(),
                });
            }
        }
        Table { path, head: head.to_string(), cases }
    }

    /// Compares the answers with those in the file and says which differ, or writes them there with `UPDATE=1`.
    pub fn check(&self, answer: impl Fn(&Case) -> String) -> Vec<String> {
        let answers: Vec<String> = self.cases.iter().map(answer).collect();
        if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
            std::fs::write(&self.path, self.with(&answers)).unwrap();
            return Vec::new();
        }
        let differs = |(case, answer): (&Case, String)| {
            let Case { tool, name, expected, .. } = case;
            let path = self.path.display();
            (answer != *expected)
                .then(|| format!("{path}: {tool} {name:?}\n  expected {expected}\n  found    {answer}"))
        };
        self.cases.iter().zip(answers).filter_map(differs).collect()
    }

    fn with(&self, answers: &[String]) -> String {
        let mut text = self.head.trim_end().to_string();
        let mut tool = "";
        for (case, answer) in self.cases.iter().zip(answers) {
            if tool != case.tool {
                tool = &case.tool;
                write!(text, "\n\ntool {tool}").unwrap();
            }
            write!(text, "\n\n--- {}\n{}\n=> {answer}", case.name, case.written).unwrap();
        }
        text.push('\n');
        text
    }
}

/// Writes out what stands between `⟦` and `⟧`.
fn unfolded(written: &str) -> String {
    let mut out = String::new();
    let mut rest = written;
    while let Some((before, behind)) = rest.split_once('⟦') {
        let (inside, behind) = behind.split_once('⟧').expect("⟦ is closed");
        out.push_str(before);
        match inside.rsplit_once(" x ") {
            Some((text, count)) => out.push_str(&text.repeat(count.parse().expect("a count behind x"))),
            None => {
                let code = inside.strip_prefix("u ").and_then(|code| u32::from_str_radix(code, 16).ok());
                out.push(code.and_then(char::from_u32).expect("a character behind u"));
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}
