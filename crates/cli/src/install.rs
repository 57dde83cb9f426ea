//! `windlass completions` and `windlass man`: what an installation puts beside the binary.

use crate::args::{Cli, CompletionsArgs};
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "windlass", &mut script);
    write(&script)
}

pub fn manual() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    // One page for everything: what a command takes follows the list of commands.
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("windlass {}", command.get_name());
        writeln!(page, ".SH {}", name.to_uppercase())?;
        let man = clap_mangen::Man::new(command.clone().bin_name(name));
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        man.render_extra_section(&mut page)?;
    }
    write(&page)
}

fn write(bytes: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
