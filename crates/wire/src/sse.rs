//! Server-sent events, as far as providers use them: the data of each event, in order.

/// Takes a stream of server-sent events apart.
#[derive(Debug)]
pub struct SseReader {
    /// Bytes of the line that has not ended.
    line: Vec<u8>,
    /// Data of the event that has not ended.
    data: Vec<u8>,
    has_data: bool,
    after_return: bool,
    event_bytes_max: usize,
}

/// A stream that is no stream of events, or one with an event that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// An event is larger than it may be.
    #[error("an event of the stream is larger than {0} bytes")]
    TooLarge(usize),
    /// An event is no text.
    #[error("an event of the stream is not UTF-8")]
    NotText,
}

impl SseReader {
    /// A reader that keeps at most this much of one event.
    pub fn new(event_bytes_max: usize) -> SseReader {
        SseReader {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_return: false,
            event_bytes_max,
        }
    }

    /// Takes the next bytes, wherever they were cut, and returns the data of every event that ended in them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, SseError> {
        let mut events = Vec::new();
        for &byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    events.extend(self.end_line()?);
                }
                byte => {
                    if self.line.len() + self.data.len() >= self.event_bytes_max {
                        return Err(SseError::TooLarge(self.event_bytes_max));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<String>, SseError> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event();
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            // Comments, names and ids of events: providers repeat in the data whatever matters.
            Some(_) | None => return Ok(None),
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        Ok(None)
    }

    fn end_event(&mut self) -> Result<Option<String>, SseError> {
        if !std::mem::take(&mut self.has_data) {
            return Ok(None);
        }
        String::from_utf8(std::mem::take(&mut self.data)).map(Some).map_err(|_| SseError::NotText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(stream: &[u8], cuts: &[usize]) -> Vec<String> {
        let mut reader = SseReader::new(1_000);
        let mut events = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().map(|cut| cut % (stream.len() + 1)).chain([stream.len()]) {
            let to = cut.max(from);
            events.extend(reader.push(&stream[from..to]).unwrap());
            from = to;
        }
        events
    }

    proptest! {
        #[test]
        fn events_are_the_same_wherever_the_bytes_are_cut(cuts in proptest::collection::vec(0_usize..200, 0..8)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let stream = "event: a\r\ndata: {\"x\":\r\ndata: 1}\r\n\r\n: ping\n\ndata:ü\n\ndata\r\rdata: cut off".as_bytes();
            prop_assert_eq!(read(stream, &cuts), ["{\"x\":\n1}", "ü", ""]);
        }
    }

    #[test]
    fn an_event_that_is_too_large_is_refused() {
        let mut reader = SseReader::new(10);
        assert_eq!(reader.push(b"data: 0123456789"), Err(SseError::TooLarge(10)));
        let mut reader = SseReader::new(10);
        assert_eq!(
            reader.push(b"data: 1\ndata: 2\ndata: 3\ndata: 4\ndata: 5\n"),
            Err(SseError::TooLarge(10))
        );
    }
}
