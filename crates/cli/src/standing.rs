//! What `windlass schedules` and `windlass triggers` have in common: calls that a session has ordered in advance.

use crate::exit::Usage;
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The arguments of the call, as somebody wrote them.
pub fn given(args: Option<&str>) -> Result<Value, Usage> {
    match args {
        Some(text) => {
            serde_json::from_str(text).map_err(|error| Usage(format!("the arguments are not JSON: {error}")))
        }
        None => Ok(Value::Null),
    }
}

/// How they are printed.
pub struct Printed<const N: usize> {
    pub as_json: bool,
    pub headings: [&'static str; N],
    pub row: fn(&Value) -> [String; N],
}

impl<const N: usize> Printed<N> {
    /// One that was made or changed.
    pub fn one(&self, item: &Value) -> anyhow::Result<ExitCode> {
        if self.as_json {
            show::json(item)?;
            return Ok(ExitCode::SUCCESS);
        }
        self.table(std::slice::from_ref(item))
    }

    /// All there are.
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

/// What stands in a field of one, if it is a text.
pub fn text(item: &Value, field: &str) -> String {
    item[field].as_str().unwrap_or_default().to_string()
}

/// Says that one is there no more.
pub fn removed(told: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        show::json(told)?;
    } else {
        show::text("removed: it starts nothing any more")?;
    }
    Ok(ExitCode::SUCCESS)
}
