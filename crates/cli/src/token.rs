//! `windlass token`: makes, lists and revokes the tokens of the server.

use crate::args::{TokenArgs, TokenCreate, TokenWhat};
use crate::door::{At, DoorReach, driver_or};
use crate::exit::Usage;
use crate::folder::{self, Owned};
use crate::{database, show};
use serde_json::json;
use std::process::ExitCode;
use windlass_server::access::TokenScope;
use windlass_server::client::Client;
use windlass_server::tokens::Tokens;
use windlass_server::wire::shown::{self, NewTokenView};
use windlass_server::wire::{LIMIT_MAX, NewToken, Paging};

/// The place where tokens are kept.
enum Keeper {
    Driver(Client),
    Folder(Box<Tokens>),
}

pub async fn token(at: &At, owned: &mut Owned, args: TokenArgs) -> anyhow::Result<ExitCode> {
    // The first worker of a shared database is reached with a token, so tokens need no worker.
    let reached = match (at.driver().await?, database::find(at)?) {
        (Some(driver), _) => DoorReach::Driver(driver),
        (None, Some(options)) => DoorReach::Own(folder::records(options).await?),
        (None, None) => driver_or(at, async || folder::keep(at)).await?,
    };
    let keeper = match reached {
        DoorReach::Driver(driver) => Keeper::Driver(driver),
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            Keeper::Folder(Box::new(Tokens::new(&runtime, Some(&at.data))))
        }
    };
    match args.what {
        TokenWhat::Create(args) => create(&keeper, args).await?,
        TokenWhat::List { json } => list(&keeper, json).await?,
        TokenWhat::Revoke { id, json } => revoke(&keeper, &id, json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(keeper: &Keeper, args: TokenCreate) -> anyhow::Result<()> {
    let named = |name: &String| TokenScope::ALL.into_iter().find(|scope| scope.as_str() == name);
    let wanted = NewToken {
        principal: args.principal,
        scopes: args.scope.iter().filter_map(named).collect(),
        title: args.title,
        expires_in_s: args.expires_in_s,
        requests_per_minute: args.requests_per_minute,
        approves: args.approves,
    };
    let made: NewTokenView = match keeper {
        Keeper::Driver(driver) => driver.make_token(&wanted).await?,
        Keeper::Folder(tokens) => tokens.make(wanted).await?,
    };
    if args.json {
        return show::json(&made);
    }
    crate::logs::tell!("token {} of {}; its secret is shown only once:", made.shown.id, made.shown.principal);
    show::text(&made.token)
}

async fn list(keeper: &Keeper, as_json: bool) -> anyhow::Result<()> {
    let (mut items, mut after) = (Vec::<shown::TokenView>::new(), None);
    loop {
        let (page, next) = match keeper {
            Keeper::Driver(driver) => {
                let page = driver.tokens(&Paging { limit: Some(LIMIT_MAX), after }).await?;
                (page.items, page.next)
            }
            Keeper::Folder(tokens) => tokens.list(after.as_deref(), LIMIT_MAX as usize).await?,
        };
        items.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    if as_json {
        return show::json(&json!({"items": items, "next": null}));
    }
    let rows = items.into_iter().map(|token| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let expires = token.expires_at.unwrap_or_else(|| "never".to_string());
        let title = token.title.unwrap_or_default();
        vec![token.id, token.principal, scopes.join(" "), token.created_at, expires, title]
    });
    show::table(&["ID", "PRINCIPAL", "SCOPES", "MADE", "EXPIRES", "TITLE"], rows)
}

async fn revoke(keeper: &Keeper, id: &str, as_json: bool) -> anyhow::Result<()> {
    let gone = match keeper {
        Keeper::Driver(driver) => driver.revoke_token(id).await?.revoked,
        Keeper::Folder(tokens) => tokens.revoke(id).await?,
    };
    if !gone {
        return Err(Usage(format!("there is no token {id}; `windlass token list` lists them")).into());
    }
    match as_json {
        true => show::json(&json!({"revoked": true})),
        false => show::text("revoked"),
    }
}
