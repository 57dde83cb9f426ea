//! `windlass mcp`: carries the messages of an MCP client between its pipes and the owner of the folder.
//!
//! Clients do not restart a server that dies in the middle of a conversation, so this process outlives the owner: a request
//! whose answer did not come is sent again to the next owner, which it starts if there is none. The owner joins it with what
//! was begun, so nothing happens twice.

mod entry;
mod import;
mod operator;
mod owner;
mod servers;

use crate::args::{McpArgs, McpCommand, McpListArg};
use crate::door::At;
use crate::serve;
use owner::{OwnerStartError, OwnerStarter};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use windlass::sessions::check_session_name;
use windlass_server::ProblemCode;
use windlass_server::client::mcp::{McpPost, McpReply};
use windlass_server::client::{Client, ClientError};
use windlass_server::wire::McpList;

/// The longest line that is read: longer than any body that the owner takes.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Lines that wait to be carried or written.
const LINES_MAX: usize = 64;
/// How long requests may still be answered once the client has closed its end.
const CLOSING_WAIT: Duration = Duration::from_secs(5);
/// How long to pause before an owner that does not take work is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The pause before the owner's own messages are listened to again.
const LISTENS_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Says that the tools may have changed.
const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
/// By which Claude Code names its conversation to the servers that it starts.
const CLAUDE_SESSION: &str = "CLAUDE_CODE_SESSION_ID";

pub async fn mcp(at: &At, args: McpArgs) -> anyhow::Result<ExitCode> {
    if let Some(command) = args.command {
        return match command {
            McpCommand::Ls(args) => servers::ls(at, &args),
            McpCommand::Test(args) => servers::test(at, &args).await,
            McpCommand::Accept(args) => servers::accept(at, &args).await,
            McpCommand::Add(args) => servers::add(at, args).await,
            McpCommand::Import(args) => import::import(&args),
        };
    }
    serve::on_a_folder(at)?;
    let session = args.session.or_else(client_session);
    if let Some(session) = &session {
        check_session_name(session).map_err(|error| crate::exit::Usage(error.to_string()))?;
    }
    let bridge = Arc::new(Bridge {
        owner: OwnerStarter::new(at)?,
        post: Mutex::new(McpPost {
            session,
            bridge: windlass::batch::fresh_key()?,
            session_id: None,
            may_approve: args.approve,
            list: args.list.map(|list| match list {
                McpListArg::All => McpList::All,
                McpListArg::Search => McpList::Search,
            }),
        }),
        written: writer(),
    });
    bridge.carry_all(reader()).await;
    Ok(ExitCode::SUCCESS)
}

/// The session of the conversation that the client names, if it names one.
fn client_session() -> Option<String> {
    let name = format!("mcp-claude-{}", std::env::var(CLAUDE_SESSION).ok()?);
    check_session_name(&name).is_ok().then_some(name)
}

/// A line of standard input, or why it cannot be read.
type ReadLine = Result<String, &'static str>;

/// The lines of standard input. One that cannot be read is told, and hides none of those behind it.
fn reader() -> mpsc::Receiver<ReadLine> {
    let (lines, read) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Some(line) = next_line(&mut input) {
            let is_blank = line.as_ref().is_ok_and(|line| line.trim().is_empty());
            if !is_blank && lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    read
}

/// The next line; `None` at the end.
fn next_line(input: &mut impl BufRead) -> Option<ReadLine> {
    let mut line = Vec::new();
    let count = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    if count == 0 {
        return None;
    }
    // The last line may end with the input.
    if line.ends_with(b"\n") || (count as u64) < LINE_BYTES_MAX {
        return Some(String::from_utf8(line).map_err(|_| "the line is no UTF-8"));
    }
    drop(line);
    loop {
        let rest = input.fill_buf().ok()?;
        let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let (skipped, is_over) = (end.unwrap_or(rest.len()), end.is_some() || rest.is_empty());
        input.consume(skipped);
        if is_over {
            return Some(Err("the line has more than 64 MiB; send less"));
        }
    }
}

/// A line for standard output, and whom to tell once it is written.
type WrittenLine = (String, oneshot::Sender<()>);

/// Writes lines to standard output, each whole.
fn writer() -> mpsc::Sender<WrittenLine> {
    let (lines, mut written) = mpsc::channel::<WrittenLine>(LINES_MAX);
    std::thread::spawn(move || {
        while let Some((line, done)) = written.blocking_recv() {
            let mut output = std::io::stdout().lock();
            if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
                // The client is gone: nobody is left to carry for.
                return;
            }
            // The request may have been cancelled meanwhile.
            let _ = done.send(());
        }
    });
    lines
}

/// Ends the listening with its bridge.
struct StreamListener(JoinHandle<()>);

impl Drop for StreamListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Bridge {
    owner: OwnerStarter,
    post: Mutex<McpPost>,
    written: mpsc::Sender<WrittenLine>,
}

/// The result of one try to carry a message.
enum Carried {
    /// It was answered, or wants no answer.
    Done,
    /// The owner went away, or takes no work now.
    Again,
    /// It is refused, for this reason.
    Refused(String),
}

impl Bridge {
    /// Carries messages until the client closes its end.
    async fn carry_all(self: Arc<Self>, mut lines: mpsc::Receiver<ReadLine>) {
        let (mut carrying, mut running) = (JoinSet::new(), HashMap::<String, AbortHandle>::new());
        let mut listening: Option<StreamListener> = None;
        loop {
            let line = tokio::select! {
                line = lines.recv() => line,
                () = self.written.closed() => None,
            };
            let Some(line) = line else { break };
            while carrying.try_join_next().is_some() {}
            running.retain(|_, carried| !carried.is_finished());
            let line = match line {
                Ok(line) => line,
                Err(why) => {
                    self.fail(&Value::Null, -32_700, why).await;
                    continue;
                }
            };
            let message: Value = match serde_json::from_str(&line) {
                Ok(message) => message,
                Err(error) => {
                    self.fail(&Value::Null, -32_700, &format!("the line is no JSON: {error}")).await;
                    continue;
                }
            };
            let id = message.get("id").filter(|_| message.get("method").is_some()).cloned();
            if message["method"] == "notifications/cancelled" {
                // First told, then cut: before the modern era a broken connection alone is no cancel.
                self.carry(&line, None).await;
                if let Some(request) = running.remove(&message["params"]["requestId"].to_string()) {
                    request.abort();
                }
                continue;
            }
            if message["method"] == "initialize" {
                // Everything behind it belongs to the session that it opens.
                self.carry(&line, id).await;
                if self.post().session_id.is_some() && listening.is_none() {
                    // Before anything else is asked for: whatever changes behind a list is told.
                    listening = Some(self.clone().listen().await);
                }
                continue;
            }
            let (bridge, name) = (self.clone(), id.as_ref().map(Value::to_string));
            let carried = carrying.spawn(async move { bridge.carry(&line, id).await });
            running.extend(name.map(|name| (name, carried)));
        }
        let all = async { while carrying.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSING_WAIT, all).await;
    }

    /// Hears what the owner says of its own, as clients of the older era want it, and writes it to the client.
    async fn listen(self: Arc<Self>) -> StreamListener {
        let mut stream = self.stream().await;
        StreamListener(tokio::spawn(async move {
            loop {
                while let Some(text) = match &mut stream {
                    Some(reply) => reply.next().await,
                    None => None,
                } {
                    self.write(text).await;
                }
                tokio::time::sleep(LISTENS_AGAIN_AFTER).await;
                stream = self.stream().await;
                if stream.is_some() {
                    // The next owner may have other tools, and does not know those that the client has seen.
                    self.write(TOOLS_CHANGED.to_string()).await;
                }
            }
        }))
    }

    /// The stream of the owner's own messages. It starts no owner: whoever asks for something does.
    async fn stream(&self) -> Option<McpReply> {
        let post = self.post().clone();
        self.owner.running().await?.mcp_stream(&post).await.ok()
    }

    /// Carries one message until it is answered.
    async fn carry(&self, line: &str, id: Option<Value>) {
        let mut progress = 0.0;
        loop {
            let carried = match self.owner.client().await {
                Ok(client) => self.carry_once(&client, line, id.as_ref(), &mut progress).await,
                Err(OwnerStartError(why)) => Carried::Refused(why),
            };
            match (carried, &id) {
                (Carried::Done, _) => return,
                // Nobody waits for it.
                (Carried::Again, None) => return,
                (Carried::Again, Some(_)) => tokio::time::sleep(AGAIN_AFTER).await,
                (Carried::Refused(why), Some(id)) => return self.fail(id, -32_603, &why).await,
                (Carried::Refused(why), None) => return crate::logs::tell!("{why}"),
            }
        }
    }

    async fn carry_once(
        &self,
        client: &Client,
        line: &str,
        id: Option<&Value>,
        progress: &mut f64,
    ) -> Carried {
        let post = self.post().clone();
        let mut reply = match client.mcp(&post, line).await {
            Ok(reply) => reply,
            Err(ClientError::Unreachable { .. }) => return Carried::Again,
            Err(ClientError::Problem(problem)) => {
                use ProblemCode::{Draining, Overloaded, StoreUnavailable};
                let passes = matches!(problem.code, Draining | Overloaded | StoreUnavailable);
                return if passes { Carried::Again } else { Carried::Refused(problem.detail) };
            }
            Err(error) => return Carried::Refused(error.to_string()),
        };
        if let Some(opened) = reply.session_id() {
            self.post().session_id = Some(opened.to_string());
        }
        while let Some(text) = reply.next().await {
            let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
            if message.get("id").is_some() && message.get("method").is_none() {
                self.write(text).await;
                return Carried::Done;
            }
            // The next owner counts from the beginning, and progress must not go back.
            match message["params"]["progress"].as_f64() {
                Some(number) if number <= *progress => continue,
                number => *progress = number.unwrap_or(*progress),
            }
            self.write(text).await;
        }
        if id.is_some() { Carried::Again } else { Carried::Done }
    }

    async fn fail(&self, id: &Value, code: i64, why: &str) {
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}});
        self.write(answer.to_string()).await;
    }

    /// Writes a line, and waits until it is written: a client that is gone is noticed where lines are read.
    async fn write(&self, line: String) {
        let (done, written) = oneshot::channel();
        if self.written.send((line, done)).await.is_ok() {
            let _ = written.await;
        }
    }

    fn post(&self) -> MutexGuard<'_, McpPost> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
