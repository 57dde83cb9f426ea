//! A server that is a process of ours, on its pipes.
//!
//! It runs under the launcher, so nothing of it outlives this process. One task reads its lines and hands answers to whoever
//! waits for them; another writes. A line that is no message is skipped, one that is too long ends the server: what follows
//! could not be trusted to be the next message.

use super::changes::ServerChanges;
use super::wire::{
    ELICIT, LostRequest, ProgressSender, QuestionSender, SentRequest, ServerMessage, ServerQuestion,
    cancelled, heard, parsed, refusal, unasked,
};
use crate::apart;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use windlass_tools::Launcher;
use windlass_tools::command::{CommandEnd, CommandPiece, Invocation, RunningCommand, Tail, spawn};

/// Lines that wait to be written.
const LINES_MAX: usize = 64;
/// The end of its error output that a failure quotes.
const STDERR_BYTES_MAX: usize = 2 << 10;

/// A process to start.
#[derive(Clone, Debug)]
pub(super) struct ServerCommand {
    pub(super) launcher: Launcher,
    /// By which its processes are found.
    pub(super) mark: String,
    pub(super) words: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: PathBuf,
    /// A longer line ends it.
    pub(super) line_bytes_max: usize,
}

/// A running server. Dropping it kills the process.
pub(super) struct StdioServer {
    shared: Arc<StdioShared>,
    lines: mpsc::Sender<OutLine>,
    next_id: AtomicU64,
    ended: watch::Receiver<Option<String>>,
    /// Once it is dropped, the reader drops the process.
    kill: Mutex<Option<oneshot::Sender<()>>>,
}

struct StdioShared {
    waiting: Mutex<HashMap<u64, AwaitedAnswer>>,
    /// Takes what the server says has changed.
    changes: Arc<ServerChanges>,
}

struct AwaitedAnswer {
    answer: oneshot::Sender<Value>,
    progress: Option<ProgressSender>,
    questions: Option<QuestionSender>,
}

/// A line to write, and where to note that writing it has begun.
struct OutLine {
    text: String,
    begun: Option<Arc<AtomicBool>>,
}

impl StdioServer {
    /// Starts the process.
    pub(super) async fn start(
        command: ServerCommand,
        changes: Arc<ServerChanges>,
    ) -> Result<StdioServer, String> {
        let (input, stdin) = pipe::pipe().map_err(|error| format!("no pipe could be made: {error}"))?;
        let stdin_file = format!("/proc/{}/fd/{}", std::process::id(), stdin.as_raw_fd());
        let words: Vec<OsString> = command.words.iter().map(OsString::from).collect();
        let env = command.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let invocation = Invocation {
            call: command.mark.clone(),
            words,
            program_file: None,
            env,
            cwd: command.cwd.clone(),
            stdin: Vec::new(),
            stdin_file: Some(stdin_file.into()),
        };
        let running = spawn(&command.launcher, invocation, Tail::new(STDERR_BYTES_MAX)).await;
        let running = running.map_err(|error| error.to_string())?;
        let shared = Arc::new(StdioShared { waiting: Mutex::default(), changes });
        let (lines, to_write) = mpsc::channel(LINES_MAX);
        let (ends, ended) = watch::channel(None);
        let (kill, killed) = oneshot::channel();
        tokio::spawn(write_lines(input, to_write));
        let reader = ServerLineReader {
            shared: shared.clone(),
            answers: lines.clone(),
            line: Vec::new(),
            line_bytes_max: command.line_bytes_max,
            // Held until the end: the launcher opens it when it starts the process.
            _stdin: stdin,
        };
        tokio::spawn(reader.read(running, killed, ends));
        Ok(StdioServer { shared, lines, next_id: AtomicU64::new(1), ended, kill: Mutex::new(Some(kill)) })
    }

    /// Kills the process.
    pub(super) fn end(&self) {
        drop(self.kill.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Why it has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Sends a request, and waits for its answer. If this is dropped before, the server is told.
    pub(super) async fn request(&self, request: SentRequest) -> Result<Value, LostRequest> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let (progress, questions) = (request.progress.clone(), request.questions.clone());
        self.shared.waiting().insert(id, AwaitedAnswer { answer, progress, questions });
        let begun = Arc::new(AtomicBool::new(false));
        let lost =
            |why: String, begun: &AtomicBool| LostRequest { was_sent: begun.load(Ordering::SeqCst), why };
        let mut open = UnansweredRequest { server: self, id, begun: begun.clone(), is_over: false };
        let line = OutLine { text: request.message(Some(id)).to_string(), begun: Some(begun.clone()) };
        let mut ended = self.ended.clone();
        let exchange = async {
            if self.lines.send(line).await.is_err() {
                return None;
            }
            answered.await.ok()
        };
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            _ = ended.wait_for(Option::is_some) => None,
        };
        open.is_over = true;
        match answer {
            Some(answer) => Ok(answer),
            None => {
                let _ = ended.wait_for(Option::is_some).await;
                Err(lost(self.ended().unwrap_or_else(|| "the server was stopped".to_string()), &begun))
            }
        }
    }

    /// Sends a notification.
    pub(super) fn notify(&self, message: &Value) {
        // A server that reads nothing does not learn of it either.
        let _ = self.lines.try_send(OutLine { text: message.to_string(), begun: None });
    }
}

/// A request that was not answered yet.
struct UnansweredRequest<'a> {
    server: &'a StdioServer,
    id: u64,
    begun: Arc<AtomicBool>,
    is_over: bool,
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        self.server.shared.waiting().remove(&self.id);
        if !self.is_over && self.begun.load(Ordering::SeqCst) {
            self.server.notify(&cancelled(self.id));
        }
    }
}

impl StdioShared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, AwaitedAnswer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write_lines(mut input: pipe::Sender, mut lines: mpsc::Receiver<OutLine>) {
    while let Some(line) = lines.recv().await {
        if let Some(begun) = line.begun {
            begun.store(true, Ordering::SeqCst);
        }
        let text = line.text + "\n";
        if input.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads what the process says.
struct ServerLineReader {
    shared: Arc<StdioShared>,
    answers: mpsc::Sender<OutLine>,
    line: Vec<u8>,
    line_bytes_max: usize,
    _stdin: pipe::Receiver,
}

impl ServerLineReader {
    async fn read(
        mut self,
        mut running: RunningCommand,
        mut killed: oneshot::Receiver<()>,
        ends: watch::Sender<Option<String>>,
    ) {
        let why = loop {
            let piece = tokio::select! {
                biased;
                _ = &mut killed => break Some("it was ended here".to_string()),
                piece = running.next() => piece,
            };
            match piece {
                Ok(Some(CommandPiece::Stdout(bytes))) => {
                    if let Err(why) = self.take(bytes).await {
                        break Some(why);
                    }
                }
                Ok(Some(CommandPiece::Stderr(_))) => {}
                Ok(None) => break None,
                Err(error) => break Some(format!("its output could not be read: {error}")),
            }
        };
        let why = match why {
            Some(why) => {
                // Killed by that.
                drop(running);
                why
            }
            None => told_end(running).await,
        };
        ends.send_replace(Some(why));
        // Whoever waits is told by the end.
        self.shared.waiting().clear();
    }

    /// Takes a piece of output; an error ends the server.
    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..at])?;
            let line = std::mem::take(&mut self.line);
            self.hear(line).await;
            bytes = &bytes[at + 1..];
        }
        self.add(bytes)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.line.len() + bytes.len() > self.line_bytes_max {
            return Err(format!("it sent a message of more than {} bytes", self.line_bytes_max));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    async fn hear(&self, line: Vec<u8>) {
        let Some(message) = apart::on_text(line.len(), move || parsed(&line)).await else { return };
        match heard(message) {
            ServerMessage::Answer { id, message } => {
                let Some(waiting) = self.shared.waiting().remove(&id) else { return };
                // Whoever asked may be gone.
                let _ = waiting.answer.send(message);
            }
            ServerMessage::Progress { token, progress } => {
                let sender = self.shared.waiting().get(&token).and_then(|waiting| waiting.progress.clone());
                if let Some(sender) = sender {
                    sender.send_replace(Some(progress));
                }
            }
            ServerMessage::Changed(change) => self.shared.changes.take(change),
            ServerMessage::Request { id, method, params } => {
                let answer = match method.as_str() {
                    "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
                    ELICIT if self.is_put(&id, params) => return,
                    ELICIT => unasked(&id),
                    _ => refusal(&id, &method),
                };
                // One that asks faster than it reads gets no answer.
                let _ = self.answers.try_send(OutLine { text: answer.to_string(), begun: None });
            }
            ServerMessage::Other => {}
        }
    }
}

impl ServerLineReader {
    /// Puts a question to the call that it belongs to. On pipes nothing says which one that is: only if there is a single one, it is known.
    fn is_put(&self, id: &Value, params: Value) -> bool {
        let waiting = self.shared.waiting();
        let mut asking = waiting.values().filter_map(|waiting| waiting.questions.as_ref());
        let (Some(only), None) = (asking.next(), asking.next()) else { return false };
        let request = json!({"method": ELICIT, "params": params});
        only.try_send(ServerQuestion { id: id.clone(), request }).is_ok()
    }
}

async fn told_end(running: RunningCommand) -> String {
    let outcome = running.end().await;
    let tail = outcome.stderr;
    let said = tail.text();
    let said = said.trim();
    let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
    match outcome.end {
        CommandEnd::Exited(code) => format!("it exited with {code}{said}"),
        CommandEnd::Signalled(signal) => format!("signal {signal} ended it{said}"),
        CommandEnd::NotStarted(error) => format!("{:?} could not be started: {error}", outcome.program),
        CommandEnd::Lost => format!("it was ended with its launcher{said}"),
    }
}
