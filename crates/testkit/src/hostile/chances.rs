//! Rules, tools, arguments and decisions from a seed, hostile and otherwise.

use super::truth::ToolTruth;
use crate::chance::Chance;
use serde_json::{Map, Value, json};
use windlass::approvals::{Remember, RememberedArgs};
use windlass::policy::ApprovalRule;
use windlass::{Args, EffectClass};
use windlass_core::tool::{Hints, ToolSource};

/// How many tools a world has, without the one that calls others.
pub const TOOLS: u64 = 6;
/// The tool that calls what its arguments say.
pub const OUTER: &str = "outer";
/// The keys of arguments that rules look at.
const KEYS: [&str; 4] = ["x", "y", "z", "p/q"];
/// The pointers of rules, and of remembered answers.
const POINTERS: [&str; 6] = ["/x", "/y", "/y/0", "/z/x", "/p~1q", "/x/y"];
/// Texts that look alike, hide something, or are paths.
const TEXTS: [&str; 14] = [
    "a",
    "b",
    "ab",
    "abc",
    "",
    "/tmp/a",
    "/tmp/../etc/passwd",
    "é",
    "e\u{301}",
    "ａ",
    "a\u{202e}b",
    "\u{200b}a",
    "A",
    "1",
];
const GLOBS: [&str; 10] = ["a", "a*", "*b", "?", "/tmp/*", "*", "*a*", "abc", "zz", "é"];
/// The classes whose attempts run in the driver's own thread, so that what they see is what there is.
const CLASSES: [EffectClass; 3] = [EffectClass::Read, EffectClass::Once, EffectClass::Keyed];
const HINTS: [&str; 4] = ["sends_out", "destructive", "reads_private", "ingests_untrusted"];

/// The principals that call and approve.
pub const PRINCIPALS: [&str; 3] = ["ann", "bob", "carl"];
/// The values of the label `env`, and the turns.
pub const ENVIRONMENTS: [&str; 2] = ["prod", "dev"];
/// See above.
pub const TURNS: [&str; 2] = ["a", "b"];

/// A number: an integer, a half, or beyond all integers.
fn number(chance: &mut Chance) -> Value {
    match chance.below(10) {
        0 => json!(1.0),
        1 => json!(-2),
        2 => json!(9_007_199_254_740_993_u64),
        3 => json!(9_007_199_254_740_992.0),
        4 => json!(u64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1e300),
        7 => json!(1.5),
        other => json!(other - 8),
    }
}

fn scalar(chance: &mut Chance) -> Value {
    match chance.below(3) {
        0 => number(chance),
        1 => json!(chance.percent(50)),
        _ => json!(chance.one_of(&TEXTS)),
    }
}

/// Any JSON, nested a little.
fn value(chance: &mut Chance, depth: u32) -> Value {
    match chance.below(10) {
        0 => Value::Null,
        1 | 2 if depth > 0 => (0..chance.below(4)).map(|_| value(chance, depth - 1)).collect(),
        3 if depth > 0 => object(chance, depth - 1),
        _ => scalar(chance),
    }
}

fn object(chance: &mut Chance, depth: u32) -> Value {
    let mut map = Map::new();
    for key in KEYS {
        if chance.percent(55) {
            map.insert(key.to_owned(), value(chance, depth));
        }
    }
    Value::Object(map)
}

/// Arguments of a call, of which no other has the same.
pub fn arguments(chance: &mut Chance, number: u64) -> Value {
    let mut args = object(chance, 2);
    args["call"] = json!(number);
    args
}

/// Arguments as a model writes them: parsed, as text, with keys twice, or broken.
pub fn written(chance: &mut Chance, args: &Value) -> Args {
    match chance.below(24) {
        0 => Args::Text(args.to_string()),
        1 => {
            // Each parser must take the same one of the two, or none.
            let other = scalar(chance);
            Args::Text(format!("{{\"x\":{other},\"y\":[{other}],{}", &args.to_string()[1..]))
        }
        2 => Args::Text(format!("```json\n{},\n```", args)),
        3 => Args::Text(
            chance.one_of(&["", "{", "[]", "null", "{\"x\":", "\u{feff}{}", "{'x': 1}"]).to_owned(),
        ),
        4 => Args::Json(value(chance, 2)),
        _ => Args::Json(args.clone()),
    }
}

/// The name by which a call asks for a tool: right, mostly.
pub fn called(chance: &mut Chance, tool: &ToolTruth) -> String {
    let ToolTruth { name, id, .. } = tool;
    match chance.below(30) {
        0..=3 => id.clone(),
        4 => name.to_uppercase(),
        5 => format!(" {name}"),
        6 => format!("{name}\u{200b}"),
        7 => format!("functions.{name}"),
        8 => name.replace('t', "т"),
        _ => name.clone(),
    }
}

fn one_or_more(chance: &mut Chance, one: impl Fn(&mut Chance) -> String) -> Value {
    if chance.percent(60) { json!(one(chance)) } else { json!([one(chance), one(chance)]) }
}

/// Conditions of a grant on the arguments.
pub fn conditions(chance: &mut Chance) -> Vec<Value> {
    let count = chance.one_of(&[0, 0, 1, 1, 2]);
    (0..count).map(|_| argument(chance)).collect()
}

/// Sets an argument so that it meets a condition, as somebody does who knows a grant.
pub fn fit(chance: &mut Chance, args: &mut Value, condition: &Value) {
    let value = if let Some(one_of) = condition.get("one_of") {
        one_of[chance.below(2) as usize].clone()
    } else if let Some(glob) = condition.get("glob").and_then(Value::as_str) {
        json!(glob.replace('*', "").replace('?', "b"))
    } else if let Some(range) = condition.get("range") {
        range.get("min").or(range.get("max")).cloned().unwrap_or_default()
    } else {
        condition.get("prefix").unwrap_or(&condition["equals"]).clone()
    };
    match condition["pointer"].as_str().unwrap_or_default() {
        "/y/0" => args["y"] = json!([value]),
        "/z/x" => args["z"] = json!({ "x": value }),
        "/x/y" => args["x"] = json!({ "y": value }),
        "/p~1q" => args["p/q"] = value,
        "/y" if chance.percent(50) => args["y"] = json!([value, value]),
        pointer => args[pointer.trim_start_matches('/')] = value,
    }
}

fn argument(chance: &mut Chance) -> Value {
    let pointer = chance.one_of(&POINTERS);
    match chance.below(5) {
        0 => json!({"pointer": pointer, "equals": scalar(chance)}),
        1 => json!({"pointer": pointer, "one_of": [scalar(chance), scalar(chance)]}),
        2 => json!({"pointer": pointer, "prefix": chance.one_of(&TEXTS)}),
        3 => json!({"pointer": pointer, "glob": chance.one_of(&GLOBS)}),
        _ => match chance.below(3) {
            0 => json!({"pointer": pointer, "range": {"min": number(chance)}}),
            1 => json!({"pointer": pointer, "range": {"max": number(chance)}}),
            _ => json!({"pointer": pointer, "range": {"min": -2, "max": chance.below(4)}}),
        },
    }
}

fn condition(chance: &mut Chance) -> (&'static str, Value) {
    let some = |chance: &mut Chance, all: &[&str]| {
        let some: Vec<&str> = all.iter().copied().filter(|_| chance.percent(40)).collect();
        if some.is_empty() { json!(chance.one_of(all)) } else { json!(some) }
    };
    match chance.below(15) {
        0..=3 => ("tool", one_or_more(chance, tool_glob)),
        4 => {
            let all: Vec<&str> = ToolSource::ALL.iter().map(|source| source.as_str()).collect();
            ("source", some(chance, &all))
        }
        5 => ("class", some(chance, &CLASSES.map(|class| class.as_str()))),
        6 => ("hints", json!({chance.one_of(&HINTS): chance.percent(50)})),
        7 => ("principal", one_or_more(chance, |chance| chance.one_of(&["ann", "b*", "*", "zz"]).to_owned())),
        8 => (
            "labels",
            json!({"env": one_or_more(chance, |chance| chance.one_of(&["prod", "d*"]).to_owned())}),
        ),
        9 => ("turn", one_or_more(chance, |chance| chance.one_of(&["a", "b", "?"]).to_owned())),
        10 => ("exposed", json!(chance.percent(80))),
        _ => ("args", (0..chance.between(1, 2)).map(|_| argument(chance)).collect()),
    }
}

fn tool_glob(chance: &mut Chance) -> String {
    match chance.below(4) {
        0 => chance.one_of(&["t*", "*", "id.*", "out*", "zz"]).to_owned(),
        1 => format!("id.{}", chance.below(TOOLS)),
        _ => format!("t{}", chance.below(TOOLS)),
    }
}

/// A rule of this name.
pub fn rule(chance: &mut Chance, name: &str) -> Value {
    let ruling = chance.one_of(&["allow", "allow", "ask", "ask", "ask", "deny"]);
    let least = if ruling == "allow" { 0 } else { 1 + u64::from(ruling == "deny") };
    let when: Map<String, Value> = (0..chance.between(least, 3))
        .map(|_| condition(chance))
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let mut rule = json!({"name": name, "ruling": ruling, "when": when});
    if chance.percent(30) {
        rule["reason"] = json!(format!("because {}", chance.below(3)));
    }
    if ruling == "ask" {
        let four_eyes = chance.percent(25);
        if four_eyes {
            rule["four_eyes"] = json!(true);
        }
        if chance.percent(50) {
            rule["expires_ms"] = json!(chance.between(1, 600) * 1_000);
        }
        if chance.percent(40) {
            let on_expiry = if four_eyes || chance.percent(30) { "deny" } else { "allow" };
            rule["on_expiry"] = json!(on_expiry);
        }
    }
    rule
}

/// Rules that no policy can have.
pub fn broken_rules(chance: &mut Chance) -> Vec<Value> {
    let one = match chance.below(5) {
        0 => json!({"name": "broken", "ruling": "block"}),
        1 => json!({"name": "broken", "ruling": "allow", "when": {"tols": "t1"}}),
        2 => json!({"name": "broken", "ruling": "deny", "when": {"args": [{"pointer": "x", "equals": 1}]}}),
        3 => json!({"name": "broken", "ruling": "allow", "four_eyes": true}),
        _ => json!("allow everything"),
    };
    vec![one]
}

/// A tool of this number, in this version.
pub fn tool(chance: &mut Chance, number: u64, version: u64) -> ToolTruth {
    let hint = |chance: &mut Chance| chance.one_of(&[None, Some(true), Some(false), Some(false)]);
    let hints = Hints {
        sends_out: hint(chance),
        destructive: hint(chance),
        reads_private: hint(chance),
        ingests_untrusted: hint(chance),
        ..Hints::default()
    };
    let approval = chance.one_of(&[
        ApprovalRule::Never,
        ApprovalRule::Never,
        ApprovalRule::Never,
        ApprovalRule::Ask,
        ApprovalRule::ByArgs,
    ]);
    let sources = [ToolSource::Registered, ToolSource::Declared, ToolSource::BuiltIn, ToolSource::Mcp];
    ToolTruth {
        name: format!("t{number}"),
        id: format!("id.{number}"),
        source: chance.one_of(&sources),
        class: chance.one_of(&CLASSES),
        hints,
        approval,
        is_bound: chance.percent(40),
        has_schema: chance.percent(25),
        version,
    }
}

/// The schema of a tool that has one.
pub fn schema() -> Value {
    json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "array"}}})
}

/// Arguments that an approver gives instead of those that were shown; they fit every tool.
pub fn edited(chance: &mut Chance, number: u64) -> Value {
    json!({"x": chance.below(4), "y": [scalar(chance)], "call": number})
}

/// The calls for which an answer is given again.
pub fn remembered(chance: &mut Chance) -> Remember {
    let args = match chance.below(5) {
        0 => RememberedArgs::Same,
        1 | 2 => RememberedArgs::Any,
        _ => RememberedArgs::At(vec![chance.one_of(&POINTERS).to_owned()]),
    };
    Remember { args, for_ms: chance.percent(40).then(|| chance.between(1, 900) * 1_000) }
}
