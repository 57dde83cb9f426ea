//! A server whose tools need people, for the dashboard: `people FOLDER [ADDRESS [first|changed [CALLS]]]`. With `changed` one of its
//! tools has another contract; CALLS are made before it listens.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use serde_json::json;
use std::time::Duration;
use windlass::batch::NestedBatch;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::tool::Progress;
use windlass::{Args, BatchRequest, CallRequest, Config, Cx, Output, Runtime, ToolError, tool};
use windlass_server::{Mount, mount};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The most calls of one batch.
const BATCH_CALLS: u64 = 256;
/// Longer than a server takes to start again.
const CELLAR: Duration = Duration::from_secs(2);
/// Longer than anybody looks.
const TIDE: Duration = Duration::from_secs(120);

/// Paints a door in the colour that a person chooses.
#[tool(class = "stepped")]
async fn paint(door: String, cx: &Cx) -> Result<Output, ToolError> {
    let schema = json!({ "enum": ["red", "green"], "description": "It dries for a day" });
    match cx.ask("colour", "Which colour shall the door have?", Some(schema)).await? {
        Some(colour) => Ok(json!({ "door": door, "colour": colour }).into()),
        None => Err(ToolError::new("Nobody chose a colour.")),
    }
}

/// Sends a letter, once the session has a mail account.
#[tool(class = "once")]
async fn send_letter(to: String, cx: &Cx) -> Result<Output, ToolError> {
    match cx.attempt().0 {
        1 => Err(ToolError::needs_connection("mail", Some("https://mail.example/connect?to=windlass"))),
        _ => Ok(json!({ "sent": to }).into()),
    }
}

/// Says what it is told.
#[tool(class = "read")]
async fn say(message: String) -> Result<String, ToolError> {
    Ok(message)
}

/// Fails at first, and works when it is tried again.
#[tool(class = "read", retry(attempts = 3, base_ms = 10, cap_ms = 20))]
async fn stumble(cx: &Cx) -> Result<String, ToolError> {
    match cx.attempt().0 {
        1 => Err(ToolError::new("It stumbled.").safe_to_retry()),
        _ => Ok("It went on.".into()),
    }
}

/// Finds the tide out, and asks to be tried again later.
#[tool(class = "read")]
async fn sail(ship: String, cx: &Cx) -> Result<String, ToolError> {
    match cx.attempt().0 {
        1 => Err(ToolError::new("The tide is out.").safe_to_retry_after(TIDE.as_millis() as u64)),
        _ => Ok(format!("{ship} has sailed")),
    }
}

/// Holds a crane until somebody cancels it, or for so long.
#[tool(class = "keyed", claims = ["write crane:{crane}"])]
async fn lift(crane: String, ms: u64) -> Result<String, ToolError> {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(format!("lifted with {crane}"))
}

/// Brings a ship in: two cranes make ready, and then it says how far it is until somebody cancels it, or for so long.
#[tool(class = "stepped")]
async fn moor(ship: String, ms: u64, cx: &Cx) -> Result<Output, ToolError> {
    let crane = |name: &str, ms: u64| CallRequest {
        id: Some(format!("{name}-crane")),
        tool: "lift".into(),
        args: Args::Json(json!({ "crane": name, "ms": ms })),
        ..CallRequest::default()
    };
    cx.status("the cranes make ready");
    let cranes =
        NestedBatch { calls: vec![crane("bow", 200), crane("stern", 350)], ..NestedBatch::default() };
    cx.batch("cranes", cranes).await?;
    let half = Progress { current: Some(12.0), total: Some(30.0), unit: Some("m".into()), label: None };
    cx.progress(half);
    cx.status("towards the quay");
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(json!({ "moored": ship }).into())
}

/// Lets a cheese ripen, and then sells it.
#[tool(name = "ripen", class = "stepped")]
async fn ripen(cheese: String, cx: &Cx) -> Result<Output, ToolError> {
    cx.sleep("cellar", CELLAR).await?;
    Ok(json!({ "sold": cheese }).into())
}

/// Lets a cheese ripen, and then sells it at a price: another contract under the same name.
#[tool(name = "ripen", class = "stepped")]
async fn ripen_at_a_price(cheese: String, price: Option<u64>, cx: &Cx) -> Result<Output, ToolError> {
    cx.sleep("cellar", CELLAR).await?;
    Ok(json!({ "sold": cheese, "for": price }).into())
}

/// Makes calls, a batch at a time.
async fn make(runtime: &Runtime, calls: u64) -> Result<(), Error> {
    let call = |number: u64| CallRequest {
        tool: "say".into(),
        args: Args::Json(json!({ "message": number.to_string() })),
        ..CallRequest::default()
    };
    let mut made = 0;
    while made < calls {
        let end = calls.min(made + BATCH_CALLS);
        let batch = BatchRequest { calls: (made..end).map(call).collect(), ..BatchRequest::default() };
        runtime.submit("many", batch).await?.settled().await?;
        made = end;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or("people FOLDER [ADDRESS [first|changed [CALLS]]]")?;
    let address = words.next().unwrap_or_else(|| "127.0.0.1:0".to_string()).parse()?;
    let is_changed = words.next().is_some_and(|word| word == "changed");
    let calls = words.next().map_or(Ok(0), |calls| calls.parse())?;
    let runtime = Runtime::new(Config::new(SqliteStore::open(Options::new(&folder))?));
    runtime.register(paint())?;
    runtime.register(send_letter())?;
    runtime.register(say())?;
    runtime.register(stumble())?;
    runtime.register(sail())?;
    runtime.register(lift())?;
    runtime.register(moor())?;
    match is_changed {
        true => runtime.register(ripen_at_a_price())?,
        false => runtime.register(ripen())?,
    }
    runtime.resume().await?;
    make(&runtime, calls).await?;
    let place = Mount { address: Some(address), folder: Some(folder.into()), ..Mount::default() };
    let mounted = mount(&runtime, place).await?;
    println!("http://{}", mounted.address().ok_or("it has no address")?);
    std::future::pending::<()>().await;
    Ok(())
}
