//! The story of a call with those inside it.

use super::*;

#[tokio::test]
async fn the_story_of_a_call_has_those_inside_it_below_the_entries_that_made_them() {
    let runtime = memory();
    runtime.register(caller(spec("t", EffectClass::Keyed), &["middle", "leaf"])).unwrap();
    runtime.register(caller(spec("middle", EffectClass::Keyed), &["leaf"])).unwrap();
    runtime.register(echo(spec("leaf", EffectClass::Read), &Count::default())).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    let (_, lines) = inspect::call(runtime.store(), answer.calls[0].handle()).await.unwrap().unwrap();
    let told: Vec<String> =
        lines.iter().map(|line| format!("{}{}", ". ".repeat(line.depth as usize), line.kind)).collect();
    let leaf = ["opened", "prepared", "started", "returned", "ended"];
    let inside = |depth: usize| leaf.map(|kind| format!("{}{kind}", ". ".repeat(depth)));
    let own = |kinds: &[&str], depth: usize| -> Vec<String> {
        kinds.iter().map(|kind| format!("{}{kind}", ". ".repeat(depth))).collect()
    };
    let expected = [
        own(&["batch", "opened", "prepared", "started", "called"], 0),
        own(&["opened", "prepared", "started", "called"], 1),
        inside(2).to_vec(),
        own(&["returned", "ended"], 1),
        own(&["called"], 0),
        inside(1).to_vec(),
        own(&["returned", "ended"], 0),
    ];
    assert_eq!(told, expected.concat());
    assert!(lines.iter().filter(|line| line.depth > 0).all(|line| line.call != answer.calls[0].handle()));
    assert!(
        lines.windows(2).all(|pair| pair[0].after_us <= pair[1].after_us),
        "with times since the first line"
    );
}
