//! Shares: what this process has of a limit that several processes share. It begins with nothing, and starts no more than its share
//! allows; who gets how much is not decided here.

use super::room::{Cap, CapUse, Full};
use super::slab::NONE;
use super::{Planner, ToolNo};
use std::sync::Arc;

/// A limit that several processes share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedLimit {
    /// Of the tool of this id.
    Tool(Arc<str>),
    /// Of the group of this name.
    Group(Arc<str>),
}

/// The share of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShare {
    /// As many calls may run here at once.
    pub permits: u32,
    /// As many of the rate's starts per period are made here.
    pub starts: u32,
}

/// The use of a shared limit here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareUse {
    /// The limit.
    pub limit: SharedLimit,
    /// All that there is of it.
    pub cap: Cap,
    /// The share of it that is here.
    pub share: LimitShare,
    /// Running calls.
    pub running: u32,
    /// Calls that wait for permits.
    pub waiting_permits: u32,
    /// Calls that wait for starts.
    pub waiting_starts: u32,
    /// Calls that wait for something else, and need a permit of this limit then.
    pub reserved: u32,
}

impl ShareUse {
    /// Calls that could start if there were more permits here.
    pub fn wants_permits(&self) -> u32 {
        let is_partly_here = self.cap.running_max.is_some_and(|max| self.share.permits < max);
        if is_partly_here { self.waiting_permits } else { 0 }
    }

    /// Calls that could start if there were more starts here.
    pub fn wants_starts(&self) -> u32 {
        let is_partly_here = self.cap.rate.is_some_and(|rate| self.share.starts < rate.count);
        if is_partly_here { self.waiting_starts } else { 0 }
    }
}

impl Planner {
    /// From now on a tool's limits are shared: none of its calls starts until there is a share. Nothing, if they are already.
    pub fn share_tool(&mut self, now_us: u64, tool: ToolNo) {
        if tool != ToolNo::UNLIMITED {
            self.room.tools[tool.0].held.begin_sharing(now_us);
        }
    }

    /// From now on the limits of a group are shared, if there is one of this name.
    pub fn share_group(&mut self, now_us: u64, name: &str) {
        if let Some(no) = self.room.find_group(name) {
            self.room.groups[no].held.begin_sharing(now_us);
        }
    }

    /// The use of all shared limits.
    pub fn shares(&self, now_us: u64) -> Vec<ShareUse> {
        let tools = self.room.tools.iter().filter_map(|(no, tool)| {
            let (waiting, full) = (self.lined(no), self.room.fits(no, now_us).err());
            let limit = SharedLimit::Tool(tool.id.clone());
            let is_own = matches!(full, Some(Full::Tool { .. } | Full::Rate { group: None, .. }));
            tool.held.shared(
                limit,
                if is_own { waiting } else { 0 },
                match full {
                    Some(Full::Group { .. } | Full::Rate { .. }) => waiting,
                    Some(Full::Tool { .. } | Full::Gone) | None => 0,
                },
                now_us,
            )
        });
        let groups = self.room.groups.iter().filter_map(|(no, group)| {
            // Those that their tool does not let start do not wait for the group.
            let waits = |tool: u32| match self.room.fits(tool, now_us).err() {
                Some(Full::Group { group, .. }) => group == no,
                Some(Full::Rate { group, .. }) => group == Some(no),
                Some(Full::Tool { .. } | Full::Gone) | None => false,
            };
            let members = self.room.tools.iter().filter(|(_, tool)| tool.groups.contains(&no));
            let waiting = members.filter(|(tool, _)| waits(*tool)).map(|(tool, _)| self.lined(tool)).sum();
            group.held.shared(SharedLimit::Group(group.name.clone()), waiting, 0, now_us)
        });
        tools.chain(groups).collect()
    }

    /// How many calls of a tool wait for their turn. One that is alone stands in no line.
    fn lined(&self, tool: u32) -> u32 {
        let is_alone = self.alone != NONE && self.gate(self.alone) == tool;
        self.lines.waiting(tool) + u32::from(is_alone)
    }

    /// Lowers a share to so many permits, if there are more, and returns how many calls run: those above it finish normally.
    pub fn lower_permits(&mut self, limit: &SharedLimit, permits: u32) -> u32 {
        self.shared_mut(limit).map_or(0, |held| held.lower_permits(permits))
    }

    /// Gives starts of a shared rate away, with their part of what is left of it, in millionths of a start.
    pub fn give_starts(&mut self, now_us: u64, limit: &SharedLimit, starts: u32) -> u64 {
        self.shared_mut(limit).map_or(0, |held| held.give_starts(starts, now_us))
    }

    /// Raises a share to so many permits and starts, if there are fewer. `left`: what is left of the new starts, in millionths of a start.
    pub fn raise_share(&mut self, now_us: u64, limit: &SharedLimit, permits: u32, starts: u32, left: u64) {
        if let Some(held) = self.shared_mut(limit)
            && held.raise(permits, starts, left, now_us)
        {
            self.reopen_limit(limit);
        }
    }

    /// Nothing of any shared limit is here any more.
    pub fn drop_shares(&mut self, now_us: u64) {
        for known in self.shares(now_us) {
            if let Some(held) = self.shared_mut(&known.limit) {
                held.lower_permits(0);
                held.give_starts(u32::MAX, now_us);
            }
        }
    }

    /// Whether a share was too small, or more than it runs, since this was asked before.
    pub fn shares_changed(&mut self) -> bool {
        std::mem::take(&mut self.room.shares_changed)
    }

    fn shared_mut(&mut self, limit: &SharedLimit) -> Option<&mut CapUse> {
        let held = match limit {
            SharedLimit::Tool(id) => self.room.tool_by_id(id).map(|no| &mut self.room.tools[no].held),
            SharedLimit::Group(name) => self.room.find_group(name).map(|no| &mut self.room.groups[no].held),
        };
        held.filter(|held| held.is_shared())
    }

    /// Calls may start that a shared limit has held up.
    fn reopen_limit(&mut self, limit: &SharedLimit) {
        self.join_line();
        match limit {
            SharedLimit::Tool(id) => {
                if let Some(no) = self.room.tool_by_id(id) {
                    self.lines.reopen(no);
                }
            }
            SharedLimit::Group(name) => {
                let Some(no) = self.room.find_group(name) else { return };
                self.room.groups[no].closed.clear();
                let members = self.room.tools.iter().filter(|(_, tool)| tool.groups.contains(&no));
                let members: Vec<u32> = members.map(|(tool, _)| tool).collect();
                members.into_iter().for_each(|tool| self.lines.reopen(tool));
            }
        }
    }
}
