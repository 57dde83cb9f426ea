//! Groups of built-in tools, which `builtin` of `windlass.toml` chooses.

use crate::{WebFetch, files, small};
use std::sync::Arc;
use windlass::Tool;

/// A group of built-in tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuiltinGroup {
    /// Tools that work on the files of the session.
    Files,
    /// Tools that reach the web.
    Web,
    /// The time.
    Time,
    /// The agent's list of things to do, and reports of its progress.
    Todos,
    /// Tools for trying things out.
    Demo,
    /// Key-value pairs of the session.
    Kv,
    /// Schedules of the session.
    Schedules,
}

impl BuiltinGroup {
    /// All groups.
    pub const ALL: &'static [BuiltinGroup] = &[
        BuiltinGroup::Files,
        BuiltinGroup::Web,
        BuiltinGroup::Time,
        BuiltinGroup::Todos,
        BuiltinGroup::Demo,
        BuiltinGroup::Kv,
        BuiltinGroup::Schedules,
    ];

    /// The groups where no `windlass.toml` says otherwise: everything that needs no consent, for trying out.
    pub const WITHOUT_FILE: &'static [BuiltinGroup] = &[
        BuiltinGroup::Files,
        BuiltinGroup::Web,
        BuiltinGroup::Time,
        BuiltinGroup::Todos,
        BuiltinGroup::Demo,
    ];

    /// The groups where a `windlass.toml` does not list any.
    pub const WITH_FILE: &'static [BuiltinGroup] =
        &[BuiltinGroup::Files, BuiltinGroup::Web, BuiltinGroup::Time, BuiltinGroup::Todos];

    /// Its name in `windlass.toml`.
    pub fn as_str(self) -> &'static str {
        match self {
            BuiltinGroup::Files => "files",
            BuiltinGroup::Web => "web",
            BuiltinGroup::Time => "time",
            BuiltinGroup::Todos => "todos",
            BuiltinGroup::Demo => "demo",
            BuiltinGroup::Kv => "kv",
            BuiltinGroup::Schedules => "schedules",
        }
    }

    /// The group of this name.
    pub fn named(name: &str) -> Option<BuiltinGroup> {
        BuiltinGroup::ALL.iter().copied().find(|group| group.as_str() == name)
    }

    fn tools(self) -> Vec<Arc<dyn Tool>> {
        match self {
            BuiltinGroup::Files => files::tools(),
            BuiltinGroup::Web => vec![Arc::new(WebFetch::default())],
            BuiltinGroup::Time => small::time(),
            BuiltinGroup::Todos => small::todos(),
            BuiltinGroup::Demo => small::demo(),
            BuiltinGroup::Kv => small::pairs(),
            BuiltinGroup::Schedules => small::schedules(),
        }
    }
}

/// The built-in tools of these groups, in the order of their names. `read_artifact` is always among them: answers that were cut name it.
pub fn builtin(groups: &[BuiltinGroup]) -> Vec<Arc<dyn Tool>> {
    let mut chosen = groups.to_vec();
    chosen.sort_unstable();
    chosen.dedup();
    let mut tools = small::always();
    tools.extend(chosen.into_iter().flat_map(BuiltinGroup::tools));
    tools.sort_by_cached_key(|tool| tool.spec().name);
    tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Sandbox, SandboxProfile};
    use crate::{Launcher, RunCommand};
    use serde_json::Value;
    use windlass::ToolSpec;

    #[test]
    fn every_tool_is_described_and_closed_and_in_order() {
        let specs: Vec<ToolSpec> = builtin(BuiltinGroup::ALL).iter().map(|tool| tool.spec()).collect();
        assert!(specs.is_sorted_by(|a, b| a.name < b.name));
        for spec in specs {
            let name = &spec.name;
            assert!(!spec.title.is_empty() && spec.description.ends_with('.'), "{name}");
            assert!(spec.class.is_some(), "{name}");
            let schema = spec.input_schema.expect("a schema");
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            for (property, schema) in schema["properties"].as_object().expect("properties") {
                assert!(schema["description"].is_string(), "{name}.{property}");
            }
        }
    }

    /// Everything that models and people read of the tools, to be read by a person when it changes.
    #[test]
    fn contracts_of_the_tools() {
        let mut told = String::new();
        let launcher = Launcher { program: "windlass".into(), args: Vec::new() };
        let sandbox = Sandbox::new(SandboxProfile::default(), launcher.clone());
        let mut tools = builtin(BuiltinGroup::ALL);
        tools.push(Arc::new(RunCommand { launcher, sandbox }));
        for spec in tools.iter().map(|tool| tool.spec()) {
            let claims = spec.claims.as_ref().map_or("by class".to_string(), |claims| format!("{claims:?}"));
            told.push_str(&format!(
                "# {} ({}): {}, claims {claims}\n",
                spec.name,
                spec.title,
                spec.effect_class()
            ));
            told.push_str(&format!("{}\n", spec.description));
            let schema = spec.input_schema.unwrap_or_default();
            let is_required = |schema: &Value, name: &str| {
                schema["required"].as_array().is_some_and(|all| all.contains(&name.into()))
            };
            let mark = |schema: &Value, name: &str| if is_required(schema, name) { "" } else { "?" };
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let mut rules = property.clone();
                let about = rules.as_object_mut().and_then(|rules| rules.remove("description"));
                let about = about.unwrap_or_default();
                told.push_str(&format!(
                    "  {name}{}: {}\n",
                    mark(&schema, name),
                    about.as_str().unwrap_or_default()
                ));
                told.push_str(&format!("    {rules}\n"));
            }
            let answer = spec.output_schema.unwrap_or_default();
            for (name, property) in answer["properties"].as_object().into_iter().flatten() {
                told.push_str(&format!("  -> {name}{} {property}\n", mark(&answer, name)));
            }
            told.push('\n');
        }
        insta::assert_snapshot!(told);
    }

    #[test]
    fn demo_tools_are_in_no_other_group() {
        let names =
            |groups: &[BuiltinGroup]| builtin(groups).iter().map(|tool| tool.spec().name).collect::<Vec<_>>();
        let with_file = names(BuiltinGroup::WITH_FILE);
        for demo in ["add", "echo", "fail", "get_weather", "sleep"] {
            assert!(!with_file.contains(&demo.to_string()), "{demo}");
            assert!(names(BuiltinGroup::WITHOUT_FILE).contains(&demo.to_string()), "{demo}");
        }
        assert_eq!(names(&[]), ["read_artifact"]);
        assert_eq!(
            BuiltinGroup::ALL.iter().filter_map(|group| BuiltinGroup::named(group.as_str())).count(),
            7
        );
    }
}
