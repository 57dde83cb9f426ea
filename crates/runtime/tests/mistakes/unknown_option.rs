//! error: there is no option `clas`; did you mean `class`?
/// Adds.
#[windlass::tool(clas = "read")]
async fn add(a: u8, b: u8) -> u8 {
    a + b
}
