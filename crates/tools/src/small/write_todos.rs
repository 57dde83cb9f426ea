//! `write_todos`: the agent's list of things to do, kept with the session.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::tool::{Hints, ToolSource};
use windlass::{Cx, EffectClass, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that replaces the list.
pub(super) struct WriteTodos;

/// The key of the list among the session's key-value pairs.
pub(super) const TODOS_KEY: &str = "windlass.todos";

impl Tool for WriteTodos {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_todos".into(),
            title: "Write the to-do list".into(),
            description: "Replaces the session's list of things to do. Use it for work of several steps: list all of them, keep \
                exactly one in progress, and mark each as completed as soon as it is."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "description": "The whole list, in order; it replaces the one before.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "content": { "type": "string", "minLength": 1, "maxLength": 500, "description": "What to do: Fix the parser." },
                                "active_form": { "type": "string", "maxLength": 500, "description": "While it is done: Fixing the parser." },
                                "status": { "enum": ["pending", "in_progress", "completed"], "description": "How far it is." },
                            },
                            "required": ["content", "status"],
                            "additionalProperties": false,
                        },
                    },
                },
                "required": ["todos"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "total": { "type": "integer" },
                    "completed": { "type": "integer" },
                    "in_progress": { "type": ["string", "null"] },
                    "warning": { "type": "string" },
                },
                "required": ["total", "completed", "in_progress"],
            })),
            class: Some(EffectClass::Stepped),
            hints: Hints { read_only: Some(false), idempotent: Some(true), open_world: Some(false), ..Hints::default() },
            claims: Some(vec!["write todos".into()]),
            category: "todos".into(),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let TodosArgs { todos } = super::parse(args)?;
            let max = cx.limits().todos_max;
            if todos.len() as u64 > max {
                let message =
                    format!("the list has {} entries, and at most {max} are kept; merge some", todos.len());
                return Err(ToolError::new(message));
            }
            cx.kv().set("todos", TODOS_KEY, &todos).await?;
            Ok(summary(&todos).into())
        })
    }
}

#[derive(Deserialize)]
struct TodosArgs {
    todos: Vec<Todo>,
}

#[derive(Deserialize, Serialize)]
struct Todo {
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active_form: Option<String>,
    status: TodoStatus,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

fn summary(todos: &[Todo]) -> Value {
    let with = |status| todos.iter().filter(move |todo| todo.status == status);
    let running =
        with(TodoStatus::InProgress).next().map(|todo| todo.active_form.as_ref().unwrap_or(&todo.content));
    let completed = with(TodoStatus::Completed).count();
    let mut told = json!({ "total": todos.len(), "completed": completed, "in_progress": running });
    let warning = match with(TodoStatus::InProgress).count() {
        1 => None,
        0 if completed == todos.len() => None,
        0 => Some("nothing is in progress; mark the entry you work on".to_string()),
        many => Some(format!("{many} entries are in progress; keep exactly one, the one you work on")),
    };
    if let Some(warning) = warning {
        told["warning"] = warning.into();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_is_in_progress_or_a_warning_says_so() {
        let of = |statuses: &[TodoStatus]| {
            let todo = |status: &TodoStatus| Todo {
                content: "Do it".into(),
                active_form: Some("Doing it".into()),
                status: *status,
            };
            summary(&statuses.iter().map(todo).collect::<Vec<_>>())
        };
        use TodoStatus::{Completed, InProgress, Pending};
        assert_eq!(
            of(&[Completed, InProgress, Pending]),
            json!({ "total": 3, "completed": 1, "in_progress": "Doing it" })
        );
        assert!(of(&[InProgress, InProgress])["warning"].is_string());
        assert!(of(&[Pending, Completed])["warning"].is_string());
        assert!(of(&[Completed]).get("warning").is_none() && of(&[]).get("warning").is_none());
    }
}
