//! error: there is no effect class "twice"; use "read" (changes nothing)
/// Adds.
#[windlass::tool(class = "twice")]
async fn add(a: u8, b: u8) -> u8 {
    a + b
}
