//! `windlass dev`: `windlass serve` with tools and calls to try, and what to type next.

use crate::args::Dev;
use crate::door::At;
use crate::exit::Usage;
use crate::folder::Owned;
use crate::serve::{self, Server};
use crate::show;
use anyhow::Context;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use windlass_server::access::Caller;
use windlass_server::wire::Batch;

/// The tools to try, as they are written into the folder.
const TOOLS: &str = include_str!("dev/windlass.toml");
/// The calls to watch. They are always the same, so that a second start shows that nothing runs twice.
const BATCH: &str = include_str!("dev/batch.json");
const SESSION: &str = "demo";
/// The order that the batch asks approval for: its key is written to a file of this name.
const KEY_FILE: &str = "order-7.key";
const TOUR: &str = include_str!("dev/tour.txt");

pub async fn dev((at, owned): (&At, &mut Owned), args: Dev) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    declare(&at.data).with_context(|| Usage(format!("could not write tools into {}", at.data.display())))?;
    let server = Server::start((at, owned), args.listen).await?;
    if server.token.is_none() {
        eprintln!("windlass: the file with the token is gone; `windlass token create` makes a token");
    }
    submit(&server).await?;
    show::text(&tour(&at.data, &server.url()))?;
    server.until_stopped().await
}

/// Writes the tools into the folder, unless it has its own.
fn declare(data: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    match OpenOptions::new().write(true).create_new(true).open(data.join("windlass.toml")) {
        Ok(mut file) => file.write_all(TOOLS.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has the calls run, and waits for none of them: they are there to be watched.
async fn submit(server: &Server) -> anyhow::Result<()> {
    let (api, runtime) = (server.owner.api(), server.owner.runtime());
    let batch: Batch = serde_json::from_str(BATCH)?;
    api.claim(&Caller::local(), SESSION).await?;
    runtime.submit(SESSION, batch.request(runtime.limits())?).await?;
    Ok(())
}

fn tour(data: &Path, url: &str) -> String {
    let token = data.join("token");
    let text = |path: &Path| path.display().to_string();
    let filled = [
        ("@DATA@", word(&text(data))),
        ("@KEY@", word(&text(&data.join(KEY_FILE)))),
        ("@TOKEN@", word(&text(&token))),
        // A text of JSON is one of Python and TypeScript too.
        ("@TOKEN_TEXT@", serde_json::Value::from(text(&token)).to_string()),
        ("@URL@", url.to_string()),
        ("@TOOLS@", text(&data.join("windlass.toml"))),
        ("@PID@", std::process::id().to_string()),
    ];
    let tour = filled.iter().fold(TOUR.to_string(), |tour, (name, value)| tour.replace(name, value));
    tour.trim_end().to_string()
}

/// A text as one word of a shell.
fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted_wherever_the_folder_is() {
        let tour = tour(Path::new("a b/it's"), "http://127.0.0.1:1");
        for line in [
            r#"windlass watch demo --data 'a b/it'\''s'"#,
            r#"token = open("a b/it's/token").read().strip()"#,
            r#"curl -s -w '\n' -H "Authorization: Bearer $(cat 'a b/it'\''s/token')" http://127.0.0.1:1/v1/sessions/demo/batches \"#,
        ] {
            assert!(tour.lines().any(|told| told == line), "{line} is not in {tour}");
        }
        assert!(!tour.contains('@'), "something is not filled in: {tour}");
    }
}
