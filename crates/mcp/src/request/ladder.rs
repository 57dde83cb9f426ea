//! The ladder of answers to a call that is not over: a task where the client takes one, a form where a person is asked, a round
//! where the client repeats by itself, else a sentence that the call goes on.

use super::{BegunCall, CallIdentity, CallTask};
use crate::list::WAIT_TASK;
use crate::message::{RpcError, notification};
use crate::peer::Era;
use crate::people::{self, PersonForm};
use crate::seal::{self, Purpose};
use crate::{result, task};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::{Instant, interval_at};
use windlass::CallAnswer;

/// How long a client may take to repeat a call, in microseconds: a person may be asked meanwhile.
const STATE_US_MAX: i64 = 24 * 3_600 * 1_000_000;

/// How long the answer of a tool is held that is never answered before its end: longer than any of its deadlines.
const DIRECT_HOLD: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long an answer is held while a client of the older era shows a form.
const FORM_WAIT: Duration = Duration::from_secs(300);
/// How often is looked whether the server of a tool asks a person.
const ASKS_LOOKS_EVERY: Duration = Duration::from_millis(250);

/// A call after its answer was held.
pub(super) enum Seen {
    Ended(Box<CallAnswer>),
    /// It goes on, or waits for these.
    Open(Vec<PersonForm>),
}

/// The result that a client gets.
pub(super) struct Rung {
    pub(super) result: Value,
    /// Whether it is the end of the call.
    pub(super) is_over: bool,
}

/// State that the client keeps until it repeats the call.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct RequestState {
    pub(crate) principal: String,
    pub(crate) session: String,
    /// The digest of the call.
    pub(crate) digest: String,
    /// The key of its batch.
    pub(crate) key: String,
    pub(crate) round: u64,
    /// In microseconds since 1970.
    pub(crate) until: i64,
}

impl CallTask {
    /// How long the answer is held.
    pub(super) fn hold(&self) -> Duration {
        if self.call.stays_direct {
            return DIRECT_HOLD;
        }
        let limits = self.gateway.runtime().limits();
        let has_long = self.peer.progress.is_some() && !self.peer.takes_tasks;
        Duration::from_millis(if has_long { limits.mcp_progress_hold_ms } else { limits.mcp_hold_ms })
    }

    /// Holds the answer, and reports progress meanwhile.
    pub(super) async fn watch(
        &self,
        begun: &BegunCall,
        voice: &crate::conversation::ConversationVoice,
    ) -> Result<Seen, RpcError> {
        let every = Duration::from_millis(self.gateway.runtime().limits().mcp_progress_ms.max(1));
        let mut ticks = interval_at(Instant::now() + every, every);
        let mut looks = interval_at(Instant::now() + ASKS_LOOKS_EVERY, ASKS_LOOKS_EVERY);
        let (mut told, mut asks) = (0_u64, self.asks_people());
        let runtime = self.gateway.runtime();
        let (ended, still, late) = (begun.ended(), begun.stands_still(), runtime.sleep(self.hold()));
        let shown = self.show_forms(begun, voice, Vec::new());
        let mut is_shown = false;
        tokio::pin!(ended, still, late, shown);
        loop {
            let forms = tokio::select! {
                biased;
                answer = &mut ended => return Ok(Seen::Ended(Box::new(answer?))),
                stands = &mut still, if asks => {
                    stands?;
                    asks = false;
                    self.forms(begun).await?
                }
                _ = looks.tick(), if asks && self.call.asks_inside => self.new_forms(begun).await?,
                decided = &mut shown, if is_shown => {
                    is_shown = false;
                    // It may ask once more; whoever closed the form is not asked again.
                    asks = decided?;
                    still.set(begun.stands_still());
                    late.set(runtime.sleep(self.hold()));
                    continue;
                }
                _ = ticks.tick(), if self.peer.progress.is_some() => {
                    told += 1;
                    voice.progress(self.progress(told, begun));
                    continue;
                }
                () = &mut late => {
                    let is_modern = self.peer.era == Era::Modern;
                    return Ok(Seen::Open(if is_modern { self.forms(begun).await? } else { Vec::new() }));
                }
                () = self.gateway.closes(), if self.visitor.bridge.is_none() => return Ok(Seen::Open(Vec::new())),
            };
            match self.peer.era {
                _ if forms.is_empty() => {}
                Era::Modern => return Ok(Seen::Open(forms)),
                Era::Legacy => {
                    shown.set(self.show_forms(begun, voice, forms));
                    (asks, is_shown) = (false, true);
                    late.set(runtime.sleep(FORM_WAIT));
                }
            }
        }
    }

    /// Whether the client can show a form.
    fn asks_people(&self) -> bool {
        self.peer.shows_forms
    }

    /// Has a client of the older era show these forms, and takes the answers; whether a person has decided.
    async fn show_forms(
        &self,
        begun: &BegunCall,
        voice: &crate::conversation::ConversationVoice,
        forms: Vec<PersonForm>,
    ) -> Result<bool, RpcError> {
        let mut answers = Map::new();
        for form in forms {
            let sent = self.gateway.forms().open(&self.visitor.principal)?;
            if !voice.tell(form.request(&sent.id)).await {
                return Ok(false);
            }
            answers.insert(form.key().to_string(), sent.answer().await);
        }
        // A question has no other answer than an answer: whoever declines it is not asked again.
        let decides = |(key, answer): (&String, &Value)| match answer["action"].as_str() {
            Some("accept") => true,
            Some("decline") => PersonForm::is_approval(key),
            _ => false,
        };
        let is_decided = answers.iter().all(decides);
        let call = begun.handle().await?;
        let taken = people::take(&self.gateway, &self.visitor, &call, &answers).await;
        taken.map_err(|error| RpcError::params(error.to_string()))?;
        Ok(is_decided)
    }

    /// The forms that this request does not answer already: whoever closes one is asked again only after a while.
    async fn new_forms(&self, begun: &BegunCall) -> Result<Vec<PersonForm>, RpcError> {
        let mut forms = self.forms(begun).await?;
        forms.retain(|form| !self.call.answers.contains_key(form.key()));
        Ok(forms)
    }

    async fn forms(&self, begun: &BegunCall) -> Result<Vec<PersonForm>, RpcError> {
        if !self.asks_people() {
            return Ok(Vec::new());
        }
        let call = begun.handle().await?;
        let forms = people::forms(&self.gateway, &self.visitor, &call).await;
        forms.map_err(|error| RpcError::internal(&error))
    }

    /// The notification that the call is still under way. Its number only grows; the tool's own report is in the message.
    fn progress(&self, told: u64, begun: &BegunCall) -> Value {
        let live = self.gateway.runtime().live_in(&self.visitor.session);
        let call = live.into_iter().find(|call| call.batch == begun.key);
        let message = call.map_or_else(|| "under way".to_string(), |call| task::status_message(&call));
        notification(
            "notifications/progress",
            json!({"progressToken": self.peer.progress, "progress": told, "message": message}),
        )
    }

    /// The result for what was seen.
    pub(super) async fn rung(&self, begun: &BegunCall, seen: Seen) -> Result<Rung, RpcError> {
        let runtime = self.gateway.runtime();
        let forms = match seen {
            Seen::Ended(answer) => {
                let mut ended = result::of_answer(runtime, &answer).await;
                let is_repeat =
                    answer.is_recorded() && matches!(self.call.identity, CallIdentity::Line { .. });
                if is_repeat {
                    result::add_text(&mut ended, JOINED);
                    ended["_meta"]["io.windlass/joined"] = json!(answer.handle().to_string());
                }
                return Ok(Rung { result: self.signed(ended), is_over: true });
            }
            Seen::Open(forms) => forms,
        };
        let is_wait = self.call.tool == WAIT_TASK;
        let result = if self.peer.takes_tasks && !is_wait {
            // Recorded first: the client may ask for the task at once.
            let answer = begun.now().await?;
            let mut created = task::described(runtime, &answer, !forms.is_empty());
            created["resultType"] = json!("task");
            self.signed(created)
        } else if !forms.is_empty() {
            let state = self.state(begun, self.call.round);
            let asked = people::requests(&forms);
            self.signed(
                json!({"resultType": "input_required", "inputRequests": asked, "requestState": state}),
            )
        } else if self.peer.repeats() && !is_wait && self.call.round < runtime.limits().mcp_rounds_max {
            // The repetition may reach another process.
            begun.now().await?;
            let state = self.state(begun, self.call.round + 1);
            self.signed(json!({"resultType": "input_required", "requestState": state}))
        } else {
            self.signed(result::text(self.goes_on(begun).await?, false))
        };
        Ok(Rung { result, is_over: false })
    }

    /// Tells the model that the call goes on, and how to get its result.
    async fn goes_on(&self, begun: &BegunCall) -> Result<String, RpcError> {
        let answer = begun.now().await?;
        let stands = if answer.is_task() { String::new() } else { format!(" {}", answer.model_text()) };
        let task = answer.handle();
        Ok(format!(
            "The call is not over and continues as task {task}.{stands} Call the tool {WAIT_TASK} with {{\"task\": \"{task}\"}} to \
             get its result. Do not make the call again."
        ))
    }

    fn state(&self, begun: &BegunCall, round: u64) -> String {
        let runtime = self.gateway.runtime();
        let state = RequestState {
            principal: self.visitor.principal.to_string(),
            session: self.visitor.session.clone(),
            digest: self.call.digest.clone(),
            key: begun.key.clone(),
            round,
            until: runtime.clock().now().0.saturating_add(STATE_US_MAX),
        };
        seal::seal(&**runtime.store(), Purpose::RequestState, &state)
    }

    /// A result as its era wants it.
    pub(super) fn signed(&self, result: Value) -> Value {
        crate::hello::signed(self.peer.era, result)
    }
}

/// Said of an answer that was made for an earlier call.
const JOINED: &str = "(This is the answer of an identical call made a short while ago, whose answer was not delivered. It was not \
                      made a second time; if it shall happen again, call once more.)";
