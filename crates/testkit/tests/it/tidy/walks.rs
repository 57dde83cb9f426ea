//! The walks of ARCHITECTURE.md: every hop is a function that exists, and none of them is long.

use super::{Problems, root};
use std::collections::BTreeSet;

/// How many hops and files the first walk may have, and how many hops any other.
const FIRST_MOST: (usize, usize) = (35, 18);
const OTHERS_MOST: usize = 25;

/// A walk: its title, and its hops as file and function.
#[derive(Debug, PartialEq)]
struct WalkText {
    title: String,
    hops: Vec<(String, String)>,
}

/// The walks of a page. A hop stands in the first cell of a row; more may be named in the text behind it.
fn walks(page: &str) -> Vec<WalkText> {
    let section = page.split("\n## ").find(|section| section.starts_with("Five walks")).unwrap_or_default();
    let walks = section.split("\n### ").skip(1).map(|walk| {
        let title = walk.lines().next().unwrap_or_default().to_string();
        let rows = walk.lines().filter(|line| line.starts_with("| `"));
        WalkText { title, hops: rows.filter_map(|row| named(row).next()).collect() }
    });
    walks.collect()
}

/// Every `file · function` of a text.
fn named(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split('`').filter_map(|part| {
        let (file, function) = part.split_once(" · ")?;
        Some((file.to_string(), function.to_string()))
    })
}

fn judge(walks: &[WalkText], has: impl Fn(&str, &str) -> bool, problems: &mut Problems) {
    for (place, WalkText { title, hops }) in walks.iter().enumerate() {
        let files: BTreeSet<&str> = hops.iter().map(|(file, _)| file.as_str()).collect();
        let (hops_most, files_most) = if place == 0 { FIRST_MOST } else { (OTHERS_MOST, usize::MAX) };
        if hops.len() > hops_most || files.len() > files_most {
            let found = format!("{} hops in {} files", hops.len(), files.len());
            problems
                .add(title, format!("{found}, at most {hops_most} in {files_most}: make the path shorter"));
        }
        for (file, function) in hops.iter().filter(|(file, function)| !has(file, function)) {
            problems
                .add(title, format!("there is no function `{function}` in {file}: follow the path again"));
        }
    }
}

/// Whether a file, named as the walks do, has a function of this name.
fn has_function(file: &str, function: &str) -> bool {
    let Some((package, path)) = file.split_once('/') else { return false };
    let text =
        std::fs::read_to_string(root().join(format!("crates/{package}/src/{path}"))).unwrap_or_default();
    [format!("fn {function}("), format!("fn {function}<")].iter().any(|found| text.contains(found))
}

#[test]
fn walks_lead_through_functions_that_exist() {
    let page = super::text("ARCHITECTURE.md").expect("ARCHITECTURE.md is text");
    let (walks, mut problems) = (walks(&page), Problems::default());
    assert_eq!(walks.len(), 5);
    judge(&walks, has_function, &mut problems);
    for (file, function) in
        named(&page).filter(|(file, function)| file != "file" && !has_function(file, function))
    {
        problems.add("ARCHITECTURE.md", format!("there is no function `{function}` in {file}"));
    }
    problems.none();
}

#[test]
fn walks_that_go_astray_are_seen() {
    let page = "# A\n\n## Five walks\n\n### One\n\n| `a/b.rs · c` | see `a/b.rs · d` |\n| `a/e.rs · f` | |\n\n## Next";
    let found = walks(page);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].hops.len(), 2);
    let mut problems = Problems::default();
    judge(&found, |_, function| function == "c", &mut problems);
    problems.are(&["One: there is no function `f` in a/e.rs"]);
    let hops = (0..40).map(|hop| (format!("{hop}"), "c".to_string())).collect();
    let mut problems = Problems::default();
    judge(&[WalkText { title: "Long".into(), hops }], |_, _| true, &mut problems);
    problems.are(&["Long: 40 hops in 40 files"]);
}
