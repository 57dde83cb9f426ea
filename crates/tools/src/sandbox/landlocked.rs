//! The rules enforced by Landlock: this process refuses itself the rest of the file system, signals to others, and abstract sockets.

use super::SandboxOrder;
use super::inside::{SandboxRefusal, SandboxedProgram};
use super::profile::{DEVICES, SYSTEM_FACTS, SYSTEM_FOLDERS, SYSTEM_SETTINGS};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The first version that keeps signals and abstract sockets inside (Linux 6.12). With less a command could end our own server.
const NEEDED: ABI = ABI::V6;

/// Restricts this process and becomes the command. Returns only if that fails.
pub(super) fn run(order: &SandboxOrder, command: &SandboxedProgram<'_>) -> SandboxRefusal {
    let SandboxedProgram { program, executed, words } = *command;
    let filter = match super::inside::filter(order) {
        Ok(filter) => filter,
        Err(refusal) => return refusal,
    };
    // The launcher kills it anyway; this holds also if somebody kills the launcher.
    let prepared = set_parent_process_death_signal(Some(Signal::KILL)).and_then(|()| drop_capabilities());
    if let Err(error) = prepared {
        return SandboxRefusal::new("privileges cannot be dropped", error);
    }
    if let Err(error) = std::env::set_current_dir(&order.cwd) {
        return SandboxRefusal::new("its folder cannot be entered", error);
    }
    match restrict_files(order, program) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(_) => return SandboxRefusal::plain("Landlock of this kernel enforces only a part of the rules"),
        Err(error) => return SandboxRefusal::new("Landlock cannot be used (it needs Linux 6.12)", error),
    }
    if let Err(error) = seccompiler::apply_filter(&filter) {
        return SandboxRefusal::new("the filter of system calls cannot be installed", error);
    }
    let (name, rest) =
        words.split_first().map_or((program.as_os_str(), words), |(name, rest)| (name.as_os_str(), rest));
    let error = Command::new(executed).arg0(name).args(rest).exec();
    SandboxRefusal::not_started(name, &error)
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn restrict_files(order: &SandboxOrder, program: &Path) -> Result<RulesetStatus, RulesetError> {
    let profile = &order.rules.profile;
    let everything = AccessFs::from_all(NEEDED);
    let read = AccessFs::from_read(NEEDED);
    let change: BitFlags<AccessFs> =
        everything & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let of_session = if order.rules.read_only { read } else { change };
    let mut rules =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(everything)?;
    if !profile.network {
        rules = rules.handle_access(AccessNet::from_all(NEEDED))?;
    }
    let restricted = rules
        .scope(Scope::from_all(NEEDED))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM_FOLDERS, read))?
        .add_rules(path_beneath_rules(
            SYSTEM_SETTINGS.iter().chain(&SYSTEM_FACTS),
            AccessFs::ReadFile | AccessFs::ReadDir,
        ))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(&profile.read, read))?
        .add_rules(path_beneath_rules(
            order.program_is_fixed.then_some(program),
            AccessFs::ReadFile | AccessFs::Execute,
        ))?
        .add_rules(path_beneath_rules(&profile.write, change))?
        .add_rules(path_beneath_rules([&order.folder], of_session))?
        .add_rules(path_beneath_rules([&order.scratch], change))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}
