//! A sub-agent as one tool: it works in a child session with two tools, turn by turn, and asks the model with `complete`. Killed
//! anywhere, it goes on from its record: `sub_agent FOLDER TASK`, with OPENAI_BASE_URL and OPENAI_API_KEY set.
#![allow(clippy::print_stdout, reason = "an agent answers")]

use serde_json::json;
use std::sync::Arc;
use windlass::batch::NestedBatch;
use windlass::model::{ModelMessage, ModelRequest, ModelRole, OfferedTool};
use windlass::sessions::ChildSpec;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Args, BatchRequest, CallRequest, Config, Cx, Runtime, ToolError, tool};
use windlass_http::{HttpClient, HttpConfig};
use windlass_models::{ApiKey, EndpointConfig, OpenAiModel};

/// Writes a file.
#[tool(class = "keyed", claims = ["write file:{path}"])]
async fn write_file(path: String, text: String) -> Result<String, ToolError> {
    std::fs::write(&path, text)?;
    Ok(format!("wrote {path}"))
}

/// Replaces a text in a file. The file must exist.
#[tool(class = "keyed", claims = ["write file:{path}"])]
async fn edit_file(path: String, old: String, new: String) -> Result<String, ToolError> {
    let text = std::fs::read_to_string(&path).map_err(|_| ToolError::new(format!("No file {path}.")))?;
    std::fs::write(&path, text.replace(&old, &new))?;
    Ok(text.replace(&old, &new))
}

/// Hands a task to an assistant that can write and edit files.
#[tool(class = "stepped", claims = [], timeout_ms = 600_000)]
async fn assistant(task: String, cx: &Cx) -> Result<String, ToolError> {
    let names = ["write_file", "edit_file"];
    let offered = cx.catalog().into_iter().filter(|tool| names.contains(&tool.summary.name.as_str()));
    let tools: Vec<OfferedTool> = offered
        .map(|tool| OfferedTool {
            input_schema: tool
                .tool
                .as_ref()
                .and_then(|tool| tool.spec.input_schema.clone())
                .unwrap_or_default(),
            description: tool.summary.description.clone(),
            name: tool.summary.name,
        })
        .collect();
    let child = ChildSpec { tools: Some(names.map(String::from).to_vec()), ..ChildSpec::default() };
    let child = cx.child("assistant", child).await?;
    let mut messages = vec![ModelMessage::user(task)];
    for turn in 1..=20 {
        let request =
            ModelRequest { messages: messages.clone(), tools: tools.clone(), ..ModelRequest::default() };
        let reply = cx.complete(&format!("thought {turn}"), request).await?.message;
        if reply.calls.is_empty() {
            return Ok(reply.text);
        }
        let wanted = reply.calls.iter().map(|call| CallRequest {
            id: Some(call.id.clone()),
            tool: call.tool.clone(),
            args: Args::Json(call.args.clone()),
            ..CallRequest::default()
        });
        let batch = NestedBatch { calls: wanted.collect(), ..NestedBatch::default() };
        let answer = child.batch(&format!("turn {turn}"), batch).await?;
        messages.push(reply);
        messages.extend(answer.calls.iter().map(|call| ModelMessage {
            role: ModelRole::Tool,
            text: call.model_text(),
            call: Some(call.id().to_string()),
            ..ModelMessage::default()
        }));
    }
    Err(ToolError::new("The assistant did not finish within 20 turns. Give it a smaller task."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let [folder, task] = [1, 2].map(|nth| std::env::args().nth(nth).unwrap_or_default());
    // The endpoint of this example may be on this machine; without that line it is refused.
    let http = HttpConfig { allowed: vec!["127.0.0.1".parse()?], plain_http: true, ..HttpConfig::default() };
    let endpoint = EndpointConfig {
        base_url: std::env::var("OPENAI_BASE_URL")?,
        key: Some(ApiKey::from_env("OPENAI_API_KEY")?),
        model: "gpt-5".into(),
        output_tokens_max: 4_096,
        parameters: serde_json::Map::new(),
    };
    let model = OpenAiModel::new(HttpClient::new(http)?, endpoint);
    let store = SqliteStore::open(Options::new(folder))?;
    let runtime = Runtime::new(Config { model: Some(Arc::new(model)), ..Config::new(store) });
    runtime.register(write_file())?;
    runtime.register(edit_file())?;
    runtime.register(assistant())?;
    runtime.resume().await?;
    let args = Args::Json(json!({ "task": task }));
    let call =
        CallRequest { id: Some("c1".into()), tool: "assistant".into(), args, ..CallRequest::default() };
    let batch = BatchRequest { key: Some("task-1".into()), calls: vec![call], ..BatchRequest::default() };
    let answer = runtime.submit("main", batch).await?.settled().await?;
    println!("{}", answer.calls[0].model_text());
    Ok(())
}
