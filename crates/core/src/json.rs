//! Comes next.
use crate::limits::Limits;
/// p
#[derive(Debug)]
pub struct Problem;
/// p
pub fn parse(text: &str, _limits: &Limits) -> Result<serde_json::Value, Problem> {
    serde_json::from_str(text).map_err(|_| Problem)
}
