//! The rules of core, tested through its public face.

mod json;
mod schema;
