//! error: is not a tool
//! error: call the function that `#[tool]` made: `register(add())`
/// Adds.
#[windlass::tool]
async fn add(a: u8, b: u8) -> u8 {
    a + b
}

pub fn register(runtime: &windlass::Runtime) {
    let _ = runtime.register(add);
}
