//! `windlass migrate`: brings a shared database to the format that this version needs.

use crate::args::MigrateArgs;
use crate::database;
use crate::door::At;
use crate::exit::Usage;
use crate::{serve, show};
use serde_json::json;
use std::process::ExitCode;
use windlass::store::postgres::{MigratedFormats, PostgresStore};

pub async fn migrate(at: &At, args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    let Some(options) = database::find(at)? else {
        let told = "there is no shared database to migrate: name one with --store, WINDLASS_STORE or [store] url; the file of a \
                    data folder is migrated when it is opened";
        return Err(Usage(told.to_string()).into());
    };
    let MigratedFormats { from, to } = PostgresStore::migrate(options).await?;
    if args.json {
        show::json(&json!({ "from": from, "to": to }))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::text(&match from {
        None => format!("the tables were created, in format {to}"),
        Some(from) if from == to => format!("nothing to do: the database has format {to}"),
        Some(from) => format!("migrated from format {from} to {to}"),
    })?;
    Ok(ExitCode::SUCCESS)
}
