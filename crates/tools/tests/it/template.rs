//! How arguments become words.

use serde_json::{Value, json};
use windlass_tools::command::CommandTemplate;

/// The words of a template for arguments `a`, `b` and `long name`.
fn fill(words: &[&str], args: Value) -> Vec<String> {
    let properties = ["a", "b", "long name"].map(String::from).into();
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let filled = CommandTemplate::new("program", &words, &properties).fill(&args).expect("words");
    filled[1..].iter().map(|word| word.to_str().expect("text").to_string()).collect()
}

#[test]
fn places_are_filled_inside_their_word() {
    let cases: &[(&[&str], Value, &[&str])] = &[
        (&["{a}"], json!({ "a": "x" }), &["x"]),
        (&["--a={a}", "--b={b}"], json!({ "a": "1", "b": "2" }), &["--a=1", "--b=2"]),
        (&["{a}{b}-{a}"], json!({ "a": "1", "b": "2" }), &["12-1"]),
        (&["{long name}"], json!({ "long name": "x" }), &["x"]),
        // Never split, no shell, no second look.
        (&["{a}"], json!({ "a": "x y; rm -rf $HOME `id` *" }), &["x y; rm -rf $HOME `id` *"]),
        (&["{a}"], json!({ "a": "{b}", "b": "no" }), &["{b}"]),
        (&["--x={a}"], json!({ "a": "" }), &["--x="]),
        (&["{a}"], json!({ "a": "--force" }), &["--force"]),
        (&["{a}"], json!({ "a": " two\nlines " }), &[" two\nlines "]),
        // Scalars as they are, the rest as compact JSON.
        (&["{a}", "{b}"], json!({ "a": 1.5, "b": true }), &["1.5", "true"]),
        (&["{a}"], json!({ "a": [1, "x", { "k": null }] }), &[r#"[1,"x",{"k":null}]"#]),
        // An argument that was not given takes its word with it.
        (&["x", "--a={a}", "--both={a}{b}", "y"], json!({ "b": "2" }), &["x", "y"]),
        // What names no property is text.
        (
            &["{c}", "{}", "{", "}", "{{a}}", "{a", "a}"],
            json!({ "a": "1" }),
            &["{c}", "{}", "{", "}", "{1}", "{a", "a}"],
        ),
        (&["{c{a}", "${a}", "{ a }"], json!({ "a": "1" }), &["{c1", "$1", "{ a }"]),
        (&[""], json!({}), &[""]),
    ];
    for (words, args, expected) in cases {
        assert_eq!(&fill(words, args.clone()), expected, "{words:?} {args}");
    }
}

#[test]
fn a_nul_is_refused_by_name() {
    let template = CommandTemplate::new("program", &["{a}".to_string()], &["a".to_string()].into());
    let error = template.fill(&json!({ "a": "x\0y" })).expect_err("no word can hold it");
    assert!(error.to_string().contains("\"a\" contains a NUL"), "{error}");
}
