//! Clients of providers against an endpoint that follows a script.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test speaks")]

use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use windlass::ask::Target;
use windlass::error::{FailureClass, Retry};
use windlass::model::{
    LanguageModel, ModelMessage, ModelReply, ModelRequest, ModelRole, OfferedTool, TokenUsage, WantedCall,
};
use windlass::store::memory::MemoryStore;
use windlass::{BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_http::{HttpClient, HttpConfig};
use windlass_models::{AnthropicModel, ApiKey, EndpointConfig, OpenAiModel};

const KEY: &str = "sk-hunter2";

/// A request as the endpoint got it: its head and its body.
struct Asked {
    head: String,
    text: String,
    body: Value,
}

/// An endpoint that answers each request with the next text; without one it holds the connection until the client leaves.
struct ScriptedEndpoint {
    url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    left: mpsc::UnboundedReceiver<()>,
}

impl ScriptedEndpoint {
    async fn new(answers: Vec<String>) -> ScriptedEndpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::unbounded_channel();
        let (leave, left) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = tell.send(read(&mut stream).await);
                match answers.next() {
                    Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    None => {
                        while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                        let _ = leave.send(());
                    }
                }
            }
        });
        ScriptedEndpoint { url, asked, left }
    }

    async fn asked(&mut self) -> Asked {
        self.asked.recv().await.unwrap()
    }
}

async fn read(stream: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(bytes).unwrap().to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let text = String::from_utf8(body).unwrap();
    Asked { head, body: serde_json::from_str(&text).unwrap(), text }
}

fn answer(status: &str, headers: &str, body: &Value) -> String {
    written(status, headers, &body.to_string())
}

fn written(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn http() -> HttpClient {
    let allowed = vec!["127.0.0.1".parse().unwrap()];
    HttpClient::new(HttpConfig { allowed, plain_http: true, ..HttpConfig::default() }).unwrap()
}

fn config(base_url: &str) -> EndpointConfig {
    let (base_url, model) = (base_url.to_string(), "small".to_string());
    let parameters = Map::new();
    EndpointConfig { base_url, key: Some(ApiKey::new(KEY)), model, output_tokens_max: 100, parameters }
}

fn openai(url: &str) -> OpenAiModel {
    OpenAiModel::new(http(), config(&format!("{url}/v1")))
}

fn answer_schema() -> Value {
    let properties = json!({"fine": {"type": "boolean"}});
    json!({"type": "object", "properties": properties, "required": ["fine"], "additionalProperties": false})
}

/// A conversation with everything in it.
fn request() -> ModelRequest {
    let wanted = |id: &str| WantedCall { id: id.into(), tool: "look".into(), args: json!({"at": id}) };
    let result = |id: &str| ModelMessage {
        role: ModelRole::Tool,
        text: format!("{id} is fine"),
        call: Some(id.into()),
        ..ModelMessage::default()
    };
    let system = ModelMessage { role: ModelRole::System, ..ModelMessage::user("Be brief.") };
    let asks = ModelMessage { calls: vec![wanted("a"), wanted("b")], ..ModelMessage::assistant("") };
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    ModelRequest {
        messages: vec![system, ModelMessage::user("How is it?"), asks, result("a"), result("b")],
        tools: vec![OfferedTool { name: "look".into(), description: "Looks.".into(), input_schema: schema }],
        schema: Some(answer_schema()),
        output_tokens_max: Some(50),
        ..ModelRequest::default()
    }
}

fn expected() -> ModelReply {
    let calls = vec![WantedCall { id: "c".into(), tool: "look".into(), args: json!({"at": "c"}) }];
    let message = ModelMessage { calls, ..ModelMessage::assistant("Once more.") };
    ModelReply { message, usage: TokenUsage { input: 12, output: 7 } }
}

#[tokio::test]
async fn chat_completions_are_asked_and_read() {
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"c\"}"}});
    let message = json!({"role": "assistant", "content": "Once more.", "tool_calls": [call]});
    let said = json!({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 7}});
    let mut endpoint = ScriptedEndpoint::new(vec![answer("200 OK", "", &said)]).await;
    let reply = openai(&endpoint.url).complete(&request(), "step-key").await.unwrap();
    assert_eq!(reply, expected());
    let Asked { head, body, .. } = endpoint.asked().await;
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(
        head.contains("authorization: bearer sk-hunter2\r\n")
            && head.contains("idempotency-key: step-key\r\n")
    );
    assert_eq!(body["model"], "small");
    assert_eq!(body["max_completion_tokens"], 50);
    let format = json!({"name": "answer", "schema": answer_schema(), "strict": true});
    assert_eq!(body["response_format"], json!({"type": "json_schema", "json_schema": format}));
    assert_eq!(body["tools"][0]["function"]["name"], "look");
    let asked = |id: &str| {
        let function = json!({"name": "look", "arguments": format!("{{\"at\":\"{id}\"}}")});
        json!({"id": id, "type": "function", "function": function})
    };
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": null, "tool_calls": [asked("a"), asked("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "a is fine"},
            {"role": "tool", "tool_call_id": "b", "content": "b is fine"},
        ])
    );
}

#[tokio::test]
async fn messages_are_asked_and_read() {
    let content = json!([{"type": "text", "text": "Once more."},
        {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "c"}}]);
    let said = json!({"id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 2, "cache_creation_input_tokens": null, "output_tokens": 7}});
    let mut endpoint = ScriptedEndpoint::new(vec![answer("200 OK", "", &said)]).await;
    let model = AnthropicModel::new(http(), config(&endpoint.url));
    assert_eq!(model.complete(&request(), "step-key").await.unwrap(), expected());
    let Asked { head, body, .. } = endpoint.asked().await;
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    assert!(head.contains("x-api-key: sk-hunter2\r\n") && head.contains("anthropic-version: 2023-06-01\r\n"));
    assert_eq!((&body["system"], &body["max_tokens"]), (&json!("Be brief."), &json!(50)));
    assert_eq!(body["tools"][0]["name"], "look");
    let format = json!({"type": "json_schema", "schema": answer_schema()});
    assert_eq!(body["output_config"], json!({ "format": format }));
    let asked = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": id}});
    let told =
        |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": format!("{id} is fine")});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "How is it?"}]},
            {"role": "assistant", "content": [asked("a"), asked("b")]},
            {"role": "user", "content": [told("a"), told("b")]},
        ])
    );
}

/// Anthropic's message as it came, with spaces, an order and a number that no rewriting would keep.
const THOUGHT: &str = r#"[ {"type": "thinking", "signature": "EqQB\/=+é\u00e9", "thinking": "Hm.\n"},
  {"type": "redacted_thinking", "data": "b64=="}, {"type": "text", "text": "Once "}, {"text": "more.", "type": "text"},
  {"type": "tool_use", "id": "c", "name": "look", "input": {"z": 1, "at": 12345678901234567890123}} ]"#;

#[tokio::test]
async fn a_message_with_thinking_goes_back_byte_for_byte_unless_it_was_changed() {
    let said =
        format!(r#"{{"id": "m", "role": "assistant", "content": {THOUGHT}, "stop_reason": "tool_use"}}"#);
    let said = written("200 OK", "", &said);
    let mut endpoint = ScriptedEndpoint::new(vec![said.clone(), said.clone(), said.clone(), said]).await;
    let model = AnthropicModel::new(http(), config(&endpoint.url));
    let reply = model.complete(&request(), "k").await.unwrap();
    assert_eq!(reply.message.text, "Once more.");
    endpoint.asked().await;
    // As it comes back from the record.
    let recorded: ModelReply = serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap();
    let after = |message: ModelMessage| {
        let result = ModelMessage {
            role: ModelRole::Tool,
            text: "fine".into(),
            call: Some("c".into()),
            ..ModelMessage::default()
        };
        let messages = vec![ModelMessage::user("How is it?"), message, result];
        ModelRequest { messages, ..request() }
    };
    model.complete(&after(recorded.message.clone()), "k").await.unwrap();
    let inside = THOUGHT.trim_matches(['[', ']', ' ']);
    let blocks: Vec<&str> =
        inside.split_inclusive("},").map(|block| block.trim_end_matches(',').trim()).collect();
    let sent = endpoint.asked().await.text;
    assert_eq!(blocks.len(), 5);
    assert!(sent.contains(&format!(r#""content":[{}]"#, blocks.join(","))), "{sent}");
    // A host that has changed the text or the calls means what it says.
    let edited = ModelMessage { text: "Once.".into(), ..recorded.message.clone() };
    let without_calls = ModelMessage { calls: Vec::new(), ..recorded.message.clone() };
    for message in [edited, without_calls] {
        model.complete(&after(message), "k").await.unwrap();
        let sent = endpoint.asked().await.text;
        assert!(!sent.contains("thinking"), "{sent}");
    }
    // Another provider would not know what to make of it.
    let plain =
        json!({"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}}]});
    let mut endpoint = ScriptedEndpoint::new(vec![answer("200 OK", "", &plain)]).await;
    let reply = openai(&endpoint.url).complete(&after(recorded.message), "k").await.unwrap();
    assert_eq!(reply.message.provider, None, "a message that is text and calls alone is kept once");
    assert!(!endpoint.asked().await.text.contains("thinking"));
}

#[tokio::test]
async fn fields_that_a_compatible_server_adds_go_back_to_it() {
    let call = r#"{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{ \"at\": 1 }"},
        "extra_content": {"google": {"thought_signature": "sig\/="}}}"#;
    let message = format!(
        r#"{{"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [{call}]}}"#
    );
    let said = written(
        "200 OK",
        "",
        &format!(r#"{{"id": "r", "choices": [{{"index": 0, "message": {message}}}]}}"#),
    );
    let mut endpoint = ScriptedEndpoint::new(vec![said.clone(), said]).await;
    let model = openai(&endpoint.url);
    let reply = model.complete(&request(), "k").await.unwrap().message;
    endpoint.asked().await;
    let again = ModelRequest { messages: vec![ModelMessage::user("?"), reply], ..request() };
    model.complete(&again, "k").await.unwrap();
    let sent = endpoint.asked().await.text;
    assert!(sent.contains(&message), "{sent}");
}

#[tokio::test]
async fn parameters_of_the_host_are_sent_and_replace_nothing() {
    let said = json!({"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Fine."}]});
    let mut endpoint = ScriptedEndpoint::new(vec![answer("200 OK", "", &said)]).await;
    let thinking = json!({"type": "enabled", "budget_tokens": 1_024});
    let given =
        json!({"thinking": thinking, "messages": [], "model": "other", "output_config": {"effort": "low"}});
    let parameters = given.as_object().cloned().unwrap();
    let model = AnthropicModel::new(http(), EndpointConfig { parameters, ..config(&endpoint.url) });
    // A schema that the API cannot be held to is told in words.
    let open = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let asked = ModelRequest { schema: Some(open.clone()), ..request() };
    model.complete(&asked, "k").await.unwrap();
    let Asked { body, text, .. } = endpoint.asked().await;
    assert_eq!((&body["thinking"], &body["model"]), (&thinking, &json!("small")));
    assert_eq!((text.matches("\"messages\"").count(), body["messages"].as_array().unwrap().len()), (1, 3));
    assert_eq!(body["output_config"], json!({"effort": "low"}));
    assert!(body["system"].as_str().unwrap().ends_with(&open.to_string()), "{}", body["system"]);
}

async fn refused(status: &str, headers: &str, body: Value) -> ToolError {
    let endpoint = ScriptedEndpoint::new(vec![answer(status, headers, &body)]).await;
    openai(&endpoint.url).complete(&request(), "k").await.unwrap_err()
}

#[tokio::test]
async fn refusals_say_when_to_come_back_and_never_the_key() {
    let said = json!({"error": {"message": format!("Slow down, {KEY}.")}});
    let busy = refused("429 Too Many Requests", "retry-after: 2\r\n", said.clone()).await;
    assert_eq!((busy.class, busy.retry), (FailureClass::Unavailable, Retry::Safe { after_ms: Some(2_000) }));
    assert_eq!(busy.message, "The language model is not available (status 429). Slow down, [key].");
    let down = refused("503 Service Unavailable", "retry-after-ms: 250\r\n", json!("no")).await;
    assert_eq!(down.retry, Retry::Safe { after_ms: Some(250) });
    let (now, soon) = ("date: Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:30 GMT");
    for (headers, after_ms) in [
        (format!("{now}\r\nretry-after: {soon}\r\n"), Some(30_000)),
        (format!("{now}\r\nretry-after: Wednesday, 21-Oct-26 07:28:30 GMT\r\n"), Some(30_000)),
        (format!("{now}\r\nretry-after: Wed, 21 Oct 2026 07:27:00 GMT\r\n"), Some(0)),
        ("retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_string(), Some(0)),
        (format!("{now}\r\nretry-after: soon\r\n"), None),
        (format!("{now}\r\nretry-after: -1\r\n"), None),
    ] {
        let later = refused("503 Service Unavailable", &headers, json!({})).await;
        assert_eq!(later.retry, Retry::Safe { after_ms }, "{headers}");
    }
    assert_eq!(refused("500 No", "", json!({})).await.retry, Retry::Safe { after_ms: None });
    let wrong = refused("400 Bad Request", "", said.clone()).await;
    assert_eq!((wrong.class, wrong.retry), (FailureClass::External, Retry::Never));
    let key = refused("401 Unauthorized", "", said).await;
    assert_eq!(key.class, FailureClass::Internal);
    for error in [busy, down, wrong, key] {
        assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    }
    assert!(!format!("{:?}", openai("https://example.com")).contains(KEY));
    let problem = ApiKey::from_env("WINDLASS_NO_SUCH_KEY").unwrap_err();
    assert_eq!(problem.to_string(), "there is no key in the environment; set WINDLASS_NO_SUCH_KEY");
}

#[tokio::test]
async fn an_endpoint_that_is_not_public_is_refused_unless_it_is_allowed() {
    let endpoint = ScriptedEndpoint::new(Vec::new()).await;
    let guarded = HttpClient::new(HttpConfig { plain_http: true, ..HttpConfig::default() }).unwrap();
    let error = OpenAiModel::new(guarded, config(&endpoint.url)).complete(&request(), "k").await.unwrap_err();
    assert_eq!(error.class, FailureClass::Internal);
    assert!(format!("{error:?}").contains("neither public nor allowed"), "{error:?}");
}

/// A runtime with a tool that asks the endpoint.
fn asking(url: &str) -> Runtime {
    let model = Arc::new(openai(url));
    let runtime = Runtime::new(Config { model: Some(model), ..Config::new(MemoryStore::new().unwrap()) });
    let spec = ToolSpec { name: "ask".into(), class: Some(EffectClass::Stepped), ..ToolSpec::default() };
    let tool = tool_fn(spec, |args: Value, cx: &Cx| {
        let cx = cx.clone();
        async move {
            let timeout_ms = args["timeout_ms"].as_u64();
            let request = ModelRequest {
                messages: vec![ModelMessage::user("?")],
                timeout_ms,
                ..ModelRequest::default()
            };
            let reply = cx.complete("reply", request).await?;
            Ok(json!({"text": reply.message.text, "tokens": reply.usage.output}).into())
        }
    });
    runtime.register(tool).unwrap();
    runtime
}

fn batch(args: Value) -> BatchRequest {
    let args = windlass::Args::Json(args);
    let call = CallRequest { id: Some("c".into()), tool: "ask".into(), args, ..CallRequest::default() };
    BatchRequest { key: Some("k".into()), calls: vec![call], ..BatchRequest::default() }
}

#[tokio::test]
async fn an_answer_is_recorded_with_its_usage_and_a_busy_endpoint_is_asked_again() {
    let busy = answer("429 Too Many Requests", "retry-after-ms: 1\r\n", &json!({}));
    let said = json!({"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 3}});
    let mut endpoint = ScriptedEndpoint::new(vec![busy, answer("200 OK", "", &said)]).await;
    let runtime = asking(&endpoint.url);
    for _again in 0..2 {
        let ended = runtime.submit("s", batch(json!({}))).await.unwrap().settled().await.unwrap();
        assert_eq!(ended.calls[0].model_text(), r#"{"text":"Fine.","tokens":3}"#);
    }
    let keys = [endpoint.asked().await.head, endpoint.asked().await.head].map(|head| {
        head.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(String::from)).unwrap()
    });
    assert_eq!(keys[0], keys[1], "the question is the same one");
    assert!(endpoint.asked.try_recv().is_err(), "a replay does not ask");
}

#[tokio::test]
async fn a_cancel_and_a_timeout_close_the_connection() {
    let mut endpoint = ScriptedEndpoint::new(Vec::new()).await;
    let runtime = asking(&endpoint.url);
    let submitted = runtime.submit("s", batch(json!({}))).await.unwrap();
    endpoint.asked().await;
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    assert_eq!(submitted.settled().await.unwrap().calls[0].state(), "cancelled");
    endpoint.left.recv().await.unwrap();

    let mut endpoint = ScriptedEndpoint::new(Vec::new()).await;
    let late = ModelRequest { timeout_ms: Some(100), ..request() };
    let error = openai(&endpoint.url).complete(&late, "k").await.unwrap_err();
    assert_eq!((error.class, error.retry), (FailureClass::Timeout, Retry::Safe { after_ms: None }));
    endpoint.asked().await;
    endpoint.left.recv().await.unwrap();
}
