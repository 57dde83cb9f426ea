//! `#[tool]`: an async function becomes a tool. Use it as `windlass::tool`, where its options are documented.
#![warn(missing_docs)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what Rust's syntax gains is not for this attribute to know"
)]

mod docs;
mod expand;
mod function;
mod options;

use proc_macro::TokenStream;

/// Makes a tool of an async function: see `windlass::tool`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(options.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
