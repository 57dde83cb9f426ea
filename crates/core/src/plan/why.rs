//! Why a call is waiting: an answer for every call.

use super::room::Full;
use super::{ClaimStage, Doing, Planner};
use crate::ids::CallId;
use std::fmt;
use std::sync::Arc;

/// The wait of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// An older call that collides with it.
    Claim {
        /// The name where they collide; `None` is the whole session.
        name: Option<String>,
        /// The oldest call before it.
        held_by: CallId,
    },
    /// Room.
    Limit(Limit),
    /// A rate.
    Rate {
        /// The group of tools, if it is not the tool's own rate.
        group: Option<Arc<str>>,
        /// Until when; `None` if the rate allows nothing.
        until_us: Option<u64>,
    },
    /// Its tool is gone.
    NoSuchTool,
    /// It is not prepared, so its claims are not known.
    Unprepared,
    /// It is parked; its journal says why.
    Parked,
    /// Its nested calls.
    Inside,
    /// Nothing: the next [`start_ready`](Planner::start_ready) names it.
    Turn,
}

/// A reached limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Running calls of the process.
    Process {
        /// The maximum.
        max: u32,
    },
    /// Running calls of the session.
    Session {
        /// The maximum.
        max: u32,
    },
    /// Running calls of the tool.
    Tool {
        /// Its id.
        tool: Arc<str>,
        /// The maximum.
        max: u32,
    },
    /// Running calls of a group of tools.
    Group {
        /// Its name.
        group: Arc<str>,
        /// The maximum.
        max: u32,
    },
}

impl Planner {
    /// The wait of a call; `None` if it runs or was not entered.
    pub fn why(&self, now_us: u64, call: CallId) -> Option<Why> {
        let number = self.find(call)?;
        let call = &self.calls[number];
        if call.flags.unprepared {
            return Some(Why::Unprepared);
        }
        if call.flags.parked {
            return Some(Why::Parked);
        }
        match call.doing {
            Doing::Running | Doing::Left => None,
            Doing::Lending => Some(Why::Inside),
            Doing::Returning => Some(self.why_no_room(number)),
            Doing::Lined | Doing::Refused => Some(match self.room.fits(call.tool, now_us) {
                Err(full) => self.why_full(call.tool, full),
                Ok(()) => self.why_no_room(number),
            }),
            Doing::Nothing => self.why_blocked(number),
        }
    }

    fn why_blocked(&self, number: u32) -> Option<Why> {
        let call = &self.calls[number];
        let place = if call.stage == ClaimStage::Global { call.global } else { call.own };
        if let Some(blocked) = self.trie.blocked(place) {
            let name = Some(blocked.at).filter(|name| !name.is_empty());
            return Some(Why::Claim { name, held_by: self.calls[blocked.by].id });
        }
        let older = self.sibling_before(number)?;
        Some(Why::Claim { name: None, held_by: self.calls[older].id })
    }

    fn why_no_room(&self, number: u32) -> Why {
        let call = &self.calls[number];
        let pool = call.pool as usize;
        let session = self.room.session_max(self.sessions[call.session].no, call.pool);
        let process = self.room.running_max[pool];
        if self.sessions[call.session].running[pool] >= session {
            Why::Limit(Limit::Session { max: session })
        } else if self.room.running[pool] >= process {
            Why::Limit(Limit::Process { max: process })
        } else {
            Why::Turn
        }
    }

    fn why_full(&self, tool: u32, full: Full) -> Why {
        match full {
            Full::Gone => Why::NoSuchTool,
            Full::Rate { group, due_us } => Why::Rate {
                group: group.map(|group| self.room.groups[group].name.clone()),
                until_us: Some(due_us).filter(|due_us| *due_us < u64::MAX),
            },
            Full::Tool { max } => Why::Limit(self.tool_limit(tool, max)),
            Full::Group { group, max } => Why::Limit(self.group_limit(group, max)),
        }
    }

    pub(super) fn tool_limit(&self, tool: u32, max: u32) -> Limit {
        Limit::Tool { tool: self.room.tools[tool].id.clone(), max }
    }

    pub(super) fn group_limit(&self, group: u32, max: u32) -> Limit {
        Limit::Group { group: self.room.groups[group].name.clone(), max }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Process { max } => write!(f, "the process's limit of {max} running calls"),
            Limit::Session { max } => write!(f, "the session's limit of {max} running calls"),
            Limit::Tool { tool, max } => write!(f, "the limit of {max} running calls of the tool {tool}"),
            Limit::Group { group, max } => write!(f, "the limit of {max} running calls of the group {group}"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Claim { name: Some(name), held_by } => write!(f, "waits for {name}, held by call {held_by}"),
            Why::Claim { name: None, held_by } => write!(f, "waits for the session, held by call {held_by}"),
            Why::Limit(limit) => write!(f, "waits for room: {limit} is reached"),
            Why::Rate { group: None, .. } => f.write_str("waits for the rate of its tool"),
            Why::Rate { group: Some(group), .. } => write!(f, "waits for the rate of the group {group}"),
            Why::NoSuchTool => f.write_str("its tool is gone"),
            Why::Unprepared => f.write_str("is being prepared"),
            Why::Parked => f.write_str("is parked"),
            Why::Inside => f.write_str("waits for the calls inside it"),
            Why::Turn => f.write_str("is next"),
        }
    }
}
