//! A gateway whose tools are counted and wait until they are told.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use windlass::policy::ApprovalRule;
use windlass::store::memory::MemoryStore;
use windlass::{Config, Cx, EffectClass, Flags, Limits, Runtime, Tool, ToolFuture, ToolSpec, tool_fn};
use windlass_mcp::{Conversation, Exchange, Gateway, Headers, McpListing, Visitor};

pub const VERSION: &str = "2026-07-28";

pub struct Rig {
    pub runtime: Runtime,
    pub gateway: Gateway,
    pub visitor: Visitor,
    /// Lets `pay`, `send` and `look` have their effects, one each.
    pub go: Arc<Semaphore>,
    pub closing: watch::Sender<bool>,
    effects: Arc<AtomicU64>,
    begun: watch::Receiver<u64>,
}

/// A conversation that is carried by a task of its own, as connections do it: to its answer whether or not that is asked for, and behind it once
/// the answer was taken.
pub struct HeardConversation {
    asks: mpsc::Sender<oneshot::Sender<Option<Value>>>,
    carrying: JoinHandle<()>,
}

impl HeardConversation {
    pub fn begin(mut conversation: Conversation) -> HeardConversation {
        let (asks, mut asked) = mpsc::channel::<oneshot::Sender<Option<Value>>>(1);
        let carrying = tokio::spawn(async move {
            let mut message = conversation.next().await;
            while let Some(taker) = asked.recv().await {
                let is_answer = message.as_ref().is_some_and(|told| told.get("method").is_none());
                let _ = taker.send(message.take());
                match is_answer {
                    // Whoever does not ask for the end has not taken the answer to its end.
                    true => {
                        let Some(taker) = asked.recv().await else { return };
                        let _ = taker.send(conversation.next().await);
                    }
                    false => message = conversation.next().await,
                }
            }
        });
        HeardConversation { asks, carrying }
    }

    pub async fn next(&mut self) -> Option<Value> {
        let (taker, taken) = oneshot::channel();
        self.asks.send(taker).await.ok()?;
        taken.await.ok()?
    }
}

impl Drop for HeardConversation {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// A message of a client.
#[derive(Clone)]
pub struct Mcp {
    pub message: Value,
    pub headers: Headers,
}

impl Mcp {
    pub fn legacy(method: &str, params: Value) -> Mcp {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Mcp { message, headers: Headers::default() }
    }

    pub fn modern(method: &str, capabilities: &Value, mut params: Value) -> Mcp {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        Mcp::legacy(method, params)
    }

    /// A call in both eras.
    pub fn calls(params: &Value) -> [Mcp; 2] {
        [Mcp::legacy("tools/call", params.clone()), Mcp::modern("tools/call", &json!({}), params.clone())]
    }
}

pub fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"to": "ann"}})
}

/// The capabilities of a client with tasks and forms.
pub fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}})
}

pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

impl Rig {
    pub fn new() -> Rig {
        Rig::within(|_| {})
    }

    /// With answers that are held for a moment only.
    pub fn impatient() -> Rig {
        Rig::within(|limits| {
            (limits.mcp_hold_ms, limits.mcp_progress_hold_ms, limits.mcp_progress_ms) = (40, 60, 10);
        })
    }

    /// With answers that are held until there is something to tell, however busy the machine is.
    pub fn patient() -> Rig {
        Rig::within(|limits| (limits.mcp_hold_ms, limits.mcp_progress_hold_ms) = (60_000, 60_000))
    }

    pub fn within(change: impl FnOnce(&mut Limits)) -> Rig {
        let mut config = Config::new(MemoryStore::new().expect("a store"));
        change(&mut config.limits);
        Rig::on(config)
    }

    /// One of several workers. It hears soon that it has lost its lease, and does not lose it by itself.
    pub fn worker(store: &MemoryStore) -> Rig {
        let mut config = Config { shared: true, ..Config::new(store.clone()) };
        (config.limits.heartbeat_ms, config.limits.lease_ms) = (20, 3_600_000);
        (config.limits.mcp_hold_ms, config.limits.mcp_progress_hold_ms) = (60_000, 60_000);
        Rig::on(config)
    }

    fn on(config: Config) -> Rig {
        let runtime = Runtime::new(config);
        let (effects, go) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (begins, begun) = watch::channel(0);
        for (name, class) in
            [("pay", EffectClass::Once), ("send", EffectClass::Keyed), ("look", EffectClass::Read)]
        {
            let (effects, go, begins) = (effects.clone(), go.clone(), begins.clone());
            let tool = tool_fn(spec(name, class), move |_, _| {
                begins.send_modify(|begun| *begun += 1);
                let (effects, go) = (effects.clone(), go.clone());
                async move {
                    go.acquire().await.expect("it stays open").forget();
                    Ok(json!(format!("effect {}", effects.fetch_add(1, Ordering::SeqCst) + 1)).into())
                }
            });
            runtime.register(tool).expect("it fits");
        }
        let risky = ToolSpec { approval: ApprovalRule::Ask, ..spec("risky", EffectClass::Once) };
        let happened = effects.clone();
        let risky = tool_fn(risky, move |_, _| {
            let effect = happened.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!(format!("effect {effect}")).into()) }
        });
        runtime.register(risky).expect("it fits");
        runtime.register(Asks).expect("it fits");
        let closing = watch::Sender::new(false);
        let gateway = Gateway::new(&runtime, closing.subscribe());
        let visitor = Visitor {
            session: "chat".into(),
            principal: "ann".into(),
            may_approve: true,
            may_answer: true,
            listing: McpListing::All,
            bridge: None,
        };
        Rig { runtime, gateway, visitor, go, closing, effects, begun }
    }

    /// Waits until so many attempts of `pay`, `send` and `look` have begun.
    pub async fn begun(&mut self, count: u64) {
        self.begun.wait_for(|begun| *begun >= count).await.expect("tools are there");
    }

    pub fn attempts(&self) -> u64 {
        *self.begun.borrow()
    }

    pub fn effects(&self) -> u64 {
        self.effects.load(Ordering::SeqCst)
    }

    pub async fn exchange(&self, asked: &Mcp) -> Exchange {
        self.gateway.take(self.visitor.clone(), &asked.headers, asked.message.clone()).await
    }

    /// A conversation, which is left by dropping it.
    pub async fn begin(&self, asked: &Mcp) -> HeardConversation {
        match self.exchange(asked).await {
            Exchange::Stream(conversation) => HeardConversation::begin(conversation),
            Exchange::Answer { message, .. } => panic!("answered at once: {message}"),
            Exchange::Taken => panic!("not answered"),
        }
    }

    /// All messages of the answer, which is then delivered.
    pub async fn ask(&self, asked: &Mcp) -> Vec<Value> {
        match self.exchange(asked).await {
            Exchange::Stream(mut conversation) => {
                let mut told = Vec::new();
                while let Some(message) = conversation.next().await {
                    told.push(message);
                }
                told
            }
            Exchange::Answer { message, .. } => vec![message],
            Exchange::Taken => Vec::new(),
        }
    }

    pub async fn result(&self, asked: &Mcp) -> Value {
        let told = self.ask(asked).await;
        let last = told.last().expect("an answer").clone();
        assert!(last.get("result").is_some(), "{last}");
        last["result"].clone()
    }

    /// The code of an error.
    pub async fn error(&self, asked: &Mcp) -> i64 {
        let told = self.ask(asked).await;
        told.last().and_then(|told| told["error"]["code"].as_i64()).unwrap_or_else(|| panic!("{told:?}"))
    }

    /// The task, once it is not working any more.
    pub async fn ended_task(&self, id: &str) -> Value {
        loop {
            let task = self.result(&Mcp::modern("tasks/get", &tasks(), json!({"taskId": id}))).await;
            if task["status"] != "working" {
                return task;
            }
            // The store is in memory: nothing above waits for anybody.
            tokio::task::yield_now().await;
        }
    }
}

fn spec(name: &str, class: EffectClass) -> ToolSpec {
    // The same call many times is no loop here.
    let flags = Flags { polls: true, ..Flags::default() };
    ToolSpec { name: name.into(), class: Some(class), claims: Some(vec![]), flags, ..ToolSpec::default() }
}

/// It asks a person.
struct Asks;

impl Tool for Asks {
    fn spec(&self) -> ToolSpec {
        spec("ask", EffectClass::Stepped)
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let answer = cx.ask("colour", "Which colour?", Some(json!({"type": "string"}))).await?;
            Ok(json!({ "chosen": answer }).into())
        })
    }
}
