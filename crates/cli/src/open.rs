//! `windlass open`: prints a link that logs a browser in to the dashboard, once.

use crate::args::OpenLink;
use crate::door::At;
use crate::exit;
use crate::show;
use std::process::ExitCode;
use windlass_server::wire::logins::{LoginCodeBody, LoginCodeView};

pub async fn open(at: &At, args: OpenLink) -> anyhow::Result<ExitCode> {
    let Some(driver) = at.driver().await? else {
        crate::logs::tell!(
            "no server runs on {}; start one with `windlass dev` or `windlass serve`, then try again",
            at.data.display()
        );
        return Ok(exit::folder());
    };
    let made = driver.make_login(&LoginCodeBody::default()).await?;
    // Through a server's address it is found where it was asked.
    let link = match &at.server {
        Some(server) => Some(format!("{}/#login={}", server.url.trim_end_matches('/'), made.code)),
        None => made.link,
    };
    let Some(link) = link else {
        crate::logs::tell!(
            "the folder's owner listens on no address, so it serves no dashboard; start `windlass serve`"
        );
        return Ok(exit::folder());
    };
    if args.json {
        show::json(&LoginCodeView { link: Some(link), ..made })?;
    } else {
        crate::logs::tell!("open this once, within 10 minutes:");
        show::text(&link)?;
    }
    Ok(ExitCode::SUCCESS)
}
