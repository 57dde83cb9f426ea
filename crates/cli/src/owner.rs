//! Owning the folder while a command drives calls: its socket is served, and a signal stops it in good order.

use crate::door::At;
use crate::exit::Usage;
use crate::folder::Owned;
use crate::{exit, folder};
use serde_json::Value;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass::{OpenCall, Runtime};
use windlass_server::Api;
use windlass_server::control::Control;
use windlass_server::otlp::Exporter;

/// A runtime that owns its folder.
pub struct Owner {
    // Gone before the runtime, while the place in the folder is still ours.
    control: Option<Control>,
    exporter: Option<Exporter>,
    signals: Signals,
    runtime: Runtime,
    api: Api,
}

impl Owner {
    /// Owns the folder, and lets others see and steer from there.
    pub async fn take((at, owned): (&At, &mut Owned)) -> anyhow::Result<Owner> {
        let signals = Signals::new()?;
        let (runtime, traces) = folder::own(at)?;
        let exporter = match &traces {
            Some(traces) => Some(
                Exporter::start(&runtime, &traces.endpoint, traces.contents)
                    .map_err(|error| Usage(format!("[traces] of windlass.toml: {error}")))?,
            ),
            None => None,
        };
        *owned = Some(runtime.store().clone());
        let api = Api::new(&runtime, Some(&at.data));
        api.sessions().adopt().await?;
        let control = Control::serve(&api, &at.data).inspect_err(|error| {
            eprintln!(
                "windlass: warning: other terminals cannot reach this one, {} cannot be served: {error}",
                at.data.join("control.sock").display()
            );
        });
        Ok(Owner { control: control.ok(), exporter, signals, runtime, api })
    }

    /// What it serves.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Waits until it is told to stop, and says by what.
    pub async fn stopped(&mut self) -> &'static str {
        self.signals.next().await
    }

    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Waits for this, unless a signal comes while calls are open: then `None`, and the command is to leave.
    pub async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        let (mut asked, mut told) = (false, Told::default());
        let mut looks = tokio::time::interval(LOOKS_EVERY);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                _ = looks.tick() => tell_waiting(&self.runtime, &mut told).await,
                name = self.signals.next() => {
                    if asked {
                        exit::leave_now();
                    }
                    if self.runtime.open_calls() > 0 {
                        eprintln!("windlass: {name}: stopping; once more leaves at once");
                        return None;
                    }
                    // Nothing is left to be stopped: the end is a moment away.
                    asked = true;
                }
            }
        }
    }

    /// Gives the folder up with calls open, and says who goes on with them.
    pub async fn leave(self) -> ExitCode {
        // If the store cannot be read, what is in memory is all that can be said.
        let open = self.runtime.open().await.unwrap_or_else(|_| self.runtime.live());
        leave_at_once_when_told_again();
        tell(&open);
        self.close().await;
        exit::open()
    }

    /// Gives the folder up.
    pub async fn close(self) {
        if let Some(control) = self.control {
            control.stop().await;
        }
        if let Some(exporter) = self.exporter {
            exporter.end().await;
        }
    }
}

/// How soon people are told that a call waits for them.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// What was said of calls that wait.
#[derive(Default)]
struct Told {
    calls: HashSet<String>,
    /// How many were not in memory when that was last looked at: they are read only if there are others.
    away: u64,
}

/// Says which calls wait for the world outside, each once.
async fn tell_waiting(runtime: &Runtime, told: &mut Told) {
    if runtime.counts().parked == 0 {
        return;
    }
    let away = std::mem::replace(&mut told.away, runtime.away());
    let open = if away == told.away { None } else { runtime.open().await.ok() };
    for call in open.unwrap_or_else(|| runtime.live()) {
        tell_waiting_for(&serde_json::to_value(call).unwrap_or_default(), &mut told.calls);
    }
}

/// Says what a call waits for if that is the world outside, once.
pub fn tell_waiting_for(call: &Value, told: &mut HashSet<String>) {
    let text = |field: &str| call[field].as_str().unwrap_or_default();
    let how = match text("state") {
        "awaiting_completion" if text("waiting_for").starts_with("signal") => {
            "whoever tells it: windlass signal CALL NAME JSON"
        }
        "awaiting_completion" => {
            "whoever has the key that its tool gave out answers: windlass complete KEY --ok JSON"
        }
        "awaiting_input" => "`windlass questions` shows what it asks, `windlass answer ID JSON` answers it",
        "awaiting_connection" => {
            "once that is there: windlass connections SESSION PROVIDER --connected, or --declined"
        }
        _ => return,
    };
    if told.insert(text("call").to_string()) {
        eprintln!("windlass: {} ({}) waits for {}; {how}", text("id"), text("tool"), text("waiting_for"));
    }
}

/// Says which calls stay open, and who goes on with them.
pub fn tell(open: &[OpenCall]) {
    let mut sessions: Vec<&str> = open.iter().map(|call| call.session.as_str()).collect();
    sessions.sort_unstable();
    sessions.dedup();
    for session in sessions {
        let calls: Vec<&OpenCall> = open.iter().filter(|call| call.session == session).collect();
        eprintln!("windlass: {} of session {session} stay open:", counted(calls.len()));
        for call in calls.iter().take(TOLD_MAX) {
            let handle = crate::show::short_handle(&call.call);
            eprintln!("  {handle}  {}  {}  {}", call.id, call.tool, call.state);
        }
        if calls.len() > TOLD_MAX {
            eprintln!("  and {} more", calls.len() - TOLD_MAX);
        }
        eprintln!(
            "windlass: the next `windlass run` of session {session} on this folder goes on with them: what was running \
             runs again if it may, else it is unknown until you resolve it"
        );
    }
}

/// So many calls are named.
const TOLD_MAX: usize = 20;

fn counted(calls: usize) -> String {
    if calls == 1 { "1 call".to_string() } else { format!("{calls} calls") }
}

/// The signals that ask a process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
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

/// From now on a signal leaves at once. On a thread of its own: it must work while everything else is being shut down.
pub fn leave_at_once_when_told_again() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let told = runtime.and_then(|runtime| {
            runtime.block_on(async { Ok::<_, std::io::Error>(Signals::new()?.next().await) })
        });
        if told.is_ok() {
            exit::leave_now();
        }
    });
}
