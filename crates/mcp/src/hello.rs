//! The door's description of itself: its capabilities, and how long clients may keep a list.

use crate::message::RpcRequest;
use crate::peer::{Era, MODERN, Peer, TASKS};
use serde_json::{Value, json};
use windlass_tools::declared::McpForwards;

/// How long clients may keep a list, in milliseconds.
const LIST_TTL_MS: u64 = 5_000;

/// For the model: what is different here.
const INSTRUCTIONS: &str = "Calls are durable: a call that takes long continues as a task, and the tool wait_task returns its result. \
                            If an answer says that a call continues, wait for it instead of making it again.";

/// The capabilities in both eras. Prompts and completions are there if an entry forwards those of its server.
fn capabilities(forwards: McpForwards) -> Value {
    let mut capabilities = json!({"tools": {"listChanged": true}, "resources": {}});
    if forwards.resources {
        capabilities["resources"] = json!({"listChanged": true, "subscribe": true});
    }
    if forwards.prompts {
        capabilities["prompts"] = json!({"listChanged": true});
    }
    if forwards.any() {
        capabilities["completions"] = json!({});
    }
    capabilities
}

/// The result of `initialize`.
pub(crate) fn initialized(version: &str, forwards: McpForwards) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(forwards),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

/// The result of `server/discover`.
pub(crate) fn discovered(forwards: McpForwards) -> Value {
    let mut capabilities = capabilities(forwards);
    capabilities["extensions"] = json!({TASKS: {}});
    let mut found = json!({
        "supportedVersions": [MODERN],
        "capabilities": capabilities,
        "instructions": INSTRUCTIONS,
    });
    add_cache_hints(&mut found);
    found
}

fn add_cache_hints(result: &mut Value) {
    // What a server of others says stands, but for who may share it: whoever asks here has shown a token.
    if !result["ttlMs"].is_u64() {
        result["ttlMs"] = LIST_TTL_MS.into();
    }
    result["cacheScope"] = "private".into();
}

/// A result that clients of the modern era may keep for a while.
pub(crate) fn with_cache_hints(peer: &Peer, mut result: Value) -> Value {
    if peer.era == Era::Modern {
        add_cache_hints(&mut result);
    }
    result
}

fn server_info() -> Value {
    json!({"name": "windlass", "title": "Windlass", "version": env!("CARGO_PKG_VERSION")})
}

/// A result as its era wants it: the modern one says what it is, and who made it.
pub(crate) fn signed(era: Era, mut result: Value) -> Value {
    if era == Era::Modern {
        if result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        result["_meta"]["io.modelcontextprotocol/serverInfo"] = server_info();
    }
    result
}

/// A capability that the client declares in this request.
pub(crate) fn capability_of<'a>(request: &'a RpcRequest, name: &str) -> Option<&'a Value> {
    request.meta()?.get(crate::peer::META_CAPABILITIES)?.get(name)
}
