//! The model's view: short answers as they are, long ones cut so that they can be read on.

use serde_json::{Value, json};
use windlass_core::code::Code;
use windlass_core::failure::Failure;
use windlass_core::handle::Handle;
use windlass_core::limits::CallLimits;
use windlass_core::outcome::{self, Effect, KeptBytes, ModelAnswer, Outcome, Part, Success};
use windlass_core::projection::{self, ANSWER_BYTES_MIN, Ends, READ_ON_BYTES_MAX};

const KEPT: KeptBytes = KeptBytes { artifact: Handle(7), bytes: 123_456 };

fn small() -> CallLimits {
    CallLimits { answer_bytes_max: 600, answer_lines_max: 20, ..CallLimits::default() }
}

fn success(json: &str, parts: Vec<Part>) -> Outcome {
    Outcome::Succeeded(Success { value: outcome::Value::Inline(json.into()), parts, side: None })
}

fn project(json: &str, limits: &CallLimits) -> ModelAnswer {
    projection::project(&success(json, Vec::new()), Some(KEPT), limits)
}

fn texts(answer: &ModelAnswer) -> Vec<&str> {
    answer.parts.iter().filter_map(text).collect()
}

fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        Part::Json(_) | Part::Image { .. } | Part::KeptImage { .. } | Part::File { .. } => None,
    }
}

#[test]
fn short_values_are_shown_as_they_are() {
    let cases = [
        (r#""plain""#, "plain"),
        (r#""two\nlines and \"quotes\" 😀""#, "two\nlines and \"quotes\" 😀"),
        (r#""""#, ""),
        ("null", "null"),
        ("12", "12"),
        (r#"{"a":[1,2,{"b":"c"}]}"#, r#"{"a":[1,2,{"b":"c"}]}"#),
    ];
    for (json, expected) in cases {
        let answer = project(json, &CallLimits::default());
        assert_eq!(
            (answer.parts, answer.is_error),
            (vec![Part::Text(expected.to_string())], false),
            "{json}"
        );
    }
}

#[test]
fn what_did_not_succeed_is_an_error_of_one_form() {
    let internal = Failure::internal(Code::ToolPanicked, "k3f9", "secret detail");
    let outcomes = [
        Outcome::Failed(Box::new(Failure::invalid_request(
            Code::InvalidArgs,
            "/a: expected \"x\"\n/b: missing",
        ))),
        Outcome::Failed(Box::new(internal)),
        Outcome::Denied { reason: String::new() },
        Outcome::Denied { reason: "writing is off in this session".to_string() },
        Outcome::Cancelled { effect: Effect::None },
        Outcome::Cancelled { effect: Effect::Landed },
        Outcome::Cancelled { effect: Effect::Unknown },
        Outcome::Unknown,
    ];
    let told: Vec<String> = outcomes
        .iter()
        .map(|outcome| {
            let answer = projection::project(outcome, None, &CallLimits::default());
            assert!(answer.is_error);
            let text = texts(&answer).concat();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(value["error"].is_string() && value["code"].is_string());
            text
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    {"error":"/a: expected \"x\"\n/b: missing","code":"invalid_args"}
    {"error":"An internal error occurred; the operator finds it under reference k3f9.","code":"tool_panicked"}
    {"error":"This call was not allowed.","code":"denied"}
    {"error":"This call was not allowed: writing is off in this session","code":"denied"}
    {"error":"This call was cancelled; it had no effect.","code":"cancelled"}
    {"error":"This call was cancelled after it had taken effect.","code":"cancelled"}
    {"error":"This call was cancelled; it is not known whether it took effect; do not repeat it blindly.","code":"cancelled"}
    {"error":"It is not known whether this took effect; do not repeat it blindly.","code":"unknown"}
    "#);
}

#[test]
fn a_long_text_keeps_its_ends() {
    let lines: Vec<String> = (1..=100).map(|line| format!("line {line}")).collect();
    let answer = project(&json!(lines.join("\n")).to_string(), &small());
    insta::assert_snapshot!(texts(&answer).join("\n--- next part\n"), @r#"
    line 1
    line 2
    line 3
    line 4
    line 5
    line 6
    line 7
    line 8
    line 9
    … 656 bytes left out …
    line 92
    line 93
    line 94
    line 95
    line 96
    line 97
    line 98
    line 99
    line 100
    --- next part
    {"truncated":true,"shown":135,"total":791,"next_offset":63,"artifact":"00000000000000000000000007","hint":"Call read_artifact with this artifact and next_offset as offset to read on."}
    "#);
}

#[test]
fn a_long_value_stays_json() {
    let cases = [
        json!((0..10_000).collect::<Vec<_>>()),
        json!({"name": "big", "content": "abc\n".repeat(1_000), "ok": true}),
        json!({"rows": (0..500).map(|row| json!({"id": row, "text": "word ".repeat(row % 20)})).collect::<Vec<_>>(), "next": null}),
        Value::Object((0..300).map(|key| (format!("key{key:03}"), json!(key))).collect()),
        json!({"…": 1, "a": vec![0; 2_000], "b": {"c": {"d": vec!["x".repeat(300); 5]}}}),
        json!([["😀".repeat(500)], {"k".repeat(3_000): 1}]),
    ];
    let mut shown = Vec::new();
    for value in cases {
        let answer = project(&value.to_string(), &small());
        let [text, read_on] = texts(&answer)[..] else { panic!("two parts") };
        serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let read_on: Value = serde_json::from_str(read_on).unwrap();
        assert_eq!(read_on["total"], json!(value.to_string().len()));
        shown.push(text.to_string());
    }
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn a_long_value_uses_the_room_it_has() {
    let value = json!({"content": "x".repeat(200_000)});
    let shown = texts(&project(&value.to_string(), &CallLimits::default()))[0].len();
    assert!(shown > 20_000, "{shown} of {}", CallLimits::default().answer_bytes_max);
}

#[test]
fn images_and_files_come_with_the_value() {
    let image = Part::Image { media_type: "image/png".into(), data: vec![1, 2, 3].into() };
    let file = |name: &str| Part::File { kept: KEPT, media_type: "text/csv".into(), name: name.into() };
    let parts = vec![Part::Text("a note".into()), image.clone(), file("a \"b\".csv")];
    let file_line = r#"file "a \"b\".csv": 123,456 bytes of text/csv; read_artifact reads it as artifact 00000000000000000000000007"#;
    let answer = projection::project(&success("{\"n\":1}", parts.clone()), None, &CallLimits::default());
    let text = |text: &str| Part::Text(text.to_string());
    assert_eq!(answer.parts, [text("{\"n\":1}"), text("a note"), image.clone(), text(file_line)]);
    // A null beside parts is no value.
    let answer = projection::project(&success("null", parts), None, &CallLimits::default());
    assert_eq!(answer.parts, [text("a note"), image, text(file_line)]);
    let many = (0..1_000).map(|number| file(&format!("f{number}"))).collect();
    let answer = projection::project(&success("\"done\"", many), None, &small());
    assert!(texts(&answer)[1].ends_with("\n… and 999 more files"), "{:?}", texts(&answer));
}

#[test]
fn parts_keep_the_order_the_tool_gave_them() {
    let text = |text: &str| Part::Text(text.to_string());
    let image = |number| Part::Image { media_type: "image/png".into(), data: vec![number].into() };
    let stored =
        |media_type: &str| Part::File { kept: KEPT, media_type: media_type.into(), name: "a".into() };
    let parts = vec![
        text("before"),
        image(1),
        Part::Json("[1]".into()),
        stored("image/jpeg"),
        stored("text/csv"),
        image(2),
        text("after"),
    ];
    let answer = projection::project(&success("null", parts), None, &CallLimits::default());
    let kept_image = Part::KeptImage { kept: KEPT, media_type: "image/jpeg".into() };
    let line = r#"file "a": 123,456 bytes of text/csv; read_artifact reads it as artifact 00000000000000000000000007"#;
    assert_eq!(
        answer.parts,
        [text("before"), image(1), Part::Json("[1]".into()), kept_image, text(line), image(2), text("after")]
    );
}

#[test]
fn captions_stay_whole_beside_their_images_when_long_text_is_cut() {
    let text = |text: &str| Part::Text(text.to_string());
    let image = |number| Part::Image { media_type: "image/png".into(), data: vec![number].into() };
    let log = (0..400).map(|line| format!("line {line}\n")).collect::<String>();
    let parts = vec![text("Before:"), image(1), text(&log), text("After:"), image(2)];
    let whole = success("null", parts);
    let answer = projection::project(&whole, Some(KEPT), &small());
    let [before, first, cut, after, second, read_on] = &answer.parts[..] else { panic!("{answer:?}") };
    assert_eq!([before, first, after, second], [&text("Before:"), &image(1), &text("After:"), &image(2)]);
    assert!(cut.text().unwrap().contains(" bytes left out "), "{cut:?}");
    // The offset to read on from is one of the whole text.
    let Outcome::Succeeded(whole) = &whole else { panic!() };
    let full = projection::full_text(whole);
    let read_on: Value = serde_json::from_str(read_on.text().unwrap()).unwrap();
    let next = read_on["next_offset"].as_u64().unwrap() as usize;
    assert_eq!(read_on["total"], json!(full.len()));
    assert!(cut.text().unwrap().starts_with(&full["Before:\n".len()..next]), "{read_on}");
}

#[test]
fn more_texts_than_there_is_space_leave_every_image() {
    let image = Part::Image { media_type: "image/png".into(), data: vec![1].into() };
    let parts: Vec<Part> = (0..50)
        .flat_map(|number| [Part::Text(format!("Caption {number}").repeat(9)), image.clone()])
        .collect();
    let answer = projection::project(&success("null", parts), Some(KEPT), &small());
    assert_eq!(answer.parts.iter().filter(|part| **part == image).count(), 50);
    let shown: usize = texts(&answer).iter().map(|text| text.len()).sum();
    assert!(shown as u64 <= small().answer_bytes_max + READ_ON_BYTES_MAX, "{shown}");
}

#[test]
fn a_failure_shows_its_own_code_and_its_parts() {
    let shot = Part::KeptImage { kept: KEPT, media_type: "image/png".into() };
    let failure = Failure {
        tool_code: Some("E404".into()),
        parts: vec![Part::Text("The page:".into()), shot.clone()],
        ..Failure::invalid_request(Code::ToolFailed, "The button is missing.")
    };
    let answer = projection::project(&Outcome::Failed(Box::new(failure)), None, &CallLimits::default());
    let told = r#"{"error":"The button is missing.","code":"tool_failed","tool_code":"E404"}"#;
    assert_eq!(answer.parts, [Part::Text(told.into()), Part::Text("The page:".into()), shot]);
    assert!(answer.is_error);
    let long =
        Failure { tool_code: Some("x".repeat(9_000)), ..Failure::invalid_request(Code::ToolFailed, "no") };
    let answer = projection::project(&Outcome::Failed(Box::new(long)), None, &small());
    assert!(texts(&answer)[0].len() < 200, "{answer:?}");
}

#[test]
fn text_among_the_parts_is_kept_and_cut_with_the_value() {
    let Outcome::Succeeded(success) = success("{\"n\":1}", vec![Part::Text("y".repeat(2_000))]) else {
        panic!()
    };
    let full = projection::full_text(&success).into_owned();
    assert_eq!(full, format!("{{\"n\":1}}\n{}", "y".repeat(2_000)));
    assert!(!projection::fits(&full, &small()));
    let answer = projection::project(&Outcome::Succeeded(success), Some(KEPT), &small());
    let [value, text, read_on] = texts(&answer)[..] else { panic!("three parts") };
    assert_eq!(value, "{\"n\":1}");
    let read_on: Value = serde_json::from_str(read_on).unwrap();
    let next = read_on["next_offset"].as_u64().unwrap() as usize;
    assert!(text.starts_with(&full[value.len() + 1..next]) && text.contains(" bytes left out "), "{text}");
}

#[test]
fn a_value_that_is_kept_already_says_where() {
    let value = outcome::Value::Kept { kept: KEPT, form: outcome::Form::Json };
    let answer = projection::project(
        &Outcome::Succeeded(Success { value, parts: vec![], side: None }),
        None,
        &small(),
    );
    insta::assert_snapshot!(texts(&answer).join("\n"), @r#"{"truncated":true,"shown":0,"total":123456,"next_offset":0,"artifact":"00000000000000000000000007","hint":"Call read_artifact with this artifact and next_offset as offset to read on."}"#);
}

#[test]
fn streamed_output_is_shown_by_its_ends() {
    let whole: Vec<u8> = (0..5_000).flat_map(|line| format!("zeile {line} ü\n").into_bytes()).collect();
    let ends = |length: usize| Ends {
        head: &whole[..length],
        tail: &whole[whole.len() - length..],
        total: whole.len() as u64,
    };
    let full = std::str::from_utf8(&whole).unwrap();
    // Whatever piece the ends were cut from, the answer is the same as that of the whole.
    let expected = project(&json!(full).to_string(), &small());
    for length in 600..620 {
        assert_eq!(projection::project_ends(ends(length), Some(KEPT), &small()), expected, "{length}");
    }
    let short = Ends { head: b"all ", tail: b"l of it", total: 9 };
    assert_eq!(texts(&projection::project_ends(short, None, &small())), ["all of it"]);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn limits() -> impl Strategy<Value = CallLimits> {
        (0u64..3_000, 0u64..60).prop_map(|(answer_bytes_max, answer_lines_max)| CallLimits {
            answer_bytes_max,
            answer_lines_max,
            ..CallLimits::default()
        })
    }

    /// No answer is larger than the limits, apart from the part that says how to read on.
    fn holds(answer: &ModelAnswer, limits: &CallLimits) {
        let mut texts = texts(answer);
        if let Some(last) = texts.last().copied().filter(|text| text.starts_with("{\"truncated\"")) {
            assert!(last.len() as u64 <= READ_ON_BYTES_MAX);
            texts.pop();
        }
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let lines: usize = texts.iter().map(|text| text.split('\n').count()).sum();
        assert!(bytes as u64 <= limits.answer_bytes_max.max(ANSWER_BYTES_MIN), "{bytes} bytes: {texts:?}");
        assert!(lines as u64 <= limits.answer_lines_max.max(8), "{lines} lines: {texts:?}");
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<Option<bool>>().prop_map(|value| json!(value)),
            any::<i32>().prop_map(Value::from),
            "\\PC{0,400}|[\"\\\\\n\u{1}a😀]{0,200}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 300, 60, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..60).prop_map(Value::from),
                prop::collection::btree_map("…{0,2}|.{0,20}|[a-z]{200}", inner, 0..20)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_stay_json_within_the_limits(value in values(), limits in limits()) {
            let json = value.to_string();
            let answer = project(&json, &limits);
            holds(&answer, &limits);
            prop_assert_eq!(&answer, &project(&json, &limits));
            if !value.is_string() {
                let strict = windlass_args::limits::ArgLimits { args_depth_max: 1_000, ..Default::default() };
                windlass_args::json::parse(texts(&answer)[0], &strict).unwrap();
            }
            let fits = projection::fits(&projection::full_text(&Success { value: outcome::Value::Inline(json.into()), parts: vec![], side: None }), &limits);
            prop_assert_eq!(fits, answer.parts.len() == 1);
        }

        #[test]
        fn texts_are_cut_from_what_is_kept(text in "([a-z ü😀]{0,80}\n){0,80}|\\PC{0,3000}", limits in limits()) {
            let answer = project(&json!(text).to_string(), &limits);
            holds(&answer, &limits);
            if let [shown, read_on] = texts(&answer)[..] {
                let read_on: Value = serde_json::from_str(read_on).unwrap();
                let next = read_on["next_offset"].as_u64().unwrap() as usize;
                let (head, rest) = text.split_at(next);
                let tail = shown.strip_prefix(head).unwrap().split_once(" bytes left out …\n").unwrap().1;
                prop_assert!(rest.ends_with(tail));
                prop_assert_eq!(&read_on["shown"], &json!(head.len() + tail.len()));
            } else {
                prop_assert_eq!(texts(&answer), [text.as_str()]);
            }
        }

        #[test]
        fn ends_of_any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..4_000), cut in 0usize..4_000, limits in limits()) {
            let cut = cut.min(bytes.len());
            let ends = Ends { head: &bytes[..cut], tail: &bytes[bytes.len() - cut..], total: bytes.len() as u64 };
            let answer = projection::project_ends(ends, Some(KEPT), &limits);
            holds(&answer, &limits);
            if let [_, read_on] = texts(&answer)[..] {
                let read_on: Value = serde_json::from_str(read_on).unwrap();
                prop_assert!(read_on["shown"].as_u64() <= Some(bytes.len() as u64));
                prop_assert!(read_on["next_offset"].as_u64() <= Some(cut as u64));
            }
        }

        #[test]
        fn errors_hold(message in "[\u{1}\"\\\\\na]{0,3000}", limits in limits()) {
            let outcome = Outcome::Failed(Box::new(Failure::invalid_request(Code::ToolFailed, message)));
            let answer = projection::project(&outcome, None, &limits);
            holds(&answer, &limits);
            let value: Value = serde_json::from_str(texts(&answer)[0]).unwrap();
            prop_assert_eq!(&value["code"], "tool_failed");
        }
    }
}
