//! The client's end of an event stream: server-sent events, parsed piece by piece.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// Longer than any line of ours.
const LINE_BYTES_MAX: usize = 1 << 20;

/// An event stream from a server.
pub struct Following {
    body: Incoming,
    reader: FollowReader,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowedNews {
    /// Its cursor, if it has one.
    pub cursor: Option<u64>,
    /// Its kind: `progress`, `problem`, or a kind of event.
    pub kind: String,
    /// Its data.
    pub data: Value,
}

/// The stream is not one of ours.
#[derive(Debug, thiserror::Error)]
#[error("the event stream is invalid: {what}; is it another version?")]
pub struct Garbled {
    what: String,
}

impl Following {
    pub(crate) fn new(body: Incoming) -> Following {
        Following { body, reader: FollowReader::default() }
    }

    /// Waits for the next event. `None`: the connection ended; a new one continues after the last cursor.
    pub async fn next(&mut self) -> Result<Option<FollowedNews>, Garbled> {
        loop {
            if let Some(told) = self.reader.next()? {
                return Ok(Some(told));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.reader.bytes.extend_from_slice(bytes);
                    }
                }
                // However it ended: an incomplete event is sent again.
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    /// The position at which a new connection continues.
    pub fn cursor(&self) -> Option<u64> {
        self.reader.last
    }
}

#[derive(Default)]
struct FollowReader {
    bytes: Vec<u8>,
    /// The number of bytes parsed.
    read: usize,
    event: FollowedNews,
    data: String,
    /// The last cursor of a complete event.
    last: Option<u64>,
}

impl FollowReader {
    /// The next complete event in the buffer.
    fn next(&mut self) -> Result<Option<FollowedNews>, Garbled> {
        let garbled = |what: &str| Garbled { what: what.to_string() };
        while let Some(length) = self.bytes[self.read..].iter().position(|byte| *byte == b'\n') {
            let line = self.bytes[self.read..self.read + length].to_vec();
            self.read += length + 1;
            let line = String::from_utf8(line).map_err(|_| garbled("it is no text"))?;
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if !line.is_empty() => {}
                "" => {
                    if let Some(told) = self.whole()? {
                        return Ok(Some(told));
                    }
                }
                "id" => {
                    let cursor = value.parse().map_err(|_| garbled("an id is no number"))?;
                    self.event.cursor = Some(cursor);
                }
                "event" => self.event.kind = value.to_string(),
                "data" => self.data.push_str(value),
                _ => {}
            }
        }
        self.bytes.drain(..std::mem::take(&mut self.read));
        if self.bytes.len() > LINE_BYTES_MAX {
            return Err(garbled("a line does not end"));
        }
        Ok(None)
    }

    fn whole(&mut self) -> Result<Option<FollowedNews>, Garbled> {
        let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        self.last = event.cursor.or(self.last);
        if data.is_empty() {
            return Ok(None);
        }
        let data = serde_json::from_str(&data).map_err(|error| Garbled { what: error.to_string() })?;
        Ok(Some(FollowedNews { data, ..event }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let sent = "id: 3\n\n:\n\nid: 4\nevent: opened\ndata: {\"a\": \"ü\"}\n\nevent: progress\ndata: 7\n\nid: 5\ndata: 8\n";
        for size in 1..sent.len() {
            let (mut reader, mut told) = (FollowReader::default(), Vec::new());
            for piece in sent.as_bytes().chunks(size) {
                reader.bytes.extend_from_slice(piece);
                while let Some(event) = reader.next().unwrap() {
                    told.push(event);
                }
            }
            let opened = FollowedNews { cursor: Some(4), kind: "opened".into(), data: json!({"a": "ü"}) };
            let progress = FollowedNews { cursor: None, kind: "progress".into(), data: json!(7) };
            assert_eq!(told, [opened, progress], "in pieces of {size}");
            assert_eq!(reader.last, Some(4), "what did not end does not count");
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_no_reason_to_grow() {
        let mut reader = FollowReader { bytes: vec![b'x'; LINE_BYTES_MAX + 1], ..FollowReader::default() };
        assert!(reader.next().is_err());
    }
}
