//! `windlass secrets`: stores, lists and removes secrets.

use crate::args::{ListSecrets, OneSecret, SecretsArgs, SecretsCommand};
use crate::door::{At, DoorReach, driver_or};
use crate::exit::Usage;
use crate::folder::{self, Owned};
use crate::show;
use anyhow::Context;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;
use windlass::Runtime;
use windlass::secrets::SecretEntry;
use windlass_server::client::Client;
use windlass_server::wire::{LIMIT_MAX, NewSecret, Paging};
use zeroize::Zeroizing;

/// The consequence of a folder without an owner, for the error message.
const UNCHANGED: &str =
    "the secrets of its sessions cannot be changed (those of all sessions can, without --session)";
/// More than any secret has: a larger input is a mistake.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// The place where secrets are stored.
enum SecretStore {
    Driver(Client),
    Folder(Runtime),
}

pub async fn secrets(at: &At, owned: &mut Owned, args: SecretsArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        SecretsCommand::Ls(args) => list(&reach(at, owned, None).await?, args).await?,
        SecretsCommand::Set(args) => {
            let value = value(&args.name)?;
            set(&reach(at, owned, args.session.as_deref()).await?, args, &value).await?;
        }
        SecretsCommand::Rm(args) => remove(&reach(at, owned, args.session.as_deref()).await?, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the store. A session is changed by whoever owns it.
async fn reach(at: &At, owned: &mut Owned, changed: Option<&str>) -> anyhow::Result<SecretStore> {
    if changed.is_some() {
        return match at.driver().await? {
            Some(driver) => Ok(SecretStore::Driver(driver)),
            None => {
                let told = format!("this folder has no owner, so {UNCHANGED}; start `windlass serve` first");
                Err(Usage(told).into())
            }
        };
    }
    Ok(match driver_or(at, async || folder::keep(at)).await? {
        DoorReach::Driver(driver) => SecretStore::Driver(driver),
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            SecretStore::Folder(runtime)
        }
    })
}

async fn list(store: &SecretStore, args: ListSecrets) -> anyhow::Result<()> {
    let session = args.session.as_deref();
    let items = match store {
        SecretStore::Folder(runtime) => match session {
            Some(session) => runtime.secrets(session).list().await?,
            None => runtime.folder_secrets().list().await?,
        },
        SecretStore::Driver(driver) => {
            let (mut items, mut after) = (Vec::<SecretEntry>::new(), None);
            loop {
                let page = driver.secrets(session, &Paging { limit: Some(LIMIT_MAX), after }).await?;
                items.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break items;
                }
            }
        }
    };
    match args.json {
        true => show::json(&json!({ "items": items, "next": null })),
        false => show::table(&["NAME"], items.into_iter().map(|entry| vec![entry.name])),
    }
}

async fn set(store: &SecretStore, args: OneSecret, value: &str) -> anyhow::Result<()> {
    let OneSecret { name, session, json: as_json } = args;
    match store {
        SecretStore::Folder(runtime) => runtime.folder_secrets().set(&name, value).await?,
        SecretStore::Driver(driver) => {
            let secret = NewSecret { value: value.to_string() };
            driver.set_secret(session.as_deref(), &name, &secret).await?;
        }
    }
    match as_json {
        true => show::json(&json!({ "name": name })),
        false => show::text("stored; calls that start from now on use it"),
    }
}

async fn remove(store: &SecretStore, args: OneSecret) -> anyhow::Result<()> {
    let OneSecret { name, session, json: as_json } = args;
    match store {
        SecretStore::Folder(runtime) => drop(runtime.folder_secrets().remove(&name).await?),
        SecretStore::Driver(driver) => drop(driver.remove_secret(session.as_deref(), &name).await?),
    }
    match as_json {
        true => show::json(&json!({ "deleted": true })),
        false => show::text("removed, if there was one"),
    }
}

/// Reads the value: from standard input without its last line break, or from a terminal without showing it.
fn value(name: &str) -> anyhow::Result<Zeroizing<String>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return typed(name).context("could not read the secret from the terminal");
    }
    let mut text = Zeroizing::new(String::new());
    let read = stdin.lock().take(INPUT_BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| Usage("could not read the secret from standard input: it is no text".to_string()))?;
    let end =
        text.strip_suffix('\n').map_or(text.len(), |line| line.strip_suffix('\r').unwrap_or(line).len());
    text.truncate(end);
    Ok(text)
}

/// Asks on the terminal. What is typed is not shown.
fn typed(name: &str) -> std::io::Result<Zeroizing<String>> {
    let stdin = std::io::stdin();
    let mut stderr = std::io::stderr();
    write!(stderr, "{name}: ")?;
    stderr.flush()?;
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes &= !LocalModes::ECHO;
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &shown)?;
    writeln!(stderr)?;
    read?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(line)
}
