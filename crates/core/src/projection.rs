//! stub
use crate::{failure::Failure, limits::Limits, outcome::*};
/// .
pub fn fits(t: &str, l: &Limits) -> bool {
    (t.len() as u64) < l.answer_bytes_max
}
/// .
pub fn success(_s: &Success, p: Option<String>, _l: &Limits) -> ModelAnswer {
    ModelAnswer { parts: vec![Part::Text(p.unwrap_or_default())], is_error: false }
}
/// .
pub fn failure(f: &Failure, _l: &Limits) -> ModelAnswer {
    ModelAnswer { parts: vec![Part::Text(f.message.clone())], is_error: true }
}
/// .
pub fn outcome(_o: &Outcome, _l: &Limits) -> ModelAnswer {
    ModelAnswer::default()
}
