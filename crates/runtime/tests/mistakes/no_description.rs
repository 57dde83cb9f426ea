//! error: write it as a doc comment
#[windlass::tool]
async fn add(a: u8, b: u8) -> u8 {
    a + b
}
