//! One group in one transaction: lock and read, judge, write, commit. Three round trips, however many changes. Groups that
//! need no question take one: see `append`.

use super::connection::{DatabaseFailure, DatabaseLink, Param, answered};
use super::doubt::GroupMark;
use super::judge::{
    Entries, GroupWrites, JudgeAnswers, JudgeQuestions, JudgedSession, Key, RecordPlace, SentMessage,
    SessionWrite, judge,
};
use super::statements::{self as sql, TypedStatement};
use super::version::{SessionVersion, VERSIONS_KEPT};
use crate::chain::{ChainLink, int, uint};
use crate::queue::{WriteOutcome, WriteRequest};
use crate::record::gone_hash;
use crate::{PIECE_ROWS, Removed, Shelf, Space, gone_value};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio_postgres::Error;
use windlass_core::handle::Secret;
use windlass_core::ids::{Lookup, SessionNo};

/// The maximum size of one statement, far below the gigabyte a message may have.
pub(super) const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// A connection that writes.
pub(super) struct Writing {
    pub link: DatabaseLink,
    pub secret: Secret,
    pub times: WriteTimes,
}

/// How long a writer waits.
#[derive(Clone, Copy)]
pub(super) struct WriteTimes {
    /// For an answer of the server.
    pub reply: Duration,
    /// For the next statement of a transaction, before the server ends it: one of a stopped worker must not keep its locks for
    /// longer than its lease.
    pub idle: Duration,
}

impl WriteTimes {
    /// For a lock that somebody else holds. Shorter than for an answer, so that a server that is locked differs from one that is lost.
    pub fn lock_ms(self) -> i64 {
        millis(self.reply / 2)
    }

    /// Begins a transaction.
    fn begin(self) -> String {
        let (lock_ms, idle_ms) = (self.lock_ms(), millis(self.idle));
        format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT windlass.begin({lock_ms}, {idle_ms})")
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// Why a group is not known to be durable.
pub(super) enum GroupFault {
    /// Nothing of it will ever be there.
    Undone(DatabaseFailure),
    /// The commit was sent, and no answer came.
    InDoubt { failure: DatabaseFailure, group: JudgedGroup },
}

/// The outcome of a group.
pub(super) enum GroupOutcome {
    /// It is durable.
    Committed(JudgedGroup),
    /// There was nothing to write.
    Nothing(Vec<WriteOutcome>),
}

/// A group that was judged and written.
pub(super) struct JudgedGroup {
    pub told: Vec<WriteOutcome>,
    /// The last versions of its sessions, where they are known.
    pub versions: Vec<(i64, SessionVersion)>,
}

impl Writing {
    /// Applies a group. `block`: owners that write without a lock have to wait for it.
    pub async fn group(
        &self,
        group: &[WriteRequest],
        mark: GroupMark,
        block: bool,
    ) -> Result<GroupOutcome, GroupFault> {
        let asked = JudgeQuestions::of(group, &self.secret);
        let reply = self.times.reply;
        let known = answered(reply, Box::pin(self.ask(&asked, block))).await.map_err(GroupFault::Undone)?;
        let (mut told, writes) = judge(group, known, &self.secret);
        if writes.is_empty() {
            self.rollback().await.map_err(GroupFault::Undone)?;
            return Ok(GroupOutcome::Nothing(told));
        }
        let right = answered(reply, Box::pin(self.write(&writes, mark))).await.map_err(GroupFault::Undone)?;
        right.map_err(|what| GroupFault::Undone(DatabaseFailure::Impossible(what)))?;
        answered(reply, self.expire(&writes.expired)).await.map_err(GroupFault::Undone)?;
        answered(reply, self.remove(&writes.removals, &mut told)).await.map_err(GroupFault::Undone)?;
        let group = JudgedGroup { told, versions: writes.versions() };
        // Every statement before it succeeded, so this cannot silently become a ROLLBACK.
        match self.unwarned(self.link.client.batch_execute("COMMIT")).await {
            Ok(()) => Ok(GroupOutcome::Committed(group)),
            Err(failure) => Err(GroupFault::InDoubt { failure, group }),
        }
    }

    /// Waits for a commit. The server warns if it committed and gave up waiting for a replica.
    pub async fn unwarned<T>(
        &self,
        commit: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, DatabaseFailure> {
        // Earlier ones were about something else.
        drop(self.link.warning());
        let done = answered(self.times.reply, commit).await?;
        self.link.warning().map_or(Ok(done), |warning| Err(DatabaseFailure::Warned(warning)))
    }

    /// Ends a transaction without its writes.
    pub async fn rollback(&self) -> Result<(), DatabaseFailure> {
        answered(self.times.reply, self.link.client.batch_execute("ROLLBACK")).await
    }

    /// The look-ups of a session's batches, at most so many.
    pub async fn lookups(&self, session: SessionNo, most: usize) -> Result<HashSet<Lookup>, Error> {
        let params: [Param<'_>; 2] = [&session.0.cast_signed(), &(most as i64)];
        let rows = self.link.query(&sql::LOOKUPS, &params).await?;
        rows.iter().map(|row| Ok(Lookup(fixed(row.try_get(0)?)))).collect()
    }

    /// Begins, locks, and reads; in this order, which is why the futures are polled in it.
    async fn ask<'g>(&self, asked: &JudgeQuestions, block: bool) -> Result<JudgeAnswers<'g>, Error> {
        let link = &self.link;
        let begin = self.times.begin();
        let sessions: Vec<i64> = asked.sessions.iter().copied().collect();
        let blocked: Vec<i64> = asked.changed.iter().copied().filter(|_| block).collect();
        let mut wanted = KeyQuestions::default();
        asked.keys.iter().for_each(|key| wanted.add(key));
        let (of, keys): (Vec<i64>, Vec<&[u8]>) =
            asked.messages.iter().map(|(of, key)| (*of, &key[..])).unzip();
        let KeyQuestions { names, gone, lookups, batches, rows, pieces } = &wanted;
        let batches_wanted = batches.len() + lookups.len();
        let records = Shelves::of(asked);
        let locks: Vec<i64> = asked.locks.iter().copied().collect();
        let expiring: Vec<i64> = asked.expiring.iter().copied().collect();
        let (_begun, _locked, seats, names, gone, batches, rows, pieces, messages, records, expiring) = tokio::try_join!(
            biased;
            link.client.batch_execute(&begin),
            query(link, &sql::LOCK_RECORDS, locks.len(), [&locks]),
            self.seats(&sessions, &blocked),
            query(link, &sql::NAMES, names.len(), [names]),
            // After the names: of a session whose removal ends meanwhile, one of the two is found.
            query(link, &sql::GONE, gone.len(), [gone]),
            query(link, &sql::BATCHES, batches_wanted, [batches, lookups]),
            query(link, &sql::ROWS, rows.len(), [rows]),
            query(link, &sql::PIECES, pieces.len(), [pieces]),
            query(link, &sql::MESSAGES, of.len(), [&of, &keys]),
            records.ask(link),
            query(link, &sql::EXPIRING, expiring.len(), [&expiring]),
        )?;
        let mut known = JudgeAnswers {
            records: records.0,
            counts: records.1,
            generations: records.2,
            ..JudgeAnswers::default()
        };
        for row in seats {
            let last = SessionVersion {
                version: uint(row.try_get(1)?),
                fence: uint(row.try_get(2)?),
                head: uint(row.try_get(3)?),
                chain: fixed(row.try_get(4)?),
                generation: uint(row.try_get(5)?),
            };
            known.seats.insert(row.try_get(0)?, JudgedSession { last, write: SessionWrite::Nothing });
        }
        for row in expiring {
            known.expiring.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
        }
        for row in names {
            known.keys.insert(Key::Name(fixed(row.try_get(0)?)));
        }
        for row in gone {
            known.keys.insert(Key::Gone(fixed(row.try_get(0)?)));
        }
        for row in batches {
            known.keys.insert(Key::Batch(row.try_get(0)?));
            known.keys.insert(Key::Lookup(Lookup(fixed(row.try_get(1)?))));
        }
        for row in rows {
            known.keys.insert(Key::Row(row.try_get(0)?));
        }
        for row in pieces {
            known.keys.insert(Key::Piece(row.try_get(0)?));
        }
        for row in messages {
            let kept = SentMessage { digest: fixed(row.try_get(2)?), waiting: row.try_get(3)? };
            known.messages.insert((row.try_get(0)?, fixed(row.try_get(1)?)), kept);
        }
        Ok(known)
    }

    /// Locks sessions, and reads their last versions. Statements behind these see what belongs to those versions, or something newer;
    /// then somebody has appended a version, and this group cannot.
    async fn seats(
        &self,
        sessions: &Vec<i64>,
        blocked: &Vec<i64>,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let link = &self.link;
        let (_locked, _blocked, seats) = tokio::try_join!(
            biased;
            query(link, &sql::LOCK_SESSIONS, sessions.len(), [sessions]),
            query(link, &sql::BLOCK, blocked.len(), [blocked]),
            query(link, &sql::SEATS, sessions.len(), [sessions]),
        )?;
        Ok(seats)
    }

    /// Writes everything. Returns an error for impossible results.
    async fn write(
        &self,
        writes: &GroupWrites<'_>,
        mark: GroupMark,
    ) -> Result<Result<(), &'static str>, Error> {
        // The versions come first: whoever has appended one is alone with the session until it commits.
        let (_appended, _marked, adopted, ..) = tokio::try_join!(
            biased;
            self.insert_versions(writes),
            self.mark(mark),
            self.messages(writes),
            self.insert_sessions(writes),
            self.batches(writes),
            self.journal(&writes.journal),
            self.pieces(writes),
            self.set_marks(writes),
            self.records(writes),
        )?;
        Ok(if adopted != writes.adopted.len() as u64 {
            Err("a message that waits was not adopted")
        } else {
            Ok(())
        })
    }

    /// Removes the rows of batches that expire.
    async fn expire(&self, batches: &[(i64, i64)]) -> Result<u64, Error> {
        let (session, no) = (column(batches, |batch| batch.0), column(batches, |batch| batch.1));
        self.execute(&sql::EXPIRE, no.len(), &[&session, &no]).await
    }

    /// Removes pieces of sessions, and returns which sessions are gone.
    async fn remove(&self, removals: &[(usize, i64, i64)], told: &mut [WriteOutcome]) -> Result<(), Error> {
        let spaces = Space::REMOVED.map(Space::number);
        for (at, session, most) in removals {
            let params: [Param<'_>; 5] =
                [session, most, &&spaces[..], &Space::Blob.number(), &int(PIECE_ROWS)];
            let is_left: bool = self.link.query(&sql::REMOVE, &params).await?[0].try_get(0)?;
            if !is_left {
                self.remove_session(*session).await?;
                told[*at] = WriteOutcome::Remove(Ok(Removed::All));
            }
        }
        Ok(())
    }

    /// Removes the row of a session of which nothing else is left, and keeps a hash of its name.
    async fn remove_session(&self, session: i64) -> Result<(), Error> {
        let removing = Space::Removing.number();
        for row in self.link.query(&sql::REMOVE_SESSION, &[&session, &removing]).await? {
            let (name, principal): (Vec<u8>, Option<Vec<u8>>) = (row.try_get(0)?, row.try_get(1)?);
            let name = String::from_utf8_lossy(&name);
            let principal = principal.as_deref().map(String::from_utf8_lossy);
            let key = gone_hash(&self.secret, &name);
            let value = gone_value(&self.secret, &name, principal.as_deref());
            if !windlass_core::mutant::breaks("name-reused") {
                self.link.execute(&sql::INSERT_GONE, &[&&key.as_bytes()[..], &&value[..]]).await?;
            }
        }
        Ok(())
    }

    /// Inserts the row by which the group is found.
    async fn mark(&self, mark: GroupMark) -> Result<u64, Error> {
        self.link.execute(&sql::INSERT_GROUP, &[&&mark.writer[..], &mark.group]).await
    }

    async fn insert_versions(&self, writes: &GroupWrites<'_>) -> Result<(), Error> {
        let seats: Vec<_> = writes.seats.iter().collect();
        let session = column(&seats, |(no, _)| **no);
        let version = column(&seats, |(_, seat)| int(seat.last.version));
        let fence = column(&seats, |(_, seat)| int(seat.last.fence));
        let head = column(&seats, |(_, seat)| int(seat.last.head));
        let chain = column(&seats, |(_, seat)| &seat.last.chain[..]);
        let generation = column(&seats, |(_, seat)| int(seat.last.generation));
        let taken = column(&seats, |(_, seat)| seat.write == SessionWrite::Taken);
        let columns: [Param<'_>; 7] = [&session, &version, &fence, &head, &chain, &generation, &taken];
        self.execute(&sql::INSERT_VERSIONS, session.len(), &columns).await?;
        let many: Vec<_> = seats.iter().filter(|(_, seat)| seat.last.version % VERSIONS_KEPT == 0).collect();
        let (session, version) =
            (column(&many, |(no, _)| **no), column(&many, |(_, seat)| int(seat.last.version)));
        self.execute(&sql::FORGET_VERSIONS, session.len(), &[&session, &version]).await?;
        Ok(())
    }

    async fn insert_sessions(&self, writes: &GroupWrites<'_>) -> Result<u64, Error> {
        let mut opened = Vec::new();
        for (no, seat) in &writes.seats {
            if let SessionWrite::New { name, principal } = seat.write {
                opened.push((*no, name.as_bytes(), super::judge::digest(name.as_bytes()), principal));
            }
        }
        let no = column(&opened, |(no, ..)| *no);
        let name = column(&opened, |(_, name, ..)| *name);
        let key = column(&opened, |(_, _, key, _)| &key[..]);
        let principal = column(&opened, |(.., principal)| principal.map(str::as_bytes));
        self.execute(&sql::INSERT_SESSIONS, no.len(), &[&no, &name, &key, &principal]).await
    }

    /// Batches, and which of them are open.
    async fn batches(&self, writes: &GroupWrites<'_>) -> Result<(), Error> {
        let no = column(&writes.batches, |batch| batch.0);
        let session = column(&writes.batches, |batch| batch.1);
        let lookup = column(&writes.batches, |batch| &batch.2.0[..]);
        self.execute(&sql::INSERT_BATCHES, no.len(), &[&no, &session, &lookup]).await?;
        for (statement, wanted) in [(&sql::INSERT_OPEN, true), (&sql::DELETE_OPEN, false)] {
            let batches = writes.open.iter().filter(|(_, open)| **open == wanted);
            let (session, no): (Vec<i64>, Vec<i64>) = batches.map(|(key, _)| *key).unzip();
            self.execute(statement, no.len(), &[&session, &no]).await?;
        }
        Ok(())
    }

    async fn journal(&self, rows: &[Entries<'_>]) -> Result<(), Error> {
        for rows in parts(rows, |row| row.data.len()) {
            let key = column(rows, |row| row.key);
            let session = column(rows, |row| row.session);
            let first = column(rows, |row| row.first);
            let count = column(rows, |row| row.count);
            let before = column(rows, |row| &row.before[..]);
            let link = column(rows, |row| &row.link[..]);
            let data = column(rows, |row| row.data);
            let columns: [Param<'_>; 7] = [&key, &session, &first, &count, &before, &link, &data];
            self.link.execute(&sql::INSERT_JOURNAL, &columns).await?;
        }
        Ok(())
    }

    /// Cuts come first: pieces written after a cut stay.
    async fn pieces(&self, writes: &GroupWrites<'_>) -> Result<(), Error> {
        let (first, last) = (column(&writes.cuts, |cut| cut.0), column(&writes.cuts, |cut| cut.1));
        self.execute(&sql::CUT, first.len(), &[&first, &last]).await?;
        for pieces in parts(&writes.pieces, |piece| piece.2.len()) {
            let key = column(pieces, |piece| piece.0);
            let digest = column(pieces, |piece| &piece.1[..]);
            let data = column(pieces, |piece| piece.2);
            self.link.execute(&sql::INSERT_CHUNKS, &[&key, &digest, &data]).await?;
        }
        Ok(())
    }

    async fn set_marks(&self, writes: &GroupWrites<'_>) -> Result<u64, Error> {
        let marks: Vec<_> = writes.marks.iter().collect();
        let mark = column(&marks, |(mark, _)| &mark.0[..]);
        let session = column(&marks, |(_, at)| at.0);
        let call = column(&marks, |(_, at)| at.1);
        self.execute(&sql::SET_MARKS, mark.len(), &[&mark, &session, &call]).await
    }

    async fn records(&self, writes: &GroupWrites<'_>) -> Result<(), Error> {
        let put: Vec<_> = writes.records.iter().filter_map(|(at, put)| Some((at, put.as_ref()?))).collect();
        for put in parts(&put, |(_, (_, value))| value.len()) {
            let space = column(put, |(at, _)| at.0.number());
            let owner = column(put, |(at, _)| at.0.home().0.cast_signed());
            let key = column(put, |(at, _)| &at.1[..]);
            let generation = column(put, |(_, (generation, _))| generation.cast_signed());
            let digests: Vec<ChainLink> = column(put, |(_, (_, value))| super::judge::digest(value));
            let digest = column(&digests, |digest| &digest[..]);
            let value = column(put, |(_, (_, value))| *value);
            let columns: [Param<'_>; 6] = [&space, &owner, &key, &generation, &digest, &value];
            self.link.execute(&sql::PUT_RECORDS, &columns).await?;
        }
        let gone: Vec<_> = writes.records.iter().filter(|(_, put)| put.is_none()).collect();
        let space = column(&gone, |(at, _)| at.0.number());
        let owner = column(&gone, |(at, _)| at.0.home().0.cast_signed());
        let key = column(&gone, |(at, _)| &at.1[..]);
        self.execute(&sql::REMOVE_RECORDS, gone.len(), &[&space, &owner, &key]).await?;
        Ok(())
    }

    /// New messages, and then the number of adopted ones: a message may be sent and adopted in the same group.
    async fn messages(&self, writes: &GroupWrites<'_>) -> Result<u64, Error> {
        for messages in parts(&writes.messages, |message| message.2.body.len()) {
            let session = column(messages, |message| message.2.session.0.cast_signed());
            let key = column(messages, |message| message.2.key.as_bytes());
            let key_hash = column(messages, |message| &message.0[..]);
            let digest = column(messages, |message| &message.1[..]);
            let body = column(messages, |message| &message.2.body[..]);
            let columns: [Param<'_>; 5] = [&session, &key, &key_hash, &digest, &body];
            self.link.execute(&sql::INSERT_MESSAGES, &columns).await?;
        }
        let (session, key) =
            (column(&writes.adopted, |key| key.0), column(&writes.adopted, |key| &key.1[..]));
        self.execute(&sql::ADOPT, key.len(), &[&session, &key]).await
    }

    /// Executes a statement, unless there are no rows.
    async fn execute(
        &self,
        statement: &TypedStatement,
        rows: usize,
        columns: &[Param<'_>],
    ) -> Result<u64, Error> {
        if rows == 0 { Ok(0) } else { self.link.execute(statement, columns).await }
    }
}

/// Runs a query, unless there are no keys.
async fn query<const N: usize>(
    link: &DatabaseLink,
    statement: &TypedStatement,
    asked: usize,
    params: [Param<'_>; N],
) -> Result<Vec<tokio_postgres::Row>, Error> {
    if asked == 0 { Ok(Vec::new()) } else { link.query(statement, &params).await }
}

/// One column of many rows, as a PostgreSQL array.
pub(super) fn column<'a, R, T>(rows: &'a [R], of: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Splits rows into parts that fit one statement.
fn parts<T>(mut rows: &[T], bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut carried = 0;
        let fits = rows.iter().take_while(|row| {
            carried += bytes(row);
            carried <= STATEMENT_BYTES_MAX
        });
        let (part, rest) = rows.split_at(fits.count().max(1).min(rows.len()));
        rows = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// The queried records, by columns.
struct Shelves<'a> {
    spaces: Vec<i64>,
    owners: Vec<i64>,
    keys: Vec<&'a [u8]>,
    counted_spaces: Vec<i64>,
    counted_owners: Vec<i64>,
    asked: &'a JudgeQuestions,
    puts: i64,
}

impl<'a> Shelves<'a> {
    fn of(asked: &'a JudgeQuestions) -> Shelves<'a> {
        let places: Vec<_> = asked.records.iter().collect();
        let counts: Vec<_> = asked.counts.iter().collect();
        Shelves {
            spaces: column(&places, |place| place.0.number()),
            owners: column(&places, |place| place.0.home().0.cast_signed()),
            keys: column(&places, |place| &place.1[..]),
            counted_spaces: column(&counts, |shelf| shelf.number()),
            counted_owners: column(&counts, |shelf| shelf.home().0.cast_signed()),
            asked,
            puts: asked.puts,
        }
    }

    /// Generations, counts, and generations for records of the whole store.
    async fn ask(&self, link: &DatabaseLink) -> Result<RecordGenerations, Error> {
        let (counted, puts) = (self.counted_spaces.len(), self.puts as usize);
        let (found, counts, drawn) = tokio::try_join!(
            biased;
            query(link, &sql::RECORDS, self.keys.len(), [&self.spaces, &self.owners, &self.keys]),
            query(link, &sql::COUNTS, counted, [&self.counted_spaces, &self.counted_owners]),
            query(link, &sql::GENERATIONS, puts, [&self.puts]),
        )?;
        let mut records = HashMap::new();
        let mut counted: HashMap<Shelf, u64> = self.asked.counts.iter().map(|shelf| (*shelf, 0)).collect();
        for row in found {
            let shelf = Shelf::read(row.try_get(0)?, SessionNo(uint(row.try_get(1)?)));
            records.insert((shelf, row.try_get(2)?), uint(row.try_get(3)?));
        }
        for row in counts {
            let shelf = Shelf::read(row.try_get(0)?, SessionNo(uint(row.try_get(1)?)));
            counted.insert(shelf, uint(row.try_get(2)?));
        }
        let generations = drawn.iter().map(|row| Ok(uint(row.try_get(0)?))).collect::<Result<_, Error>>()?;
        Ok((records, counted, generations))
    }
}

/// The generation of each record, how many there are, and generations for records of the whole store.
type RecordGenerations = (HashMap<RecordPlace, u64>, HashMap<Shelf, u64>, VecDeque<u64>);

/// Keys by the query that looks for them.
#[derive(Default)]
struct KeyQuestions<'a> {
    names: Vec<&'a [u8]>,
    gone: Vec<&'a [u8]>,
    lookups: Vec<&'a [u8]>,
    batches: Vec<i64>,
    rows: Vec<i64>,
    pieces: Vec<i64>,
}

impl<'a> KeyQuestions<'a> {
    fn add(&mut self, key: &'a Key) {
        match key {
            Key::Name(name) => self.names.push(name),
            Key::Gone(name) => self.gone.push(name),
            Key::Lookup(lookup) => self.lookups.push(&lookup.0),
            Key::Batch(no) => self.batches.push(*no),
            Key::Row(row) => self.rows.push(*row),
            Key::Piece(piece) => self.pieces.push(*piece),
        }
    }
}

/// Bytes as an array. If their number differs they are damaged, and match nothing.
pub(super) fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0xff; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_they_may_be() {
        let sizes = |rows: &[usize]| parts(rows, |row| *row).map(<[usize]>::len).collect::<Vec<_>>();
        let max = STATEMENT_BYTES_MAX;
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1, 2, 3]), [3]);
        assert_eq!(sizes(&[max, 1, max - 1, 1]), [1, 2, 1]);
        assert_eq!(sizes(&[max + 1, max + 1]), [1, 1]);
    }
}
