//! Room to run: limits of the process, of tools and of groups of tools, rates, and missing tools.

use super::share::{LimitShare, ShareUse, SharedLimit};
use super::slab::Slab;
use crate::ids::SessionNo;
use crate::limits::CallLimits;
use crate::rate::{Bucket, Rate};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pool of room a call takes: calls and tasks have separate room, so that neither keeps the other from starting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pool {
    /// A caller waits for it.
    #[default]
    Calls,
    /// No caller waits for it.
    Tasks,
}

impl Pool {
    pub(super) const ALL: [Pool; 2] = [Pool::Calls, Pool::Tasks];
}

/// The limits of a tool or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// The maximum number of running calls.
    pub running_max: Option<u32>,
    /// The maximum rate of starts.
    pub rate: Option<Rate>,
}

/// A tool's number in the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolNo(pub(super) u32);

impl ToolNo {
    /// Stands for every tool without limits.
    pub const UNLIMITED: ToolNo = ToolNo(0);
}

/// Why a tool's calls cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Gone,
    Tool { max: u32 },
    Group { group: u32, max: u32 },
    Rate { group: Option<u32>, due_us: u64 },
}

/// The use of a [`Cap`]: running calls, and the rest of its rate.
#[derive(Debug, Default)]
pub(super) struct CapUse {
    running_max: Option<u32>,
    rate: Option<Rate>,
    /// Of the rate, or of this process's share of it.
    bucket: Option<Bucket>,
    /// `None`: all of it is here.
    share: Option<LimitShare>,
    running: u32,
    /// Those of them that only wait for nested calls.
    lending: u32,
}

#[derive(Debug, Default)]
pub(super) struct ToolRoom {
    pub(super) id: Arc<str>,
    pub(super) held: CapUse,
    pub(super) groups: Vec<u32>,
    /// Whether none of its calls may start until it is back.
    is_gone: bool,
    /// Calls of it that have not left.
    pub(super) calls: u32,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) name: Arc<str>,
    pub(super) held: CapUse,
    /// Tools whose calls wait for room in the group.
    pub(super) closed: Vec<u32>,
    /// Tools that belong to it.
    tools: u32,
}

#[derive(Debug)]
pub(super) struct PlanRoom {
    pub(super) tools: Slab<ToolRoom>,
    pub(super) groups: Slab<Group>,
    tool_nos: BTreeMap<Arc<str>, u32>,
    group_nos: BTreeMap<Arc<str>, u32>,
    pub(super) running: [u32; 2],
    pub(super) running_max: [u32; 2],
    session_max: [u32; 2],
    /// Sessions with a lower limit.
    of_session: BTreeMap<SessionNo, [u32; 2]>,
    /// Whether a share was too small, or more than it runs.
    pub(super) shares_changed: bool,
}

impl CapUse {
    fn change(&mut self, cap: Cap, now_us: u64) {
        (self.running_max, self.rate) = (cap.running_max, cap.rate);
        if let Some(share) = &mut self.share {
            share.starts = share.starts.min(cap.rate.map_or(0, |rate| rate.count));
        }
        let here = |rate: Rate| match self.share {
            Some(share) => Rate { count: share.starts, ..rate },
            None => rate,
        };
        self.bucket = match (self.bucket, cap.rate.map(here)) {
            (_, None) => None,
            (None, Some(rate)) => Some(Bucket::full(rate, now_us)),
            (Some(mut bucket), Some(rate)) => {
                bucket.change(rate, now_us);
                Some(bucket)
            }
        };
    }

    /// The limit that is reached, if any, here or as a whole.
    fn reached(&self) -> Option<u32> {
        let here = self.share.map_or(u32::MAX, |share| share.permits);
        self.running_max.filter(|max| self.running >= here.min(*max))
    }

    pub(super) fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// From now on only a share of it is here: nothing at first.
    pub(super) fn begin_sharing(&mut self, now_us: u64) {
        if self.is_bounded() && self.share.is_none() {
            self.share = Some(LimitShare::default());
            self.bucket = self.rate.map(|rate| Bucket::full(Rate { count: 0, ..rate }, now_us));
        }
    }

    /// Its use, if it is shared. `waiting`: the calls that it keeps from starting; `others`: those that something else does.
    pub(super) fn shared(
        &self,
        limit: SharedLimit,
        waiting: u32,
        others: u32,
        now_us: u64,
    ) -> Option<ShareUse> {
        let (share, running) = (self.share?, self.running);
        let is_full = self.reached().is_some();
        let is_due = !is_full && self.due_us(now_us).is_some();
        Some(ShareUse {
            limit,
            cap: Cap { running_max: self.running_max, rate: self.rate },
            share,
            running,
            waiting_permits: if is_full { waiting } else { 0 },
            waiting_starts: if is_due { waiting } else { 0 },
            reserved: others.min(share.permits.saturating_sub(running)),
        })
    }

    pub(super) fn lower_permits(&mut self, permits: u32) -> u32 {
        if let Some(share) = &mut self.share {
            share.permits = share.permits.min(permits);
        }
        self.running
    }

    /// `true`: there is more than before.
    pub(super) fn raise(&mut self, permits: u32, starts: u32, left: u64, now_us: u64) -> bool {
        let Some(share) = &mut self.share else { return false };
        let before = *share;
        share.permits = share.permits.max(permits);
        share.starts = share.starts.max(starts);
        if let (Some(bucket), more @ 1..) = (&mut self.bucket, share.starts - before.starts) {
            bucket.receive(more, left, now_us);
        }
        *share != before
    }

    pub(super) fn give_starts(&mut self, starts: u32, now_us: u64) -> u64 {
        let (Some(share), Some(bucket)) = (&mut self.share, &mut self.bucket) else { return 0 };
        share.starts = share.starts.saturating_sub(starts);
        bucket.give(starts, now_us)
    }

    /// Whether more of it may be had than is here.
    fn is_partly_here(&self) -> bool {
        let lacks_permits = |share: LimitShare| self.running_max.is_some_and(|max| share.permits < max);
        let lacks_starts = |share: LimitShare| self.rate.is_some_and(|rate| share.starts < rate.count);
        self.share.is_some_and(|share| lacks_permits(share) || lacks_starts(share))
    }

    /// Whether more run than the share allows by now.
    fn is_over_share(&self) -> bool {
        self.share.is_some_and(|share| self.running_max.is_some() && self.running > share.permits)
    }

    fn due_us(&self, now_us: u64) -> Option<u64> {
        self.bucket.map(|bucket| bucket.due_us(now_us)).filter(|due_us| *due_us > now_us)
    }

    fn take(&mut self, now_us: u64) {
        self.running += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now_us);
        }
    }

    fn is_bounded(&self) -> bool {
        self.running_max.is_some() || self.bucket.is_some()
    }

    /// Whether it is full of calls that only wait for nested calls.
    pub(super) fn is_all_lent(&self) -> bool {
        // Of a shared limit there may be more.
        let is_reached = self.running_max.is_some_and(|max| self.running >= max);
        is_reached && self.lending >= self.running
    }

    pub(super) fn running_max(&self) -> Option<u32> {
        self.running_max
    }
}

impl PlanRoom {
    pub(super) fn new(limits: &CallLimits) -> PlanRoom {
        let mut room = PlanRoom {
            tools: Slab::default(),
            groups: Slab::default(),
            tool_nos: BTreeMap::new(),
            group_nos: BTreeMap::new(),
            running: [0; 2],
            running_max: [0; 2],
            session_max: [0; 2],
            of_session: BTreeMap::new(),
            shares_changed: false,
        };
        // Number 0 is the tool without limits.
        room.tools.insert(ToolRoom::default());
        room.set_limits(limits);
        room
    }

    pub(super) fn set_limits(&mut self, limits: &CallLimits) {
        let at_most = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        self.running_max = [limits.calls_running_max, limits.tasks_running_max].map(at_most);
        self.session_max = [limits.session_calls_running_max, limits.session_tasks_running_max].map(at_most);
    }

    /// Sets how many calls and tasks of a session may run at once, if fewer than of others. Returns whether that changes
    /// anything.
    pub(super) fn set_session(&mut self, session: SessionNo, running_max: [Option<u32>; 2]) -> bool {
        let wanted = running_max.map(|max| max.unwrap_or(u32::MAX));
        let wanted = Some(wanted).filter(|max| *max != [u32::MAX; 2]);
        let before = match wanted {
            Some(max) => self.of_session.insert(session, max),
            None => self.of_session.remove(&session),
        };
        before != wanted
    }

    /// How many of a session may run at once.
    pub(super) fn session_max(&self, session: SessionNo, pool: Pool) -> u32 {
        let max = self.session_max[pool as usize];
        // Nearly always there is none.
        if self.of_session.is_empty() {
            return max;
        }
        self.of_session.get(&session).map_or(max, |own| max.min(own[pool as usize]))
    }

    pub(super) fn set_tool(&mut self, id: &str, cap: Cap, groups: &[&str], now_us: u64) -> u32 {
        let no = match self.tool_nos.get(id) {
            Some(no) => *no,
            None => {
                let id: Arc<str> = id.into();
                let no = self.tools.insert(ToolRoom { id: id.clone(), ..ToolRoom::default() });
                self.tool_nos.insert(id, no);
                no
            }
        };
        let mut joined: Vec<u32> = groups.iter().map(|name| self.group(name)).collect();
        joined.sort_unstable();
        joined.dedup();
        self.regroup(no, joined);
        let tool = &mut self.tools[no];
        tool.held.change(cap, now_us);
        tool.is_gone = false;
        no
    }

    pub(super) fn find_tool(&self, id: &str) -> Option<ToolNo> {
        let no = self.tool_nos.get(id).copied();
        no.filter(|no| !self.tools[*no].is_gone).map(ToolNo)
    }

    pub(super) fn tool_by_id(&self, id: &str) -> Option<u32> {
        self.tool_nos.get(id).copied()
    }

    pub(super) fn find_group(&self, name: &str) -> Option<u32> {
        self.group_nos.get(name).copied()
    }

    /// A gate was found shut: perhaps because only a share of a limit is here.
    pub(super) fn note_shut(&mut self, tool: u32, full: Full) {
        let held = match full {
            Full::Gone => return,
            Full::Tool { .. } | Full::Rate { group: None, .. } => &self.tools[tool].held,
            Full::Group { group, .. } | Full::Rate { group: Some(group), .. } => &self.groups[group].held,
        };
        self.shares_changed |= held.is_partly_here();
    }

    pub(super) fn knows_tool(&self, id: &str) -> bool {
        self.tool_nos.contains_key(id)
    }

    /// Moves a tool, and its running calls, from its groups to others.
    fn regroup(&mut self, no: u32, joined: Vec<u32>) {
        let CapUse { running, lending, .. } = self.tools[no].held;
        for &group in &joined {
            let group = &mut self.groups[group];
            group.tools += 1;
            group.held.running += running;
            group.held.lending += lending;
        }
        let old = std::mem::replace(&mut self.tools[no].groups, joined);
        for no in old {
            let group = &mut self.groups[no];
            group.tools -= 1;
            group.held.running -= running;
            group.held.lending -= lending;
            self.drop_group_if_idle(no);
        }
    }

    pub(super) fn set_group(&mut self, name: &str, cap: Cap, now_us: u64) {
        let no = self.group(name);
        self.groups[no].held.change(cap, now_us);
        self.drop_group_if_idle(no);
    }

    fn group(&mut self, name: &str) -> u32 {
        if let Some(no) = self.group_nos.get(name) {
            return *no;
        }
        let name: Arc<str> = name.into();
        let no = self.groups.insert(Group { name: name.clone(), ..Group::default() });
        self.group_nos.insert(name, no);
        no
    }

    /// Forgets a group without limits and tools.
    fn drop_group_if_idle(&mut self, no: u32) {
        if self.groups[no].tools == 0 && !self.groups[no].held.is_bounded() {
            let group = self.groups.remove(no);
            self.group_nos.remove(&group.name);
        }
    }

    pub(super) fn remove_tool(&mut self, tool: ToolNo) {
        // The tool without limits stands for many, so it cannot be removed.
        if tool != ToolNo::UNLIMITED {
            self.tools[tool.0].is_gone = true;
        }
    }

    /// Forgets a removed tool without calls; `true` if it did.
    pub(super) fn drop_tool_if_idle(&mut self, no: u32) -> bool {
        let idle = self.tools[no].is_gone && self.tools[no].calls == 0;
        if idle {
            self.regroup(no, Vec::new());
            let tool = self.tools.remove(no);
            self.tool_nos.remove(&tool.id);
        }
        idle
    }

    /// Whether a call of this tool may start now, by the tool's limits.
    pub(super) fn fits(&self, tool: u32, now_us: u64) -> Result<(), Full> {
        if tool == ToolNo::UNLIMITED.0 {
            return Ok(());
        }
        let tool = &self.tools[tool];
        if tool.is_gone {
            return Err(Full::Gone);
        }
        if let Some(max) = tool.held.reached() {
            return Err(Full::Tool { max });
        }
        for &group in &tool.groups {
            if let Some(max) = self.groups[group].held.reached() {
                return Err(Full::Group { group, max });
            }
        }
        // The longest wait of all: before it, no start is possible.
        let own = tool.held.due_us(now_us).map(|due_us| (due_us, None));
        let groups = tool
            .groups
            .iter()
            .filter_map(|&group| self.groups[group].held.due_us(now_us).map(|due_us| (due_us, Some(group))));
        match own.into_iter().chain(groups).max() {
            Some((due_us, group)) => Err(Full::Rate { group, due_us }),
            None => Ok(()),
        }
    }

    /// Whether calls of this tool have a gate of their own, beyond process and session.
    pub(super) fn is_gated(&self, tool: u32) -> bool {
        let tool = &self.tools[tool];
        tool.held.is_bounded() || !tool.groups.is_empty() || tool.is_gone
    }

    /// A call of this tool starts.
    pub(super) fn take(&mut self, tool: u32, now_us: u64) {
        self.tools[tool].held.take(now_us);
        for at in 0..self.tools[tool].groups.len() {
            let group = self.tools[tool].groups[at];
            self.groups[group].held.take(now_us);
        }
    }

    /// A call of this tool stopped running.
    pub(super) fn give_back(&mut self, tool: u32) {
        self.shares_changed |= self.tools[tool].held.is_over_share()
            || self.tools[tool].groups.iter().any(|&group| self.groups[group].held.is_over_share());
        self.count(tool, |held| held.running -= 1);
    }

    /// A call of this tool begins to wait for nested calls, or is done with that.
    pub(super) fn lend(&mut self, tool: u32, lends: bool) {
        self.count(tool, |held| if lends { held.lending += 1 } else { held.lending -= 1 });
    }

    fn count(&mut self, tool: u32, change: impl Fn(&mut CapUse)) {
        change(&mut self.tools[tool].held);
        for at in 0..self.tools[tool].groups.len() {
            let group = self.tools[tool].groups[at];
            change(&mut self.groups[group].held);
        }
    }
}
