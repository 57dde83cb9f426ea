//! The log on standard error: `tracing` events of the runtime, and messages of the command to people.
//!
//! Servers log from `info` on, other commands warnings and errors; `WINDLASS_LOG` and `--log-level` change that. A separate thread writes
//! the lines: a slow or absent reader must not hold up calls. Lines that do not fit are dropped, counted and reported.

use crate::args::{Command, LogFormat, Logging};
use crate::exit::Usage;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use windlass_core::visible;

/// The environment variable that sets the log level.
const VARIABLE: &str = "WINDLASS_LOG";
/// Capacity of the queue of lines: a burst of errors fits, and a dead reader costs little memory.
const LINES_MAX: usize = 1_024;
/// How long the command waits at its end for pending lines.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// The log of this process, once started.
static LOG: OnceLock<ProcessLog> = OnceLock::new();

struct ProcessLog {
    format: LogFormat,
    lines: SyncSender<LogMessage>,
    /// Lines dropped for lack of space.
    dropped: AtomicU64,
}

enum LogMessage {
    Line(Vec<u8>),
    /// Acknowledged once all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Prints a message to people on a line of its own; a JSON log gets an entry instead.
macro_rules! tell {
    ($($said:tt)*) => { $crate::logs::say(format_args!($($said)*)) };
}
pub(crate) use tell;

/// Starts the log with the command's options.
pub fn start(command: &Command) -> Result<(), Usage> {
    let logging = if let Command::Serve(args) = command {
        Some(&args.logging)
    } else if let Command::Dev(args) = command {
        Some(&args.logging)
    } else {
        None
    };
    let filter = filter(logging)?;
    let format = logging.map_or(LogFormat::Text, |logging| logging.log);
    let (lines, written) = sync_channel(LINES_MAX);
    let writing = std::thread::Builder::new().name("log".to_string()).spawn(move || write(&written));
    writing.map_err(|error| Usage(format!("the thread of the log could not be started: {error}")))?;
    if LOG.set(ProcessLog { format, lines, dropped: AtomicU64::new(0) }).is_err() {
        return Ok(());
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Escaped);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Waits until all pending lines are written, at most [`FLUSH_WAIT`].
pub fn flush() {
    let Some(log) = LOG.get() else { return };
    let (done, written) = sync_channel(1);
    // A full queue means that the reader is gone: do not wait.
    if log.lines.try_send(LogMessage::Flush(done)).is_ok() {
        let _ = written.recv_timeout(FLUSH_WAIT);
    }
}

/// Prints a message to people.
pub fn say(said: fmt::Arguments<'_>) {
    match LOG.get() {
        Some(ProcessLog { format: LogFormat::Json, .. }) => tracing::info!(target: "windlass", "{said}"),
        // Not a log entry, so no level hides it. Written after all earlier entries.
        Some(_) | None => {
            flush();
            let said = said.to_string();
            let lines: Vec<String> = said.split('\n').map(visible::line).collect();
            // A reader that has gone away is no reason to stop, and there is nobody to report it to.
            let _ = writeln!(io::stderr().lock(), "windlass: {}", lines.join("\n"));
        }
    }
}

fn filter(logging: Option<&Logging>) -> Result<EnvFilter, Usage> {
    let usual = if logging.is_some() { "info" } else { "warn" };
    let asked = logging.and_then(|logging| logging.log_level.clone());
    let (what, wanted) = match (asked, std::env::var(VARIABLE)) {
        (Some(asked), _) => ("--log-level", asked),
        (None, Ok(wanted)) if !wanted.trim().is_empty() => (VARIABLE, wanted),
        (None, _) => ("", usual.to_string()),
    };
    EnvFilter::try_new(&wanted).map_err(|error| {
        Usage(format!(
            "{what} takes off, error, warn, info, debug, trace, or filters like info,windlass_server=debug; {wanted:?} is not \
             one: {error}"
        ))
    })
}

fn write(lines: &Receiver<LogMessage>) {
    while let Ok(message) = lines.recv() {
        match message {
            // If standard error is closed, nobody reads the log.
            LogMessage::Line(line) => drop(io::stderr().lock().write_all(&line)),
            LogMessage::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Writes each entry as one line: text from tools and from outside must neither add lines to a log nor hide parts of it.
struct Escaped;

impl<'a> MakeWriter<'a> for Escaped {
    type Writer = Escaped;

    fn make_writer(&'a self) -> Escaped {
        Escaped
    }
}

impl Write for Escaped {
    /// Writes one entry.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let Some(log) = LOG.get() else { return Ok(entry.len()) };
        let line = escaped(&String::from_utf8_lossy(entry), log.format);
        let dropped = log.dropped.swap(0, Ordering::Relaxed);
        let line = match dropped {
            0 => line,
            _ => format!("{}{line}", gap(dropped, log.format)),
        };
        if let Err(TrySendError::Full(_)) = log.lines.try_send(LogMessage::Line(line.into_bytes())) {
            log.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line that reports dropped entries.
fn gap(dropped: u64, format: LogFormat) -> String {
    match format {
        LogFormat::Text => {
            format!("windlass: {dropped} entries of the log were dropped: nobody read them in time\n")
        }
        LogFormat::Json => format!(
            "{{\"level\":\"WARN\",\"message\":\"entries of the log were dropped\",\"dropped\":{dropped}}}\n"
        ),
    }
}

/// An entry as one line, without control characters and marks that change the text direction.
fn escaped(entry: &str, format: LogFormat) -> String {
    let entry = entry.trim_end_matches('\n');
    let mut line = String::with_capacity(entry.len() + 1);
    for letter in entry.chars() {
        match (visible::is_hidden(letter), format) {
            (false, _) => line.push(letter),
            (true, LogFormat::Text) => line.extend(letter.escape_default()),
            // In JSON these are inside strings, where the escape means the same character.
            (true, LogFormat::Json) => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    line.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_line_whatever_it_says() {
        let said = "a\nINFO forged\r\u{1b}[31mred\u{9b}\u{202e}txt\u{2066}\u{7f}ü\n";
        let text = escaped(said, LogFormat::Text);
        assert_eq!(text, "a\\nINFO forged\\r\\u{1b}[31mred\\u{9b}\\u{202e}txt\\u{2066}\\u{7f}ü\n");
        let json = escaped("{\"a\":\"\u{202e}\u{7f}\u{85}ü\u{e0041}\"}\n", LogFormat::Json);
        assert_eq!(json, "{\"a\":\"\\u202e\\u007f\\u0085ü\\udb40\\udc41\"}\n");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "\u{202e}\u{7f}\u{85}ü\u{e0041}");
    }
}
