//! error: use `String` for `&str`
/// Greets.
#[windlass::tool]
async fn greet(name: &str) -> String {
    name.into()
}
