//! `windlass grants`: issues, narrows, lists and revokes grants.

use crate::args::{AttenuateGrant, GrantsArgs, GrantsCommand, IssueGrant, ListGrants, OneGrant};
use crate::door::{self, At, DoorReach, driver_or};
use crate::exit::Usage;
use crate::folder::{self, Owned};
use crate::show;
use anyhow::Context;
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::Runtime;
use windlass_server::Problem;
use windlass_server::client::Client;
use windlass_server::wire::LIMIT_MAX;
use windlass_server::wire::grants::{
    AttenuateBody, GrantBody, GrantQuery, GrantRetry, GrantView, NewGrantView,
};

pub async fn grants(at: &At, owned: &mut Owned, args: GrantsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        GrantsCommand::Ls(args) => list(at, owned, args).await?,
        GrantsCommand::Issue(args) => issue(&driver(at).await?, args).await?,
        GrantsCommand::Attenuate(args) => attenuate(&driver(at).await?, args).await?,
        GrantsCommand::Revoke(args) => revoke(&driver(at).await?, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The owner of the folder: a grant is a record of a session, and sessions are changed by whoever owns them.
async fn driver(at: &At) -> anyhow::Result<Client> {
    let told = "this folder has no owner, so grants cannot be changed; start `windlass serve` first";
    at.driver().await?.ok_or_else(|| Usage(told.to_string()).into())
}

async fn list(at: &At, owned: &mut Owned, args: ListGrants) -> anyhow::Result<()> {
    let items = match driver_or(at, async || folder::keep(at)).await? {
        DoorReach::Driver(driver) => of_driver(&driver, args.session).await?,
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            of_folder(&runtime, args.session.as_deref()).await?
        }
    };
    if args.json {
        return show::json(&json!({ "items": items, "next": null }));
    }
    let rows = items.into_iter().map(|grant| {
        let left = grant.uses.map(|uses| uses.saturating_sub(grant.used + grant.shared));
        vec![
            show::short_handle(&grant.id),
            grant.session,
            show::line(&grant.tool),
            grant.state,
            left.map_or_else(|| "any".to_string(), |left| left.to_string()),
            grant.expires_at.unwrap_or_else(|| "the session ends".to_string()),
            show::line(&grant.args.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")),
        ]
    });
    show::table(&["ID", "SESSION", "TOOL", "STATE", "USES LEFT", "UNTIL", "CONDITIONS"], rows)
}

async fn of_driver(driver: &Client, session: Option<String>) -> anyhow::Result<Vec<GrantView>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let list = GrantQuery { session: session.clone(), limit: Some(LIMIT_MAX), after };
        let page = driver.grants(&list).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

async fn of_folder(runtime: &Runtime, session: Option<&str>) -> anyhow::Result<Vec<GrantView>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page =
            runtime.grants().page(session, after.as_deref(), LIMIT_MAX).await.map_err(Problem::from)?;
        items.extend(page.items.into_iter().map(|grant| GrantView::of(grant, runtime.clock().now())));
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

async fn issue(driver: &Client, args: IssueGrant) -> anyhow::Result<()> {
    let retry =
        args.attempts.map(|attempts| GrantRetry { attempts: Some(attempts), ..GrantRetry::default() });
    let binding = args.binding.as_deref().map(|text| value("the binding", text)).transpose()?;
    let wanted = GrantBody {
        session: args.session,
        tool: args.tool,
        source: args.source,
        contract: args.contract,
        binding,
        args: conditions(&args.conditions)?,
        expires_in_s: args.expires_in_s,
        uses: args.uses,
        retry,
    };
    issued(&driver.issue_grant(&wanted).await?, args.json)
}

async fn attenuate(driver: &Client, args: AttenuateGrant) -> anyhow::Result<()> {
    let id = id_of(driver, &args.grant).await?;
    let wanted = AttenuateBody {
        session: args.session,
        args: conditions(&args.conditions)?,
        expires_in_s: args.expires_in_s,
        uses: args.uses,
    };
    issued(&driver.attenuate_grant(&id, &wanted).await?, args.json)
}

async fn revoke(driver: &Client, args: OneGrant) -> anyhow::Result<()> {
    let id = id_of(driver, &args.grant).await?;
    driver.revoke_grant(&id).await?;
    match args.json {
        true => show::json(&json!({ "deleted": true })),
        false => show::text("revoked; nothing starts by it or its copies any more"),
    }
}

/// The id of the one grant that is meant.
async fn id_of(driver: &Client, asked: &str) -> anyhow::Result<String> {
    let items = of_driver(driver, None).await?;
    Ok(door::the_one("grant", "windlass grants ls", asked, items.iter().map(|grant| grant.id.as_str()))?)
}

/// The token goes to standard output alone, so that a script can take it.
fn issued(made: &NewGrantView, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return show::json(made);
    }
    crate::logs::tell!("grant {} for {}; its token is shown only once:", made.shown.id, made.shown.session);
    show::text(&made.token)
}

fn conditions(written: &[String]) -> anyhow::Result<Vec<Value>> {
    written.iter().map(|text| value("the condition", text)).collect()
}

fn value(what: &str, text: &str) -> anyhow::Result<Value> {
    serde_json::from_str(text).with_context(|| Usage(format!("{what} is not JSON: {}", show::line(text))))
}
