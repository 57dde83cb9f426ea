//! Requests to a worker, as a client makes them that knows nothing of Windlass: one connection each.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time to connect: on this machine a listener takes a connection at once.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// One request; an error if the worker is away, or dies before it has answered.
pub fn ask(
    worker: SocketAddr,
    token: &str,
    request: &str,
    body: Option<&Value>,
    within: Duration,
) -> io::Result<(u16, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect_timeout(&worker, CONNECT_MAX)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let head = format!(
        "{request} HTTP/1.1\r\nhost: {worker}\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    read(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off"))
}

/// Status and body of an answer; `None` if it is not whole.
fn read(answer: &[u8]) -> Option<(u16, Value)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = header(head, "content-length").and_then(|length| length.parse::<usize>().ok())?;
    if body.len() < length {
        return None;
    }
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).ok()? };
    Some((status, body))
}

/// The value of a header.
pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut named = fields.filter(|(known, _)| known.trim().eq_ignore_ascii_case(name));
    named.next().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_counts_only_if_it_is_whole() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(read(whole), Some((200, json!({"a": 1}))));
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), None, "{cut}");
        }
        let empty = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(read(empty), Some((204, Value::Null)));
    }
}
