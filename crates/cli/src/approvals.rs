//! `windlass waiting`, `approvals`, `approve` and `deny`: what waits for a person, and the answers.

use crate::args::approvals::{ApprovalsArgs, ApproveArgs, DenyArgs, WaitingArgs};
use crate::door::{At, Door, DoorRoute};
use crate::exit::Usage;
use crate::{folder, input, show};
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::approvals::{Approver, post_decision};
use windlass::sessions::LOCAL;
use windlass::time::SystemClock;
use windlass_server::wire::approvals::{DecisionBody, PersonDecision, RememberBody, WaitingQuery};

pub async fn waiting(at: &At, args: WaitingArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let list = WaitingQuery { session: args.session, ..WaitingQuery::default() };
    let items = door.waiting(&list).await?;
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if items.is_empty() {
        show::text("nothing waits for a person")?;
        return Ok(ExitCode::SUCCESS);
    }
    for item in &items {
        show::waiting(item)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn approvals(at: &At, args: ApprovalsArgs) -> anyhow::Result<ExitCode> {
    if let Some(session) = &args.remembered {
        return remembered(at, session, args.forget.as_deref(), args.json).await;
    }
    let door = Door::look(at).await?;
    let items = door.approvals(args.session.as_deref()).await?;
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = items.iter().map(|item| {
        let rules: Vec<&str> =
            item["rules"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let what = text(item, "text");
        vec![
            show::short_handle(&text(item, "id")),
            text(item, "session"),
            text(item, "until"),
            rules.join(", "),
            what.lines().next().unwrap_or_default().to_string(),
        ]
    });
    show::table(&["ID", "SESSION", "UNTIL", "RULES", "CALL"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn remembered(at: &At, session: &str, forget: Option<&str>, as_json: bool) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    if let Some(id) = forget {
        let driver = door.driver("forgets a remembered approval")?;
        driver.forget_remembered(session, id).await?;
        if as_json {
            show::json(&json!({"deleted": true}))?;
        } else {
            show::text("forgotten; a person is asked again")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let items = door.remembered(session).await?;
    if as_json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = items.iter().map(|item| {
        let until = item["expires_at"].as_str().unwrap_or("the session ends").to_string();
        vec![text(item, "id"), text(item, "tool"), item["args"].to_string(), text(item, "by"), until]
    });
    show::table(&["ID", "TOOL", "ARGUMENTS", "APPROVED BY", "UNTIL"], rows)?;
    Ok(ExitCode::SUCCESS)
}

pub async fn approve(at: &At, args: ApproveArgs) -> anyhow::Result<ExitCode> {
    let limits = folder::limits(at)?;
    let edited = args.args.as_ref().map(|text| input::value("--args", text, &limits)).transpose()?;
    let remembers = args.remember || args.remember_any || !args.remember_args.is_empty();
    if args.remember_for_s.is_some() && !remembers {
        let told = "--remember-for-s goes with --remember, --remember-args or --remember-any";
        return Err(Usage(told.to_string()).into());
    }
    let pointers = match (args.remember_any, args.remember_args.is_empty()) {
        (true, _) => Some(Vec::new()),
        (false, false) => Some(args.remember_args),
        (false, true) => None,
    };
    let remember = remembers.then_some(RememberBody { args: pointers, expires_in_s: args.remember_for_s });
    let answer = PersonalAnswer { decision: PersonDecision::Approve, args: edited, reason: None, remember };
    decide(at, &args.id, answer, args.json).await
}

pub async fn deny(at: &At, args: DenyArgs) -> anyhow::Result<ExitCode> {
    let answer =
        PersonalAnswer { decision: PersonDecision::Deny, args: None, reason: args.reason, remember: None };
    decide(at, &args.id, answer, args.json).await
}

/// An answer to an approval, without the digest of what was shown.
struct PersonalAnswer {
    decision: PersonDecision,
    args: Option<Value>,
    reason: Option<String>,
    remember: Option<RememberBody>,
}

async fn decide(at: &At, prefix: &str, answer: PersonalAnswer, as_json: bool) -> anyhow::Result<ExitCode> {
    let door = Door::change(at).await?;
    let found = door.find_approval(prefix).await?;
    let (id, digest) = (text(&found, "id"), text(&found, "digest"));
    let PersonalAnswer { decision, args, reason, remember } = answer;
    let instead = args.as_ref().map(|args| format!(" with {args} instead")).unwrap_or_default();
    let body = DecisionBody { decision, digest, args, reason, remember };
    let left_for = match &door.way {
        DoorRoute::Driver(driver) => {
            driver.decide(&id, &body).await?;
            None
        }
        DoorRoute::Folder(store) => {
            let limits = folder::limits(at)?;
            let approver = Approver { by: LOCAL, clock: &SystemClock::default(), limits: &limits };
            Some(post_decision(&**store, &id, &body.into(), approver).await?.name)
        }
    };
    if !as_json {
        let verb = if decision == PersonDecision::Approve { "approved" } else { "denied" };
        show::text(&format!(
            "{verb}: {}{}",
            show::line(text(&found, "text").lines().next().unwrap_or_default()),
            show::line(&instead)
        ))?;
    }
    show::decided(left_for.as_deref(), as_json)?;
    Ok(ExitCode::SUCCESS)
}

fn text(item: &Value, field: &str) -> String {
    item[field].as_str().unwrap_or_default().to_string()
}
