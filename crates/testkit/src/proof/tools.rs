//! The tools of a worker: each goes to the ledger for its effect, and then does what its arguments say.

use super::kind::{Asks, Kind};
use super::ledger::{Client, Request};
use super::plan::{Says, Then, hash};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use windlass::core::failure::FailureClass;
use windlass::{
    Cx, Output, Reconcile, ReconcileFuture, Reconciled, Runtime, Tool, ToolError, ToolFuture, ToolSpec,
};

/// What makes a result too long for an answer.
const LONG_BYTES: usize = 64 << 10;

/// What the tools and the client of a worker share.
pub struct World {
    /// The way to the ledger.
    pub client: Client,
    /// What happens when a tool kills its worker.
    pub death: Death,
    /// The calls whose tools have been to the ledger.
    reached: watch::Sender<BTreeSet<String>>,
    released: watch::Sender<bool>,
    said: Mutex<Voice>,
}

/// What happens when a tool kills its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is killed.
    Kill,
    /// The tool never returns, and somebody else takes its session over.
    Hang,
    /// Nothing: it was somebody else's turn to die.
    Spared,
}

/// Where goes what the client is told.
pub enum Voice {
    /// To standard output.
    Aloud,
    /// Nowhere else.
    Kept(Vec<Value>),
}

impl World {
    /// Nothing happened in it yet.
    pub fn new(client: Client, death: Death, voice: Voice) -> Arc<World> {
        let (reached, released) = Default::default();
        Arc::new(World { client, death, reached, released, said: Mutex::new(voice) })
    }

    /// Registers every tool there is.
    pub fn register(self: &Arc<World>, runtime: &Runtime) -> anyhow::Result<()> {
        for kind in Kind::all() {
            runtime.register(Effect { kind, world: Arc::clone(self) })?;
        }
        Ok(())
    }

    /// Waits until the tool of this call has been to the ledger, or something else of this name happened.
    pub async fn reaches(&self, name: &str) {
        let mut reached = self.reached.subscribe();
        // The sender is ours: it is not gone.
        let _there = reached.wait_for(|reached| reached.contains(name)).await;
    }

    /// Something happened.
    pub fn reach(&self, name: &str) {
        self.reached.send_modify(|reached| _ = reached.insert(name.to_owned()));
    }

    /// Lets those that wait go on.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Says what the client was told. One line in one write: whoever reads it has all of it, or was not told.
    pub fn say(&self, line: Value) -> std::io::Result<()> {
        match &mut *self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            Voice::Kept(lines) => lines.push(line),
            Voice::Aloud => {
                let mut out = std::io::stdout().lock();
                out.write_all(format!("{line}\n").as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }

    async fn die(&self) {
        if self.death == Death::Kill {
            // As somebody else would do it; nothing is unwound, nothing flushed.
            let _killed = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        }
        std::future::pending().await
    }
}

struct Effect {
    kind: Kind,
    world: Arc<World>,
}

impl Tool for Effect {
    fn spec(&self) -> ToolSpec {
        self.kind.spec()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(self.act(args, cx))
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        (self.kind.asks != Asks::Nobody).then_some(self)
    }
}

impl Reconcile for Effect {
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin(async move {
            if self.kind.asks == Asks::InVain {
                return Ok(Reconciled::Unknown);
            }
            // What the ledger does with the effect it does not do with a question.
            let request = Request { kind: "ask", order: "ok".to_owned(), ..self.request(&args, cx) };
            let answer = self.world.client.effect(&request).await;
            match answer.map_err(|error| ToolError::internal(error.to_string()))? {
                Some((verdict, number)) if verdict == "landed" => {
                    Ok(Reconciled::Landed(value(&args, number)))
                }
                Some((verdict, _)) if verdict == "absent" => Ok(Reconciled::DidNotHappen),
                other => Err(ToolError::internal(format!("the ledger said {other:?}"))),
            }
        })
    }
}

impl Effect {
    async fn act(&self, args: Value, cx: &Cx) -> Result<Output, ToolError> {
        let then = Then::parse(args["then"].as_str().unwrap_or_default());
        let first = cx.attempt().0 == 1 && !cx.is_redrive() && self.world.death != Death::Spared;
        let goes_well = then == Then::Return || (then == Then::Die && !first);
        let mut number = 0;
        if args["order"] != "after" || goes_well {
            number = self.effect(&args, cx).await?;
        }
        self.world.reach(cx.id());
        match then {
            Then::Hang => std::future::pending().await,
            Then::Obey => cx.stopping().await,
            Then::Wait => _ = self.world.released.subscribe().wait_for(|released| *released).await,
            Then::Panic => panic!("told to panic"),
            Then::DieAlways => self.world.die().await,
            Then::Die if first => self.world.die().await,
            Then::Return | Then::Die => {}
        }
        Ok(value(&args, number))
    }

    /// Goes to the ledger; the number of its line.
    async fn effect(&self, args: &Value, cx: &Cx) -> Result<u64, ToolError> {
        let says = Says::parse(args["says"].as_str().unwrap_or_default());
        let unavailable =
            |message: &str| ToolError { class: FailureClass::Unavailable, ..ToolError::new(message) };
        let answer = self.world.client.effect(&self.request(args, cx)).await;
        match answer.map_err(|error| unavailable(&error.to_string()))? {
            None => Err(said(unavailable("the ledger hung up; it may have done it"), says, false)),
            Some((verdict, _)) if verdict == "rejected" => {
                Err(said(ToolError::new("the ledger refused"), says, true))
            }
            Some((_, number)) => Ok(number),
        }
    }

    fn request(&self, args: &Value, cx: &Cx) -> Request {
        let order = args["order"].as_str().unwrap_or("ok");
        Request {
            kind: self.kind.class.name(),
            key: cx.idempotency_key(),
            call: format!("{}/{}/{}", cx.session(), cx.batch_key(), cx.id()),
            handle: cx.handle().to_string(),
            attempt: cx.attempt().0,
            hash: hash(args),
            order: if order == "after" { "ok" } else { order }.to_owned(),
        }
    }
}

/// The failure, with what the tool says of it; it only says that nothing happened if that is so.
fn said(error: ToolError, says: Says, refused: bool) -> ToolError {
    match says {
        Says::Plain => error,
        Says::Safe => error.safe_to_retry(),
        Says::SafeAfter(ms) => error.safe_to_retry_after(ms),
        Says::Never if refused => error.did_not_happen(),
        Says::Never => error.safe_to_retry(),
    }
}

/// What a call returns that the ledger has under this number.
pub fn value(args: &Value, number: u64) -> Output {
    let filler = if args["long"] == json!(true) { "x".repeat(LONG_BYTES) } else { String::new() };
    json!({"call": args["call"], "receipt": number, "filler": filler}).into()
}
