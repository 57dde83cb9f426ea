//! Makes one backup in a process of its own, so that it can be killed: `backup FOLDER TARGET`.

use anyhow::bail;
use windlass_store::sqlite::backup::{BackupOptions, backup};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, target] = args.as_slice() else { bail!("backup FOLDER TARGET") };
    let options = BackupOptions { folder: folder.into(), target: target.into(), rate: None };
    backup(&options, &mut |_| ())?;
    Ok(())
}
