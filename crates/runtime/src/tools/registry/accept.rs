//! Accepting tools: checks, and everything a call needs compiled.

use super::Kinds;
use crate::api::limits::EnforcedLimits;
use crate::api::locks::{LockRank, OrderedRwLock};
use crate::api::output::ToolError;
use crate::api::polling::caught;
use crate::tools::meter::Meter;
use crate::tools::policy::ToolPolicy;
use crate::tools::tool::Tool;
use crate::tools::toolbox::ToolboxLink;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use windlass_args::schema::{self, Schema, SchemaRole};
use windlass_core::attempt::{Deadlines, Rules};
use windlass_core::claim::{BadArgs, BadClaim, Claim, ClaimTemplate, Claims};
use windlass_core::dedupe::{self, Dedupe};
use windlass_core::grant::GrantedTool;
use windlass_core::plan::Cap;
use windlass_core::policy::{Policy, ToolFacts};
use windlass_core::projection::BudgetError;
use windlass_core::rate::Rate;
use windlass_core::redact::SecretNames;
use windlass_core::tool::{
    ApprovalRule, BadName, Digest, EffectClass, Flags, Need, Origin, ToolSource, ToolSpec, check_name,
};

/// An accepted tool, with everything a call needs compiled.
pub struct Registered {
    /// The author's description.
    pub spec: ToolSpec,
    /// The effective class.
    pub class: EffectClass,
    /// The contract that calls are pinned to.
    pub contract: Digest,
    /// The rules of its attempts, unless a call shortens them.
    pub rules: Rules,
    /// Whether it can be asked if an attempt took effect.
    pub reconciles: bool,
    pub(crate) tool: Arc<dyn Tool>,
    /// The toolbox it is of, if it is of one.
    pub(crate) link: Option<Arc<ToolboxLink>>,
    pub(crate) input: Option<Schema>,
    pub(crate) output: Option<Schema>,
    /// Shared with its replacement.
    pub(crate) paused: Arc<AtomicBool>,
    /// Its stopped attempts that still block a thread.
    pub(crate) stuck: AtomicU64,
    /// Whether a person may have to be asked about its calls even where there is no policy.
    pub(crate) asks: bool,
    /// The origin of its results.
    pub(crate) origin: Origin,
    /// Counters of its calls, from the first call on.
    pub(crate) meter: OnceLock<Arc<Meter>>,
    declared: Option<DeclaredClaims>,
    /// The events and signals it declares.
    pub(crate) kinds: Option<Arc<Kinds>>,
    /// Its arguments that are never shown to people.
    pub(crate) secret_names: SecretNames,
    /// Its dedupe key, and how long the key is valid.
    key: Option<(dedupe::KeyTemplate, Option<u64>)>,
    /// Whether the planner knows its limits.
    announced: AtomicBool,
    /// The rules in recorded form: `None` for the defaults.
    recorded: Option<Arc<Rules>>,
    /// The rules of a version of the policy that can match its calls.
    policy: OrderedRwLock<Option<Arc<ToolPolicy>>, { LockRank::ToolRules as u8 }>,
}

/// The claims of a tool's calls by its declaration.
enum DeclaredClaims {
    /// Independent of the arguments.
    Fixed(Claims),
    /// Depending on the arguments.
    Templates(Vec<ClaimTemplate>),
}

/// Why the claims of a call cannot be determined.
pub(crate) enum Unclaimed {
    Args(BadArgs),
    Failed(ToolError),
    Panicked(String),
}

/// Why the dedupe key of a call cannot be determined.
pub(crate) enum Unkeyed {
    Args(dedupe::MissingKey),
    Panicked(String),
}

impl Registered {
    /// The facts of the tool that a policy looks at.
    pub(crate) fn facts(&self) -> ToolFacts<'_> {
        ToolFacts {
            name: &self.spec.name,
            id: self.spec.stable_id(),
            source: self.spec.source,
            server: self.server(),
            class: self.class,
            hints: &self.spec.hints,
            asks: self.spec.approval == ApprovalRule::Ask,
        }
    }

    /// The toolbox or the MCP server that it comes from.
    fn server(&self) -> Option<&str> {
        let declared = Some(self.spec.server.as_str()).filter(|server| !server.is_empty());
        self.link.as_ref().map(|link| &*link.toolbox).or(declared)
    }

    /// The facts of the tool that a grant looks at.
    pub(crate) fn granted(&self) -> GrantedTool<'_> {
        GrantedTool {
            name: &self.spec.name,
            id: self.spec.stable_id(),
            source: self.spec.source,
            contract: &self.contract,
        }
    }

    /// The rules of this version of the policy that can match its calls; found once for each version.
    pub(crate) fn policy_rules(&self, version: u64, policy: &Policy) -> Arc<ToolPolicy> {
        if let Some(known) = &*self.policy.read()
            && known.version == version
        {
            return Arc::clone(known);
        }
        let found = Arc::new(ToolPolicy::new(version, policy.for_tool(&self.facts())));
        *self.policy.write() = Some(Arc::clone(&found));
        found
    }

    /// Whether the tool itself asks about a call with these arguments. One that cannot say so asks.
    pub(crate) fn asks_about(&self, args: &Value) -> bool {
        self.spec.approval == ApprovalRule::ByArgs && caught(|| self.tool.asks(args)).unwrap_or(true)
    }

    /// The dedupe key of a call with these arguments; `None` if it has none.
    pub(crate) fn dedupe(&self, args: &Value) -> Result<Option<Dedupe>, Unkeyed> {
        if let Some(said) = caught(|| self.tool.dedupe(args)).map_err(Unkeyed::Panicked)? {
            return Ok(Some(said));
        }
        let Some((template, for_ms)) = &self.key else { return Ok(None) };
        let key = template.key(args).map_err(Unkeyed::Args)?;
        Ok(Some(Dedupe { key, for_ms: *for_ms }))
    }

    /// The claims of a call with these arguments; `None` if the tool declares none.
    pub(crate) fn claims(&self, args: &Value, limits: &EnforcedLimits) -> Option<Result<Claims, Unclaimed>> {
        match caught(|| self.tool.claims(args)) {
            Ok(None) => {}
            Ok(Some(said)) => return Some(said.map_err(Unclaimed::Failed)),
            Err(panic) => return Some(Err(Unclaimed::Panicked(panic))),
        }
        Some(match self.declared.as_ref()? {
            DeclaredClaims::Fixed(claims) => Ok(claims.clone()),
            DeclaredClaims::Templates(templates) => filled(templates, args, limits),
        })
    }

    /// Whether its calls have limits of their own.
    pub(crate) fn is_limited(&self) -> bool {
        self.spec.running_max.is_some() || self.spec.rate.is_some() || !self.spec.groups.is_empty()
    }

    /// Whether only the slots of its toolbox limit its calls.
    pub(crate) fn is_limited_by_slots_alone(&self) -> bool {
        self.link.is_some() && self.spec.running_max.is_none() && self.spec.rate.is_none()
    }

    /// The limits of its calls.
    pub(crate) fn cap(&self) -> Cap {
        let rate = |(count, ms): (u32, u64)| Rate { count, period_us: ms.saturating_mul(1_000) };
        Cap { running_max: self.spec.running_max, rate: self.spec.rate.map(rate) }
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_announced(&self) {
        self.announced.store(true, Ordering::Relaxed);
    }

    /// Whether it is paused, see [`Runtime::pause`](crate::Runtime::pause).
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// The rules of a call with these deadlines, in recorded form.
    pub(crate) fn rules_for(&self, asked: Option<&Deadlines>) -> Option<Arc<Rules>> {
        let Some(asked) = asked else { return self.recorded.clone() };
        let rules = self.rules.shortened(asked);
        if rules == self.rules { self.recorded.clone() } else { recorded(rules, self.class) }
    }

    /// The rules of a call with these deadlines and another change of the tool's rules, in recorded form.
    pub(crate) fn rules_with(
        &self,
        asked: Option<&Deadlines>,
        change: impl FnOnce(Rules) -> Rules,
    ) -> Option<Arc<Rules>> {
        let rules = asked.map_or(self.rules, |asked| self.rules.shortened(asked));
        recorded(change(rules), self.class)
    }
}

fn filled(templates: &[ClaimTemplate], args: &Value, limits: &EnforcedLimits) -> Result<Claims, Unclaimed> {
    let claims: Result<Vec<Claim>, BadArgs> =
        templates.iter().map(|template| template.claim(args, limits.call())).collect();
    let claims = claims.map_err(Unclaimed::Args)?;
    // No more claims than declared, and that number was checked.
    Claims::new(claims, limits.call())
        .map_err(|problem| Unclaimed::Failed(ToolError::internal(problem.to_string())))
}

/// Parses a tool's claims; claims without arguments are the same for every call.
fn declared(spec: &ToolSpec, limits: &EnforcedLimits) -> Result<Option<DeclaredClaims>, BadClaim> {
    let Some(texts) = &spec.claims else { return Ok(None) };
    let templates: Result<Vec<ClaimTemplate>, BadClaim> =
        texts.iter().map(|text| ClaimTemplate::parse(text, limits.call())).collect();
    let templates = templates?;
    if templates.iter().any(|template| template.properties().next().is_some()) {
        let (found, max) = (templates.len() as u64, limits.claims_max);
        return match found > max {
            true => Err(BadClaim::TooMuch { what: "claims", found, max }),
            false => Ok(Some(DeclaredClaims::Templates(templates))),
        };
    }
    Ok(Some(DeclaredClaims::Fixed(Claims::parse(texts.iter().map(String::as_str), limits.call())?)))
}

/// A journal without rules means the defaults.
fn recorded(rules: Rules, class: EffectClass) -> Option<Arc<Rules>> {
    (rules != Rules::unsaid(class)).then(|| Arc::new(rules))
}

/// A refused tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name has the wrong form.
    #[error(transparent)]
    Name(#[from] BadName),
    /// Another tool has the name or the id.
    #[error(
        "the tool {name:?} is too similar to {taken:?}, which is registered; rename it, or replace the other"
    )]
    Taken {
        /// The new one.
        name: String,
        /// The existing one.
        taken: String,
    },
    /// It comes from a provider, so it cannot be replaced: withdraw the provider, or shadow the tool.
    #[error("the tool {name:?} comes from a provider; withdraw that, or shadow the tool in an overlay")]
    Provided {
        /// The tool.
        name: String,
    },
    /// This provider was not added, or was withdrawn.
    #[error("this provider is not one of the runtime's; provide it first")]
    NoSuchProvider,
    /// A schema is refused.
    #[error(transparent)]
    Schema(#[from] schema::SchemaRefusal),
    /// A claim is invalid.
    #[error("the tool {name:?} declares an invalid claim")]
    Claims {
        /// The tool.
        name: String,
        /// The mistake.
        #[source]
        problem: BadClaim,
    },
    /// Its dedupe key is empty.
    #[error("the tool {name:?} is refused: {problem}")]
    Dedupe {
        /// The tool.
        name: String,
        /// The mistake.
        problem: dedupe::Empty,
    },
    /// Two flags contradict each other.
    #[error("the tool {name:?} {what}")]
    Flags {
        /// The tool.
        name: String,
        /// The flags, and what to do.
        what: &'static str,
    },
    /// Its calls may run in the background, and it declares no claims.
    #[error(
        "the tool {name:?} has the flag background and does not say what its calls claim; by default each would keep all \
         others of its session waiting while it runs: declare its claims, `[]` for none"
    )]
    Unclaimed {
        /// The tool.
        name: String,
    },
    /// It needs a service that the host does not have.
    #[error(
        "the tool {name:?} needs {need}, which this host has not configured; set `{place}` of the runtime's `Config`"
    )]
    Unmet {
        /// The tool.
        name: String,
        /// The service.
        need: Need,
        /// The setting that configures it.
        place: &'static str,
    },
    /// A number of its rules is invalid.
    #[error("the tool {name:?} says {place} = {value}; {hint}")]
    Rules {
        /// The tool.
        name: String,
        /// Which number, such as `retry.attempts`.
        place: &'static str,
        /// The value.
        value: u64,
        /// A valid value.
        hint: &'static str,
    },
}

/// The host's services for its tools.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) limits: Arc<EnforcedLimits>,
    /// The configured services.
    pub(crate) offers: Vec<Need>,
}

pub(crate) fn compile(tool: Arc<dyn Tool>, host: &Host) -> Result<Registered, RegisterError> {
    let limits = &*host.limits;
    let spec = tool.spec();
    check_name(&spec.name)?;
    if let Some(need) = spec.needs.iter().find(|need| !host.offers.contains(need)) {
        let place = match need {
            Need::Files => "files",
        };
        return Err(RegisterError::Unmet { name: spec.name, need: *need, place });
    }
    if let Some(what) = contradiction(spec.flags) {
        return Err(RegisterError::Flags { name: spec.name, what });
    }
    if spec.flags.background && spec.claims.is_none() {
        return Err(RegisterError::Unclaimed { name: spec.name });
    }
    check_rules(&spec, limits)?;
    let compile = |schema: &Option<serde_json::Value>, role| {
        let compile = |schema| Schema::compile(schema, role, &spec.name, limits.args());
        schema.as_ref().map(compile).transpose()
    };
    let input = compile(&spec.input_schema, SchemaRole::Input)?;
    let output = compile(&spec.output_schema, SchemaRole::Output)?;
    let kinds = Kinds::compile(&spec, limits)?.map(Arc::new);
    let (class, contract) = (spec.effect_class(), spec.contract_digest());
    let rules = Rules::of(&spec, limits.call());
    let reconciles = tool.reconciler().is_some();
    let (recorded, paused) = (recorded(rules, class), Arc::default());
    let (stuck, announced) = (AtomicU64::new(0), AtomicBool::new(false));
    let declared = declared(&spec, limits)
        .map_err(|problem| RegisterError::Claims { name: spec.name.clone(), problem })?;
    let key =
        spec.dedupe.as_ref().map(|Dedupe { key, for_ms }| Ok((dedupe::KeyTemplate::parse(key)?, *for_ms)));
    let key =
        key.transpose().map_err(|problem| RegisterError::Dedupe { name: spec.name.clone(), problem })?;
    let asks = spec.approval != ApprovalRule::Never || spec.source == ToolSource::Mcp;
    let origin = Origin::of(spec.source, &spec.hints);
    let secret_names = SecretNames::of(spec.input_schema.as_ref());
    Ok(Registered {
        spec,
        class,
        contract,
        rules,
        reconciles,
        tool,
        link: None,
        input,
        output,
        paused,
        stuck,
        asks,
        origin,
        meter: OnceLock::new(),
        declared,
        kinds,
        secret_names,
        key,
        announced,
        recorded,
        policy: OrderedRwLock::default(),
    })
}

/// The contradiction between flags, if there is one.
fn contradiction(flags: Flags) -> Option<&'static str> {
    if flags.quick && flags.cpu_bound {
        return Some("is both quick and cpu_bound; a tool that computes is not quick, drop one of the flags");
    }
    if flags.stays_direct && flags.background {
        return Some(
            "is both stays_direct and background; what is never a task cannot go on as one, drop one of the flags",
        );
    }
    if flags.background_only && !flags.background {
        return Some(
            "has the flag background_only and not background; what runs only there must be able to, set both",
        );
    }
    None
}

/// Refuses numbers with which no call could ever run, or that contradict each other.
fn check_rules(spec: &ToolSpec, limits: &EnforcedLimits) -> Result<(), RegisterError> {
    let refused =
        |place, value, hint| Err(RegisterError::Rules { name: spec.name.clone(), place, value, hint });
    if spec.retry.attempts == Some(0) {
        return refused("retry.attempts", 0, "a call is tried at least once; 1 means never again");
    }
    if let Err(BudgetError { field, value, .. }) = spec.answer.check(limits.call()) {
        let hint = "bytes may be 512 to answer_budget_bytes_max, lines 8 to answer_budget_lines_max";
        return refused(field, value, hint);
    }
    if spec.running_max == Some(0) {
        return refused("running_max", 0, "no call could ever run; pause the tool instead, or leave it out");
    }
    if spec.dedupe.as_ref().is_some_and(|dedupe| dedupe.for_ms == Some(0)) {
        return refused("dedupe.for_ms", 0, "no two calls could be the same; leave it out for the session");
    }
    if let Some((count, ms)) = spec.rate
        && (count == 0 || ms == 0)
    {
        return refused("rate", 0, "a rate is so many starts in so many milliseconds, at least one of each");
    }
    if let Some(zero) = zero_of(&spec.deadlines) {
        return refused(zero, 0, "no call could be that quick; leave it out for the default");
    }
    match (spec.retry.base_ms, spec.retry.cap_ms) {
        (Some(base), Some(cap)) if base > cap => {
            refused("retry.base_ms", base, "that is more than its retry.cap_ms, the longest wait of all")
        }
        _ => Ok(()),
    }
}

/// The first deadline of zero, if there is one.
pub(crate) fn zero_of(deadlines: &Deadlines) -> Option<&'static str> {
    let Deadlines { queue_ms, attempt_ms, silence_ms, total_ms } = *deadlines;
    let named = [
        ("deadlines.queue_ms", queue_ms),
        ("deadlines.attempt_ms", attempt_ms),
        ("deadlines.silence_ms", silence_ms),
        ("deadlines.total_ms", total_ms),
    ];
    named.into_iter().find(|(_, ms)| *ms == Some(0)).map(|(place, _)| place)
}
