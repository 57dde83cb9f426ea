//! error: add `claims = ["write …"]`, or `claims = []` if it collides with nothing
/// Adds.
#[windlass::tool(background)]
async fn add(a: u8, b: u8) -> u8 {
    a + b
}
