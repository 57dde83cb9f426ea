//! `edit_file`: conflicts that say what has changed, all or nothing, and one edit at a time.

use super::Rig;
use serde_json::{Value, json};
use windlass::{Args, BatchRequest, CallRequest};

async fn hash(rig: &Rig, path: &str) -> Value {
    rig.value("read_file", json!({ "path": path })).await["hash"].clone()
}

#[tokio::test]
async fn an_edit_answers_with_a_diff_and_the_next_hash() {
    let rig = Rig::new().await;
    rig.put("a.rs", "fn a() {\r\n    old();\r\n}\r\n");
    let expected = hash(&rig, "a.rs").await;
    let edit = json!({ "path": "a.rs", "expected_hash": expected, "old_text": "{\n    old();", "new_text": "{\n    new();\n    more();" });
    let edited = rig.call("edit_file", edit).await;
    assert_eq!(rig.content("a.rs"), "fn a() {\r\n    new();\r\n    more();\r\n}\r\n");
    assert!(edited.text().contains("-    old();\n+    new();\n+    more();"), "{}", edited.text());
    let next = edited.value()["hash"].clone();
    assert_eq!(hash(&rig, "a.rs").await, next);
    let edits = json!([{ "old_text": "new()", "new_text": "newer()" }, { "old_text": "more()", "new_text": "gone()" }]);
    rig.value("edit_file", json!({ "path": "a.rs", "expected_hash": next, "edits": edits })).await;
    assert_eq!(rig.content("a.rs"), "fn a() {\r\n    newer();\r\n    gone();\r\n}\r\n");
}

#[tokio::test]
async fn a_stale_edit_is_refused_and_says_what_has_changed() {
    let rig = Rig::new().await;
    rig.put("a.txt", "one\ntwo\nthree\n");
    let expected = hash(&rig, "a.txt").await;
    rig.put("a.txt", "one\n2\nthree\n");
    let edit = |hash: &Value| json!({ "path": "a.txt", "expected_hash": hash, "old_text": "three", "new_text": "3" });
    let refused = rig.call("edit_file", edit(&expected)).await;
    assert_eq!(refused.code(), "stale");
    let told = refused.error();
    assert!(told.contains("-two\n+2\n") && told.contains("still there once, at line 3"), "{told}");
    assert_eq!(rig.content("a.txt"), "one\n2\nthree\n");
    // The message has what is needed to go on.
    let now = told.split("its hash is ").nth(1).unwrap().split(' ').next().unwrap();
    rig.value("edit_file", edit(&json!(now))).await;
    assert_eq!(rig.content("a.txt"), "one\n2\n3\n");
    // Of a content that was never seen nobody can say more.
    let unseen = rig.call("edit_file", edit(&json!("0".repeat(32)))).await.error();
    assert!(
        unseen.contains("read the file again and edit with the new hash")
            && unseen.contains("old_text is not in the file"),
        "{unseen}"
    );
    assert_eq!(
        rig.call("edit_file", edit(&json!("short"))).await.view()["outcome"]["failure"]["class"],
        "invalid_request"
    );
    rig.put("b.bin", [0xff, 0xfe, 0]);
    let no_text = json!({ "path": "b.bin", "expected_hash": expected, "old_text": "a", "new_text": "b" });
    assert_eq!(rig.call("edit_file", no_text).await.code(), "no_text");
    let neither = json!({ "path": "a.txt", "expected_hash": now, "old_text": "one" });
    assert!(rig.call("edit_file", neither).await.error().contains("old_text and new_text, or edits"));
}

/// Edits of one file in one batch run one after the other; with the same hash only the first is made.
#[tokio::test]
async fn edits_of_one_file_are_made_one_at_a_time() {
    let rig = Rig::new().await;
    rig.put("a.txt", "a\nb\n");
    let expected = hash(&rig, "a.txt").await;
    let call = |id: &str, old: &str| CallRequest {
        id: Some(id.into()),
        tool: "edit_file".into(),
        args: Args::Json(
            json!({ "path": "./a.txt", "expected_hash": expected, "old_text": old, "new_text": "x" }),
        ),
        ..CallRequest::default()
    };
    let batch = BatchRequest { calls: vec![call("1", "a"), call("2", "b")], ..BatchRequest::default() };
    let answer = rig.runtime.submit("s", batch).await.unwrap().settled().await.unwrap();
    let states: Vec<Value> =
        answer.calls.iter().map(|call| serde_json::to_value(call.view()).unwrap()).collect();
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&json!("succeeded"), &json!("failed")));
    assert_eq!(states[1]["outcome"]["failure"]["tool_code"], "stale");
    assert_eq!(rig.content("a.txt"), "x\nb\n");
}

/// A tool whose first attempt is cut off when it first waits, which is for the record of what it will do. Then its effect is there,
/// and no record of it, as after a crash at the worst moment.
struct CutOff {
    tool: std::sync::Arc<dyn windlass::Tool>,
    lands: Box<dyn Fn() + Send + Sync>,
}

impl windlass::Tool for CutOff {
    fn spec(&self) -> windlass::ToolSpec {
        self.tool.spec()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a windlass::Cx) -> windlass::ToolFuture<'a> {
        Box::pin(async move {
            let mut running = self.tool.run(args, cx);
            if cx.attempt().0 > 1 {
                return running.await;
            }
            let first =
                std::future::poll_fn(|task| std::task::Poll::Ready(running.as_mut().poll(task))).await;
            assert!(first.is_pending(), "it waits for the record");
            drop(running);
            (self.lands)();
            Err(windlass::ToolError::aborted("cut off"))
        })
    }
}

async fn cut_off(rig: &Rig, name: &str, lands: impl Fn() + Send + Sync + 'static) {
    let all = windlass_tools::builtin(&[windlass_tools::BuiltinGroup::Files]);
    let tool = all.into_iter().find(|tool| tool.spec().name == name).unwrap();
    rig.runtime.replace(CutOff { tool, lands: Box::new(lands) }).unwrap();
}

#[tokio::test]
async fn a_change_that_was_made_and_not_recorded_is_not_made_again() {
    let rig = Rig::on_disk().await;
    rig.put("a.txt", "a\nb\n");
    let expected = hash(&rig, "a.txt").await;
    let path = rig.inside("a.txt");
    cut_off(&rig, "edit_file", move || std::fs::write(&path, "a\nx\n").unwrap()).await;
    let edit = json!({ "path": "a.txt", "expected_hash": expected, "old_text": "b", "new_text": "x" });
    let edited = rig.call("edit_file", edit).await;
    assert_eq!(edited.view()["attempts"], 2);
    assert!(edited.text().contains("-b\n+x"), "{}", edited.text());
    assert_eq!(rig.content("a.txt"), "a\nx\n");
    // A new file is still said to be new, and a deleted one to have been there.
    let path = rig.inside("new.txt");
    cut_off(&rig, "write_file", move || std::fs::write(&path, "new").unwrap()).await;
    let write = json!({ "path": "new.txt", "content": "new", "expected_hash": "absent" });
    assert_eq!(rig.value("write_file", write).await["result"], "created");
    let path = rig.inside("new.txt");
    cut_off(&rig, "delete_file", move || std::fs::remove_file(&path).unwrap()).await;
    assert_eq!(rig.value("delete_file", json!({ "path": "new.txt" })).await["deleted"], true);
}
