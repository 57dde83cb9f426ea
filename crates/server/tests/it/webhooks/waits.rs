//! Waits for a person reach webhooks from the change that records them, with the command that answers them.

use super::receiver::{Delivery, Receiver, Reply};
use super::{add, in_memory, to};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::ask::Target;
use windlass::webhooks::{NewWebhook, WebhookKind};
use windlass::{
    BatchRequest, CallRequest, Cx, EffectClass, Flags, Output, Runtime, Submitted, Tool, ToolError,
    ToolFuture, ToolSpec, tool_fn,
};

fn spec(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() }
}

async fn submit(runtime: &Runtime, key: &str, tool: &str, args: Value) -> Submitted {
    let args = windlass::Args::Json(args);
    let call = CallRequest { id: Some("c".into()), tool: tool.into(), args, ..CallRequest::default() };
    let batch = BatchRequest { key: Some(key.into()), calls: vec![call], ..BatchRequest::default() };
    runtime.submit("s", batch).await.expect("it is taken")
}

/// The next message, which is of this kind.
async fn of_kind(receiver: &mut Receiver, kind: &str) -> (Delivery, Value) {
    let got = receiver.next().await;
    let body = got.json();
    assert_eq!(body["kind"], kind, "{body}");
    (got, body)
}

/// Asks for a colour.
struct AsksColour(ToolSpec);

impl Tool for AsksColour {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let told = cx.ask("colour", "Which colour?\u{202e}", Some(json!({"enum": ["red"]}))).await?;
            Ok(told.unwrap_or_default().into())
        })
    }
}

#[tokio::test]
async fn a_question_goes_out_with_the_command_that_answers_it_and_says_when_it_is_over() {
    let mut receiver = Receiver::new().await;
    let runtime = in_memory();
    runtime.register(AsksColour(spec("ask", EffectClass::Stepped))).expect("it fits");
    let kinds = vec![WebhookKind::Question];
    add(&runtime, NewWebhook { kinds, ..to(receiver.url()) }).await;
    // More than are sent before the question is answered.
    (0..20).for_each(|_| receiver.then(Reply::Status(500)));
    let asked = submit(&runtime, "k", "ask", json!({})).await;
    let (first, body) = of_kind(&mut receiver, "question").await;
    let wait = &body["wait"];
    assert_eq!(
        (&wait["tool"], &wait["name"], &wait["open"]),
        (&json!("ask"), &json!("colour"), &json!(true))
    );
    assert_eq!(wait["text"], "Which colour?\\u{202e}");
    assert!(wait["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{wait}");
    let open = runtime.questions().await.expect("they are listed");
    assert_eq!(wait["answer"]["command"], format!("windlass answer {} JSON", open[0].id));
    assert_eq!(wait["answer"]["path"], format!("/v1/questions/{}", open[0].id));
    runtime.answer(&open[0].id, &json!("red")).await.expect("it is answered");
    asked.settled().await.expect("it ends");
    loop {
        let (again, body) = of_kind(&mut receiver, "question").await;
        assert_eq!(again.header("windlass-id"), first.header("windlass-id"));
        if body["wait"]["open"] == false {
            break;
        }
    }
}

#[tokio::test]
async fn connections_unknown_ends_and_ended_tasks_go_out() {
    let mut receiver = Receiver::new().await;
    let runtime = in_memory();
    let mail = tool_fn(spec("mail", EffectClass::Once), |_, _| async {
        Err(ToolError::needs_connection("mail", Some("https://mail.example/go")))
    });
    runtime.register(mail).expect("it fits");
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = begun.clone();
    runtime
        .register(tool_fn(spec("hold", EffectClass::Once), move |_, _| {
            begins.notify_one();
            std::future::pending::<Result<Output, ToolError>>()
        }))
        .expect("it fits");
    let flags = Flags { background: true, ..Flags::default() };
    let building = ToolSpec { flags, claims: Some(Vec::new()), ..spec("build", EffectClass::Keyed) };
    let build = tool_fn(building, |_, _| async { Ok(json!("built with hunter2-hunter2").into()) });
    runtime.register(build).expect("it fits");
    add(&runtime, to(receiver.url())).await;

    let waiting = submit(&runtime, "mail", "mail", json!({})).await;
    let (_, body) = of_kind(&mut receiver, "connection").await;
    assert_eq!(
        (&body["wait"]["name"], &body["wait"]["text"]),
        (&json!("mail"), &json!("https://mail.example/go"))
    );
    assert_eq!(body["wait"]["answer"]["command"], "windlass connections s 'mail' --connected");
    assert_eq!(body["wait"]["open"], true);
    runtime.cancel(Target::Batch { session: "s", key: "mail" }, None).await.expect("it is asked");
    waiting.settled().await.expect("it ends");

    let held = submit(&runtime, "hold", "hold", json!({})).await;
    begun.notified().await;
    runtime.cancel(Target::Batch { session: "s", key: "hold" }, None).await.expect("it is asked");
    let answer = held.settled().await.expect("it ends");
    let (_, body) = of_kind(&mut receiver, "unknown").await;
    let call = answer.calls[0].handle().to_string();
    assert_eq!((&body["wait"]["call"], &body["wait"]["open"]), (&json!(call), &json!(true)));
    assert_eq!(body["wait"]["answer"]["path"], format!("/v1/calls/{call}/resolve"));

    let task = windlass::tasks::NewTask::default();
    let args = json!({"api_key": "hunter2-hunter2", "what": "door"});
    let call = CallRequest {
        id: Some("b".into()),
        tool: "build".into(),
        args: windlass::Args::Json(args),
        task: Some(task),
        ..CallRequest::default()
    };
    let batch = BatchRequest { key: Some("build".into()), calls: vec![call], ..BatchRequest::default() };
    runtime.submit("s", batch).await.expect("it is taken");
    let (_, body) = of_kind(&mut receiver, "task_ended").await;
    let text = body["notice"]["text"].as_str().expect("a text");
    assert!(text.contains("door") && text.contains("[redacted]"), "{text}");
    assert!(!body.to_string().contains("hunter2"), "{body}");
}
