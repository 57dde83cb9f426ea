//! The catalog of a session: the tools that its model sees whole, those it sees by name only, and the search that
//! reveals them.
//!
//! Above `catalog_tools_max` tools, those that allow it are deferred: the model sees their names in the description of
//! `search_tools`, and their schemas once it has searched. That is remembered in the session.

mod index;
pub(crate) mod tools;

use crate::api::error::SessionError;
use crate::session::inner::{Inner, Runtime};
use crate::tools::place::BatchPlace;
use crate::tools::registry::{Listed, Registered, ToolLookup};
use index::{KnownIndexes, ToolIndex};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_core::tool::Deferral;
use windlass_store::{RecordPage, Row, Space, Store};

/// The catalog of one session. See [`Runtime::catalog`].
///
/// ```
/// # use windlass::{Config, Limits, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let limits = Limits { catalog_tools_max: 1, ..Limits::default() };
/// # let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new()?) });
/// # for (name, description) in [("mail", "Sends a letter."), ("sum", "Adds numbers.")] {
/// #     let spec = ToolSpec { name: name.into(), description: description.into(), ..ToolSpec::default() };
/// #     runtime.register(tool_fn(spec, |args, _| async { Ok(args.into()) }))?;
/// # }
/// let catalog = runtime.catalog("chat-7");
/// // Both tools are deferred here: the model sees `search_tools`, which names them.
/// let seen: Vec<String> = catalog.list().await?.into_iter().map(|tool| tool.name).collect();
/// assert_eq!(seen, ["search_tools"]);
/// assert_eq!(catalog.search("post a letter").await?[0].name, "mail");
/// # Ok(()) }
/// ```
pub struct Catalog {
    runtime: Runtime,
    session: String,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CatalogTool {
    /// Its name.
    pub name: String,
    /// For the model: its purpose and when to use it.
    pub description: String,
    /// JSON Schema of its arguments; `None` means any object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
}

impl Runtime {
    /// The catalog of the session of this name.
    pub fn catalog(&self, session: &str) -> Catalog {
        Catalog { runtime: self.clone(), session: session.to_string() }
    }
}

impl Catalog {
    /// The tools that the model should see now, by name: whole ones, and `search_tools` if any is deferred.
    pub async fn list(&self) -> Result<Vec<CatalogTool>, SessionError> {
        let rt = &self.runtime.0;
        let revealed = match rt.store.session(&self.session).await? {
            Some(row) => revealed(&*rt.store, row.no, rt.limits.revealed_tools_max).await?,
            None => BTreeSet::new(),
        };
        self.listed(&revealed, &[tools::SEARCH]).await
    }

    /// The tools for a model whose list must not change in a conversation: those that are never deferred, and
    /// `search_tools` and `call_tool`, by which the others are found and called.
    pub async fn fixed(&self) -> Result<Vec<CatalogTool>, SessionError> {
        self.listed(&BTreeSet::new(), &[tools::CALL, tools::SEARCH]).await
    }

    /// `call_tool` and `search_tools`, by which all others are found and called.
    pub async fn doors(&self) -> Vec<Arc<Registered>> {
        let (registry, place) = (&self.runtime.0.registry, self.place());
        let mut doors = Vec::new();
        for name in [tools::CALL, tools::SEARCH] {
            if let ToolLookup::Tool(tool) = registry.look_up(&place, name).await {
                doors.push(tool);
            }
        }
        doors
    }

    /// Every tool of the session as it is registered, by name, for callers that need more than a model sees. A tool whose
    /// provider does not load it in time is left out, and the log names it.
    pub async fn whole(&self) -> Result<Vec<Arc<Registered>>, SessionError> {
        let (rt, place) = (&self.runtime.0, self.place());
        let due_us = crate::session::held::due_us(rt.clock.elapsed_us(), rt.limits.inline_queue_ms);
        let mut tools = Vec::new();
        for listed in self.runtime.tools_of(&self.session).await? {
            let name = &listed.summary.name;
            let looked_up = async {
                match listed.tool {
                    Some(tool) => ToolLookup::Tool(tool),
                    None => rt.registry.look_up(&place, name).await,
                }
            };
            let found = tokio::select! {
                biased;
                found = looked_up => Some(found),
                () = rt.wheel.until(due_us) => None,
            };
            match found {
                Some(ToolLookup::Tool(tool)) => tools.push(tool),
                Some(ToolLookup::Missing { .. } | ToolLookup::Unavailable(_)) | None => {
                    tracing::warn!(tool = %name, "its provider cannot load the tool now: it is left out of the list");
                }
            }
        }
        Ok(tools)
    }

    /// The tool that a call of this name would run, `search_tools` and `call_tool` among them: found in memory, once the session
    /// is open here. One that its provider cannot load now is none.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Registered>>, SessionError> {
        let rt = &self.runtime.0;
        // Its own tools and filters are known from then on.
        rt.session(&self.session).await?;
        match rt.registry.look_up(&self.place(), name).await {
            ToolLookup::Tool(tool) => Ok(Some(tool).filter(|tool| tool.spec.name == name)),
            ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => Ok(None),
        }
    }

    /// The tools that fit a question, best first; at most `search_results_max`. Nothing is revealed.
    pub async fn search(&self, query: &str) -> Result<Vec<CatalogTool>, SessionError> {
        let (rt, place) = (&self.runtime.0, self.place());
        let listed = self.runtime.tools_of(&self.session).await?;
        Ok(search(rt, &place, &listed, query).await)
    }

    async fn listed(
        &self,
        revealed: &BTreeSet<String>,
        doors: &[&str],
    ) -> Result<Vec<CatalogTool>, SessionError> {
        let (rt, place) = (&self.runtime.0, self.place());
        let all = self.runtime.tools_of(&self.session).await?;
        let many = all.len() as u64 > rt.limits.catalog_tools_max;
        let (deferred, whole): (Vec<Listed>, Vec<Listed>) =
            all.into_iter().partition(|listed| is_deferred(listed, many, revealed));
        let mut seen = Vec::with_capacity(whole.len() + doors.len());
        for listed in whole {
            seen.push(loaded(rt, &place, listed).await);
        }
        if !deferred.is_empty() {
            for door in doors {
                let ToolLookup::Tool(tool) = rt.registry.look_up(&place, door).await else { continue };
                let mut tool = CatalogTool::of(&tool);
                // A tool of the host's own under this name stays what it is.
                if seen.iter().any(|known| known.name == tool.name) {
                    continue;
                }
                if *door == tools::SEARCH {
                    tool.description += &names_of(&deferred, rt.limits.catalog_names_bytes_max);
                }
                seen.push(tool);
            }
            seen.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Ok(seen)
    }

    fn place(&self) -> BatchPlace {
        BatchPlace::new(self.session.as_str().into(), "".into(), None)
    }
}

impl CatalogTool {
    fn of(tool: &Registered) -> CatalogTool {
        let spec = &tool.spec;
        CatalogTool {
            name: spec.name.clone(),
            description: spec.description.clone(),
            input_schema: spec.input_schema.clone(),
        }
    }
}

/// Whether the model sees a tool by name only.
fn is_deferred(listed: &Listed, many: bool, revealed: &BTreeSet<String>) -> bool {
    let deferral = listed.tool.as_ref().map_or(Deferral::Auto, |tool| tool.spec.deferral);
    let wanted = match deferral {
        Deferral::Never => false,
        Deferral::Auto => many,
        Deferral::Always => true,
    };
    wanted && !revealed.contains(&listed.summary.name)
}

/// A tool with its schema. One that its provider cannot load now is listed without: calling it says why.
async fn loaded(rt: &Inner, place: &BatchPlace, listed: Listed) -> CatalogTool {
    if let Some(tool) = &listed.tool {
        return CatalogTool::of(tool);
    }
    match rt.registry.look_up(place, &listed.summary.name).await {
        ToolLookup::Tool(tool) => CatalogTool::of(&tool),
        ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => CatalogTool {
            name: listed.summary.name,
            description: listed.summary.description,
            input_schema: None,
        },
    }
}

/// The names of deferred tools with one line each, as far as there is room.
fn names_of(deferred: &[Listed], bytes_max: u64) -> String {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut text = String::from("\n\nTools that can be found:");
    for (place, listed) in deferred.iter().enumerate() {
        let line = format!("\n- {}: {}", listed.summary.name, first_line(&listed.summary.description));
        if text.len() + line.len() > bytes_max {
            text += &format!("\n- and {} more", deferred.len() - place);
            break;
        }
        text += &line;
    }
    text
}

/// The first sentence or line of a description, shortened.
fn first_line(description: &str) -> String {
    /// Enough to tell tools apart.
    const LINE_CHARS_MAX: usize = 80;
    let line = description.lines().next().unwrap_or_default();
    let line = line.split_once(". ").map_or(line, |(sentence, _)| sentence);
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

/// The tools that fit a question, best first.
async fn search(rt: &Inner, place: &BatchPlace, listed: &[Listed], query: &str) -> Vec<CatalogTool> {
    let index: Arc<ToolIndex> = rt.slots.of::<KnownIndexes>().of(listed).await;
    let most = usize::try_from(rt.limits.search_results_max).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for listed in index.search(query, most).into_iter().filter_map(|place| listed.get(place)) {
        found.push(loaded(rt, place, listed.clone()).await);
    }
    found
}

/// The names of the tools that were revealed in a session.
async fn revealed(
    store: &dyn Store,
    session: SessionNo,
    limit: u64,
) -> Result<BTreeSet<String>, SessionError> {
    let page = RecordPage { shelf: Space::Revealed.of(session), prefix: "", after: None, limit };
    Ok(store.records(page).await?.into_iter().map(|record| record.key).collect())
}

/// The rows that reveal tools, as many as the session may have.
fn rows(known: &BTreeSet<String>, found: &[CatalogTool], max: u64) -> Vec<Row> {
    let room = usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(known.len());
    let new = found.iter().filter(|tool| !known.contains(&tool.name)).take(room);
    let row = |tool: &CatalogTool| Row::Put {
        space: Space::Revealed,
        key: tool.name.clone(),
        value: Arc::default(),
    };
    new.map(row).collect()
}
