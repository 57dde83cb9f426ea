//! The ruling of the policy on a call that nobody makes, with every rule explained.

use crate::api::error::SessionError;
use crate::features::policy::load;
use crate::features::state;
use crate::path::stage::prepare;
use crate::session::inner::Runtime;
use crate::session::policy::PolicyState;
use crate::tools::place::BatchPlace;
use crate::tools::registry::{NoSuchTool, Registered, ToolLookup};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};
use windlass_core::policy::{CallFacts, Exposure, Judgement, RuleReport, Ruling};

/// A call to be judged without being made.
#[derive(Clone, Debug, Default)]
pub struct PolicyQuestion {
    /// The tool, by name or stable id.
    pub tool: String,
    /// The arguments.
    pub args: Value,
    /// The requesting principal; `None` means that of the session.
    pub principal: Option<String>,
    /// The session whose labels, principal and tools count.
    pub session: Option<String>,
    /// The turn of the batch.
    pub turn: Option<String>,
    /// Whether the session has read private data and untrusted content.
    pub exposed: bool,
}

/// The answer of the policy, with every rule explained.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyCheck {
    /// The tool's name.
    pub tool: String,
    /// The version of the policy.
    pub version: u64,
    /// The ruling: `allow`, `ask` or `deny`.
    pub ruling: String,
    /// Everything that decided: names of rules, the tool itself, or the default.
    pub by: Vec<String>,
    /// The reason of the first deciding rule that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The approver must be another principal than the requesting one.
    pub four_eyes: bool,
    /// Every rule, matched or not.
    pub rules: Vec<CheckedRule>,
}

/// One rule compared with the call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckedRule {
    /// Its name.
    pub name: String,
    /// Its ruling.
    pub ruling: String,
    /// Whether all of its conditions hold.
    pub matched: bool,
    /// Its conditions. A rule without any matches every call.
    pub conditions: Vec<CheckedCondition>,
}

/// One condition compared with the call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckedCondition {
    /// Its place in the rule, such as `when.args[0]`.
    pub place: String,
    /// The condition in words.
    pub condition: String,
    /// The comparison: `matches`, `differs`, `absent` or `mistyped`.
    pub finding: String,
    /// Whether it holds. An absent or mistyped value holds in `ask` and `deny` rules, and in no `allow` rule.
    pub holds: bool,
}

/// Why a call could not be judged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The session, or the runtime, has no such tool.
    #[error(transparent)]
    Tool(#[from] NoSuchTool),
    /// The provider of the tool cannot load it now.
    #[error("the tool {tool:?} cannot be loaded: {reason}; try again later")]
    Unavailable {
        /// The tool.
        tool: String,
        /// The provider's error.
        reason: String,
    },
    /// The session or the store is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A call that nobody makes, checked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallCheck {
    /// Whether the arguments fit the tool, as they are or after repairs.
    pub valid: bool,
    /// The mistakes in the arguments, one line for each, as the model would be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The repairs that make the arguments fit.
    pub repairs: Vec<String>,
    /// The arguments that would run; absent if they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The ruling of the policy on those arguments; absent if they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyCheck>,
}

impl Runtime {
    /// Checks a call without making it: whether its arguments fit the tool, which repairs would be made, and what the policy says.
    /// References to secrets are checked as the texts that they are.
    pub async fn check_call(&self, question: PolicyQuestion) -> Result<CallCheck, CheckError> {
        let tool = self.tool_to_check(&question).await?;
        let given = Arguments { given: Given::Json, text: question.args.to_string().into() };
        match prepare::would_fit(&tool, &given, &self.0.limits) {
            Err(failure) => {
                let problem = Some(failure.message);
                Ok(CallCheck { valid: false, problem, repairs: Vec::new(), args: None, policy: None })
            }
            Ok((args, repairs)) => {
                let policy = self.check_policy(&PolicyQuestion { args: args.clone(), ..question }).await?;
                let repairs = repairs.iter().map(ToString::to_string).collect();
                let (args, policy) = (Some(args), Some(policy));
                Ok(CallCheck { valid: true, problem: None, repairs, args, policy })
            }
        }
    }

    async fn tool_to_check(&self, question: &PolicyQuestion) -> Result<Arc<Registered>, CheckError> {
        let session: Arc<str> = question.session.as_deref().unwrap_or_default().into();
        let place = BatchPlace::new(session, "".into(), None);
        match self.0.registry.look_up(&place, &question.tool).await {
            ToolLookup::Tool(tool) => Ok(tool),
            ToolLookup::Missing { nearest } => {
                Err(NoSuchTool { name: question.tool.clone(), nearest }.into())
            }
            ToolLookup::Unavailable(error) => {
                let (tool, reason) = (question.tool.clone(), error.message);
                Err(CheckError::Unavailable { tool, reason })
            }
        }
    }

    /// The policy's ruling on a call that is not made, with every rule explained. A session that does not exist yet has no labels.
    pub async fn check_policy(&self, question: &PolicyQuestion) -> Result<PolicyCheck, CheckError> {
        let rt = &self.0;
        load(rt).await?;
        let tool = self.tool_to_check(question).await?;
        let (owner, labels) = match &question.session {
            Some(session) => state::principal_and_labels(&*rt.store, session).await?,
            None => (None, Default::default()),
        };
        let call = CallFacts {
            principal: question.principal.as_deref().or(owner.as_deref()),
            labels: &labels,
            turn: question.turn.as_deref(),
            args: &question.args,
            exposure: Exposure { private: question.exposed, untrusted: question.exposed },
            tool_asks: tool.asks_about(&question.args),
        };
        let current = rt.current_policy();
        let (judgement, rules) = match &current.state {
            PolicyState::Sound(policy) => {
                let judgement = tool.policy_rules(current.version, policy).rules.judge(&call);
                (judgement, policy.explain(&tool.facts(), &call))
            }
            PolicyState::Broken(reason) => (broken(reason), Vec::new()),
        };
        let by = judgement.by.iter().map(ToString::to_string);
        Ok(PolicyCheck {
            tool: tool.spec.name.clone(),
            version: current.version,
            ruling: judgement.ruling.to_string(),
            by: by.collect(),
            reason: judgement.reason,
            four_eyes: judgement.four_eyes,
            rules: rules.into_iter().map(CheckedRule::from).collect(),
        })
    }
}

/// The judgement of a broken policy.
fn broken(reason: &str) -> Judgement {
    Judgement {
        ruling: Ruling::Deny,
        by: Vec::new(),
        four_eyes: false,
        untrusted: false,
        expires_ms: None,
        on_expiry: Ruling::Deny,
        reason: Some(format!("the policy is broken, so everything is denied: {reason}")),
    }
}

impl From<RuleReport> for CheckedRule {
    fn from(report: RuleReport) -> CheckedRule {
        let condition = |condition: windlass_core::policy::ConditionReport| CheckedCondition {
            place: condition.place,
            condition: condition.condition,
            finding: condition.finding.to_string(),
            holds: condition.holds,
        };
        CheckedRule {
            name: report.name.to_string(),
            ruling: report.ruling.to_string(),
            matched: report.matched,
            conditions: report.conditions.into_iter().map(condition).collect(),
        }
    }
}
