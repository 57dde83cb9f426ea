//! The tools there are: compiled once, found by name or stable id, listed in one order.

use crate::tool::Tool;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use windlass_core::limits::Limits;
use windlass_core::schema::{self, Role, Schema};
use windlass_core::tool::{BadName, Digest, EffectClass, ToolSpec, check_name, folded_name, nearest_name};

/// A tool that was accepted, with everything a call needs of it compiled.
pub struct Registered {
    /// The author's description.
    pub spec: ToolSpec,
    /// The class in force.
    pub class: EffectClass,
    /// What calls are pinned to.
    pub contract: Digest,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) input: Option<Schema>,
    pub(crate) output: Option<Schema>,
    /// Its attempts that were stopped and still block a thread.
    pub(crate) stuck: AtomicU64,
}

impl Registered {
    pub(crate) fn is_paused(&self) -> bool {
        false
    }
}

/// Why a tool was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The name has the wrong form.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The name, or the id, is another tool's.
    #[error(
        "the tool {name:?} cannot be told from {taken:?}, which is registered; rename it, or replace the other"
    )]
    Taken {
        /// The new one.
        name: String,
        /// The one that is there.
        taken: String,
    },
    /// A schema is refused.
    #[error(transparent)]
    Schema(#[from] schema::Refused),
    /// Two flags contradict each other.
    #[error(
        "the tool {name:?} is both quick and cpu_bound; a tool that computes is not quick, drop one of the flags"
    )]
    Flags {
        /// The tool.
        name: String,
    },
}

/// The tools there are.
pub(crate) struct Registry {
    limits: Arc<Limits>,
    tools: RwLock<Tools>,
    generation: AtomicU64,
}

#[derive(Default)]
struct Tools {
    by_name: BTreeMap<String, Arc<Registered>>,
    /// The forms in which names must differ, and stable ids; each leads to a name.
    taken: BTreeMap<String, String>,
}

impl Registry {
    pub(crate) fn new(limits: Arc<Limits>) -> Registry {
        Registry { limits, tools: RwLock::default(), generation: AtomicU64::new(1) }
    }

    /// Changes with every change of the tools.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn register(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = self.compile(tool)?;
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        for form in forms(&registered.spec) {
            if let Some(taken) = tools.taken.get(&form) {
                return Err(RegisterError::Taken {
                    name: registered.spec.name.clone(),
                    taken: taken.clone(),
                });
            }
        }
        tools.insert(registered);
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn replace(&self, tool: Arc<dyn Tool>) -> Result<Option<Arc<Registered>>, RegisterError> {
        let registered = self.compile(tool)?;
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let name = &registered.spec.name;
        let stranger = forms(&registered.spec).find_map(|form| tools.taken.get(&form).filter(|t| *t != name));
        if let Some(taken) = stranger {
            return Err(RegisterError::Taken { name: name.clone(), taken: taken.clone() });
        }
        let old = tools.remove(name);
        tools.insert(registered);
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(old)
    }

    pub(crate) fn unregister(&self, name: &str) -> Option<Arc<Registered>> {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.tools.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// The tool of this name, or of this stable id.
    pub(crate) fn find(&self, asked: &str) -> Option<Arc<Registered>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let by_id = || {
            let name = tools.taken.get(&id_form(asked))?;
            tools.by_name.get(name)
        };
        tools.by_name.get(asked).or_else(by_id).cloned()
    }

    /// The name that was probably meant.
    pub(crate) fn nearest(&self, asked: &str) -> Option<String> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        nearest_name(asked, tools.by_name.keys().map(String::as_str)).map(str::to_string)
    }

    /// All of them, by name.
    pub(crate) fn list(&self) -> Vec<Arc<Registered>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).by_name.values().cloned().collect()
    }

    fn compile(&self, tool: Arc<dyn Tool>) -> Result<Registered, RegisterError> {
        let spec = tool.spec();
        check_name(&spec.name)?;
        if spec.flags.quick && spec.flags.cpu_bound {
            return Err(RegisterError::Flags { name: spec.name });
        }
        let compile = |schema: &Option<serde_json::Value>, role| {
            let compile = |schema| Schema::compile(schema, role, &spec.name, &self.limits);
            schema.as_ref().map(compile).transpose()
        };
        let input = compile(&spec.input_schema, Role::Input)?;
        let output = compile(&spec.output_schema, Role::Output)?;
        let (class, contract) = (spec.effect_class(), spec.contract_digest());
        Ok(Registered { spec, class, contract, tool, input, output, stuck: AtomicU64::new(0) })
    }
}

impl Tools {
    fn insert(&mut self, registered: Registered) {
        let name = registered.spec.name.clone();
        for form in forms(&registered.spec) {
            self.taken.insert(form, name.clone());
        }
        self.by_name.insert(name, Arc::new(registered));
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Registered>> {
        let old = self.by_name.remove(name)?;
        for form in forms(&old.spec) {
            self.taken.remove(&form);
        }
        Some(old)
    }
}

/// Under what nobody else may be registered: the folded name, and the stable id.
fn forms(spec: &ToolSpec) -> impl Iterator<Item = String> {
    [folded_name(&spec.name), id_form(spec.stable_id())].into_iter()
}

/// Ids live beside names: the separator cannot stand in a name.
fn id_form(id: &str) -> String {
    format!("id:{id}")
}
