//! The meaning of every SQL state, in one closed table: whether to connect again, to read again, to wait, or to stop.
//!
//! Only damage and mistakes of this program are final. Everything that a server, its operator or its disk can put right is waited for:
//! a worker that closes its store needs somebody to restart it.

/// The meaning of a failure for whoever tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlMeaning {
    /// The connection is of no use any more. Whether a COMMIT on it was done is asked on another one.
    Lost,
    /// Another transaction was in the way: what was read is read again.
    Raced,
    /// Nothing was done, and the server may do it later.
    Again,
    /// It would fail for ever, or the data is damaged.
    Final,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct SqlStateRow {
    /// A state of five characters, or a class of two for all other states that begin with it.
    pub state: &'static str,
    /// Its meaning.
    pub meaning: SqlMeaning,
    /// Whether the server only has to start, to come back or to have room: a worker that starts waits for that.
    pub passes: bool,
    /// When a server says so.
    pub when: &'static str,
}

const fn row(state: &'static str, meaning: SqlMeaning, when: &'static str) -> SqlStateRow {
    SqlStateRow { state, meaning, passes: false, when }
}

/// A state of a server that is away for a while.
const fn away(state: &'static str, when: &'static str) -> SqlStateRow {
    SqlStateRow { state, meaning: SqlMeaning::Lost, passes: true, when }
}

/// The states that are not final. A state that is not listed is final, unless its class is listed.
pub const SQL_STATES: &[SqlStateRow] = &[
    away("08", "the connection broke"),
    row("0A000", SqlMeaning::Lost, "a plan no longer fits its table: a migration ran"),
    away("25006", "the server became read-only: the writer is another one now"),
    row("25P03", SqlMeaning::Lost, "the transaction was idle for too long"),
    row("26000", SqlMeaning::Lost, "a pool in between gave this connection to another server"),
    row("28000", SqlMeaning::Lost, "the server does not let this user in"),
    row("28P01", SqlMeaning::Lost, "the password is wrong: it is read again, since it may have been changed"),
    row("3D000", SqlMeaning::Lost, "there is no such database: it may be restored"),
    row("40003", SqlMeaning::Lost, "it is unknown whether the statement was completed"),
    away("53300", "the server has no connection left"),
    away("57P01", "an administrator ended the connection, or the server stops"),
    away("57P02", "the server crashed"),
    away("57P03", "the server starts or stops"),
    away("57P04", "the database was dropped: it may be restored"),
    away("57P05", "the connection was idle for too long"),
    row("23505", SqlMeaning::Raced, "somebody else inserted the key first"),
    row("40001", SqlMeaning::Raced, "two transactions could not be put in an order"),
    row("40P01", SqlMeaning::Raced, "two transactions waited for each other"),
    row("55P03", SqlMeaning::Raced, "somebody else holds a lock for long"),
    row("3F000", SqlMeaning::Again, "there is no such schema: it may be restored"),
    row("42501", SqlMeaning::Again, "the role lacks a right"),
    row("42883", SqlMeaning::Again, "there is no such function: a migration runs"),
    row("42P01", SqlMeaning::Again, "there is no such table: it may be restored"),
    row("53", SqlMeaning::Again, "the server lacks disk (53100), memory (53200) or something else"),
    row("55006", SqlMeaning::Again, "the database is in use by an administrator"),
    row("57014", SqlMeaning::Again, "somebody cancelled the statement"),
    row("58", SqlMeaning::Again, "the server's system failed, such as its disk (58030)"),
];

/// The meaning of a state.
pub(super) fn meaning_of(state: &str) -> SqlMeaning {
    find(state).map_or(SqlMeaning::Final, |row| row.meaning)
}

/// Whether a server in this state is only away for a while.
pub(super) fn passes(state: &str) -> bool {
    find(state).is_some_and(|row| row.passes)
}

fn find(state: &str) -> Option<&'static SqlStateRow> {
    let listed = |wanted: Option<&str>| SQL_STATES.iter().find(|row| Some(row.state) == wanted);
    listed(Some(state)).or_else(|| listed(state.get(..2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_before_its_class() {
        for (state, meaning) in [
            ("08006", SqlMeaning::Lost),
            ("53100", SqlMeaning::Again),
            ("53300", SqlMeaning::Lost),
            ("57014", SqlMeaning::Again),
            ("57000", SqlMeaning::Final),
            ("XX001", SqlMeaning::Final),
            ("", SqlMeaning::Final),
        ] {
            assert_eq!(meaning_of(state), meaning, "{state}");
        }
        for (state, is_away) in
            [("57P03", true), ("08006", true), ("28P01", false), ("3D000", false), ("53100", false)]
        {
            assert_eq!(passes(state), is_away, "{state}");
        }
        for (at, row) in SQL_STATES.iter().enumerate() {
            assert!(SQL_STATES[at + 1..].iter().all(|other| other.state != row.state), "{} twice", row.state);
        }
    }
}
