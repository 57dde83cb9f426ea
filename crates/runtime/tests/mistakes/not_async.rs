//! error: a tool is an async function; write `async fn add`
/// Adds.
#[windlass::tool]
fn add(a: u8, b: u8) -> u8 {
    a + b
}
