//! `windlass init`: writes a starter `windlass.toml`.

use crate::args::InitArgs;
use crate::door::At;
use crate::exit::Usage;
use crate::{serve, show};
use anyhow::Context;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const STARTER: &str = include_str!("init/windlass.toml");
const POLICY: &str = include_str!("init/policy.toml");

pub fn init(at: &At, args: &InitArgs) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    if args.print {
        // What is printed can be appended to a file that exists.
        show::text(if args.policy { POLICY } else { STARTER }.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = if args.policy { format!("{STARTER}\n{POLICY}") } else { STARTER.to_string() };
    let folder = if at.is_named { at.data.clone() } else { PathBuf::from(".") };
    std::fs::create_dir_all(&folder)
        .with_context(|| Usage(format!("could not make the folder {}", folder.display())))?;
    let file = folder.join("windlass.toml");
    let mut opened =
        std::fs::OpenOptions::new().write(true).create_new(true).open(&file).map_err(|error| {
            let file = file.display();
            if error.kind() != std::io::ErrorKind::AlreadyExists {
                return Usage(format!("could not write {file}: {error}"));
            }
            let more = if args.policy { " --policy" } else { "" };
            Usage(format!(
                "{file} exists and is not changed; `windlass init{more} --print` prints what would be in it"
            ))
        })?;
    opened.write_all(text.as_bytes()).with_context(|| format!("could not write {}", file.display()))?;
    let shown = file.strip_prefix(".").unwrap_or(&file).display();
    let next =
        if args.policy { "`windlass policy` shows its rules" } else { "`windlass tools` lists the tools" };
    show::text(&format!("wrote {shown}; {next}"))?;
    Ok(ExitCode::SUCCESS)
}
