//! Owning the folder while a command drives calls: it serves the control socket, and a signal stops it cleanly.

use crate::database::{self, FolderLock};
use crate::door::At;
use crate::exit::Usage;
use crate::folder::{Owned, OwnedFolder};
use crate::{exit, folder, logs};
use serde_json::Value;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use windlass::Runtime;
use windlass::inspect::OpenCall;
use windlass::store::Health;
use windlass::wait::Wait;
use windlass_mcp::upstream::Upstreams;
use windlass_server::Api;
use windlass_server::control::Control;
use windlass_server::otlp::Exporter;

/// A runtime that owns its folder, with its socket and signals.
pub struct RuntimeOwner {
    // Dropped before the runtime, while the folder is still ours.
    control: Option<Control>,
    exporter: Option<Exporter>,
    // Dropped before the runtime too: it ends the processes of MCP servers.
    upstreams: Upstreams,
    signals: ExitSignals,
    runtime: Runtime,
    api: Api,
    /// The options that point other commands at its folder.
    options: String,
    /// Released last.
    _lock: Option<FolderLock>,
}

impl RuntimeOwner {
    /// Owns the folder and serves its socket, so that other terminals can read and control it.
    pub async fn take(at: &At, owned: &mut Owned) -> anyhow::Result<RuntimeOwner> {
        if database::find(at)?.is_some() {
            return Err(database::no_worker(at).into());
        }
        RuntimeOwner::serve(at, owned, None).await
    }

    /// As a server does, also as a worker of a shared store, which others reach at this address.
    pub async fn serve(at: &At, owned: &mut Owned, address: Option<String>) -> anyhow::Result<RuntimeOwner> {
        let mut signals = ExitSignals::new()?;
        let OwnedFolder { runtime, traces, upstreams, mcp_listing, _lock } =
            folder::own(at, address, signals.next()).await?;
        tokio::spawn(tell_health(runtime.store().health()));
        let exporter = match &traces {
            Some(traces) => Some(
                Exporter::start(&runtime, &traces.endpoint, traces.contents)
                    .map_err(|error| Usage(format!("[traces] of windlass.toml: {error}")))?,
            ),
            None => None,
        };
        *owned = Some(runtime.store().clone());
        let api = Api::new(&runtime, Some(&at.data));
        api.set_mcp_listing(mcp_listing);
        api.forward_mcp(upstreams.forwarding());
        let control = Control::serve(&api, &at.data).inspect_err(|error| {
            logs::tell!(
                "warning: other terminals cannot connect, because {} cannot be served: {error}",
                at.data.join("control.sock").display()
            );
        });
        Ok(RuntimeOwner {
            control: control.ok(),
            exporter,
            upstreams,
            signals,
            runtime,
            api,
            options: at.options(),
            _lock,
        })
    }

    /// Connects to the MCP servers of others, and stays connected.
    pub fn keep_upstreams(&mut self) {
        self.upstreams.keep();
    }

    /// The API it serves.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Waits for a signal to stop, and returns its name.
    pub async fn stopped(&mut self) -> &'static str {
        self.signals.next().await
    }

    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Waits for `work`, unless a signal comes while calls are open: then `None`, and the command must leave.
    pub async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        let (mut asked, mut told) = (false, WaitReport::default());
        let mut looks = tokio::time::interval(LOOKS_EVERY);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                _ = looks.tick() => tell_waiting(&self.runtime, &mut told, &self.options).await,
                name = self.signals.next() => {
                    if asked {
                        exit::leave_now();
                    }
                    if self.runtime.open_calls() > 0 {
                        logs::tell!("{name}: stopping; send it again to exit at once");
                        return None;
                    }
                    // Nothing is left to stop: the end is a moment away.
                    asked = true;
                }
            }
        }
    }

    /// Releases the folder with calls open, and reports who continues them.
    pub async fn leave(self) -> ExitCode {
        // If the store cannot be read, report what is in memory.
        let open = self.runtime.open().await.unwrap_or_else(|_| self.runtime.live());
        leave_at_once_when_told_again();
        tell(&open);
        self.close().await;
        exit::open()
    }

    /// Releases the folder.
    pub async fn close(self) {
        if let Some(control) = self.control {
            control.stop().await;
        }
        if let Some(exporter) = self.exporter {
            exporter.end().await;
        }
    }
}

/// Reports when the store cannot write, and when it recovers.
async fn tell_health(mut health: watch::Receiver<Health>) {
    let mut was_bad = false;
    loop {
        let now = health.borrow_and_update().clone();
        match &now {
            Health::Ready if was_bad => crate::logs::tell!("the store writes again"),
            Health::Ready => {}
            Health::Stalled { because } if !was_bad => crate::logs::tell!(
                "the store cannot write ({because}); running calls continue, new ones are refused, and the store keeps retrying"
            ),
            Health::Stalled { .. } => {}
            Health::Closed { because } => {
                crate::logs::tell!("the store is closed ({because}); restart windlass");
            }
        }
        was_bad = now != Health::Ready;
        if health.changed().await.is_err() {
            return;
        }
    }
}

/// How often waiting calls are looked for.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// The waits reported so far.
#[derive(Default)]
struct WaitReport {
    calls: HashSet<String>,
    /// How many calls were not in memory at the last look: they are read again only if the number changed.
    away: u64,
}

/// Reports calls that wait for an external answer, each once.
async fn tell_waiting(runtime: &Runtime, told: &mut WaitReport, options: &str) {
    if runtime.counts().parked == 0 {
        return;
    }
    let away = std::mem::replace(&mut told.away, runtime.away());
    let open = if away == told.away { None } else { runtime.open().await.ok() };
    for call in open.unwrap_or_else(|| runtime.live()) {
        tell_waiting_for(&serde_json::to_value(call).unwrap_or_default(), &mut told.calls, options);
    }
}

/// Reports what a call waits for if that is external, once.
pub fn tell_waiting_for(call: &Value, told: &mut HashSet<String>, options: &str) {
    let text = |field: &str| call[field].as_str().unwrap_or_default();
    let call = crate::show::short_handle(text("call"));
    let waiting_for = text("waiting_for");
    let Some(wait) = waiting_for.split(' ').next().and_then(Wait::parse) else { return };
    let how = match wait {
        Wait::Awaited => {
            format!("`windlass tasks{options}` shows the tasks, an event is fulfilled over HTTP or by a tool")
        }
        Wait::Signal => format!("send it: windlass signal {call} NAME JSON{options}"),
        Wait::Completion => {
            format!("answer with the key that its tool issued: windlass complete KEY --ok JSON{options}")
        }
        Wait::Input => format!(
            "`windlass questions{options}` shows what it asks, `windlass answer ID JSON{options}` answers it"
        ),
        Wait::Approval => {
            format!(
                "`windlass approvals{options}` shows it, `windlass approve ID{options}` or `windlass deny ID{options}` answers it"
            )
        }
        Wait::Connection => {
            format!(
                "once it is connected: windlass connections SESSION PROVIDER --connected{options}, or --declined"
            )
        }
        Wait::Client => {
            format!("its caller runs it, then: windlass complete --call {call} --ok JSON{options}")
        }
        Wait::ToolChanged => {
            format!("windlass accept {call}{options} continues it, windlass cancel {call}{options} ends it")
        }
        // These end without anybody's help, or say themselves who helps.
        Wait::Claim | Wait::Limit | Wait::Rate | Wait::Turn | Wait::Preparation | Wait::SameAs => return,
        Wait::Nested | Wait::Owner | Wait::Retry | Wait::Sleep => return,
        Wait::NoSuchTool | Wait::ToolPaused | Wait::NoWorker => return,
    };
    if told.insert(text("call").to_string()) {
        let line = crate::show::line;
        logs::tell!("{} ({}) waits for {}; {how}", line(text("id")), line(text("tool")), line(waiting_for));
    }
}

/// Reports which calls stay open, and who continues them.
pub fn tell(open: &[OpenCall]) {
    let mut sessions: Vec<&str> = open.iter().map(|call| call.session.as_str()).collect();
    sessions.sort_unstable();
    sessions.dedup();
    for session in sessions {
        let calls: Vec<&OpenCall> = open.iter().filter(|call| call.session == session).collect();
        let mut told = String::new();
        for call in calls.iter().take(TOLD_MAX) {
            let handle = crate::show::short_handle(&call.call);
            let (id, tool) = (crate::show::line(&call.id), crate::show::line(&call.tool));
            told.push_str(&format!("\n  {handle}  {id}  {tool}  {}", call.state));
        }
        if calls.len() > TOLD_MAX {
            told.push_str(&format!("\n  and {} more", calls.len() - TOLD_MAX));
        }
        logs::tell!("{} of session {session} stay open:{told}", counted(calls.len()));
        logs::tell!(
            "the next `windlass run` of session {session} on this folder goes on with them: what was running \
             runs again if it may, else it is unknown until you resolve it"
        );
    }
}

/// The maximum number of calls named.
const TOLD_MAX: usize = 20;

fn counted(calls: usize) -> String {
    if calls == 1 { "1 call".to_string() } else { format!("{calls} calls") }
}

/// The signals that ask a process to end.
struct ExitSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ExitSignals {
    fn new() -> std::io::Result<ExitSignals> {
        Ok(ExitSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// From now on another signal exits at once. Runs on its own thread: it must work during shutdown.
pub fn leave_at_once_when_told_again() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let told = runtime.and_then(|runtime| {
            runtime.block_on(async { Ok::<_, std::io::Error>(ExitSignals::new()?.next().await) })
        });
        if told.is_ok() {
            exit::leave_now();
        }
    });
}
