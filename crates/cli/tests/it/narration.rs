//! Every built-in tool as people read of it, in each language, to be read by a person when it changes.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass::store::memory::MemoryStore;
use windlass::{Config, Runtime};
use windlass_core::narration::{Locale, Narrative, Speaker, narrate};
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_tools::sandbox::{Sandbox, SandboxProfile};
use windlass_tools::{BuiltinGroup, Launcher, RunCommand, builtin};

/// Arguments of a call of each tool.
fn examples() -> BTreeMap<&'static str, Value> {
    let (sum, path, place, key) = (
        json!({"a": 1, "b": 3}),
        json!({"path": "src/a.rs"}),
        json!({"location": "Bergen"}),
        json!({"key": "user.name"}),
    );
    let task = json!({"task": "10btf7ge"});
    BTreeMap::from([
        ("add", sum.clone()),
        ("cancel_schedule", json!({"id": "nightly"})),
        ("cancel_task", task.clone()),
        ("create_schedule", json!({"tool": "run_command", "cron": "0 9 * * 1"})),
        ("delete_file", path.clone()),
        ("divide", sum.clone()),
        ("echo", json!({"message": "hello"})),
        ("edit_file", path.clone()),
        ("fail", json!({"message": "no"})),
        ("get_current_time", json!({})),
        ("get_forecast", place.clone()),
        ("get_task", task.clone()),
        ("get_weather", place),
        ("grep_files", json!({"pattern": "fn main"})),
        ("kv_delete", key.clone()),
        ("kv_get", key.clone()),
        ("kv_list", json!({})),
        ("kv_set", key),
        ("list_directory", json!({})),
        ("list_schedules", json!({})),
        ("list_tasks", json!({})),
        ("message_task", task.clone()),
        ("multiply", sum.clone()),
        ("read_artifact", json!({"artifact": "75t2qe9y"})),
        ("read_file", path.clone()),
        ("report_progress", json!({"status": "progress", "summary": "Half of the tests pass"})),
        ("run_command", json!({"argv": ["cargo", "test"]})),
        ("sleep", json!({"ms": 500})),
        ("spawn_background", json!({"tool": "run_command", "args": {}})),
        ("stat_file", path.clone()),
        ("subtract", sum),
        ("wait_task", task),
        ("web_fetch", json!({"url": "https://example.com/a?b=c"})),
        ("write_file", path),
        ("write_todos", json!({"todos": []})),
    ])
}

#[tokio::test]
async fn every_built_in_tool_as_people_read_of_it() {
    let files = Some("files".into());
    let runtime = Runtime::new(Config { files, ..Config::new(MemoryStore::new().unwrap()) });
    for tool in builtin(BuiltinGroup::ALL) {
        runtime.register_shared(tool).unwrap();
    }
    let launcher = Launcher { program: "windlass".into(), args: Vec::new() };
    let sandbox = Sandbox::new(SandboxProfile::default(), launcher.clone());
    runtime.register(RunCommand { launcher, sandbox }).unwrap();
    let examples = examples();
    let mut lines = Vec::new();
    for listed in runtime.tools() {
        let (tool, title) = (listed.summary.name.as_str(), listed.summary.title.as_str());
        let args = examples.get(tool).unwrap_or_else(|| panic!("add an example of {tool}"));
        let args = &RedactedArgs::of(args.clone(), &SecretNames::default());
        let speaker = Speaker { tool, title, narrations: &[], narrator: None, args };
        for &locale in Locale::ALL {
            let told = [
                Narrative::Started,
                Narrative::Waiting("approval"),
                Narrative::Completed,
                Narrative::Failed("it is gone"),
                Narrative::Denied("not at night"),
                Narrative::Unknown,
            ];
            let told = told.map(|told| narrate(speaker, told, locale));
            lines.push(format!("{locale} {tool}: {}", told.join(" | ")));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
