//! `windlass dev`: `windlass serve` with example tools and calls, and hints on what to type next.

use crate::args::Dev;
use crate::door::At;
use crate::exit::Usage;
use crate::folder::Owned;
use crate::logs;
use crate::serve::{self, RunningServer, ServePlace};
use crate::show;
use anyhow::Context;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use windlass_server::ProblemCode;
use windlass_server::access::Caller;
use windlass_server::wire::BatchBody;

/// The example tools, as written into the folder.
const TOOLS: &str = include_str!("dev/windlass.toml");
/// The example calls. They are the same at every start, so a second start shows that nothing runs twice.
const BATCH: &str = include_str!("dev/batch.json");
const SESSION: &str = "demo";
/// A call that a person must approve, in a session of its own.
const ORDER: &str = include_str!("dev/order.json");
const SHOP: &str = "shop";
/// The batch asks approval for this order; the key is written to a file of this name.
const KEY_FILE: &str = "order-7.key";
const TOUR: &str = include_str!("dev/tour.txt");

pub async fn dev(at: &At, owned: &mut Owned, args: Dev) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    declare(&at.data).with_context(|| Usage(format!("could not write tools into {}", at.data.display())))?;
    let server = RunningServer::start(at, owned, ServePlace { listen: args.listen, advertise: None }).await?;
    if server.token.is_none() {
        logs::tell!("the file with the token is gone; `windlass token create` creates a token");
    }
    submit(&server, &at.data, SESSION, BATCH).await?;
    submit(&server, &at.data, SHOP, ORDER).await?;
    let code = server.owner.api().tokens().login_code(&Caller::local(), None).await?.code;
    show::text(&format!("  dashboard     {}/#login={code} (once, within 10 minutes)", server.page_url()))?;
    show::text(&tour(&at.data, &server.url()))?;
    server.until_stopped().await
}

/// Writes the example tools into the folder, unless it has a configuration.
fn declare(data: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    match OpenOptions::new().write(true).create_new(true).open(data.join("windlass.toml")) {
        Ok(mut file) => file.write_all(TOOLS.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Submits the example calls without waiting for them: they are there to be watched.
async fn submit(server: &RunningServer, data: &Path, session: &str, batch: &str) -> anyhow::Result<()> {
    let (api, runtime) = (server.owner.api(), server.owner.runtime());
    let batch: BatchBody = serde_json::from_str(batch)?;
    match api.claim(&Caller::local(), session).await {
        // The tools can still be tried.
        Err(problem) if problem.code == ProblemCode::Gone => {
            logs::tell!(
                "session {session} was deleted, so the example calls are not run; remove {} to start over",
                data.display()
            );
            return Ok(());
        }
        claimed => claimed?,
    }
    runtime.submit(session, batch.request(runtime.limits())?).await?;
    Ok(())
}

fn tour(data: &Path, url: &str) -> String {
    let token = data.join("token");
    let text = |path: &Path| path.display().to_string();
    let filled = [
        ("@DATA@", show::word(&text(data))),
        ("@KEY@", show::word(&text(&data.join(KEY_FILE)))),
        ("@TOKEN@", show::word(&text(&token))),
        // A JSON string is also a string literal of Python and TypeScript.
        ("@TOKEN_TEXT@", serde_json::Value::from(text(&token)).to_string()),
        ("@URL@", url.to_string()),
        ("@TOOLS@", text(&data.join("windlass.toml"))),
        ("@PID@", std::process::id().to_string()),
    ];
    let tour = filled.iter().fold(TOUR.to_string(), |tour, (name, value)| tour.replace(name, value));
    tour.trim_end().to_string()
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
