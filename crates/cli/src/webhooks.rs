//! `windlass webhooks`: manages the URLs to which notices and waits for a person are posted.

use crate::args::{AddWebhook, OneWebhook, WebhooksArgs, WebhooksCommand};
use crate::door::{self, At, DoorReach, driver_or};
use crate::exit::{self, Usage};
use crate::folder::{self, Owned};
use crate::show;
use crate::standing::{Printed, text};
use anyhow::Context;
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::Runtime;
use windlass::sessions::LOCAL;
use windlass::webhooks::{AddedWebhook, WebhookKind};
use windlass_server::Problem;
use windlass_server::client::Client;
use windlass_server::wire::webhooks::{NewWebhookView, WebhookBody, WebhookEdit};
use windlass_server::wire::{LIMIT_MAX, Paging};

/// The place where webhooks are kept: the owner of the folder, or the folder itself.
enum WebhookKeeper {
    Driver(Client),
    Folder(Runtime),
}

pub async fn webhooks(at: &At, owned: &mut Owned, args: WebhooksArgs) -> anyhow::Result<ExitCode> {
    let keeper = match driver_or(at, async || folder::keep(at)).await? {
        DoorReach::Driver(driver) => WebhookKeeper::Driver(driver),
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            WebhookKeeper::Folder(runtime)
        }
    };
    match args.command {
        WebhooksCommand::Ls { json } => printed(json).list(&keeper.list().await?),
        WebhooksCommand::Add(args) => add(&keeper, args).await,
        WebhooksCommand::Rm(args) => remove(&keeper, args).await,
        WebhooksCommand::Test(args) => test(&keeper, args).await,
        WebhooksCommand::Enable(args) => enable(&keeper, args, true).await,
        WebhooksCommand::Disable(args) => enable(&keeper, args, false).await,
    }
}

impl WebhookKeeper {
    async fn list(&self) -> anyhow::Result<Vec<Value>> {
        let driver = match self {
            WebhookKeeper::Driver(driver) => driver,
            WebhookKeeper::Folder(runtime) => {
                let all = runtime.webhooks().list().await.map_err(Problem::from)?;
                return Ok(all.iter().map(serde_json::to_value).collect::<Result<_, _>>()?);
            }
        };
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = driver.webhooks(&Paging { limit: Some(LIMIT_MAX), after }).await?;
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            after = page["next"].as_str().map(str::to_string);
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    /// The id of the one webhook that is meant.
    async fn id_of(&self, asked: &str) -> anyhow::Result<String> {
        let items = self.list().await?;
        let ids = items.iter().filter_map(|item| item["id"].as_str());
        Ok(door::the_one("webhook", "windlass webhooks ls", asked, ids)?)
    }
}

async fn add(keeper: &WebhookKeeper, args: AddWebhook) -> anyhow::Result<ExitCode> {
    let named = |name: &String| WebhookKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    let secret = match &args.secret_file {
        Some(file) => {
            let read = std::fs::read_to_string(file);
            Some(
                read.with_context(|| Usage(format!("could not read {}", file.display())))?.trim().to_string(),
            )
        }
        None => None,
    };
    let is_generated = secret.is_none();
    let wanted = WebhookBody {
        url: args.url,
        title: args.title,
        principals: args.principals,
        session: args.session,
        kinds: args.kinds.iter().filter_map(named).collect(),
        internal: args.internal,
        secret,
    };
    let made = match keeper {
        WebhookKeeper::Driver(driver) => driver.make_webhook(&wanted).await?,
        WebhookKeeper::Folder(runtime) => {
            let added = runtime.webhooks().add(wanted.into(), LOCAL).await;
            let AddedWebhook { secret, webhook } = added.map_err(Problem::from)?;
            serde_json::to_value(NewWebhookView { secret, shown: webhook })?
        }
    };
    if args.json {
        show::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    if is_generated {
        crate::logs::tell!("webhook {}; its secret is shown only once:", text(&made, "id"));
        show::text(&text(&made, "secret"))?;
    } else {
        show::text(&format!("webhook {}", text(&made, "id")))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(keeper: &WebhookKeeper, args: OneWebhook) -> anyhow::Result<ExitCode> {
    let id = keeper.id_of(&args.webhook).await?;
    match keeper {
        WebhookKeeper::Driver(driver) => drop(driver.remove_webhook(&id).await?),
        WebhookKeeper::Folder(runtime) => drop(runtime.webhooks().remove(&id).await.map_err(Problem::from)?),
    }
    match args.json {
        true => show::json(&json!({"deleted": true}))?,
        false => show::text("removed; it gets no more messages")?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn enable(keeper: &WebhookKeeper, args: OneWebhook, enabled: bool) -> anyhow::Result<ExitCode> {
    let id = keeper.id_of(&args.webhook).await?;
    let changed = match keeper {
        WebhookKeeper::Driver(driver) => driver.edit_webhook(&id, &WebhookEdit { enabled }).await?,
        WebhookKeeper::Folder(runtime) => {
            serde_json::to_value(runtime.webhooks().enable(&id, enabled).await.map_err(Problem::from)?)?
        }
    };
    printed(args.json).one(&changed)
}

async fn test(keeper: &WebhookKeeper, args: OneWebhook) -> anyhow::Result<ExitCode> {
    let id = keeper.id_of(&args.webhook).await?;
    let tried = match keeper {
        WebhookKeeper::Driver(driver) => driver.test_webhook(&id).await?,
        WebhookKeeper::Folder(runtime) => {
            serde_json::to_value(runtime.webhooks().test(&id).await.map_err(Problem::from)?)?
        }
    };
    if args.json {
        show::json(&tried)?;
    } else {
        let told = match (&tried["status"], tried["error"].as_str()) {
            (_, Some(error)) => format!("not delivered: {}", show::line(error)),
            (status, None) if tried["delivered"] == true => {
                format!("delivered: the receiver answered with {status}")
            }
            (status, None) => format!("not delivered: the receiver answered with {status}"),
        };
        show::text(&told)?;
    }
    Ok(if tried["delivered"] == true { ExitCode::SUCCESS } else { exit::failed() })
}

fn printed(as_json: bool) -> Printed<8> {
    Printed {
        as_json,
        headings: ["ID", "STATE", "URL", "KINDS", "QUEUED", "DELIVERED", "LAST SUCCESS", "LAST FAILURE"],
        row: |item| {
            let kinds = item["kinds"].as_array().cloned().unwrap_or_default();
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            let failure = &item["last_failure"];
            [
                text(item, "id"),
                text(item, "state"),
                show::line(&text(item, "url")),
                if kinds.is_empty() { "all".to_string() } else { kinds.join(" ") },
                item["queued"].to_string(),
                item["delivered"].to_string(),
                text(item, "last_success"),
                show::line(format!("{} {}", text(failure, "at"), text(failure, "what")).trim()),
            ]
        },
    }
}
