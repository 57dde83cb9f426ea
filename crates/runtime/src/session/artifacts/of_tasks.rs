//! The log and the result of a task as artifacts: their handles follow from the task, and their bytes are made when they are read.

use super::look;
use crate::api::data_error::ArtifactError;
use crate::api::error::{SessionError, chain};
use crate::api::journal::find_id;
use crate::session::log::{LogPage, LogPiece, Stream};
use windlass_core::call::Call;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::outcome::{Outcome, Part, Value};
use windlass_store::Store;

/// The handle of a task's log.
pub(crate) fn log_of(secret: &Secret, task: CallId) -> Handle {
    Handle::seal(secret, HandleKind::TaskLog, task.packed())
}

/// The handle of a task's result.
pub(crate) fn result_of(secret: &Secret, task: CallId) -> Handle {
    Handle::seal(secret, HandleKind::TaskResult, task.packed())
}

/// The log or the result of a task, as far as there is one.
pub(super) struct TaskArtifact {
    pub(super) session: SessionNo,
    pub(super) name: String,
    pub(super) text: TaskText,
    /// Whether the task is open.
    pub(super) is_growing: bool,
}

/// Its bytes.
pub(super) enum TaskText {
    /// In memory: a log is bounded, and so is a value in a journal.
    Made(String),
    /// The value of a long result, which is an artifact of its own.
    Kept(Handle),
}

impl TaskArtifact {
    /// The log or the result that a handle names. `None`: it names neither, or there is no such task.
    pub(super) async fn find(
        store: &dyn Store,
        artifact: Handle,
    ) -> Result<Option<TaskArtifact>, ArtifactError> {
        let secret = store.secret();
        let log = artifact.open(secret, HandleKind::TaskLog);
        let Some(number) = log.or_else(|| artifact.open(secret, HandleKind::TaskResult)) else {
            return Ok(None);
        };
        let (id, is_log) = (CallId::unpacked(number), log.is_some());
        let unknown = |error| unreadable(artifact, error);
        let found = find_id(store, id).await.map_err(unknown)?;
        let Some((session, call, _)) = found.filter(|(_, call, _)| call.task.is_some()) else {
            return Ok(None);
        };
        let text = match is_log {
            true => TaskText::Made(log_text(store, session.no, id).await.map_err(unknown)?),
            false => result_text(&call),
        };
        let is_growing = call.end().is_none();
        Ok(Some(TaskArtifact { session: session.no, name: session.name, text, is_growing }))
    }

    /// How many bytes there are, and of which type.
    pub(super) async fn size(&self, store: &dyn Store) -> Result<Option<(u64, &'static str)>, ArtifactError> {
        match &self.text {
            TaskText::Made(text) => Ok(Some((text.len() as u64, TEXT))),
            TaskText::Kept(kept) => {
                let Some(id) = look::open(store.secret(), *kept) else { return Ok(None) };
                Ok(store.blob_size(id.blob).await?.map(|size| (size.bytes, TEXT)))
            }
        }
    }

    /// At most `len` bytes from `offset`; none past the end.
    pub(super) async fn read(
        &self,
        store: &dyn Store,
        offset: u64,
        len: u64,
    ) -> Result<Option<Vec<u8>>, ArtifactError> {
        match &self.text {
            TaskText::Made(text) => {
                let end = offset.saturating_add(len).min(text.len() as u64);
                let bytes = text.as_bytes().get(offset.min(end) as usize..end as usize);
                Ok(Some(bytes.unwrap_or_default().to_vec()))
            }
            TaskText::Kept(kept) => match look::open(store.secret(), *kept) {
                Some(id) => Ok(store.blob(id.blob, offset, len).await?),
                None => Ok(None),
            },
        }
    }
}

/// The media type of both.
const TEXT: &str = "text/plain; charset=utf-8";

/// The result of a task: its value as the model would get it, uncut; without one, the sentence about its end. Empty while it runs.
fn result_text(call: &Call) -> TaskText {
    let Some(end) = call.end() else { return TaskText::Made(String::new()) };
    if let Some(Outcome::Succeeded(success)) = call.outcome() {
        return match &success.value {
            Value::Kept { kept, .. } => TaskText::Kept(kept.artifact),
            Value::Inline(json) => {
                // A string is read as itself.
                TaskText::Made(serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_string()))
            }
        };
    }
    let texts = end.model().parts.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Json(json) => Some(json.to_string()),
        Part::Image { .. } | Part::KeptImage { .. } | Part::File { .. } => None,
    });
    TaskText::Made(texts.collect::<Vec<_>>().join("\n"))
}

/// The whole log: each line names its stream, and a line of our own stands where pieces were not retained.
async fn log_text(store: &dyn Store, session: SessionNo, call: CallId) -> Result<String, SessionError> {
    let mut log = LogText::default();
    loop {
        let page = LogPage { session, call, after: log.last, limit: u64::MAX };
        let pieces = page.pieces(store).await?;
        if pieces.is_empty() {
            return Ok(log.text);
        }
        pieces.iter().for_each(|piece| log.add(piece));
    }
}

/// A log that is put together.
#[derive(Default)]
struct LogText {
    text: String,
    /// The number of the last piece.
    last: Option<u64>,
    stream: Option<Stream>,
}

impl LogText {
    fn add(&mut self, piece: &LogPiece) {
        let missing = piece.no.saturating_sub(self.last.unwrap_or(0) + 1);
        if missing > 0 {
            self.say(Stream::Windlass, &format!("{missing} pieces of the log are not kept\n"));
        }
        self.say(piece.stream, &piece.text);
        self.last = Some(piece.no);
    }

    fn say(&mut self, stream: Stream, text: &str) {
        if self.stream != Some(stream) && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.stream = Some(stream);
        for line in text.split_inclusive('\n') {
            // A piece may end, and the next begin, in the middle of a line.
            if self.text.is_empty() || self.text.ends_with('\n') {
                self.text.push_str(stream.as_str());
                self.text.push_str(": ");
            }
            self.text.push_str(line);
        }
    }
}

fn unreadable(artifact: Handle, error: SessionError) -> ArtifactError {
    match error {
        SessionError::Lost(lost) => ArtifactError::Lost(lost),
        error @ (SessionError::Shape { .. }
        | SessionError::NotFound { .. }
        | SessionError::Closed { .. }
        | SessionError::Gone { .. }
        | SessionError::Expired { .. }
        | SessionError::Owned { .. }
        | SessionError::Unreadable { .. }) => {
            tracing::warn!(error = chain(&error), "an artifact of a task cannot be read");
            ArtifactError::Unknown { artifact }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::Timestamp;

    #[test]
    fn lines_name_their_stream_and_gaps_are_told() {
        let mut log = LogText::default();
        let pieces = [
            (1, Stream::Out, "one\ntw"),
            (2, Stream::Out, "o"),
            (3, Stream::Err, "bad\n"),
            (7, Stream::Out, "three\n"),
        ];
        for (no, stream, text) in pieces {
            log.add(&LogPiece { no, at: Timestamp(0), stream, text: text.into() });
        }
        let whole = "out: one\nout: two\nerr: bad\nwindlass: 3 pieces of the log are not kept\nout: three\n";
        assert_eq!(log.text, whole);
    }
}
