//! The policy of the whole store: versions, changes, and what it says about a call.
//!
//! Two parts make it: the rules that the host declares, and those that are set through the API. Every matching rule counts and the
//! strictest wins, so joining them needs no order. A part that cannot be used makes the whole broken, and a broken policy denies
//! everything.

mod check;
mod stored;

pub use check::{CallCheck, CheckError, CheckedCondition, CheckedRule, PolicyCheck, PolicyQuestion};

use crate::api::answer;
use crate::api::error::SessionError;
use crate::api::limits::Limits;
use crate::features::approvals;
use crate::features::orders;
use crate::session::inner::{Inner, Runtime};
use crate::session::orders::Order;
use crate::session::policy::{CurrentPolicy, PolicyState};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stored::{Stored, StoredPolicy};
use windlass_core::limits::CallLimits;
use windlass_core::policy::{Policy, PolicyProblem};
use windlass_core::time::Timestamp;
use windlass_store::{Store, StoreError};

/// The author of versions that come from declared rules.
const DECLARED_BY: &str = "windlass.toml";
/// How often a change is tried if others change the policy at the same time.
const TRIES: u32 = 8;

/// A version of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyVersion {
    /// Its number; 0 before there was a policy.
    pub version: u64,
    /// The rules declared in `windlass.toml`, or by the host.
    pub declared: Vec<Value>,
    /// The rules that were set through the API. Both parts apply.
    pub rules: Vec<Value>,
    /// The author of this version: a principal, or `windlass.toml`.
    pub by: String,
    /// The time of the change.
    #[serde(serialize_with = "answer::as_wall_time")]
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The reason why the policy denies everything, if it is broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// A change of the policy.
#[derive(Clone, Debug, Default)]
pub struct NewPolicy {
    /// The rules that replace those set before; declared ones stay.
    pub rules: Vec<Value>,
    /// The author of the change: a principal.
    pub by: String,
    /// The version that is replaced; refused if there is a newer one. `None`: whichever there is.
    pub version: Option<u64>,
}

/// Why the policy was not changed, or not everywhere.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A rule is invalid.
    #[error("the policy is refused: {0}")]
    Invalid(#[from] PolicyProblem),
    /// Declared and set rules together are too many.
    #[error(
        "{declared} declared and {set} set rules are more than {max} (limit policy_rules_max); combine some"
    )]
    TooMany {
        /// The number of declared rules.
        declared: u64,
        /// The number of rules to be set.
        set: u64,
        /// The limit `policy_rules_max`.
        max: u64,
    },
    /// The version would not fit into its record.
    #[error(
        "the policy takes {bytes} bytes, and may take {max} (limit policy_bytes_max); shorten its rules, or list several tools in one"
    )]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The limit `policy_bytes_max`.
        max: u64,
    },
    /// The version that was to be replaced is not the newest.
    #[error("the policy has version {newest} by now, not {version}; look at it, and set yours again")]
    Conflict {
        /// The version that was named.
        version: u64,
        /// The newest version.
        newest: u64,
    },
    /// The change is stored, and some workers have not said that they use it.
    #[error("version {version} of the policy is stored, but not yet in force at {}; set the same rules again to wait for that", workers.join(", "))]
    Unacknowledged {
        /// The new version.
        version: u64,
        /// The workers that have not answered.
        workers: Vec<String>,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] SessionError),
}

/// Taken by whoever loads or changes the policy.
#[derive(Default)]
struct PolicyWriter(tokio::sync::Mutex<()>);

/// The generation of the newest version's record as it was last read.
#[derive(Default)]
struct SeenGeneration(AtomicU64);

impl Runtime {
    /// The policy in force.
    pub async fn policy(&self) -> Result<PolicyVersion, SessionError> {
        load(&self.0).await?;
        Ok(PolicyVersion::of(&self.0.current_policy()))
    }

    /// Replaces the rules that were set before, and waits until every live worker has the new version. Setting the rules that are
    /// in force changes nothing.
    ///
    /// ```
    /// # use windlass::store::memory::MemoryStore;
    /// # use windlass::policy::NewPolicy;
    /// # use windlass::{Config, Runtime};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let rule = serde_json::json!({"name": "ask before mails", "ruling": "ask", "when": {"tool": "send_*"}});
    /// let version = runtime.set_policy(NewPolicy { rules: vec![rule], by: "alice".into(), version: None }).await?;
    /// assert_eq!(version.version, 1);
    /// # Ok(()) }
    /// ```
    pub async fn set_policy(&self, new: NewPolicy) -> Result<PolicyVersion, PolicyError> {
        load(&self.0).await?;
        let rt = self.0.clone();
        // A caller that goes away must not leave a stored version that is not in force.
        let setting = self.0.tasks.spawn(async move { set(&rt, &new).await });
        let version = setting.await.map_err(|_| PolicyError::Store(StoreError::Closed.into()))??;
        acknowledged(&self.0, version.version).await?;
        Ok(version)
    }

    /// Versions before this one, newest first; `None` begins with the newest. Old ones are dropped beyond the limit
    /// `policy_versions_max`.
    pub async fn policy_history(
        &self,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<PolicyVersion>, SessionError> {
        load(&self.0).await?;
        let before = before.unwrap_or(self.0.policy.version().saturating_add(1));
        let found = stored::before(&self.0, before, limit).await?;
        Ok(found.into_iter().map(PolicyVersion::stored).collect())
    }
}

impl PolicyVersion {
    fn of(current: &CurrentPolicy) -> PolicyVersion {
        PolicyVersion {
            version: current.version,
            declared: current.declared.clone(),
            rules: current.set.clone(),
            by: current.by.clone(),
            at: current.at,
            broken: match &current.state {
                PolicyState::Sound(_) => None,
                PolicyState::Broken(reason) => Some(reason.clone()),
            },
        }
    }

    /// The policy that a runtime with these declared rules would put into force on this store, without changing anything.
    pub async fn recorded(
        store: &dyn Store,
        declared: Option<&Value>,
        limits: &Limits,
    ) -> Result<PolicyVersion, SessionError> {
        let limits = limits.call();
        let (mut version, mut broken) = match stored::newest(store).await?.read {
            None => (StoredPolicy::default(), None),
            Some(Ok(version)) => (version, None),
            Some(Err(reason)) => (StoredPolicy::default(), Some(reason)),
        };
        if let Ok(Some(declared)) = declared_rules(declared, &limits) {
            version.declared = declared;
        }
        broken = broken.or_else(|| compiled(&version, declared, &limits).err());
        Ok(PolicyVersion { broken, ..PolicyVersion::stored(version) })
    }

    fn stored(StoredPolicy { version, declared, set, by, at }: StoredPolicy) -> PolicyVersion {
        PolicyVersion { version, declared, rules: set, by, at: Timestamp(at), broken: None }
    }
}

/// Takes a version that another worker has stored. `true`: there was one.
pub(super) async fn look(rt: &Arc<Inner>) -> Result<bool, SessionError> {
    let before = rt.policy.version();
    load(rt).await?;
    let writer = rt.slots.of::<PolicyWriter>();
    let _alone = writer.0.lock().await;
    let newest = stored::newest(&*rt.store).await?;
    if newest.generation == rt.slots.of::<SeenGeneration>().0.load(Ordering::Relaxed) {
        return Ok(rt.policy.version() != before);
    }
    install(rt, newest.generation, newest.read.unwrap_or_else(|| Ok(StoredPolicy::default())));
    Ok(rt.policy.version() != before)
}

/// Loads the policy once, before the first session is taken: no call runs without it.
pub(crate) async fn load(rt: &Arc<Inner>) -> Result<(), SessionError> {
    if rt.policy.is_loaded() {
        return Ok(());
    }
    let writer = rt.slots.of::<PolicyWriter>();
    let _alone = writer.0.lock().await;
    if rt.policy.is_loaded() {
        return Ok(());
    }
    for _ in 0..TRIES {
        if adopt(rt).await? {
            return Ok(());
        }
    }
    Err(SessionError::unreadable("the policy changes faster than it can be read; try again"))
}

/// Puts the newest version into force, after storing declared rules that differ from its own. `false`: somebody else stored one
/// meanwhile.
async fn adopt(rt: &Arc<Inner>) -> Result<bool, SessionError> {
    let newest = stored::newest(&*rt.store).await?;
    let there = match newest.read {
        Some(Ok(there)) => there,
        Some(Err(reason)) => {
            install(rt, newest.generation, Err(reason));
            return Ok(true);
        }
        None => StoredPolicy::default(),
    };
    let declared = match declared_rules(rt.policy.declared.as_ref(), rt.limits.call()) {
        Ok(declared) => declared.unwrap_or_else(|| there.declared.clone()),
        Err(reason) => {
            install(rt, newest.generation, Err(reason));
            return Ok(true);
        }
    };
    if declared == there.declared {
        if there.version > 0 && !stored::is_kept(rt, there.version).await? {
            stored::keep(rt, &there).await?;
        }
        install(rt, newest.generation, Ok(there));
        return Ok(true);
    }
    let by = DECLARED_BY.to_string();
    let next =
        StoredPolicy { version: there.version + 1, declared, set: there.set, by, at: rt.clock.now().0 };
    // Nothing of a copy is changed. Rules that do not fit are still in force, and are not history.
    if rt.store.is_copy() || stored::bytes(&next) > rt.limits.policy_bytes_max {
        let reason = too_large(rt, &next).map(Err);
        install(rt, newest.generation, reason.unwrap_or(Ok(next)));
        return Ok(true);
    }
    match stored::store(rt, &next, newest.generation).await? {
        Stored::Outrun => Ok(false),
        Stored::Done(generation) => {
            install(rt, generation, Ok(next));
            Ok(true)
        }
    }
}

fn too_large(rt: &Inner, version: &StoredPolicy) -> Option<String> {
    let (bytes, max) = (stored::bytes(version), rt.limits.policy_bytes_max);
    (bytes > max).then(|| PolicyError::TooLarge { bytes, max }.to_string())
}

/// The rules that the host declares, if it declares any.
fn declared_rules(declared: Option<&Value>, limits: &CallLimits) -> Result<Option<Vec<Value>>, String> {
    let Some(declared) = declared else { return Ok(None) };
    Policy::parse(declared, limits).map_err(|problem| format!("{DECLARED_BY}: policy.{problem}"))?;
    Ok(Some(declared["rules"].as_array().cloned().unwrap_or_default()))
}

/// Stores a new version of the set rules and puts it into force here.
async fn set(rt: &Arc<Inner>, new: &NewPolicy) -> Result<PolicyVersion, PolicyError> {
    Policy::parse(&json!({ "rules": new.rules }), rt.limits.call())?;
    let writer = rt.slots.of::<PolicyWriter>();
    let _alone = writer.0.lock().await;
    for _ in 0..TRIES {
        let newest = stored::newest(&*rt.store).await?;
        let there = match newest.read {
            None => StoredPolicy::default(),
            Some(Ok(there)) => there,
            // What cannot be read is replaced; declared rules come again from the host.
            Some(Err(_)) => StoredPolicy {
                version: stored::highest(rt).await?,
                declared: declared_rules(rt.policy.declared.as_ref(), rt.limits.call())
                    .ok()
                    .flatten()
                    .unwrap_or_default(),
                ..StoredPolicy::default()
            },
        };
        if let Some(version) = new.version.filter(|version| *version != there.version) {
            return Err(PolicyError::Conflict { version, newest: there.version });
        }
        let is_sound = matches!(rt.current_policy().state, PolicyState::Sound(_));
        if is_sound && there.set == new.rules && there.version == rt.policy.version() {
            return Ok(PolicyVersion::of(&rt.current_policy()));
        }
        let (by, at) = (new.by.clone(), rt.clock.now().0);
        let next = StoredPolicy {
            version: there.version + 1,
            declared: there.declared,
            set: new.rules.clone(),
            by,
            at,
        };
        check_size(rt, &next)?;
        if let Stored::Done(generation) = stored::store(rt, &next, newest.generation).await? {
            install(rt, generation, Ok(next));
            return Ok(PolicyVersion::of(&rt.current_policy()));
        }
    }
    let newest = rt.policy.version();
    Err(PolicyError::Conflict { version: new.version.unwrap_or(newest), newest })
}

fn check_size(rt: &Inner, next: &StoredPolicy) -> Result<(), PolicyError> {
    let (declared, set) = (next.declared.len() as u64, next.set.len() as u64);
    let max = rt.limits.policy_rules_max;
    if declared + set > max {
        return Err(PolicyError::TooMany { declared, set, max });
    }
    let (bytes, max) = (stored::bytes(next), rt.limits.policy_bytes_max);
    if bytes > max { Err(PolicyError::TooLarge { bytes, max }) } else { Ok(()) }
}

/// Puts a version into force, or a broken policy in place of one that cannot be used.
fn install(rt: &Arc<Inner>, generation: u64, version: Result<StoredPolicy, String>) {
    rt.slots.of::<SeenGeneration>().0.store(generation, Ordering::Relaxed);
    let (version, unreadable) = match version {
        Ok(version) => (version, None),
        Err(reason) => {
            (StoredPolicy { version: rt.policy.version(), ..StoredPolicy::default() }, Some(reason))
        }
    };
    let (declared, limits) = (rt.policy.declared.as_ref(), rt.limits.call());
    let state = match unreadable.map_or_else(|| compiled(&version, declared, limits), Err) {
        Ok(policy) => PolicyState::Sound(policy),
        Err(reason) => {
            tracing::error!(%reason, "the policy is broken: every call is denied");
            PolicyState::Broken(reason)
        }
    };
    let StoredPolicy { version, declared, set, by, at } = version;
    rt.policy.install(CurrentPolicy { version, state, declared, set, by, at: Timestamp(at) });
    policy_changed(rt);
}

fn compiled(version: &StoredPolicy, declared: Option<&Value>, limits: &CallLimits) -> Result<Policy, String> {
    // A host whose own rules are broken stays without a policy, whatever others have stored.
    declared_rules(declared, limits)?;
    let part = |name: &str, rules: &[Value]| {
        let parsed = Policy::parse(&json!({ "rules": rules }), limits);
        parsed.map_err(|problem| format!("{name} rules: {problem}"))
    };
    Ok(Policy::joined([&part("declared", &version.declared)?, &part("set", &version.set)?]))
}

/// A version has come into force here: it counts for the next decision.
fn policy_changed(rt: &Arc<Inner>) {
    let current = rt.current_policy();
    tracing::info!(version = current.version, by = %current.by, "the policy is in force");
    let rt = rt.clone();
    rt.tasks.clone().spawn(async move { approvals::policy_changed(&rt).await });
}

/// Waits until every live worker says that it has this version.
async fn acknowledged(rt: &Arc<Inner>, version: u64) -> Result<(), PolicyError> {
    if !rt.owners.has_others() {
        return Ok(());
    }
    let workers = orders::behind(rt, Order::Policy, version).await?;
    if workers.is_empty() { Ok(()) } else { Err(PolicyError::Unacknowledged { version, workers }) }
}
