//! One list of everything that waits for a person: approvals, questions, connections, changed tools, unknown outcomes.

use crate::api::answer::{as_wall_time, as_wall_time_maybe};
use crate::api::error::{SessionError, chain};
use crate::api::journal::fold;
use crate::read::story::rule_names;
use crate::session::notices::unknown_call;
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
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::operation::Operations;
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_core::time::Timestamp;
use windlass_core::visible;
use windlass_store::{RecordPage, SessionRow, Space, Store};

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
}

/// Everything that waits for a person, the nearest deadline first, then the oldest. Sessions whose journals cannot be read are left out, and that is
/// logged.
pub async fn waiting(
    store: &dyn Store,
    now: Timestamp,
) -> Result<Vec<(WaitingPlace, WaitingCall)>, SessionError> {
    waiting_with_tools(store, now, None).await
}

/// That list, in whose texts arguments that a tool declares as secret are masked, too.
pub(crate) async fn waiting_with_tools(
    store: &dyn Store,
    now: Timestamp,
    tools: Option<&Registry>,
) -> Result<Vec<(WaitingPlace, WaitingCall)>, SessionError> {
    let mut reader = WaitingReader { store, now, tools, sessions: BTreeMap::new() };
    let mut found = Vec::new();
    for row in store.open_batches(None).await? {
        if let Some(folded) = reader.folded(row.no).await? {
            reader.open(row.session, row.no, &folded, &mut found).await?;
        }
    }
    reader.unknown(&mut found).await?;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// The arguments that run, as text.
fn ran(call: &Call) -> &str {
    call.made.as_ref().and_then(|made| made.args.as_deref()).unwrap_or(&call.opened.args.text)
}

/// The arguments that run, if they are JSON.
fn whole(call: &Call) -> Option<Value> {
    serde_json::from_str(ran(call)).ok()
}

struct WaitingReader<'a> {
    store: &'a dyn Store,
    now: Timestamp,
    tools: Option<&'a Registry>,
    sessions: BTreeMap<SessionNo, (String, Option<String>)>,
}

/// Records of calls that ended as unknown that are read at once.
const UNKNOWN_PAGE: u64 = 256;

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

    /// The name and the principal of a session.
    async fn session(&mut self, session: SessionNo) -> Result<(String, Option<String>), SessionError> {
        match self.sessions.entry(session) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(new) => {
                let row = self.store.session_by_no(session).await?;
                let known = row.map(|row| (row.name, row.principal)).unwrap_or_default();
                Ok(new.insert(known).clone())
            }
        }
    }

    /// Adds the waits of the open calls of a batch.
    async fn open(
        &mut self,
        session: SessionNo,
        no: BatchNo,
        batch: &Batch,
        found: &mut Vec<(WaitingPlace, WaitingCall)>,
    ) -> Result<(), SessionError> {
        for (call, place) in batch.calls.iter().zip(0..).filter(|(call, _)| call.end().is_none()) {
            let id = CallId { batch: no, ordinal: Ordinal(place) };
            let mut waits = Vec::new();
            waits.extend(self.approval(id, call));
            waits.extend(self.questions(id, call));
            waits.extend(self.connection(id, call));
            waits.extend(self.changed(id, call));
            for mut wait in waits {
                (wait.session, wait.principal) = self.session(session).await?;
                if let Some(provider) = &wait.provider {
                    let provider = visible::line(provider);
                    wait.command = format!("windlass connections {} {provider} --connected", wait.session);
                }
                found.push((wait.place(), wait));
            }
        }
        Ok(())
    }

    /// Adds the calls that ended as unknown.
    async fn unknown(&mut self, found: &mut Vec<(WaitingPlace, WaitingCall)>) -> Result<(), SessionError> {
        let mut last = None;
        loop {
            let sessions = self.store.sessions_with(Space::Unknown, last, UNKNOWN_PAGE).await?;
            let Some(row) = sessions.last() else { return Ok(()) };
            last = Some(row.no);
            for session in &sessions {
                self.unknown_of(session, found).await?;
            }
        }
    }

    /// Adds those of one session.
    async fn unknown_of(
        &mut self,
        session: &SessionRow,
        found: &mut Vec<(WaitingPlace, WaitingCall)>,
    ) -> Result<(), SessionError> {
        let mut after: Option<String> = None;
        loop {
            let shelf = Space::Unknown.of(session.no);
            let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: UNKNOWN_PAGE };
            let records = self.store.records(page).await?;
            let Some(record) = records.last() else { return Ok(()) };
            after = Some(record.key.clone());
            for id in records.iter().filter_map(|record| unknown_call(&record.key)) {
                let Some(batch) = self.folded(id.batch).await? else { continue };
                let Some(call) = batch.calls.get(usize::from(id.ordinal.0)) else { continue };
                if let Some(end) = call.end().filter(|end| end.is_unknown()) {
                    let (session, principal) = (session.name.clone(), session.principal.clone());
                    let wait = WaitingCall { session, principal, ..self.outcome(id, call, end.at) };
                    found.push((wait.place(), wait));
                }
            }
        }
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
