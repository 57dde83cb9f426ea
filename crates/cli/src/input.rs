//! Input of `windlass run`: a batch, or one call per line.

use crate::exit::Usage;
use anyhow::Context;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use windlass::Limits;
use windlass_args::json;
use windlass_server::wire::BatchBody;
use windlass_server::wire::batch::CallBody;

/// Larger than a full batch with arguments of full size.
const INPUT_BYTES_MAX: u64 = 320 << 20;

/// Reads a batch from a file, or from standard input for `-`.
pub fn read(file: &Path) -> anyhow::Result<BatchBody> {
    parse(&text(file)?, &name(file))
}

fn name(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_string() } else { file.display().to_string() }
}

/// Reads the text of a file, or of standard input for `-`.
pub fn text(file: &Path) -> anyhow::Result<String> {
    let name = name(file);
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        let opened = std::fs::File::open(file);
        opened.and_then(|open| open.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| Usage(format!("could not read {name}")))?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(Usage(format!("{name} is larger than {INPUT_BYTES_MAX} bytes; split it")).into());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!("{name} is not text: byte {at} is not UTF-8; {HELP}"))
    })?;
    Ok(text)
}

/// Parses a JSON value from the command line.
pub fn value(option: &str, text: &str, limits: &Limits) -> anyhow::Result<Value> {
    let wrong = |problem| Usage(format!("{option} takes JSON, a text in quotes like '\"done\"': {problem}"));
    Ok(json::parse_result(text, &limits.args()).map_err(wrong)?)
}

const HELP: &str = "it must be {\"calls\": [{\"id\", \"tool\", \"args\"}, …]}, or one such call per line";

fn parse(text: &str, name: &str) -> anyhow::Result<BatchBody> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Serde would also read a list as the fields of a batch, in their order.
    if text.trim_start().starts_with('[') {
        return Err(Usage(format!("{name} is a list; {HELP}")).into());
    }
    let whole = serde_json::from_str::<BatchBody>(text);
    let batch = match whole {
        Ok(batch) => batch,
        Err(error) => match lines(text) {
            Ok(calls) => BatchBody { calls, ..BatchBody::default() },
            // Reports the error of the format that was probably meant.
            Err(at_line) if looks_like_lines(text) => {
                return Err(Usage(format!("{name}: {at_line}; {HELP}")).into());
            }
            Err(_) => return Err(Usage(format!("{name}: {error}; {HELP}")).into()),
        },
    };
    if batch.wait.is_some() || batch.timeout_ms.is_some() {
        let told = "`wait` and `timeout_ms` are for requests to a server; `windlass run` waits for all calls";
        return Err(Usage(format!("{name}: {told}")).into());
    }
    Ok(batch)
}

fn lines(text: &str) -> Result<Vec<CallBody>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(line, number)| serde_json::from_str(line).map_err(|error| at_line(number, &error))).collect()
}

/// The error with its position in the file: serde counts from the beginning of the line.
fn at_line(number: u64, error: &serde_json::Error) -> String {
    let (said, column) = (error.to_string(), error.column());
    let what = said.strip_suffix(&format!(" at line 1 column {column}")).unwrap_or(&said);
    format!("{what} at line {number} column {column}")
}

fn looks_like_lines(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    first.starts_with('{') && first.ends_with('}') && !first.contains("\"calls\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::batch::Siblings;
    use windlass::{Args, BatchRequest, Deadlines};

    /// Parses the text with the runtime's own rules.
    fn parse(text: &str, name: &str) -> anyhow::Result<BatchRequest> {
        Ok(super::parse(text, name)?.request(&Limits::default())?)
    }

    #[test]
    fn both_forms_are_read() {
        let whole =
            parse(r#"{"key": "k", "calls": [{"id": "1", "tool": "t", "args": {"a": 1}}]}"#, "f").unwrap();
        assert_eq!((whole.key.as_deref(), whole.calls.len()), (Some("k"), 1));
        let lines = parse("{\"tool\": \"a\"}\n\n{\"tool\": \"b\", \"args\": \"{\"}\n", "f").unwrap();
        assert_eq!(lines.calls.len(), 2);
        assert!(matches!(&lines.calls[1].args, Args::Text(text) if text == "{"));
    }

    #[test]
    fn siblings_are_read() {
        let check = |text: &str| parse(&format!(r#"{{"calls": [], "siblings": {text}}}"#), "f");
        for (text, siblings) in [
            (r#""independent""#, Siblings::Independent),
            (r#""fail_fast""#, Siblings::FailFast),
            (r#""race""#, Siblings::Race),
            (r#"{"quorum": 2}"#, Siblings::Quorum(2)),
        ] {
            assert_eq!(check(text).unwrap().siblings, siblings);
        }
        assert!(check(r#""rase""#).unwrap_err().to_string().contains("unknown variant `rase`"));
    }

    #[test]
    fn what_a_caller_may_say_of_a_call_is_read() {
        let call = r#"{"tool": "t", "priority": -3, "deadlines": {"total_ms": 9}}"#;
        let batch = parse(&format!(r#"{{"inputs": {{"user": "u"}}, "calls": [{call}]}}"#), "f").unwrap();
        assert_eq!(batch.inputs.unwrap()["user"], "u");
        let asked = Deadlines { total_ms: Some(9), ..Deadlines::default() };
        assert_eq!((batch.calls[0].priority, batch.calls[0].deadlines), (-3, asked));
        let line = parse(call, "f").unwrap();
        assert_eq!((line.calls[0].priority, line.calls[0].deadlines), (-3, asked));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str| parse(text, "f.json").unwrap_err().to_string();
        assert!(check(r#"{"calls": [], "keys": "k"}"#).contains("unknown field `keys`"));
        let told = check("{\"tool\": \"a\"}\n{\"tol\": \"b\"}");
        assert!(told.contains("unknown field `tol`") && told.contains("at line 2 column 6;"), "{told}");
        assert!(check("[{\"tool\": \"a\"}]").contains("is a list"));
        let call = |more: &str| check(&format!(r#"{{"calls": [{{"tool": "a", {more}}}]}}"#));
        assert!(call(r#""priority": 200"#).contains("expected i8"));
        assert!(call(r#""deadlines": {"timeout_ms": 1}"#).contains("unknown field `timeout_ms`"));
        assert!(check(r#"{"calls": [], "inputs": [1]}"#).contains("must be a JSON object"));
        assert!(check(r#"{"calls": [], "wait": "none"}"#).contains("are for requests to a server"));
        assert!(check("nonsense").contains("must be"));
    }

    #[test]
    fn arguments_are_neither_bent_nor_walked() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for written in [&deep, r#"{"a": 1, "a": 2}"#, "1e400"] {
            let batch = parse(&format!(r#"{{"tool": "t", "args": {written}}}"#), "f").unwrap();
            assert!(matches!(&batch.calls[0].args, Args::Text(text) if text == written));
        }
    }
}
