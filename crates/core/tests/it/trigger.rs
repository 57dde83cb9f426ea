//! Which events a trigger takes, and what its call is given.

use serde_json::{Value, json};
use windlass_core::limits::CallLimits;
use windlass_core::trigger::{Filter, TriggerArguments, TriggerProblem};

fn filter(conditions: Value) -> Result<Filter, TriggerProblem> {
    let Value::Object(conditions) = conditions else { panic!("a filter is an object") };
    Filter::new(conditions, &CallLimits { trigger_conditions_max: 3, ..CallLimits::default() })
}

#[test]
fn a_filter_takes_what_has_all_its_values() {
    let event =
        json!({"item": "door", "count": 3, "to": {"city": "Rome", "a/b": {"~": null}}, "tags": ["x", "y"]});
    for (conditions, is_taken) in [
        (json!({}), true),
        (json!({"/item": "door"}), true),
        (json!({"/item": "Door"}), false),
        (json!({"/item": "door", "/count": 4}), false),
        (json!({"/item": "door", "/count": 3, "/to/city": "Rome"}), true),
        (json!({"/count": 3.0}), true),
        (json!({"/count": "3"}), false),
        (json!({"/tags/1": "y"}), true),
        (json!({"/tags/2": null}), false),
        (json!({"/missing": null}), false),
        (json!({"/to/a~1b/~0": null}), true),
        (json!({"/to": {"a/b": {"~": null}, "city": "Rome"}}), true),
        (json!({"": event}), true),
        (json!({"": {}}), false),
    ] {
        assert_eq!(filter(conditions.clone()).unwrap().takes(&event), is_taken, "{conditions}");
    }
    assert!(filter(json!({"": 7})).unwrap().takes(&json!(7)), "a payload need not be an object");
    assert!(!filter(json!({"/a": 7})).unwrap().takes(&json!(7)));
}

#[test]
fn a_filter_that_could_never_be_meant_is_refused() {
    for place in ["item", "$.item", "/a~", "/a~2", "~0"] {
        assert_eq!(filter(json!({place: 1})), Err(TriggerProblem::Pointer(place.to_string())));
    }
    let many = filter(json!({"/a": 1, "/b": 1, "/c": 1, "/d": 1}));
    assert_eq!(many, Err(TriggerProblem::TooMany { count: 4, max: 3 }));
}

#[test]
fn the_event_stands_where_it_is_asked_for_and_nowhere_else() {
    let payload = json!({"item": "{item}"});
    let given = |args, name: Option<&str>| TriggerArguments::new(args, name.map(str::to_string));
    let with = |args, name| given(args, name).unwrap().with(&payload);
    assert_eq!(with(json!({"to": "{item}"}), None), json!({"to": "{item}"}));
    assert_eq!(with(json!({"to": 1}), Some("event")), json!({"to": 1, "event": {"item": "{item}"}}));
    assert_eq!(with(Value::Null, Some("event")), json!({"event": {"item": "{item}"}}));
    assert_eq!(given(json!([1]), None), Err(TriggerProblem::Args));
    assert_eq!(given(json!({"event": 1}), Some("event")), Err(TriggerProblem::Taken("event".into())));
}
