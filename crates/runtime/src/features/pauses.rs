//! Paused tools: one record of the store, so a pause holds over all workers and over restarts.

use crate::api::error::SessionError;
use crate::features::orders;
use crate::session::inner::{Inner, Runtime};
use crate::session::orders::Order;
use crate::tools::registry::NoSuchTool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_store::RECORD_VALUE_BYTES_MAX;

/// The key of the record.
const KEY: &str = "paused tools";

#[derive(Default, Deserialize, Serialize)]
struct PauseRecord {
    /// How often it was changed.
    number: u64,
    /// The names of the paused tools.
    tools: BTreeSet<String>,
}

/// Why a tool was not paused or resumed, or not everywhere.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// There is no such tool.
    #[error(transparent)]
    NoSuchTool(#[from] NoSuchTool),
    /// So many tools are paused that their names do not fit into a record.
    #[error("the names of all paused tools take more than {max} bytes; resume some, or remove them")]
    TooMany {
        /// The maximum number of bytes.
        max: u64,
    },
    /// The change is stored, and some workers have not said that they use it.
    #[error("the change is stored, but not yet in force at {}; send it again to wait for that", workers.join(", "))]
    Unacknowledged {
        /// The workers that have not answered.
        workers: Vec<String>,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] SessionError),
}

impl Runtime {
    /// Pauses a registered or provided tool for all workers: once this returns, none of its calls start until it is resumed, also
    /// after a restart; running calls continue. A replacement is paused too; a tool that shadows it in an overlay is not.
    pub async fn pause(&self, tool: &str) -> Result<(), PauseError> {
        set(&self.0, tool, true).await
    }

    /// Resumes a paused tool.
    pub async fn resume_tool(&self, tool: &str) -> Result<(), PauseError> {
        set(&self.0, tool, false).await
    }
}

async fn set(rt: &Arc<Inner>, tool: &str, paused: bool) -> Result<(), PauseError> {
    rt.registry.check_pausable(tool)?;
    let number = loop {
        let mut found = orders::find::<PauseRecord>(rt, KEY).await?;
        let PauseRecord { number, tools } = &mut found.value;
        let is_new = if paused { tools.insert(tool.to_string()) } else { tools.remove(tool) };
        *number += u64::from(is_new);
        let bytes: usize = tools.iter().map(|name| name.len() + NAME_FRAME_BYTES).sum();
        if bytes + RECORD_FRAME_BYTES > RECORD_VALUE_BYTES_MAX {
            return Err(PauseError::TooMany { max: (RECORD_VALUE_BYTES_MAX - RECORD_FRAME_BYTES) as u64 });
        }
        if !is_new || orders::put(rt, KEY, &found).await? {
            adopt(rt, &found.value);
            break found.value.number;
        }
    };
    if !rt.owners.has_others() {
        return Ok(());
    }
    let workers = orders::behind(rt, Order::Pauses, number).await?;
    if workers.is_empty() { Ok(()) } else { Err(PauseError::Unacknowledged { workers }) }
}

/// The bytes around a name in the record; names need no escapes.
const NAME_FRAME_BYTES: usize = 3;
/// The bytes of the record around its names.
const RECORD_FRAME_BYTES: usize = 64;

/// Reads the paused tools once, before the first session is taken.
pub(crate) async fn load(rt: &Arc<Inner>) -> Result<(), SessionError> {
    if !rt.adopted.knows_pauses() {
        look(rt).await?;
    }
    Ok(())
}

/// Adopts what others have paused and resumed. `true`: there was something.
pub(super) async fn look(rt: &Arc<Inner>) -> Result<bool, SessionError> {
    let found = orders::find::<PauseRecord>(rt, KEY).await?;
    Ok(adopt(rt, &found.value))
}

fn adopt(rt: &Inner, record: &PauseRecord) -> bool {
    // The tools first: whoever hears of the number relies on them.
    rt.registry.pause_all(record.number, &record.tools);
    rt.adopted.has_read_pauses();
    rt.adopted.adopt(Order::Pauses, record.number)
}
