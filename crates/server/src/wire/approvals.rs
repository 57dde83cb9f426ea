//! Bodies and queries about what waits for a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::approvals::{ApprovalDecision, ApprovalPreview, Remember, Remembered, RememberedArgs};
use windlass::inspect::{WaitingCall, WaitingKind, WaitingPart};
use windlass::time::wall_time;
use windlass_core::time::Timestamp;

/// Which waiting calls to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitingQuery {
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Only those of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitingFilter>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this one: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A kind of answer that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFilter {
    /// Whether it may run.
    Approval,
    /// The answer to a question.
    Question,
    /// A connection to a provider.
    Connection,
    /// Whether it continues with the changed tool.
    ToolChanged,
    /// Whether it took effect.
    Unknown,
}

impl From<WaitingFilter> for WaitingKind {
    fn from(filter: WaitingFilter) -> WaitingKind {
        match filter {
            WaitingFilter::Approval => WaitingKind::Approval,
            WaitingFilter::Question => WaitingKind::Question,
            WaitingFilter::Connection => WaitingKind::Connection,
            WaitingFilter::ToolChanged => WaitingKind::ToolChanged,
            WaitingFilter::Unknown => WaitingKind::Unknown,
        }
    }
}

/// A page of calls that wait for a person.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WaitingPage {
    /// The calls: the nearest deadline first, then the oldest.
    pub items: Vec<WaitingCall>,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<WaitingPart> for WaitingPage {
    fn from(part: WaitingPart) -> WaitingPage {
        let items = part.calls.into_iter().map(|(_, waiting)| waiting).collect();
        WaitingPage { items, next: part.next.map(|next| next.to_string()) }
    }
}

/// A person's answer to an approval.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApprovalRequest")]
pub struct DecisionBody {
    /// The answer.
    pub decision: PersonDecision,
    /// The digest that the person was shown.
    pub digest: String,
    /// The arguments that the call runs with instead of those that were shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The reason of a denial, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Gives the same answer to calls of the same kind in this session from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<RememberBody>,
}

/// An answer to an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Decision")]
pub enum PersonDecision {
    /// The call may run.
    Approve,
    /// It may not.
    Deny,
}

/// The calls for which an approval is given again.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Remember")]
pub struct RememberBody {
    /// The JSON pointers of the arguments that such a call must share with this one, as in `["/path"]`; all of them if this is
    /// left out, none if it is an empty list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// For how many seconds; as long as the session is there if this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

impl From<DecisionBody> for ApprovalDecision {
    fn from(body: DecisionBody) -> ApprovalDecision {
        let remembered = |body: RememberBody| Remember {
            args: match body.args {
                None => RememberedArgs::Same,
                Some(pointers) if pointers.is_empty() => RememberedArgs::Any,
                Some(pointers) => RememberedArgs::At(pointers),
            },
            for_ms: body.expires_in_s.map(|seconds| seconds.saturating_mul(1_000)),
        };
        ApprovalDecision {
            approve: body.decision == PersonDecision::Approve,
            digest: body.digest,
            args: body.args,
            reason: body.reason,
            remember: body.remember.map(remembered),
        }
    }
}

/// Edited arguments to check.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApprovalPreviewRequest")]
pub struct PreviewBody {
    /// The edited arguments.
    pub args: Value,
}

/// The result of checking edited arguments.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ApprovalPreview")]
pub struct PreviewView {
    /// Whether they fit the tool.
    pub valid: bool,
    /// The mistakes in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The JSON pointers at which they differ from those that were shown, the first few.
    pub differences: Vec<String>,
}

impl From<ApprovalPreview> for PreviewView {
    fn from(preview: ApprovalPreview) -> PreviewView {
        let ApprovalPreview { problem, differences } = preview;
        PreviewView { valid: problem.is_none(), problem, differences }
    }
}

/// The receipt of an answer to an approval.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct DecisionReceipt {
    /// Always true.
    pub decided: bool,
}

/// An answer that a session gives again by itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Remembered")]
pub struct RememberedView {
    /// Its id, by which it is forgotten.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments that a call must have: JSON pointers with canonical texts, `null` where there must be none.
    pub args: std::collections::BTreeMap<String, Option<String>>,
    /// The principal that approved.
    pub by: String,
    /// When.
    pub at: String,
    /// Until when it counts, if not as long as the session is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

impl From<Remembered> for RememberedView {
    fn from(remembered: Remembered) -> RememberedView {
        let Remembered { id, tool, args, by, at, expires_at, .. } = remembered;
        let time = |at: i64| wall_time(Timestamp(at));
        RememberedView { id, tool, args, by, at: time(at), expires_at: expires_at.map(time) }
    }
}
