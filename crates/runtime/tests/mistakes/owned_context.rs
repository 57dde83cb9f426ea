//! error: take the context by reference, `cx: &Cx`
/// Greets.
#[windlass::tool]
async fn greet(cx: windlass::Cx) -> String {
    cx.session().into()
}
