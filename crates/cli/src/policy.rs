//! `windlass policy`: shows, checks and changes the policy.

use crate::args::{PolicyArgs, PolicyCheckArgs, PolicyCommand, PolicyHistoryArgs, PolicySetArgs};
use crate::door::{At, DoorReach, driver_or};
use crate::exit::Usage;
use crate::folder::{self, Owned};
use crate::{input, show};
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::Runtime;
use windlass::policy::{NewPolicy, PolicyQuestion};
use windlass::sessions::LOCAL;
use windlass_server::Problem;
use windlass_server::client::Client;
use windlass_server::wire::Paging;
use windlass_server::wire::policy::{PolicyBody, PolicyCheckBody};

/// The process that has the policy.
enum PolicyKeeper {
    Driver(Client),
    Folder(Box<Runtime>),
}

pub async fn policy(at: &At, owned: &mut Owned, args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let keeper = match driver_or(at, async || folder::keep(at)).await? {
        DoorReach::Driver(driver) => PolicyKeeper::Driver(driver),
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            PolicyKeeper::Folder(Box::new(runtime))
        }
    };
    match args.command {
        None => show_policy(&keeper, args.json).await?,
        Some(PolicyCommand::Check(args)) => check(&keeper, args).await?,
        Some(PolicyCommand::Set(args)) => set(at, &keeper, args).await?,
        Some(PolicyCommand::History(args)) => history(&keeper, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_policy(keeper: &PolicyKeeper, as_json: bool) -> anyhow::Result<()> {
    let policy = match keeper {
        PolicyKeeper::Driver(driver) => driver.policy().await?,
        PolicyKeeper::Folder(runtime) => serde_json::to_value(runtime.policy().await?)?,
    };
    if as_json { show::json(&policy) } else { show_version(&policy) }
}

fn show_version(policy: &Value) -> anyhow::Result<()> {
    if let Some(broken) = policy["broken"].as_str() {
        show::answer_text(&format!("broken, so every call is denied: {broken}"))?;
        return Ok(());
    }
    match policy["version"].as_u64() {
        None | Some(0) => return show::text("no policy: tools of MCP servers ask, all others run"),
        Some(version) => {
            show::answer_text(&format!(
                "version {version}, by {} at {}",
                text(&policy["by"]),
                text(&policy["at"])
            ))?;
        }
    }
    let of = |part: &str, from: &'static str| {
        let rules = policy[part].as_array().cloned().unwrap_or_default();
        rules.into_iter().map(move |rule| (from, rule)).collect::<Vec<_>>()
    };
    let rows = of("declared", "windlass.toml").into_iter().chain(of("rules", "set")).map(|(from, rule)| {
        let when = if rule["when"].is_null() { "every call".to_string() } else { rule["when"].to_string() };
        vec![text(&rule["name"]), text(&rule["ruling"]), from.to_string(), when, text(&rule["reason"])]
    });
    show::table(&["RULE", "RULING", "FROM", "WHEN", "WHY"], rows)
}

async fn check(keeper: &PolicyKeeper, args: PolicyCheckArgs) -> anyhow::Result<()> {
    let limits = match keeper {
        PolicyKeeper::Driver(_) => windlass::Limits::default(),
        PolicyKeeper::Folder(runtime) => runtime.limits().clone(),
    };
    let PolicyCheckArgs { tool, args, principal, session, turn, exposed, json } = args;
    let args = input::value("ARGS", &args, &limits)?;
    let checked = match keeper {
        PolicyKeeper::Driver(driver) => {
            driver.check_policy(&PolicyCheckBody { tool, args, principal, session, turn, exposed }).await?
        }
        PolicyKeeper::Folder(runtime) => {
            let question = PolicyQuestion { tool, args, principal, session, turn, exposed };
            serde_json::to_value(runtime.check_policy(&question).await.map_err(Problem::from)?)?
        }
    };
    if json { show::json(&checked) } else { show_check(&checked) }
}

fn show_check(checked: &Value) -> anyhow::Result<()> {
    let rules = checked["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !rules.is_empty() {
        show::table(
            &["RULE", "RULING", "MATCHED", "CONDITION", "VALUE", "HOLDS"],
            rules.iter().flat_map(rows_of),
        )?;
        show::blank()?;
    }
    let by: Vec<String> = checked["by"].as_array().into_iter().flatten().map(text).collect();
    let by = if by.is_empty() { "no rule says otherwise".to_string() } else { by.join(", ") };
    let eyes = if checked["four_eyes"] == true { " (another principal than the requesting one)" } else { "" };
    show::answer_text(&format!("{}: {}{eyes}", text(&checked["tool"]), text(&checked["ruling"])))?;
    show::answer_text(&format!("decided by: {by}"))?;
    match checked["reason"].as_str() {
        Some(reason) => show::answer_text(&format!("reason: {reason}")),
        None => Ok(()),
    }
}

/// A line for each condition of a rule; the rule itself stands on the first.
fn rows_of(rule: &Value) -> Vec<Vec<String>> {
    let matched = if rule["matched"] == true { "yes" } else { "no" };
    let conditions = rule["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let head = |rest: [String; 3]| {
        let mut row = vec![text(&rule["name"]), text(&rule["ruling"]), matched.to_string()];
        row.extend(rest);
        row
    };
    if conditions.is_empty() {
        return vec![head(["every call".to_string(), String::new(), "yes".to_string()])];
    }
    let rows = conditions.iter().enumerate().map(|(place, condition)| {
        let holds = if condition["holds"] == true { "yes" } else { "no" };
        let rest = [text(&condition["condition"]), text(&condition["finding"]), holds.to_string()];
        if place == 0 {
            return head(rest);
        }
        let mut row = vec![String::new(); 3];
        row.extend(rest);
        row
    });
    rows.collect()
}

async fn set(at: &At, keeper: &PolicyKeeper, args: PolicySetArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let read = input::value(&name, &input::text(&args.file)?, &folder::limits(at)?)?;
    let rules = match read
        .as_object()
        .filter(|read| read.len() == 1)
        .and_then(|read| read.get("rules")?.as_array())
    {
        Some(rules) => rules.clone(),
        None => {
            let told = format!(
                "{name} must hold {{\"rules\": [...]}} and nothing else; rules in TOML belong into windlass.toml"
            );
            return Err(Usage(told).into());
        }
    };
    let version = args.version;
    let set = match keeper {
        PolicyKeeper::Driver(driver) => driver.set_policy(&PolicyBody { rules, version }).await?,
        PolicyKeeper::Folder(runtime) => {
            let new = NewPolicy { rules, by: LOCAL.to_string(), version };
            serde_json::to_value(runtime.set_policy(new).await.map_err(Problem::from)?)?
        }
    };
    if args.json { show::json(&set) } else { show_version(&set) }
}

async fn history(keeper: &PolicyKeeper, args: PolicyHistoryArgs) -> anyhow::Result<()> {
    let page = match keeper {
        PolicyKeeper::Driver(driver) => {
            driver.policy_versions(&Paging { limit: Some(args.limit), after: None }).await?
        }
        PolicyKeeper::Folder(runtime) => {
            let items = runtime.policy_history(None, args.limit).await?;
            let last = items.last().filter(|_| items.len() as u64 == args.limit).map(|last| last.version);
            let next = last.filter(|version| *version > 1).map(|version| version.to_string());
            json!({"items": items, "next": next})
        }
    };
    if args.json {
        return show::json(&page);
    }
    let count = |rules: &Value| rules.as_array().map_or(0, Vec::len).to_string();
    let rows = page["items"].as_array().cloned().unwrap_or_default().into_iter().map(|version| {
        let number = version["version"].to_string();
        vec![
            number,
            text(&version["at"]),
            text(&version["by"]),
            count(&version["declared"]),
            count(&version["rules"]),
        ]
    });
    show::table(&["VERSION", "MADE", "BY", "IN WINDLASS.TOML", "SET"], rows)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}
