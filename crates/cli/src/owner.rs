//! Owning the folder while a command drives calls: its socket is served, and a signal stops it in good order.

use crate::folder::Owned;
use crate::{exit, folder};
use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass::{OpenCall, Runtime};
use windlass_server::control::Control;

/// A runtime that owns its folder.
pub struct Owner {
    // Gone before the runtime, while the place in the folder is still ours.
    control: Option<Control>,
    signals: Signals,
    runtime: Runtime,
}

impl Owner {
    /// Owns the folder, and lets others see and steer from there.
    pub fn take((data, owned): (&Path, &mut Owned)) -> anyhow::Result<Owner> {
        let signals = Signals::new()?;
        let runtime = folder::own(data)?;
        *owned = Some(runtime.store().clone());
        let control = Control::serve(&runtime, data).inspect_err(|error| {
            eprintln!(
                "windlass: warning: other terminals cannot reach this one, {} cannot be served: {error}",
                data.join("control.sock").display()
            );
        });
        Ok(Owner { control: control.ok(), signals, runtime })
    }

    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Waits for this, unless a signal comes while calls are open: then `None`, and the command is to leave.
    pub async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        let (mut asked, mut told) = (false, HashSet::new());
        let mut looks = tokio::time::interval(LOOKS_EVERY);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                _ = looks.tick() => tell_waiting(&self.runtime, &mut told),
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
        let open = self.runtime.open();
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
    }
}

/// How soon people are told that a call waits for them.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

fn is_for_signal(call: &OpenCall) -> bool {
    call.waiting_for.as_deref().is_some_and(|waits| waits.starts_with("signal"))
}

/// Says which calls wait for the world outside, each once.
fn tell_waiting(runtime: &Runtime, told: &mut HashSet<String>) {
    if runtime.counts().parked == 0 {
        return;
    }
    for call in runtime.open() {
        let how = match call.state {
            "awaiting_completion" if is_for_signal(&call) => {
                "whoever it is told by: windlass signal CALL NAME JSON"
            }
            "awaiting_completion" => {
                "whoever has the key that its tool gave out answers: windlass complete KEY --ok JSON"
            }
            "awaiting_input" => {
                "`windlass questions` shows what it asks, `windlass answer ID JSON` answers it"
            }
            "awaiting_connection" => {
                "once that is there: windlass connections SESSION PROVIDER --connected, or --declined"
            }
            _ => continue,
        };
        if told.insert(call.call) {
            let waits = call.waiting_for.unwrap_or_default();
            eprintln!("windlass: {} ({}) waits for {waits}; {how}", call.id, call.tool);
        }
    }
}

fn tell(open: &[OpenCall]) {
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

/// On a thread of its own: it must work while everything else is being shut down.
fn leave_at_once_when_told_again() {
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
