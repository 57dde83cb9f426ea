//! A model's turn: the calls in a provider's response become a batch, and its answers the messages to append.
//!
//! A response that is posted again, whole or streamed, has the same batch key, so it runs nothing twice. A streamed
//! response pushes its calls as they become complete and then takes the path of a whole one, which finds them there.

use crate::api::{Api, BatchWait};
use crate::extract::BodyPieces;
use crate::images::ImageRoom;
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::turns::{BatchQuery, TurnAnswer, TurnCall};
use serde_json::Value;
use std::collections::BTreeSet;
use windlass::batch::{ProviderData, StreamRequest, StreamedBatch};
use windlass::catalog::CatalogTool;
use windlass::outcome::ModelAnswer;
use windlass::trace::TraceParent;
use windlass::{Args, BatchError, BatchRequest, CallAnswer, CallRequest, Runtime, Submitted, inspect};
use windlass_wire::{
    CallResult, KeyError, ModelCall, ModelTurn, SseError, SseReader, StreamReader, ToolNames, ToolOffer,
    Wire, WireError, batch_key, rest_key,
};

/// A response to be answered: its wire, its place in the conversation, and how long its answer waits.
pub struct TurnPost {
    wire: Wire,
    session: String,
    turn: Option<String>,
    key: Option<String>,
    wait: BatchWait,
    traceparent: Option<TraceParent>,
}

impl TurnPost {
    /// The post of a response over `wire`.
    pub fn new(api: &Api, session: &str, wire: Wire, query: BatchQuery) -> Result<TurnPost, Problem> {
        let BatchQuery { turn, key, wait, timeout_ms, .. } = query;
        let wait = api.waits(wait.unwrap_or_default(), timeout_ms)?;
        Ok(TurnPost { wire, session: session.to_string(), turn, key, wait, traceparent: None })
    }

    /// The post as part of a trace: the spans of its calls continue it.
    #[must_use]
    pub fn traced(self, traceparent: Option<TraceParent>) -> TurnPost {
        TurnPost { traceparent, ..self }
    }

    /// Reads a whole response, and answers it.
    pub async fn answer(&self, api: &Api, response: &str) -> Result<TurnAnswer, Problem> {
        self.take(api, self.wire.read(response)?).await
    }

    /// Reads a response while it arrives, and answers it. Each call starts as soon as it is complete.
    pub(crate) async fn answer_stream(
        &self,
        api: &Api,
        mut body: BodyPieces<'_>,
    ) -> Result<TurnAnswer, Problem> {
        let read = self.read_stream(api, &mut body).await;
        let is_readable = |problem: &Problem| {
            !matches!(problem.code, ProblemCode::BadBody | ProblemCode::TooLarge | ProblemCode::Overloaded)
        };
        if read.as_ref().err().is_some_and(is_readable) {
            // Clients hear an answer once they have sent everything: an earlier one would be a broken connection to them.
            while let Ok(Some(_)) = body.next().await {}
        }
        drop(body);
        let (turn, mut early) = read?;
        early.close().await?;
        self.take(api, turn).await
    }

    /// Reads a response to its end, and starts its calls as they become complete.
    async fn read_stream(
        &self,
        api: &Api,
        body: &mut BodyPieces<'_>,
    ) -> Result<(ModelTurn, EarlyCalls), Problem> {
        let event_bytes_max = usize::try_from(api.runtime().limits().batch_bytes_max).unwrap_or(usize::MAX);
        let (mut events, mut reader) = (SseReader::new(event_bytes_max), StreamReader::new(self.wire));
        let (mut early, names) = (EarlyCalls::default(), self.names(api).await?);
        while let Some(piece) = body.next().await? {
            for event in events.push(&piece)? {
                let calls = reader.push(&event)?;
                if !calls.is_empty() {
                    let key = self.batch_key(reader.response_id())?;
                    early.push(api.runtime(), self, key, requests(&calls, &names)).await?;
                }
            }
        }
        Ok((reader.finish()?, early))
    }

    /// Submits the calls of a turn, waits, and writes the messages.
    async fn take(&self, api: &Api, turn: ModelTurn) -> Result<TurnAnswer, Problem> {
        if turn.calls.is_empty() {
            let (messages, over) = (turn.messages(&[]), turn.is_over());
            return Ok(TurnAnswer { messages, over, key: None, calls: Vec::new() });
        }
        let key = self.batch_key(turn.response_id.as_deref())?;
        let calls = requests(&turn.calls, &self.names(api).await?);
        let batch = BatchRequest {
            key: Some(key.clone()),
            turn: self.turn.clone(),
            calls,
            traceparent: self.traceparent,
            ..BatchRequest::default()
        };
        let submitted = undisturbed({
            let (runtime, session) = (api.runtime().clone(), self.session.clone());
            async move { submit(&runtime, &session, batch).await }
        });
        let mut answers = Vec::new();
        for part in submitted.await? {
            answers.extend(api.settled(&part, self.wait).await?.calls);
        }
        let view = View::of_session(api.runtime(), &self.session);
        let mut images = ImageRoom::new(api.runtime());
        let mut answered: Vec<(&ModelCall, &CallAnswer, ModelAnswer)> = Vec::new();
        for call in &turn.calls {
            let Some(answer) = answers.iter().find(|answer| answer.id() == call.id) else { continue };
            answered.push((call, answer, images.load(view.model(answer)).await?));
        }
        let results: Vec<CallResult<'_>> =
            answered.iter().map(|(call, _, answer)| CallResult { call, answer }).collect();
        let calls = answered.iter().map(|(_, answer, _)| shown(answer)).collect();
        Ok(TurnAnswer { messages: turn.messages(&results), over: turn.is_over(), key: Some(key), calls })
    }

    fn batch_key(&self, response_id: Option<&str>) -> Result<String, KeyError> {
        match &self.key {
            Some(key) => Ok(key.clone()),
            None => batch_key(self.wire, response_id, self.turn.as_deref()),
        }
    }

    /// The names that the session's tools have on this wire.
    async fn names(&self, api: &Api) -> Result<ToolNames, Problem> {
        let tools = api.runtime().tools_of(&self.session).await?;
        Ok(ToolNames::new(self.wire, tools.iter().map(|listed| listed.summary.name.as_str())))
    }
}

/// A catalog as the value of the provider's `tools` field.
pub fn tools(catalog: &[CatalogTool], wire: Wire) -> Value {
    let offer = |tool: &CatalogTool| ToolOffer {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
    };
    wire.tools(&catalog.iter().map(offer).collect::<Vec<_>>())
}

/// The calls of a response that still arrives. A batch of this key that exists already was begun by an earlier post: its
/// calls run or are recorded, and the whole response joins them at its end.
#[derive(Default)]
struct EarlyCalls {
    batch: Option<StreamedBatch>,
    is_left_alone: bool,
}

impl EarlyCalls {
    async fn push(
        &mut self,
        runtime: &Runtime,
        post: &TurnPost,
        key: String,
        calls: Vec<CallRequest>,
    ) -> Result<(), Problem> {
        if self.is_left_alone {
            return Ok(());
        }
        if self.batch.is_none() && !known_ids(runtime, &post.session, &key).await?.is_empty() {
            self.is_left_alone = true;
            return Ok(());
        }
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => {
                let (turn, traceparent) = (post.turn.clone(), post.traceparent);
                let stream = StreamRequest { key, turn, traceparent, ..StreamRequest::default() };
                let (runtime, session) = (runtime.clone(), post.session.clone());
                let opened = undisturbed(async move { runtime.open_batch(&session, stream).await });
                match opened.await {
                    // The whole response is being posted too, or its key or turn is wrong: its end tells.
                    Err(problem) if problem.code == ProblemCode::BadBatch => {
                        self.is_left_alone = true;
                        return Ok(());
                    }
                    opened => opened?,
                }
            }
        };
        let (batch, pushed) = undisturbed(async move {
            let pushed = batch.push(calls).await.map(drop);
            Ok::<_, BatchError>((batch, pushed))
        })
        .await?;
        match pushed {
            Ok(()) => self.batch = Some(batch),
            // The model was silent for so long that the batch closed itself.
            Err(BatchError::Closed { .. }) => self.is_left_alone = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Problem> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        undisturbed(async move { batch.close().await.map(drop) }).await
    }
}

/// Submits a batch. If it was streamed before and closed without some of these calls (its server was killed, or its
/// caller went away), these never ran: they get a batch of their own, under a key that follows from the first.
async fn submit(runtime: &Runtime, session: &str, batch: BatchRequest) -> Result<Vec<Submitted>, BatchError> {
    let key = match runtime.submit(session, batch.clone()).await {
        Err(BatchError::Closed { key }) => key,
        submitted => return Ok(vec![submitted?]),
    };
    let known = known_ids(runtime, session, &key).await?;
    let is_known = |call: &CallRequest| call.id.as_ref().is_some_and(|id| known.contains(id));
    let (old, new) = batch.calls.clone().into_iter().partition(is_known);
    let old = BatchRequest { calls: old, ..batch.clone() };
    let new = BatchRequest { key: Some(rest_key(&key)), calls: new, ..batch };
    let (old, new) = (runtime.submit(session, old).await?, runtime.submit(session, new).await?);
    Ok(vec![old, new])
}

/// The ids of the recorded calls of a batch.
async fn known_ids(runtime: &Runtime, session: &str, key: &str) -> Result<BTreeSet<String>, BatchError> {
    let store = runtime.store();
    let row = store.session(session).await.map_err(windlass::error::SessionError::from)?;
    let found = match &row {
        Some(row) => inspect::batch(store, row, key).await?,
        None => None,
    };
    let calls = found.into_iter().flat_map(|(calls, _)| calls);
    Ok(calls.map(|call| call.answer.id().to_string()).collect())
}

fn requests(calls: &[ModelCall], names: &ToolNames) -> Vec<CallRequest> {
    let request = |call: &ModelCall| CallRequest {
        id: Some(call.id.clone()),
        tool: names.tool(&call.tool).to_string(),
        args: Args::Text(call.args.clone()),
        provider: call.provider.clone().map(|data| ProviderData::written(data.into_boxed_str())),
        ..CallRequest::default()
    };
    calls.iter().map(request).collect()
}

fn shown(answer: &CallAnswer) -> TurnCall {
    let call = answer.handle().to_string();
    TurnCall {
        id: answer.id().to_string(),
        tool: answer.tool().to_string(),
        state: answer.state().to_string(),
        code: answer.failure().map(|failure| failure.code.to_string()),
        task: answer.is_task().then(|| call.clone()),
        call,
    }
}

impl From<WireError> for Problem {
    fn from(error: WireError) -> Problem {
        Problem::new(ProblemCode::BadResponse, error.to_string())
    }
}

impl From<SseError> for Problem {
    fn from(error: SseError) -> Problem {
        Problem::new(ProblemCode::BadResponse, error.to_string())
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Problem {
        Problem::new(ProblemCode::NoResponseId, error.to_string())
    }
}
