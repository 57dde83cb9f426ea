//! The whole surface on one screen. A handler reads the request, asks the runtime, and shows what it said.

use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::view::View;
use crate::wire::{
    Answer, Cancel, Cancelled, Complete, Completed, Connect, Connecting, List, Nothing, Questions,
    REASON_CHARS_MAX, Resolve, Show, Signal, Signalled,
};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::header::CONTENT_TYPE;
use serde::Serialize;
use windlass::{Resolution, Runtime, Target};

/// The API of this runtime.
pub fn router(runtime: Runtime) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/v1/calls", get(calls))
        .route("/v1/calls/{call}", get(call))
        .route("/v1/calls/{call}/cancel", post(cancel_call))
        .route("/v1/calls/{call}/resolve", post(resolve))
        .route("/v1/calls/{call}/accept", post(accept))
        .route("/v1/calls/{call}/result", post(client_result))
        .route("/v1/calls/{call}/signal", post(signal))
        .route("/v1/completions/{key}", post(complete))
        .route("/v1/questions", get(questions))
        .route("/v1/questions/{id}", post(answer))
        .route("/v1/sessions/{session}/calls", get(calls_of_session))
        .route("/v1/sessions/{session}/connections/{provider}", post(connect))
        .route("/v1/sessions/{session}/cancel", post(cancel_session))
        .route("/v1/sessions/{session}/batches/{key}/cancel", post(cancel_batch))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(runtime)
}

type Answered = Result<Response, Problem>;

async fn healthz() -> Answered {
    json(&serde_json::json!({"status": "ok"}))
}

async fn calls(State(runtime): State<Runtime>, Asked(list): Asked<List>) -> Answered {
    json(&View::of(&runtime).list(None, &list).await?)
}

async fn calls_of_session(
    State(runtime): State<Runtime>,
    Named(session): Named<String>,
    Asked(list): Asked<List>,
) -> Answered {
    json(&View::of(&runtime).list(Some(&session), &list).await?)
}

async fn call(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Asked(show): Asked<Show>,
) -> Answered {
    json(&View::of(&runtime).show(&call, show.journal).await?)
}

async fn cancel_call(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Body(body): Body<Cancel>,
) -> Answered {
    cancel(&runtime, Target::Call(&call), &body).await
}

async fn cancel_session(
    State(runtime): State<Runtime>,
    Named(session): Named<String>,
    Body(body): Body<Cancel>,
) -> Answered {
    cancel(&runtime, Target::Session(&session), &body).await
}

async fn cancel_batch(
    State(runtime): State<Runtime>,
    Named((session, key)): Named<(String, String)>,
    Body(body): Body<Cancel>,
) -> Answered {
    cancel(&runtime, Target::Batch { session: &session, key: &key }, &body).await
}

async fn cancel(runtime: &Runtime, target: Target<'_>, body: &Cancel) -> Answered {
    if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let told = format!("a reason has at most {REASON_CHARS_MAX} characters; say it shorter");
        return Err(Problem::new("bad_body", told));
    }
    let asked = runtime.cancel(target, body.reason.as_deref()).await?;
    json(&Cancelled { asked: asked.asked, over: asked.over })
}

async fn resolve(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Body(body): Body<Resolve>,
) -> Answered {
    let landed = body.landed.map(Resolution::Landed);
    match (landed, body.did_not_happen, body.ask_tool) {
        (Some(landed), false, false) => drop(runtime.resolve(&call, landed).await?),
        (None, true, false) => drop(runtime.resolve(&call, Resolution::DidNotHappen).await?),
        (None, false, true) => drop(runtime.reconcile(&call).await?),
        _ => {
            let told =
                "say exactly one of {\"landed\": value}, {\"did_not_happen\": true}, {\"ask_tool\": true}";
            return Err(Problem::new("bad_body", told));
        }
    }
    json(&View::of(&runtime).show(&call, false).await?)
}

async fn accept(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    runtime.accept(&call).await?;
    json(&View::of(&runtime).show(&call, false).await?)
}

/// Whoever has the key may be a stranger, and is told nothing of the call.
async fn complete(
    State(runtime): State<Runtime>,
    Named(key): Named<String>,
    Body(body): Body<Complete>,
) -> Answered {
    runtime.complete(&key, body.said()?).await?;
    json(&Completed { completed: true })
}

async fn client_result(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Body(body): Body<Complete>,
) -> Answered {
    runtime.client_result(&call, body.said()?).await?;
    json(&Completed { completed: true })
}

async fn signal(
    State(runtime): State<Runtime>,
    Named(call): Named<String>,
    Body(Signal { name, payload, key }): Body<Signal>,
) -> Answered {
    let signal = windlass::Signal { name: &name, payload: &payload, key: key.as_deref() };
    runtime.signal(&call, signal).await?;
    json(&Signalled { signalled: true })
}

async fn questions(State(runtime): State<Runtime>, Asked(list): Asked<Questions>) -> Answered {
    json(&View::of(&runtime).questions(&list).await?)
}

async fn answer(
    State(runtime): State<Runtime>,
    Named(id): Named<String>,
    Body(body): Body<Answer>,
) -> Answered {
    runtime.answer(&id, &body.answer).await?;
    json(&Completed { completed: true })
}

async fn connect(
    State(runtime): State<Runtime>,
    Named((session, provider)): Named<(String, String)>,
    Body(body): Body<Connect>,
) -> Answered {
    let reached = runtime.connected(&session, &provider, body.connected).await?;
    json(&Connecting { waiting: reached.waiting })
}

async fn no_such_path() -> Problem {
    Problem::new("not_found", "there is no such path; docs/cli.md lists those there are")
}

async fn no_such_method() -> Problem {
    Problem::new("method_not_allowed", "this path is not asked with this method; docs/cli.md lists them")
}

fn json(value: &impl Serialize) -> Answered {
    let text = serde_json::to_string(value).map_err(|error| Problem::new("internal", error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}
