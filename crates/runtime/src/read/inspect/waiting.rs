//! One list of everything that waits for a person: approvals, questions, connections, changed tools, unknown outcomes.

mod index;

use index::ListedWait;
pub(crate) use index::WaitingIndex;
pub use index::WaitingSearch;

use crate::api::answer::{as_wall_time, as_wall_time_maybe};
use crate::api::error::{SessionError, chain};
use crate::api::journal::fold;
use crate::read::story::rule_names;
use crate::tools::place::BatchPlace;
use crate::tools::registry::Registry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use windlass_args::named;
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Reason};
use windlass_core::handle::{Handle, HandleKind, approval_id, question_id};
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::operation::Operations;
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_core::time::Timestamp;
use windlass_core::visible;
use windlass_store::Store;

named! {
    /// The kind of a person's answer that a call waits for.
    WaitingKind {
        /// Whether it may run.
        Approval = "approval",
        /// The answer to a question.
        Question = "question",
        /// A connection to a provider.
        Connection = "connection",
        /// Whether it continues with the changed tool.
        ToolChanged = "tool_changed",
        /// Whether it took effect.
        Unknown = "unknown",
    }
}

/// A call that waits for a person, and how to answer it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Waiting")]
pub struct WaitingCall {
    /// The kind of answer.
    #[serde(serialize_with = "as_name")]
    #[schemars(with = "String")]
    pub kind: WaitingKind,
    /// The id for answering: of the approval or the question, else the handle of the call.
    pub id: String,
    /// The session's name.
    pub session: String,
    /// The principal whose call it is, if it is anybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The handle of the call.
    pub call: String,
    /// The model's id of the call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The whole text of what is asked or would run, with invisible characters made visible.
    pub text: String,
    /// The command that answers it.
    pub command: String,
    /// The whole arguments that would run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The digest of everything that an approval covers: an answer must repeat it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The rules that ask.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The reason that they give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether another person than the caller must approve.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// The schema of an answer to a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The provider that must be connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Since when it waits.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// Until when it can be answered.
    #[serde(serialize_with = "as_wall_time_maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
}

fn as_name<S: serde::Serializer>(kind: &WaitingKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}

/// The place of an entry in the list: entries do not move while others are answered. As text it is the cursor of a page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingPlace {
    /// The end of time if it waits for ever.
    until: Timestamp,
    since: Timestamp,
    id: String,
}

impl WaitingPlace {
    /// Parses the text form.
    pub fn parse(text: &str) -> Option<WaitingPlace> {
        let mut parts = text.splitn(3, '.');
        let mut time = || Some(Timestamp(parts.next()?.parse().ok()?));
        let (until, since) = (time()?, time()?);
        Some(WaitingPlace { until, since, id: parts.next()?.to_string() })
    }
}

impl std::fmt::Display for WaitingPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.until.0, self.since.0, self.id)
    }
}

impl WaitingCall {
    /// Its place in the list: the nearest deadline first, then the oldest.
    fn place(&self) -> WaitingPlace {
        let until = self.until.unwrap_or(Timestamp(i64::MAX));
        WaitingPlace { until, since: self.since, id: self.id.clone() }
    }

    /// With its session.
    fn of(mut self, wait: ListedWait<'_>) -> WaitingCall {
        (self.session, self.principal) = (wait.session.to_string(), wait.principal.map(str::to_string));
        if let Some(provider) = &self.provider {
            let provider = visible::line(provider);
            self.command = format!("windlass connections {} {provider} --connected", self.session);
        }
        self
    }
}

/// A part of what waits for a person: the nearest deadline first, then the oldest.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingPart {
    /// The calls, each with its place.
    pub calls: Vec<(WaitingPlace, WaitingCall)>,
    /// The place behind which there are more.
    pub next: Option<WaitingPlace>,
}

/// The first so many of what the search finds, as it is recorded. Sessions whose journals cannot be read are left out, and that is logged.
pub async fn waiting(
    store: &dyn Store,
    now: Timestamp,
    search: &WaitingSearch<'_>,
    limit: usize,
) -> Result<WaitingPart, SessionError> {
    let reader = WaitingReader { store, now, tools: None };
    let mut index = WaitingIndex::default();
    index.refresh(&reader).await?;
    index.part(&reader, search, limit, |_| true).await
}

/// The arguments that run, as text.
fn ran(call: &Call) -> &str {
    call.made.as_ref().and_then(|made| made.args.as_deref()).unwrap_or(&call.opened.args.text)
}

/// The arguments that run, if they are JSON.
fn whole(call: &Call) -> Option<Value> {
    serde_json::from_str(ran(call)).ok()
}

/// Reads what waits from journals.
pub(crate) struct WaitingReader<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) now: Timestamp,
    /// Arguments that these tools declare as secret are masked in the texts.
    pub(crate) tools: Option<&'a Registry>,
}

impl WaitingReader<'_> {
    async fn folded(&self, no: BatchNo) -> Result<Option<Batch>, SessionError> {
        let journal = self.store.journal(no).await?;
        match fold(&journal) {
            Ok(folded) => Ok(Some(folded)),
            // Removed or expired meanwhile.
            Err(_) if journal.is_empty() => Ok(None),
            Err(error @ SessionError::Unreadable { .. }) => {
                tracing::error!(batch = %no, error = %chain(&error), "waiting calls are not listed");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The first so many of these waits. One that was answered since they were listed is left out.
    async fn part(&self, mut listed: Vec<ListedWait<'_>>, limit: usize) -> Result<WaitingPart, SessionError> {
        let more = listed.len() > limit;
        listed.truncate(limit);
        let next = listed.last().filter(|_| more).map(|last| last.place.clone());
        let mut batches: BTreeMap<BatchNo, Vec<(CallId, WaitingCall)>> = BTreeMap::new();
        let mut calls = Vec::with_capacity(listed.len());
        for wait in listed {
            let waits = match batches.entry(wait.call.batch) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(new) => {
                    let batch = self.folded(wait.call.batch).await?;
                    new.insert(batch.map_or_else(Vec::new, |batch| self.waits(wait.call.batch, &batch)))
                }
            };
            let found = waits.iter().find(|(call, found)| *call == wait.call && found.place() == *wait.place);
            calls.extend(found.map(|(_, found)| (wait.place.clone(), found.clone().of(wait))));
        }
        Ok(WaitingPart { calls, next })
    }

    /// The waits of a batch, of open calls and of those that ended as unknown. Their session is added later.
    fn waits(&self, no: BatchNo, batch: &Batch) -> Vec<(CallId, WaitingCall)> {
        let mut found = Vec::new();
        for (call, place) in batch.calls.iter().zip(0..) {
            let id = CallId { batch: no, ordinal: Ordinal(place) };
            let mut add = |waits: Vec<WaitingCall>| found.extend(waits.into_iter().map(|wait| (id, wait)));
            match call.end() {
                None => {
                    add(self.approval(id, call).into_iter().collect());
                    add(self.questions(id, call));
                    add(self.connection(id, call).into_iter().collect());
                    add(self.changed(id, call).into_iter().collect());
                }
                Some(end) if end.is_unknown() => add(vec![self.outcome(id, call, end.at)]),
                Some(_) => {}
            }
        }
        found
    }

    fn plain(&self, kind: WaitingKind, id: CallId, call: &Call) -> WaitingCall {
        let handle = Handle::seal(self.store.secret(), HandleKind::Call, id.packed()).to_string();
        WaitingCall {
            kind,
            id: handle.clone(),
            session: String::new(),
            principal: None,
            call: handle,
            call_id: call.opened.id.to_string(),
            tool: call.opened.tool.to_string(),
            text: String::new(),
            command: String::new(),
            args: None,
            digest: None,
            rules: Vec::new(),
            reason: None,
            four_eyes: false,
            schema: None,
            provider: None,
            since: call.parked.map_or(call.opened_at, |(_, since)| since),
            until: None,
        }
    }

    fn approval(&self, id: CallId, call: &Call) -> Option<WaitingCall> {
        let asked = call.open_approval()?;
        let approval = approval_id(self.store.secret(), id, asked.number);
        let text = format!(
            "{}\n{} asks whether it may run{}",
            self.line(call),
            rule_names(&asked.by),
            asked.reason.as_deref().map(|reason| format!(": {}", visible::line(reason))).unwrap_or_default()
        );
        Some(WaitingCall {
            command: format!("windlass approve {approval}"),
            id: approval,
            text,
            args: whole(call),
            digest: Some(asked.digest.whole()),
            rules: asked.by.iter().map(|name| name.to_string()).collect(),
            reason: asked.reason.as_deref().map(str::to_string),
            four_eyes: asked.four_eyes,
            until: Some(asked.parked.wake_at),
            ..self.plain(WaitingKind::Approval, id, call)
        })
    }

    /// The call in a line, without the secrets of its arguments.
    fn line(&self, call: &Call) -> String {
        let place = BatchPlace::new("".into(), Arc::default(), None);
        let known = self.tools.and_then(|tools| tools.known_for(&place, &call.opened));
        let none = SecretNames::default();
        let names = known.as_ref().map_or(&none, |tool| &tool.secret_names);
        let args = RedactedArgs::of_text(ran(call), names);
        format!("{} {}", visible::line(&call.opened.tool), visible::line(&args.value().to_string()))
    }

    fn questions(&self, id: CallId, call: &Call) -> Vec<WaitingCall> {
        let Some(operations) = call.operations.as_deref() else { return Vec::new() };
        let open = Operations::questions(operations).filter(|(name, _)| !operations.is_over(name, self.now));
        open.map(|(name, question)| {
            let question_id = question_id(self.store.secret(), id, name);
            WaitingCall {
                command: format!("windlass answer {question_id} JSON"),
                id: question_id,
                text: visible::line(&question.text),
                schema: question.schema.as_deref().and_then(|schema| serde_json::from_str(schema).ok()),
                since: question.since(),
                until: Some(question.until.wake_at),
                ..self.plain(WaitingKind::Question, id, call)
            }
        })
        .collect()
    }

    fn connection(&self, id: CallId, call: &Call) -> Option<WaitingCall> {
        let said = call.unconnected()?;
        let plain = self.plain(WaitingKind::Connection, id, call);
        let place = said.setup_url.as_deref().map(|url| format!(" at {}", visible::line(url)));
        Some(WaitingCall {
            text: format!("needs {}{}", visible::line(&said.provider), place.unwrap_or_default()),
            provider: Some(said.provider.to_string()),
            until: Some(said.parked.wake_at),
            ..plain
        })
    }

    fn changed(&self, id: CallId, call: &Call) -> Option<WaitingCall> {
        let (parked, since) = call.parked.filter(|(parked, _)| parked.reason == Reason::ToolChanged)?;
        let plain = self.plain(WaitingKind::ToolChanged, id, call);
        Some(WaitingCall {
            text: "its tool has changed since it started".to_string(),
            command: format!("windlass accept {}", plain.call),
            since,
            until: Some(parked.wake_at),
            ..plain
        })
    }

    fn outcome(&self, id: CallId, call: &Call, at: Timestamp) -> WaitingCall {
        let plain = self.plain(WaitingKind::Unknown, id, call);
        WaitingCall {
            text: format!("{}\nit is not known whether it took effect", self.line(call)),
            command: format!("windlass resolve {} --landed JSON | --did-not-happen", plain.call),
            args: whole(call),
            since: at,
            ..plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_deadline_comes_first_and_a_place_survives_as_text() {
        let place = |until: Option<i64>, since: i64, id: &str| WaitingPlace {
            until: Timestamp(until.unwrap_or(i64::MAX)),
            since: Timestamp(since),
            id: id.to_string(),
        };
        let sorted =
            [place(Some(5), 9, "a.b"), place(Some(7), 1, "c"), place(Some(7), 2, "b"), place(None, 0, "d")];
        assert!(sorted.is_sorted());
        for place in sorted {
            assert_eq!(WaitingPlace::parse(&place.to_string()), Some(place));
        }
        for wrong in ["", "1", "1.2", "x.2.c", "1.x.c"] {
            assert_eq!(WaitingPlace::parse(wrong), None, "{wrong}");
        }
    }
}
