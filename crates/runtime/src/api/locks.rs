//! Locks that know their place in the one order in which a thread may take them.
//!
//! Two threads that take two locks in opposite orders can wait for each other for ever, and tests show that only if both do so at
//! the same moment. So [`LockRank`] is a table of all locks, and in debug builds each thread remembers the ranks it holds: taking a
//! lock panics unless its rank is greater than all of them. In release builds a lock is the one of `std`, and a guard is its guard.
//!
//! No guard is held over an await: clippy refuses that (`await-holding-invalid-types`). Locks of `tokio`, which may be, are taken before
//! any of these; docs/decisions/locks.md lists both.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Makes the enum, and the list by which a rank is named.
macro_rules! table {
    ($(#[$about:meta])* pub(crate) enum $ranks:ident { $($(#[$said:meta])* $name:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum $ranks { $($(#[$said])* $name,)+ }

        #[cfg(debug_assertions)]
        impl $ranks {
            const ALL: &[$ranks] = &[$($ranks::$name),+];
        }
    };
}

table! {
    /// Every lock of the runtime. A thread takes them in this order, and of each rank at most one.
    pub(crate) enum LockRank {
        /// The owned sessions by name. First: idle sessions are found and released while nobody can ask for one.
        Sessions,
        /// The suspects that run or want to. The calls around a call are looked up under it.
        Suspects,
        /// The next alarm of each session's schedules, which is set on the wheel under it.
        Alarms,
        /// The deliveries to webhooks that are under way, and the next alarm of each session's. Before the wheel, like all alarms.
        Courier,
        /// The values that features remember of a session or of the runtime. A value may be made under it.
        Slots,
        /// The file gates by session. Found while a session's slot for its gate is filled.
        FileGates,
        /// The permission to write files of a session. Alone: held for reading while one is written, which takes long.
        FileGate,
        /// The permission to change one file of a session. Held for as long as its content is compared and replaced.
        FileChange,
        /// The feeds by session name. Alone.
        FeedNames,
        /// The task that rings for the readers of a feed. The last reader clears the feed under it.
        Ringer,
        /// The time since which the clocks of an attempt stand still. All calls inside it are looked at under it.
        Still,
        /// The notes of an attempt. They are sent, and the calls started by an event are placed, under it.
        BookPage,
        /// The open batches of a session. A batch leaves memory under it: the planner, the wheel and the stubs change with it.
        OpenBatches,
        /// The planner. A call is parked in its batch under it, so that whoever is told of its turn finds it parked.
        Turns,
        /// The calls of a batch. Entries are sent, and alarms set, under it.
        Batch,
        /// The first open call of each dedupe key. Looked up while the calls of a batch are listed.
        Firsts,
        /// The loop guard of a session. Told of a batch before anybody hears that the batch is over.
        Loops,
        /// The last words of a running attempt. Read while the calls of a batch are listed.
        AttemptWords,
        /// All deadlines. Set by schedules, by the planner, and while a call is parked or its batch leaves memory.
        Wheel,
        /// The rest of the way of calls, which the first who waits for them takes. Alone.
        KeptDrive,
        /// The jumps of the wall clock. Looked up while a batch stamps its entries.
        Ages,
        /// The webhooks and the sessions with messages for them. Looked at by whoever sends a change, before its lane.
        Outgoing,
        /// The lane of a session. Changes are handed to the store under it, whose own locks come after all of these.
        Lane,
        /// The calls that are not in memory. Changed with the table of open batches, from which they come.
        AwayCalls,
        /// The calls that are to be read back. Alone: added once the stub says so.
        AwayDue,
        /// The batches that were released and may leave memory. Late, since a batch can be released under any lock before it.
        AwayLeaving,
        /// The words of running calls for the readers of a feed. The last reader clears them.
        FeedNews,
        /// The rows written while somebody reads a feed. The last reader clears them.
        Recent,
        /// The pages of a feed. The last reader clears them.
        Pages,
        /// The names of changed sessions. Alone, or marked under the table of open batches.
        ChangeMarks,
        /// The state behind a page, taken by the reader of the next one while it looks at the pages.
        Follower,
        /// The registered tools. Alone: who is told of a change is told after it.
        Registry,
        /// The policy in force. Alone: taken out of it before it is asked.
        Policy,
        /// The rules of the policy that are about a tool. Alone.
        ToolRules,
        /// The remembered approvals of a session. Alone.
        Remembered,
        /// The grants of a session that are in memory. Alone.
        Grants,
        /// The counts of one grant. Alone.
        Grant,
        /// The calls that wait for a tool. Alone.
        ToolWaits,
        /// The threads of tools. Alone.
        ThreadPools,
        /// The counters of tools. Alone, or made by whoever counts first, under any lock.
        Meters,
        /// The tasks that open calls have started, for their spans. Added to while the calls of an event are placed.
        StartedTasks,
        /// The key of the secrets. Alone: read from its file under it.
        SecretKey,
        /// The secrets in memory by session. Alone.
        SecretHomes,
        /// The secrets that a session's texts are searched for. They are collected under it.
        SecretMatcher,
        /// The secrets of a session or of the folder.
        Secrets,
        /// The sessions under a worker's lease, and the workers it watches. Alone.
        Worker,
        /// The `global:` names that calls of a worker hold and wait for. Alone.
        GlobalNames,
        /// The limits of which a worker has shares. Alone.
        SharedLimits,
        /// The toolboxes, their processes and their attempts. Late, since an attempt can be dropped under any lock.
        Toolboxes,
        /// The operations of an attempt that a toolbox has. Looked at while the attempts are listed.
        SeatPage,
    }
}

/// A mutex of a rank.
#[derive(Debug, Default)]
pub(crate) struct OrderedMutex<T, const RANK: u8>(Mutex<T>);

/// A reader-writer lock of a rank. A thread may not read twice either: a writer between the two would block both.
#[derive(Debug, Default)]
pub(crate) struct OrderedRwLock<T, const RANK: u8>(RwLock<T>);

/// The guard of a lock with a rank.
#[must_use = "the lock is released when this is dropped"]
pub(crate) struct OrderedGuard<G> {
    // Dropped in this order: the rank is held as long as the lock is.
    guard: G,
    _held: HeldRank,
}

pub(crate) type LockGuard<'a, T> = OrderedGuard<MutexGuard<'a, T>>;
pub(crate) type ReadGuard<'a, T> = OrderedGuard<RwLockReadGuard<'a, T>>;
pub(crate) type WriteGuard<'a, T> = OrderedGuard<RwLockWriteGuard<'a, T>>;

impl<T, const RANK: u8> OrderedMutex<T, RANK> {
    #[inline]
    pub(crate) const fn new(value: T) -> OrderedMutex<T, RANK> {
        OrderedMutex(Mutex::new(value))
    }

    /// Locks it, also after a thread has panicked with it: a bug in one call must not stop all others.
    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        let _held = HeldRank::take(RANK);
        OrderedGuard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _held }
    }

    /// The value, which nobody else can have locked.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, const RANK: u8> OrderedRwLock<T, RANK> {
    #[inline]
    pub(crate) const fn new(value: T) -> OrderedRwLock<T, RANK> {
        OrderedRwLock(RwLock::new(value))
    }

    /// Locks it for reading, also after a thread has panicked with it.
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let _held = HeldRank::take(RANK);
        OrderedGuard { guard: self.0.read().unwrap_or_else(PoisonError::into_inner), _held }
    }

    /// Locks it for writing, also after a thread has panicked with it.
    #[inline]
    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let _held = HeldRank::take(RANK);
        OrderedGuard { guard: self.0.write().unwrap_or_else(PoisonError::into_inner), _held }
    }
}

impl<G: Deref> Deref for OrderedGuard<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for OrderedGuard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// In debug builds, panics if this thread holds a lock with a rank: the caller takes locks of any rank, or runs code of others.
#[inline]
#[track_caller]
pub(crate) fn assert_none_held() {
    #[cfg(debug_assertions)]
    held::assert_none();
}

/// A rank that this thread holds until this is dropped. In release builds it has no content and does nothing.
struct HeldRank {
    #[cfg(debug_assertions)]
    rank: u8,
}

impl HeldRank {
    #[inline]
    #[track_caller]
    #[cfg_attr(
        not(debug_assertions),
        expect(unused_variables, reason = "ranks are compared in debug builds")
    )]
    fn take(rank: u8) -> HeldRank {
        #[cfg(debug_assertions)]
        held::add(rank);
        HeldRank {
            #[cfg(debug_assertions)]
            rank,
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldRank {
    fn drop(&mut self) {
        held::remove(self.rank);
    }
}

/// The ranks that a thread holds.
#[cfg(debug_assertions)]
mod held {
    use super::LockRank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    #[track_caller]
    pub(super) fn add(rank: u8) {
        // While a thread ends it remembers nothing.
        let latest = HELD.try_with(|held| held.borrow().iter().copied().max()).ok().flatten();
        // A second panic would end the process, and hide the first.
        if let Some(held) = latest.filter(|held| *held >= rank && !std::thread::panicking()) {
            let (held, wanted) = (name(held), name(rank));
            panic!(
                "a thread that holds {held} takes {wanted}: in LockRank, {wanted} does not come after {held}"
            );
        }
        let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
    }

    pub(super) fn remove(rank: u8) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(place) = held.iter().rposition(|held| *held == rank) {
                held.remove(place);
            }
        });
    }

    #[track_caller]
    pub(super) fn assert_none() {
        let held = HELD.try_with(|held| held.borrow().clone()).unwrap_or_default();
        let held: Vec<String> = held.into_iter().map(name).collect();
        assert!(held.is_empty() || std::thread::panicking(), "this thread holds {}", held.join(", "));
    }

    fn name(rank: u8) -> String {
        LockRank::ALL.get(usize::from(rank)).map_or_else(|| rank.to_string(), |rank| format!("{rank:?}"))
    }
}

#[cfg(debug_assertions)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    type Planner = OrderedMutex<u8, { LockRank::Turns as u8 }>;
    type Calls = OrderedMutex<u8, { LockRank::Batch as u8 }>;
    type Tools = OrderedRwLock<u8, { LockRank::Registry as u8 }>;

    /// The message of a panic.
    fn panic_of(run: impl FnOnce()) -> String {
        let said = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
        said.downcast_ref::<String>().cloned().expect("it panics with a text")
    }

    #[test]
    fn locks_are_taken_in_the_order_of_the_table() {
        let (planner, calls, tools) = (Planner::default(), Calls::new(1), Tools::default());
        {
            let (_planner, mut calls, _tools) = (planner.lock(), calls.lock(), tools.write());
            *calls += 1;
        }
        // Released in any order.
        let (first, second) = (planner.lock(), calls.lock());
        drop(first);
        assert_eq!(*second, 2);
        drop(second);
        assert_none_held();
        drop((planner.lock(), tools.read()));
    }

    #[test]
    fn an_inversion_panics_and_names_both_locks() {
        let (planner, calls) = (Planner::default(), Calls::default());
        let said = panic_of(|| {
            let _calls = calls.lock();
            drop(planner.lock());
        });
        assert!(said.contains("holds Batch takes Turns"), "{said}");
        // The lock that was refused is free, and so is the one that was held, though its holder panicked.
        drop((planner.lock(), calls.lock()));
    }

    #[test]
    fn a_rank_is_not_held_twice() {
        let (one, other, tools) = (Calls::default(), Calls::default(), Tools::default());
        let said = panic_of(|| drop((one.lock(), other.lock())));
        assert!(said.contains("holds Batch takes Batch"), "{said}");
        let said = panic_of(|| drop((tools.read(), tools.read())));
        assert!(said.contains("holds Registry takes Registry"), "{said}");
    }

    #[test]
    fn code_that_may_take_any_lock_finds_none_held() {
        let calls = Calls::default();
        let said = panic_of(|| {
            let _calls = calls.lock();
            assert_none_held();
        });
        assert!(said.contains("this thread holds Batch"), "{said}");
        assert_none_held();
    }

    #[test]
    fn each_thread_holds_its_own() {
        let (planner, calls) = (Planner::default(), Calls::default());
        let _calls = calls.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(planner.lock()));
        });
    }
}
