//! A sub-agent as one tool: it reads its catalog, starts tasks and awaits them, asks a language model, emits an event that
//! starts another task, and returns text, an image and text. It is `stepped`: killed anywhere, it goes on from its record.

use serde_json::{Value, json};
use std::error::Error;
use windlass::model::{CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, TokenUsage};
use windlass::outcome::Part;
use windlass::tasks::NewTask;
use windlass::triggers::NewTrigger;
use windlass::{Cx, EffectClass, Flags, Output, Runtime, Tool, ToolError, ToolFuture, ToolSpec, tool_fn};

/// The smallest image: one pixel as PNG.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00, 0x00, 0x1f, 0x15, 0xc4, 0x89, 0x00,
    0x00, 0x00, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xff, 0xff, 0xff, 0x7f, 0x00, 0x09,
    0xfb, 0x03, 0xfd, 0x05, 0x43, 0x45, 0xca, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42,
    0x60, 0x82,
];

/// A language model that follows a script, in the place of a client over HTTP.
pub struct Scripted;

impl LanguageModel for Scripted {
    fn complete<'a>(&'a self, request: &'a ModelRequest, _key: &'a str) -> CompletionFuture<'a> {
        Box::pin(async move {
            let question = request.messages.last().map_or("", |message| &message.text);
            let text = format!("The left door is wider. ({} words asked)", question.split(' ').count());
            Ok(ModelReply {
                message: ModelMessage::assistant(text),
                usage: TokenUsage { input: 12, output: 7 },
            })
        })
    }
}

/// The tool `research`.
struct Research;

impl Tool for Research {
    fn spec(&self) -> ToolSpec {
        let finding =
            json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
        ToolSpec {
            name: "research".into(),
            description: "Compares two doors, and archives what it finds.".into(),
            class: Some(EffectClass::Stepped),
            emits: [("finding".to_string(), finding)].into(),
            claims: Some(Vec::new()),
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(research(cx))
    }
}

async fn research(cx: &Cx) -> Result<Output, ToolError> {
    let names = || cx.catalog().into_iter().map(|tool| tool.summary.name).collect::<Vec<String>>();
    let tools: Vec<String> = cx.step("tools", (), |()| async { Ok(names()) }).await?;

    let left = cx.spawn("left", "measure", &json!({ "door": "left" }), NewTask::default()).await?;
    let right = cx.spawn("right", "measure", &json!({ "door": "right" }), NewTask::default()).await?;
    // Here the body is put aside: it costs nothing until a task has ended, and a restart changes nothing.
    let left = cx.await_task("left is measured", left, None).await?;
    let right = cx.await_task("right is measured", right, None).await?;
    let told = |task: Option<windlass::CallAnswer>| task.map(|task| task.model_text()).unwrap_or_default();
    let measured = format!("{} {}", told(left), told(right));

    let messages = vec![ModelMessage::user(format!("Which door is wider? {measured}"))];
    let reply = cx.complete("verdict", ModelRequest { messages, ..ModelRequest::default() }).await?;
    let verdict = reply.message.text;

    let finding = cx.emit("finding", "finding", json!({ "text": verdict })).await?;
    let mut archived = String::new();
    for task in finding.tasks {
        archived = told(cx.await_task("archived", task, None).await?);
    }
    let image = Part::Image { media_type: "image/png".into(), data: PIXEL.into() };
    let parts = vec![Part::Text(measured), image, Part::Text(verdict)];
    let value = json!({ "tools": tools.len(), "tokens": reply.usage.output, "archived": archived });
    Ok(Output { value, parts, ..Output::default() })
}

/// Registers the tools of the example.
pub fn register(runtime: &Runtime) -> Result<(), Box<dyn Error + Send + Sync>> {
    let task = |name: &str| ToolSpec {
        name: name.into(),
        class: Some(EffectClass::Keyed),
        flags: Flags { background: true, ..Flags::default() },
        claims: Some(Vec::new()),
        ..ToolSpec::default()
    };
    runtime.register(Research)?;
    runtime.register(tool_fn(task("measure"), |args, _: &Cx| async move {
        let door = args["door"].as_str().unwrap_or_default().to_string();
        let width = if door == "left" { 90 } else { 80 };
        Ok(json!(format!("The {door} door is {width} cm wide.")).into())
    }))?;
    runtime.register(tool_fn(task("archive"), |args, _: &Cx| async move {
        Ok(json!(format!("archived: {}", args["finding"]["text"].as_str().unwrap_or_default())).into())
    }))?;
    Ok(())
}

/// Has every finding of the session archived.
pub async fn subscribe(runtime: &Runtime, session: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let new = NewTrigger {
        id: Some("archive-findings".into()),
        event: "finding".into(),
        tool: "archive".into(),
        event_as: Some("finding".into()),
        ..NewTrigger::default()
    };
    runtime.triggers(session).create(new).await?;
    Ok(())
}
