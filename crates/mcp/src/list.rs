//! The list of tools: everything the session may use, sorted, under names that clients accept.

use crate::gateway::Visitor;
use crate::message::RpcError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::tool::{Registered, ToolSource};
use windlass::{EffectClass, Runtime};
use windlass_tools::declared::McpListing;

/// The longest name of a tool: clients put their own name for the server before it, and some allow 60 characters in all.
const NAME_CHARS_MAX: usize = 40;
/// As much of a hash as tells names apart that begin alike.
const HASH_CHARS: usize = 8;

/// The tool by which a client waits for a call that goes on.
pub(crate) const WAIT_TASK: &str = "wait_task";
/// The tool by which a client cancels one.
pub(crate) const CANCEL_TASK: &str = "cancel_task";

/// The tool by which a client finds others, at a door that lists no others.
pub(crate) const SEARCH_TOOLS: &str = "search_tools";
/// The tool by which a client calls what it has found.
pub(crate) const CALL_TOOL: &str = "call_tool";

/// The tools that a door lists.
#[derive(Default)]
pub(crate) struct McpToolList {
    /// By the names that clients see.
    tools: BTreeMap<String, Arc<Registered>>,
    /// The names of those that cannot be offered, with the reason.
    pub(crate) left_out: Vec<(String, &'static str)>,
}

impl McpToolList {
    /// The tools that the visitor's door lists.
    pub(crate) async fn at(runtime: &Runtime, visitor: &Visitor) -> Result<McpToolList, RpcError> {
        match visitor.listing {
            McpListing::All => McpToolList::whole(runtime, &visitor.session).await,
            McpListing::Search => {
                let doors = runtime.catalog(&visitor.session).doors().await;
                let tools = doors.into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect();
                Ok(McpToolList { tools, left_out: Vec::new() })
            }
        }
    }

    /// The tool that a call of this name means, which may be a tool's own name instead of that in the list. It is found in memory: a
    /// call of a large catalog costs no more than one of a small one.
    pub(crate) async fn find(
        runtime: &Runtime,
        visitor: &Visitor,
        name: &str,
    ) -> Result<Option<Arc<Registered>>, RpcError> {
        let is_door = [SEARCH_TOOLS, CALL_TOOL].contains(&name);
        // A door that lists everything has these two only as tools of the host's own.
        if !is_door || visitor.listing == McpListing::Search {
            let found = runtime.catalog(&visitor.session).find(name).await;
            let found = found.map_err(|error| RpcError::internal(&error))?;
            if let Some(tool) = found.filter(|tool| misfit(tool.spec.input_schema.as_ref()).is_none()) {
                return Ok(Some(tool));
            }
        }
        if !is_door && name.len() != NAME_CHARS_MAX {
            return Ok(None);
        }
        Ok(McpToolList::whole(runtime, &visitor.session).await?.tools.remove(name))
    }

    /// All tools of the session. One that cannot be offered is left out, and named.
    pub(crate) async fn whole(runtime: &Runtime, session: &str) -> Result<McpToolList, RpcError> {
        let tools = runtime.catalog(session).whole().await.map_err(|error| RpcError::internal(&error))?;
        let mut list = McpToolList::default();
        for tool in tools {
            let name = shown_name(&tool.spec.name);
            if [WAIT_TASK, CANCEL_TASK].contains(&name.as_str()) {
                // The door has its own, which also take calls that are no tasks of the runtime.
                continue;
            }
            let is_taken = list.tools.contains_key(&name).then_some("another tool has its name there");
            match misfit(tool.spec.input_schema.as_ref()).or(is_taken) {
                Some(why) => list.left_out.push((tool.spec.name.clone(), why)),
                None => drop(list.tools.insert(name, tool)),
            }
        }
        Ok(list)
    }

    /// The digest of what the list shows.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, tool) in &self.tools {
            hasher.update(name.as_bytes()).update(b"\0").update(tool.contract.to_string().as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The tool whose name is nearest to one that is not there.
    pub(crate) fn nearest(&self, name: &str) -> Option<String> {
        windlass::tool::nearest_name(name, self.tools.keys().map(String::as_str)).map(|near| near.to_string())
    }

    /// A page of the list behind this name, and the name to go on behind.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> (Vec<Value>, Option<String>) {
        let own = own_tools().map(|tool| (tool["name"].as_str().unwrap_or_default().to_string(), tool));
        let mut all: BTreeMap<String, Value> = own.into_iter().collect();
        all.extend(self.tools.iter().map(|(name, tool)| (name.clone(), described(name, tool))));
        let mut rest = all.into_iter().filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        let page: Vec<(String, Value)> = rest.by_ref().take(limit).collect();
        let next = rest.next().and(page.last()).map(|(name, _)| name.clone());
        (page.into_iter().map(|(_, tool)| tool).collect(), next)
    }
}

/// The name under which clients see a tool: its own, or its beginning and a hash.
pub(crate) fn shown_name(name: &str) -> String {
    if name.len() <= NAME_CHARS_MAX {
        return name.to_string();
    }
    let hash = blake3::hash(name.as_bytes()).to_hex();
    // Names are ASCII.
    format!("{}_{}", &name[..NAME_CHARS_MAX - HASH_CHARS - 1], &hash[..HASH_CHARS])
}

/// Why a tool with this schema of arguments cannot be offered: the protocol wants an object at its root.
fn misfit(schema: Option<&Value>) -> Option<&'static str> {
    match schema {
        None => None,
        Some(Value::Object(fields)) if fields.get("type").is_none_or(|kind| kind == "object") => None,
        Some(_) => Some("its arguments are no object, as MCP requires"),
    }
}

/// The schema of arguments as the protocol wants it.
fn input_schema(schema: Option<&Value>) -> Value {
    let mut schema = schema.cloned().unwrap_or_else(|| json!({}));
    schema["type"] = json!("object");
    schema
}

fn described(name: &str, tool: &Registered) -> Value {
    let (spec, hints) = (&tool.spec, &tool.spec.hints);
    let mut annotations = json!({
        "readOnlyHint": tool.class == EffectClass::Read,
        "idempotentHint": matches!(tool.class, EffectClass::Read | EffectClass::Keyed),
    });
    for (hint, value) in [("destructiveHint", hints.destructive), ("openWorldHint", hints.open_world)] {
        if let Some(value) = value {
            annotations[hint] = value.into();
        }
    }
    let mut listed = json!({
        "name": name,
        "title": spec.display_title(),
        "description": spec.description,
        "inputSchema": input_schema(spec.input_schema.as_ref()),
        "annotations": annotations,
    });
    // The answer of another tool may be that the call goes on, which fits no schema.
    if let (ToolSource::Mcp, true, Some(schema)) = (spec.source, spec.flags.stays_direct, &spec.output_schema)
    {
        listed["outputSchema"] = schema.clone();
    }
    listed
}

/// The door's own tools.
fn own_tools() -> [Value; 2] {
    let schema = json!({
        "type": "object",
        "properties": {"task": {"type": "string", "description": "The task, as the answer of the call named it."}},
        "required": ["task"],
        "additionalProperties": false,
    });
    let wait = "Waits for a call that goes on as a task, and returns its result. If the task is still not over, call this again.";
    let cancel =
        "Cancels a call that goes on as a task. A call whose effect has begun may still take effect.";
    [
        json!({
            "name": CANCEL_TASK,
            "title": "Cancel a task",
            "description": cancel,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true},
        }),
        json!({
            "name": WAIT_TASK,
            "title": "Wait for a task",
            "description": wait,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": true, "idempotentHint": true},
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = |end: &str| format!("{}{end}", "a".repeat(50));
        assert_eq!(shown_name("send_mail"), "send_mail");
        assert_eq!(shown_name(&"a".repeat(40)), "a".repeat(40));
        assert_eq!(shown_name(&long("x")).len(), NAME_CHARS_MAX);
        assert_ne!(shown_name(&long("x")), shown_name(&long("y")));
    }

    #[test]
    fn schemas_have_an_object_at_their_root() {
        assert_eq!(input_schema(None), json!({"type": "object"}));
        let schema = json!({"properties": {"a": {}}});
        assert_eq!(misfit(Some(&schema)), None);
        assert_eq!(input_schema(Some(&schema)), json!({"properties": {"a": {}}, "type": "object"}));
        for schema in [json!({"type": "array"}), json!({"type": ["object", "null"]}), json!(true)] {
            assert!(misfit(Some(&schema)).is_some(), "{schema}");
        }
    }
}
