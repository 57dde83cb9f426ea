//! The example of the page about declared tools does what the page says.

use crate::rig::{in_time, wait_until};
use crate::stage::{Stage, end, submit};
use serde_json::json;

const PAGE: &str = include_str!("../../../../docs/declared-tools.md");

/// The blocks of a language on the page.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("\n```{language}\n");
    let blocks = PAGE.split(begin.as_str()).skip(1);
    blocks.map(|block| block.split_once("```").expect("a block ends").0).collect()
}

/// The example, with its first script changed like this.
fn example(change: impl Fn(&str) -> String) -> Stage {
    let stage = Stage::declared(blocks("toml")[0]);
    stage.write("deploy.sh", &change(script("deploy.sh")));
    stage.write("deployed.sh", script("deployed.sh"));
    stage
}

/// The script of this name on the page, which its second line tells.
fn script(name: &str) -> &'static str {
    let named = format!("\n# {name} ");
    blocks("sh").into_iter().find(|script| script.contains(&named)).expect("it is on the page")
}

#[tokio::test]
async fn the_example_that_asks_ann_waits_for_her() {
    let asks = blocks("toml").into_iter().find(|block| block.contains("[tools.ask_ann]")).expect("a block");
    let stage = Stage::declared(asks);
    let letter = script("ask-ann.sh").replace("mail -s \"A question\" ann@example.com", "cat > letter");
    assert!(letter.contains("cat > letter"), "{letter}");
    stage.write("ask-ann.sh", &letter);
    let waiting = submit(&stage.runtime, "ask_ann", json!({ "question": "May I?" })).await;
    wait_until("it waits", || stage.runtime.live().iter().any(|call| call.state == "awaiting_completion"))
        .await;
    let letter = std::fs::read_to_string(stage.folder.join("letter")).expect("it was sent");
    assert!(letter.starts_with("May I?\n"), "{letter}");
    let key = letter.split(' ').find(|word| word.len() == 52).expect("the key is in it");
    stage.runtime.complete(key, windlass::wait::Completed::ok(json!("yes"))).await.expect("it is taken");
    assert_eq!(in_time(end(waiting)).await, "succeeded yes, 1 attempts");
}

#[tokio::test]
async fn the_example_runs() {
    let stage = example(str::to_string);
    let deployed = end(submit(&stage.runtime, "deploy", json!({ "service": "web" })).await);
    assert_eq!(in_time(deployed).await, r#"succeeded {"region":"eu","service":"web"}, 1 attempts"#);
    stage.write("maintenance", "");
    let refused = end(submit(&stage.runtime, "deploy", json!({ "service": "shop" })).await);
    assert_eq!(in_time(refused).await, "failed exit 75, 3 attempts");
}

#[tokio::test]
async fn the_example_is_reconciled() {
    // It hangs after the deed, so that it cannot say that it is done.
    let stage = example(|deploy| deploy.replace("echo \"{", "exec sleep 1000 # \"{"));
    let waiting = submit(&stage.runtime, "deploy", json!({ "service": "web" })).await;
    wait_until("it is deployed", || {
        stage.folder.join("web.deployed").metadata().is_ok_and(|file| file.len() > 0)
    })
    .await;
    assert_eq!(stage.cancel(waiting).await, "cancelled{landed}, 1 attempts");
}

#[tokio::test]
async fn the_example_can_be_stopped_before_it_has_done_anything() {
    let stage = example(|deploy| {
        deploy.replace("if [ -e maintenance", "touch ready; sleep 1000 & wait; if [ -e maintenance")
    });
    let waiting = submit(&stage.runtime, "deploy", json!({ "service": "web" })).await;
    wait_until("it runs", || stage.folder.join("ready").exists()).await;
    assert_eq!(stage.cancel(waiting).await, "failed exit 75, 1 attempts");
}
