//! Doc comments as descriptions.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The text of the doc comments among these attributes: lines of a paragraph joined, paragraphs and lists kept apart.
pub(crate) fn description(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    let mut is_code = false;
    let mut joins = false;
    for line in attributes
        .iter()
        .filter_map(doc_line)
        .flat_map(|doc| doc.lines().map(str::to_owned).collect::<Vec<_>>())
    {
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        let is_fence = line.trim_start().starts_with("```");
        let begins = line.is_empty() || is_fence || is_code || is_item(line);
        if begins || !joins {
            if !text.is_empty() {
                text.push('\n');
            }
        } else {
            text.push(' ');
        }
        text.push_str(line);
        is_code ^= is_fence;
        joins = !line.is_empty() && !is_fence && !is_code;
    }
    text.trim().to_owned()
}

/// Whether a line begins something of its own: an item of a list, a heading, a row of a table.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    number || ["- ", "* ", "#", "|"].iter().any(|start| line.starts_with(start))
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    if !meta.path.is_ident("doc") {
        return None;
    }
    match &meta.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Some(if text.value().is_empty() { "\n".to_owned() } else { text.value() })
        }
        _ => None,
    }
}
