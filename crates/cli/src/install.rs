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

/// One page for everything: a section for each command follows the list of commands.
pub fn manual() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    // The list would name pages that nobody has.
    let mut page = String::from_utf8(page)?
        .replace("windlass\\-", "windlass ")
        .replace("(1)\n", "\n")
        .replace(".SH EXTRA\n", ".SH NOTES\n");
    for command in command.get_subcommands() {
        add_section(&mut page, "windlass", command)?;
    }
    write(page.as_bytes())
}

/// Adds the section of a command, and those of the commands below it.
fn add_section(page: &mut String, above: &str, command: &clap::Command) -> anyhow::Result<()> {
    if command.is_hide_set() || command.get_name() == "help" {
        return Ok(());
    }
    let name = format!("{above} {}", command.get_name());
    let man = clap_mangen::Man::new(command.clone().bin_name(&name));
    let mut section = Vec::new();
    man.render_synopsis_section(&mut section)?;
    man.render_description_section(&mut section)?;
    man.render_options_section(&mut section)?;
    man.render_extra_section(&mut section)?;
    // The parts of a section are one level below the parts of the page.
    let section =
        String::from_utf8(section)?.replace("\n.SH EXTRA\n", "\n.SH NOTES\n").replace("\n.SH ", "\n.SS ");
    page.push_str(&format!(".SH {}\n{section}", name.to_uppercase()));
    command.get_subcommands().try_for_each(|below| add_section(page, &name, below))
}

fn write(bytes: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
