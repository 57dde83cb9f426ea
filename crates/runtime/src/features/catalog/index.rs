//! A ranked text search over tools: BM25 over stemmed words of names, titles, descriptions and parameters.

use crate::tools::registry::Listed;
use bm25::{Document, SearchEngine, SearchEngineBuilder, Tokenizer};
use rust_stemmers::{Algorithm, Stemmer};
use serde_json::Value;
use std::sync::Arc;
use windlass_args::names::folded_name;

/// How many indexes are kept: sessions with the same tools share one.
const KNOWN_MAX: usize = 8;
/// How many words of one tool are looked at: a schema may be large.
const WORDS_MAX: usize = 2_000;

/// The indexes that were used last.
#[derive(Default)]
pub(super) struct KnownIndexes(tokio::sync::Mutex<Vec<([u8; 32], Arc<ToolIndex>)>>);

impl KnownIndexes {
    /// The index of these tools.
    pub(super) async fn of(&self, listed: &[Listed]) -> Arc<ToolIndex> {
        let texts: Vec<String> = listed.iter().map(text).collect();
        let mut hasher = blake3::Hasher::new();
        for text in &texts {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        let key = *hasher.finalize().as_bytes();
        let mut known = self.0.lock().await;
        if let Some(place) = known.iter().position(|(known, _)| *known == key) {
            known[..=place].rotate_right(1);
            return known[0].1.clone();
        }
        let index = Arc::new(ToolIndex::new(listed, texts));
        known.truncate(KNOWN_MAX - 1);
        known.insert(0, (key, index.clone()));
        index
    }
}

/// The words of some tools, by their places in a list.
pub(super) struct ToolIndex {
    names: Vec<String>,
    engine: SearchEngine<u32, u32, StemmedWords>,
}

impl ToolIndex {
    fn new(listed: &[Listed], texts: Vec<String>) -> ToolIndex {
        let names = listed.iter().map(|listed| folded_name(&listed.summary.name)).collect();
        let documents = texts.into_iter().zip(0..).map(|(text, place)| Document::new(place, text));
        let engine = SearchEngineBuilder::with_tokenizer_and_documents(StemmedWords, documents).build();
        ToolIndex { names, engine }
    }

    /// The places of the tools that fit a question, best first; one whose name is asked for comes before all.
    pub(super) fn search(&self, query: &str, most: usize) -> Vec<usize> {
        let asked = folded_name(query.trim());
        let exact = self.names.iter().position(|name| *name == asked);
        let mut found = self.engine.search(query, None);
        // The engine leaves the order of equals open.
        found.sort_by(|one, other| {
            other.score.total_cmp(&one.score).then(one.document.id.cmp(&other.document.id))
        });
        let ranked = found.into_iter().map(|result| result.document.id as usize);
        exact.into_iter().chain(ranked.filter(|place| Some(*place) != exact)).take(most).collect()
    }
}

/// The text that a tool is found by.
fn text(listed: &Listed) -> String {
    let summary = &listed.summary;
    let mut text = format!("{}\n{}\n{}", summary.name, summary.title, summary.description);
    let schema = listed.tool.as_ref().and_then(|tool| tool.spec.input_schema.as_ref());
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let told = property.get("description").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("\n{name} {told}"));
    }
    text
}

/// Words in lower case, without those that say nothing, by their English stems.
struct StemmedWords;

impl Tokenizer for StemmedWords {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let stemmer = Stemmer::create(Algorithm::English);
        let words = split(text).filter(|word| !STOP_WORDS.contains(&word.as_str()));
        words.take(WORDS_MAX).map(|word| stemmer.stem(&word).into_owned()).collect()
    }
}

/// Words of letters and digits; `camelCase` is two.
fn split(text: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut last_is_lower = false;
    for letter in text.chars() {
        let starts = !letter.is_alphanumeric() || (letter.is_uppercase() && last_is_lower);
        if starts && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        last_is_lower = letter.is_lowercase() || letter.is_numeric();
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// Words that stand in every question.
const STOP_WORDS: [&str; 72] = [
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can",
    "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if",
    "in", "into", "is", "it", "its", "let", "me", "my", "need", "no", "not", "of", "on", "one", "or", "our",
    "out", "please", "she", "should", "so", "some", "that", "the", "their", "them", "then", "there", "they",
    "this", "to", "us", "want", "was", "we", "were", "what", "when", "where", "which", "with", "you",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::provider::Summary;

    fn tool(name: &str, description: &str) -> Listed {
        let (name, description) = (name.to_string(), description.to_string());
        Listed { summary: Summary { name, description, ..Summary::default() }, tool: None }
    }

    fn found(listed: &[Listed], query: &str) -> Vec<usize> {
        ToolIndex::new(listed, listed.iter().map(text).collect()).search(query, 8)
    }

    #[test]
    fn words_are_found_by_their_stems_and_a_name_comes_first() {
        let tools = [
            tool("send_mail", "Sends a letter to an address."),
            tool("letter", "Writes down one character of the alphabet: a letter, a letter."),
            tool("sum", "Adds numbers."),
        ];
        assert_eq!(found(&tools, "adding a number"), [2]);
        assert_eq!(found(&tools, "sending letters"), [0, 1]);
        assert_eq!(found(&tools, "Send-Mail")[0], 0, "another way to write the name");
        assert_eq!(found(&tools, "nothing of this kind"), [] as [usize; 0]);
    }

    #[test]
    fn words_are_split_where_names_are() {
        let words: Vec<String> = split("getHTTPStatus of my_file-2 (v10)").collect();
        assert_eq!(words, ["get", "httpstatus", "of", "my", "file", "2", "v10"]);
    }

    #[tokio::test]
    async fn the_same_tools_share_one_index_and_few_are_kept() {
        let known = KnownIndexes::default();
        let first = known.of(&[tool("a", "x")]).await;
        assert!(Arc::ptr_eq(&first, &known.of(&[tool("a", "x")]).await));
        assert!(!Arc::ptr_eq(&first, &known.of(&[tool("a", "y")]).await));
        for n in 0..2 * KNOWN_MAX {
            known.of(&[tool("a", &n.to_string())]).await;
        }
        assert_eq!(known.0.lock().await.len(), KNOWN_MAX);
    }
}
