//! Removing a session in pieces.

use super::MemoryState;
use super::rows::MemoryRow;
use crate::change::Refused;
use crate::record::{blob_of, gone_key};
use crate::{PIECE_ROWS, Removal, Removed, Shelf, Space, gone_value};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, SessionNo};

impl MemoryState {
    /// Removes one piece.
    pub(super) fn remove(&mut self, secret: &Secret, piece: Removal) -> Result<Removed, Refused> {
        let session = piece.session;
        let Some(kept) = self.sessions.get(&session) else { return Ok(Removed::All) };
        if kept.fence != piece.fence {
            return Err(Refused::Fenced { now: kept.fence });
        }
        let most = usize::try_from(piece.most).unwrap_or(usize::MAX);
        let gone = match kept.last {
            Some(_) => self.cut(session, most),
            None => self.remove_rest(session, most),
        };
        if gone > 0 {
            return Ok(Removed::Piece);
        }
        // Nothing that is found by its session is left.
        self.marks.retain(|_, (of, _)| *of != session);
        for key in self.records.first(Space::Removing.of(session), usize::MAX) {
            self.records.remove(Space::Removing.of(session), key);
        }
        if let Some(kept) = self.sessions.remove(&session) {
            self.names.remove(&kept.name);
            if !windlass_core::mutant::breaks("name-reused") {
                let value = gone_value(secret, &kept.name, kept.principal.as_deref());
                self.records.put(Shelf::gone(), gone_key(secret, &kept.name), value.into());
            }
        }
        Ok(Removed::All)
    }

    /// Cuts rows off the end of a journal, each batch with its first row.
    fn cut(&mut self, session: SessionNo, most: usize) -> usize {
        let Some(kept) = self.sessions.get_mut(&session) else { return 0 };
        let mut gone = 0;
        while let Some(at) = kept.last.filter(|_| gone < most) {
            // The rows of expired batches are gone already.
            if let Some(first) = kept.run_before(kept.head + 1) {
                (kept.last, kept.head) = (kept.over_run(kept.head + 1).flatten(), first - 1);
                kept.runs.remove(&first);
                gone += 1;
                continue;
            }
            let MemoryRow { row, in_batch, in_session } = self.rows.take(at);
            (kept.head, kept.last) = (row.first.0 - 1, in_session);
            kept.posts.cut(row.first);
            gone += 1;
            if row.row > 0 {
                // The last row of a session is also the last of its batch.
                self.batches.entry(row.batch).and_modify(|batch| batch.last = in_batch);
            } else if let Some(recorded) = self.batches.remove(&row.batch).and_then(|batch| batch.recorded) {
                self.lookups.remove(&recorded.lookup);
                self.open.remove(&(session, recorded.no));
            }
        }
        gone
    }

    /// Removes everything of a session but its journal.
    fn remove_rest(&mut self, session: SessionNo, most: usize) -> usize {
        let range = (session, BatchNo(0))..=(session, BatchNo(u64::MAX));
        let open: Vec<_> = self.open.range(range).copied().take(most).collect();
        open.iter().for_each(|open| _ = self.open.remove(open));
        let of_session = |(of, _): &&(SessionNo, String)| *of == session;
        let from = (session, String::new());
        let messages: Vec<_> = self
            .messages
            .range(from..)
            .map(|(key, _)| key)
            .take_while(of_session)
            .take(most)
            .cloned()
            .collect();
        for key in &messages {
            if let Some(message) = self.messages.remove(key) {
                self.waiting.remove(&(session, message.sent));
            }
        }
        let of_expired = self.expired.values().filter(|batch| batch.session == session);
        let expired: Vec<_> = of_expired.map(|batch| (batch.no, batch.lookup)).take(most).collect();
        for (no, lookup) in &expired {
            self.expired.remove(no);
            self.lookups.remove(lookup);
        }
        let mut gone = open.len() + messages.len() + expired.len();
        for space in Space::REMOVED {
            if gone == 0 {
                gone = self.remove_records(session, space, most);
            }
        }
        gone
    }

    /// Removes records of one space; blobs one at a time, piece by piece, and the record with the last.
    fn remove_records(&mut self, session: SessionNo, space: Space, most: usize) -> usize {
        let keys = self.records.first(space.of(session), if space == Space::Blob { 1 } else { most });
        let gone = keys.len();
        for key in keys {
            if let Some(blob) = blob_of(&key).filter(|_| space == Space::Blob) {
                let pieces = (most / PIECE_ROWS as usize).max(1);
                let range = (blob, 0)..(BlobNo(blob.0 + 1), 0);
                let first: Vec<_> = self.pieces.range(range).map(|(key, _)| *key).take(pieces).collect();
                first.iter().for_each(|piece| _ = self.pieces.remove(piece));
                if first.len() == pieces {
                    return pieces;
                }
                self.blobs.remove(&blob);
            }
            self.records.remove(space.of(session), key);
        }
        gone
    }
}
