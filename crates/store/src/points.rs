//! Kill points: every write has a name, and a process can be told to die or to fail there. They exist only
//! with the feature `kill-points`; without it, `point!` is just the write itself.
//!
//! `WINDLASS_KILL_POINT` says where: a name, which visit of it (from 1), and the action, separated by blanks.
//! `WINDLASS_KILL_VISITS` names a file to which each visit appends its name.

/// Names a write: an expression that returns a `Result`.
#[cfg(not(feature = "kill-points"))]
macro_rules! point {
    ($name:literal, $write:expr) => {
        $write
    };
}

/// Names a write: an expression that returns a `Result`.
#[cfg(feature = "kill-points")]
macro_rules! point {
    ($name:literal, $write:expr) => {
        match $crate::points::arrive($name) {
            Ok(visit) => visit.leave($write),
            Err(told) => Err(told.into()),
        }
    };
}

#[cfg(feature = "kill-points")]
pub use told::{ACTIONS, Action, MIGRATION, NAMES, PointVisit, Told, arrive};

#[cfg(feature = "kill-points")]
mod told {
    use crate::StoreError;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::{Mutex, OnceLock, PoisonError};
    use std::time::Duration;

    /// All points of the store. A point that is visited and not listed, or listed and never visited, fails the suite.
    pub const NAMES: &[&str] = &[
        "lock.introduce",
        "file.new",
        "file.schema",
        "file.sync",
        "file.rename",
        "file.sync-folder",
        "open.identity",
        "open.reserve",
        "log.catch-up",
        "log.home",
        "log.empty",
        "write.begin",
        "write.session",
        "write.batch",
        "write.open",
        "write.journal",
        "write.close",
        "write.reopen",
        "write.chunk",
        "write.cut",
        "write.removed",
        "write.message",
        "write.adopt",
        "write.mark",
        "write.put",
        "write.remove",
        "write.owner",
        "write.commit",
        "write.rollback",
        "index.begin",
        "index.lookup",
        "index.mark",
        "index.commit",
    ];

    /// The points that only a file of an older format passes.
    pub const MIGRATION: &[&str] =
        &["older.copy", "older.sync", "older.rename", "older.sync-folder", "older.migrate"];

    /// The action at a point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Action {
        /// The process dies before the write. It first waits a moment: whatever the rest of the process can
        /// do without the write, such as acknowledging it, happens in that time.
        Die,
        /// The process dies after the write.
        DieAfter,
        /// The write is not done and fails.
        Fail,
        /// The write is done and fails.
        FailAfter,
    }

    /// Every action, with its name.
    pub const ACTIONS: [(&str, Action); 4] = [
        ("die", Action::Die),
        ("die-after", Action::DieAfter),
        ("fail", Action::Fail),
        ("fail-after", Action::FailAfter),
    ];

    /// How long the rest of the process runs on before it dies.
    const LAST_MOMENT: Duration = Duration::from_millis(20);

    struct Plan {
        name: String,
        visit: u64,
        action: Action,
    }

    /// An injected failure of a write.
    #[derive(Debug, thiserror::Error)]
    #[error("injected failure at {0}")]
    pub struct Told(&'static str);

    /// A visit of a point.
    pub struct PointVisit {
        name: &'static str,
        action: Option<Action>,
    }

    /// Reaches a point, before its write.
    pub fn arrive(name: &'static str) -> Result<PointVisit, Told> {
        let action = visited(name);
        match action {
            Some(Action::Die) => {
                std::thread::sleep(LAST_MOMENT);
                die()
            }
            Some(Action::Fail) => Err(Told(name)),
            Some(Action::DieAfter | Action::FailAfter) | None => Ok(PointVisit { name, action }),
        }
    }

    impl PointVisit {
        /// Leaves a point, after its write.
        pub fn leave<T, E: From<Told>>(self, written: Result<T, E>) -> Result<T, E> {
            match self.action {
                Some(Action::DieAfter) => die(),
                Some(Action::FailAfter) => Err(Told(self.name).into()),
                Some(Action::Die | Action::Fail) | None => written,
            }
        }
    }

    /// Counts a visit and returns its action.
    fn visited(name: &'static str) -> Option<Action> {
        static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
        static VISITS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
        let mut visits = VISITS.lock().unwrap_or_else(PoisonError::into_inner);
        let visit = visits.entry(name).or_default();
        *visit += 1;
        if let Some(path) = std::env::var_os("WINDLASS_KILL_VISITS") {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            // A missing visit is noticed by the reader of the file.
            let _counted = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
        }
        let plan = PLAN.get_or_init(plan).as_ref()?;
        (plan.name == name && plan.visit == *visit).then_some(plan.action)
    }

    fn plan() -> Option<Plan> {
        let told = std::env::var("WINDLASS_KILL_POINT").ok()?;
        let words: Vec<&str> = told.split(' ').collect();
        let [name, visit, action] = words[..] else { return None };
        let (_, action) = ACTIONS.iter().find(|(name, _)| *name == action)?;
        Some(Plan { name: name.to_owned(), visit: visit.parse().ok()?, action: *action })
    }

    /// Dies as `kill -9` does: nothing is unwound, nothing flushed.
    fn die() -> ! {
        loop {
            // A process may always kill itself; until the signal arrives, nothing must continue.
            let _sent =
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    impl From<Told> for std::io::Error {
        fn from(told: Told) -> std::io::Error {
            std::io::Error::other(told)
        }
    }

    impl From<Told> for rusqlite::Error {
        fn from(told: Told) -> rusqlite::Error {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
            rusqlite::Error::SqliteFailure(code, Some(told.to_string()))
        }
    }

    impl From<Told> for StoreError {
        fn from(told: Told) -> StoreError {
            StoreError::Io { doing: "write", source: Box::new(told) }
        }
    }
}
