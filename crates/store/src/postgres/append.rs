//! The short way of a group: one statement, which appends entries and batches behind the versions that the lane knows. One round
//! trip, no lock, and nothing is updated.
//!
//! Nothing is asked before: if a version, a batch or a row is there already, the statement fails as a whole, and the group is
//! judged the long way, from what is recorded. Only there a change is refused.

use super::connection::Param;
use super::doubt::GroupMark;
use super::group::{GroupFault, GroupOutcome, JudgedGroup, STATEMENT_BYTES_MAX, Writing, column};
use super::judge::{GroupWrites, JudgeAnswers, JudgedSession, SessionWrite, judge};
use super::statements as sql;
use super::states::SqlMeaning;
use super::version::{KnownVersions, VERSIONS_KEPT};
use crate::chain::int;
use crate::change::{Change, Hold, Row, SessionChange};
use crate::queue::{WriteOutcome, WriteRequest};
use std::collections::BTreeMap;
use windlass_core::handle::Secret;

/// A group that can be appended.
pub(super) struct PlainGroup<'g> {
    told: Vec<WriteOutcome>,
    writes: GroupWrites<'g>,
}

impl<'g> PlainGroup<'g> {
    /// The group, if all of it is entries and batches of sessions whose last versions are known under the fences of the changes.
    pub fn of(
        group: &'g [WriteRequest],
        versions: &KnownVersions,
        secret: &'g Secret,
    ) -> Option<PlainGroup<'g>> {
        let (mut seats, mut bytes) = (BTreeMap::new(), 0);
        for request in group {
            let WriteRequest::Commit { changes, .. } = request else { return None };
            for change in changes {
                let Change::Session(change) = change else { return None };
                bytes += plain_bytes(change)?;
                let (session, Hold::Held(fence)) = (int(change.session.0), &change.hold) else { return None };
                let last = versions.get(session).filter(|last| last.fence == fence.0)?;
                // Old versions are deleted under the lock of the session.
                if (last.version + 1) % VERSIONS_KEPT == 0 {
                    return None;
                }
                seats.insert(session, JudgedSession { last, write: SessionWrite::Nothing });
            }
        }
        if seats.is_empty() || bytes > STATEMENT_BYTES_MAX {
            return None;
        }
        let (told, writes) = judge(group, JudgeAnswers { seats, ..JudgeAnswers::default() }, secret);
        told.iter().all(is_accepted).then_some(PlainGroup { told, writes })
    }
}

/// The bytes of a change that writes entries and batches only, without conditions.
fn plain_bytes(change: &SessionChange) -> Option<usize> {
    // A change without rows writes nothing, so no key would refuse it.
    if !change.guards.is_empty() || change.rows.is_empty() {
        return None;
    }
    change.rows.iter().try_fold(0, |bytes, row| match row {
        Row::Journal { data, .. } => Some(bytes + data.len()),
        Row::Batch { .. } | Row::Close(_) | Row::Reopen(_) => Some(bytes),
        Row::Expire(_) | Row::Chunk { .. } | Row::Cut { .. } | Row::Adopt { .. } => None,
        Row::Mark { .. } | Row::Put { .. } | Row::Claim { .. } | Row::Remove { .. } => None,
    })
}

fn is_accepted(outcome: &WriteOutcome) -> bool {
    match outcome {
        WriteOutcome::Commit(answers) => answers.iter().all(Result::is_ok),
        WriteOutcome::Post(_) | WriteOutcome::Remove(_) | WriteOutcome::Shrink(_) | WriteOutcome::OwnFile => {
            false
        }
    }
}

impl Writing {
    /// Appends a group.
    pub async fn append(&self, group: PlainGroup<'_>, mark: GroupMark) -> Result<GroupOutcome, GroupFault> {
        let PlainGroup { told, writes } = group;
        let appended = self.unwarned(Box::pin(self.append_writes(&writes, mark))).await;
        let group = JudgedGroup { told, versions: writes.versions() };
        match appended {
            Ok(_) => Ok(GroupOutcome::Committed(group)),
            // Without an answer it may be on its way, and be committed later.
            Err(failure) if failure.meaning() == SqlMeaning::Lost => {
                Err(GroupFault::InDoubt { failure, group })
            }
            Err(failure) => Err(GroupFault::Undone(failure)),
        }
    }

    async fn append_writes(
        &self,
        writes: &GroupWrites<'_>,
        mark: GroupMark,
    ) -> Result<u64, tokio_postgres::Error> {
        let seats: Vec<_> = writes.seats.iter().collect();
        let (session, version) =
            (column(&seats, |(no, _)| **no), column(&seats, |(_, seat)| int(seat.last.version)));
        let fence = column(&seats, |(_, seat)| int(seat.last.fence));
        let head = column(&seats, |(_, seat)| int(seat.last.head));
        let chain = column(&seats, |(_, seat)| &seat.last.chain[..]);
        let generation = column(&seats, |(_, seat)| int(seat.last.generation));
        let rows = &writes.journal[..];
        let (row, row_session) = (column(rows, |row| row.key), column(rows, |row| row.session));
        let (first, count) = (column(rows, |row| row.first), column(rows, |row| row.count));
        let (before, link) = (column(rows, |row| &row.before[..]), column(rows, |row| &row.link[..]));
        let data = column(rows, |row| row.data);
        let batches = &writes.batches[..];
        let (batch, of) = (column(batches, |batch| batch.0), column(batches, |batch| batch.1));
        let lookup = column(batches, |batch| &batch.2.0[..]);
        let open = |wanted: bool| -> (Vec<i64>, Vec<i64>) {
            let found = writes.open.iter().filter(move |(_, open)| **open == wanted);
            found.map(|((session, no), _)| (*no, *session)).unzip()
        };
        let (opened, closed) = (open(true), open(false));
        let (writer, lock_ms) = (&mark.writer[..], self.times.lock_ms());
        let params: [Param<'_>; 23] = [
            &lock_ms,
            &writer,
            &mark.group,
            &session,
            &version,
            &fence,
            &head,
            &chain,
            &generation,
            &row,
            &row_session,
            &first,
            &count,
            &before,
            &link,
            &data,
            &batch,
            &of,
            &lookup,
            &opened.0,
            &opened.1,
            &closed.0,
            &closed.1,
        ];
        self.link.execute(&sql::APPEND, &params).await
    }
}
