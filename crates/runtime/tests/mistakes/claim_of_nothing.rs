//! error: {pth} names no parameter of the tool; did you mean {path}?
/// Removes a file.
#[windlass::tool(claims = ["write file:{pth}"])]
async fn remove(path: String) {
    drop(path);
}
