//! `windlass confirm`: confirms that the original of a copied data folder is gone.

use crate::args::Confirm;
use crate::door::At;
use crate::exit::Usage;
use crate::show;
use std::process::ExitCode;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Original, Store};

pub async fn confirm(at: &At, args: &Confirm) -> anyhow::Result<ExitCode> {
    let data = at.data.display();
    if at.server.is_some() {
        return Err(Usage("confirm works on the folder itself: leave out --server".to_string()).into());
    }
    if !args.original_gone {
        return Err(Usage("say what is confirmed: --original-gone".to_string()).into());
    }
    // Checked before opening: opening would create a missing folder.
    let is_copy = SqliteStore::open_reader(&at.data)?.is_copy();
    if !is_copy {
        let told = format!(
            "there is nothing to confirm: {data} is no copy, or was started since it was copied and so is on its own; \
             `windlass doctor` shows which, and `windlass calls --state unknown` the calls that were under way"
        );
        return Err(Usage(told).into());
    }
    let store = SqliteStore::open(Options::new(&at.data))?;
    store.own_file(Original::Gone).await?;
    show::text(&format!(
        "{data} replaces its original: the next start continues its calls as after a crash"
    ))?;
    Ok(ExitCode::SUCCESS)
}
