//! `kv_get`, `kv_set`, `kv_delete`, `kv_list`: the key-value pairs of the session.

use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::sessions::PairList;
use windlass::tool::{Hints, ToolSource};
use windlass::{Cx, EffectClass, Tool, ToolError, ToolFuture, ToolSpec};

/// The four tools.
pub(super) fn tools() -> Vec<Arc<dyn Tool>> {
    [KvTool::Delete, KvTool::Get, KvTool::List, KvTool::Set]
        .map(|tool| Arc::new(tool) as Arc<dyn Tool>)
        .into()
}

/// A tool for pairs.
#[derive(Clone, Copy)]
enum KvTool {
    Get,
    Set,
    Delete,
    List,
}

/// Keys that are listed at once, unless the model says so.
const KEYS_LISTED: u64 = 200;

impl Tool for KvTool {
    fn spec(&self) -> ToolSpec {
        let key = json!({ "type": "string", "minLength": 1, "description": "The key, such as user.name." });
        let (name, title, about, properties, required, claim) = match self {
            KvTool::Get => (
                "kv_get",
                "Get a value",
                "Returns the value that was stored under a key of the session; a missing one is exists: false.",
                json!({ "key": key }),
                json!(["key"]),
                "read kv/key:{key}",
            ),
            KvTool::Set => (
                "kv_set",
                "Store a value",
                "Stores a value under a key of the session, for later turns. A value that was there is replaced.",
                json!({ "key": key, "value": { "description": "Any JSON value." } }),
                json!(["key", "value"]),
                "write kv/key:{key}",
            ),
            KvTool::Delete => (
                "kv_delete",
                "Delete a value",
                "Deletes the value under a key of the session, if there is one.",
                json!({ "key": key }),
                json!(["key"]),
                "write kv/key:{key}",
            ),
            KvTool::List => (
                "kv_list",
                "List keys",
                "Lists the keys of the session under which values are stored. To read on, give the last key as after.",
                json!({
                    "prefix": { "type": "string", "description": "Only keys that begin with this text." },
                    "after": { "type": "string", "description": "Only keys after this one." },
                }),
                json!([]),
                "read kv",
            ),
        };
        let reads = matches!(self, KvTool::Get | KvTool::List);
        ToolSpec {
            name: name.into(),
            title: title.into(),
            description: about.into(),
            input_schema: Some(json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            })),
            class: Some(if reads { EffectClass::Read } else { EffectClass::Stepped }),
            hints: Hints { read_only: Some(reads), open_world: Some(false), ..Hints::default() },
            claims: Some(vec![claim.into()]),
            category: "kv".into(),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: KvArgs = super::parse(args)?;
            let key = args.key.as_str();
            let told = match self {
                KvTool::Get => match cx.kv().get("get", key).await? {
                    Some(pair) => json!({ "key": key, "exists": true, "value": pair.value }),
                    None => json!({ "key": key, "exists": false }),
                },
                KvTool::Set => {
                    cx.kv().set("set", key, &args.value).await?;
                    json!({ "key": key, "stored": true })
                }
                KvTool::Delete => {
                    cx.kv().delete("delete", key).await?;
                    json!({ "key": key, "deleted": true })
                }
                KvTool::List => list(cx, &args).await?,
            };
            Ok(told.into())
        })
    }
}

async fn list(cx: &Cx, args: &KvArgs) -> Result<Value, ToolError> {
    let asked = PairList { prefix: &args.prefix, after: args.after.as_deref(), limit: Some(KEYS_LISTED + 1) };
    let mut keys: Vec<String> = cx.kv().list("list", asked).await?.into_iter().map(|pair| pair.key).collect();
    let more = keys.len() as u64 > KEYS_LISTED;
    keys.truncate(KEYS_LISTED as usize);
    let next = keys.last().filter(|_| more).cloned();
    Ok(json!({ "keys": keys, "next_after": next }))
}

#[derive(Deserialize)]
struct KvArgs {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    prefix: String,
    after: Option<String>,
}
