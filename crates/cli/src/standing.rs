//! Shared by `windlass schedules` and `windlass triggers`: calls that a session has ordered in advance.

use crate::exit::Usage;
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Parses the arguments of the call.
pub fn given(args: Option<&str>) -> Result<Value, Usage> {
    match args {
        Some(text) => {
            serde_json::from_str(text).map_err(|error| Usage(format!("the arguments are not JSON: {error}")))
        }
        None => Ok(Value::Null),
    }
}

/// How schedules or triggers are printed.
pub struct Printed<const N: usize> {
    pub as_json: bool,
    pub headings: [&'static str; N],
    pub row: fn(&Value) -> [String; N],
}

impl<const N: usize> Printed<N> {
    /// Prints one that was created or changed.
    pub fn one(&self, item: &Value) -> anyhow::Result<ExitCode> {
        if self.as_json {
            show::json(item)?;
            return Ok(ExitCode::SUCCESS);
        }
        self.table(std::slice::from_ref(item))
    }

    /// Prints all of them.
    pub fn list(&self, items: &[Value]) -> anyhow::Result<ExitCode> {
        if self.as_json {
            show::json(&json!({"items": items, "next": null}))?;
            return Ok(ExitCode::SUCCESS);
        }
        self.table(items)
    }

    fn table(&self, items: &[Value]) -> anyhow::Result<ExitCode> {
        show::table(&self.headings, items.iter().map(|item| (self.row)(item).into()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A field's text, or empty.
pub fn text(item: &Value, field: &str) -> String {
    item[field].as_str().unwrap_or_default().to_string()
}

/// Reports a removal.
pub fn removed(told: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        show::json(told)?;
    } else {
        show::text("removed; it starts no more calls")?;
    }
    Ok(ExitCode::SUCCESS)
}
