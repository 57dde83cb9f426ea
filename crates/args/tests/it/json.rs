//! Parsing, measuring, dismantling; the canonical text and differences.

use serde_json::{Value, json};
use windlass_args::code::ArgumentCode;
use windlass_args::limits::ArgLimits;
use windlass_args::{canonical, json as strict};

fn parse(text: &str) -> Result<Value, strict::JsonProblem> {
    strict::parse(text, &ArgLimits::default())
}

#[test]
fn a_letter_is_escaped_wherever_it_stands() {
    for letter in (0..=0x7f_u8).map(char::from).chain(['ä', '\u{2028}', '😀']) {
        for place in 0..17 {
            let mut text = "plain text of letters".to_string();
            text.insert(place, letter);
            let (value, mut written) = (Value::from(text), String::new());
            strict::write(&value, &ArgLimits::default(), &mut written).unwrap();
            assert_eq!(written, value.to_string());
        }
    }
}

#[test]
fn what_is_json_is_read_as_serde_json_reads_it() {
    let cases = [
        "null",
        "true",
        " false\n",
        "0",
        "-1",
        "1.0",
        "0.1",
        "1e3",
        "1E-7",
        "-0.5",
        "123456789.25",
        "0.30000000000000004",
        "1.7976931348623157e308",
        "5e-324",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        r#""""#,
        r#""plain""#,
        r#""exactly8""#,
        r#""ünïcödé and longer than eight""#,
        r#""a \"quoted\" \\ \/ \b\f\n\r\t word""#,
        r#""\u00e9 \u20ac \ud83d\ude00 end""#,
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1, 2, [3, [4]], {}]",
        r#"{"a": {"b": [{"c": null}]}, "d": "e"}"#,
        "\t{\r\n \"a\" : [ true , false ] }\n",
    ];
    for text in cases {
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse(text).unwrap(), expected, "{text}");
        assert_eq!(strict::parse_result(text, &ArgLimits::default()).unwrap(), expected, "{text}");
    }
}

#[test]
fn numbers_are_exact_or_refused() {
    let exact = [
        ("-0", json!(0)),
        ("1.50", json!(1.5)),
        ("100000000000000000000.0", json!(1e20)),
        ("1e22", json!(1e22)),
        ("1e23", json!(1e23)),
        ("0.000", json!(0.0)),
        ("0e999999999999999999999", json!(0.0)),
        // Exactly 2^-60, with all of its digits.
        ("8.67361737988403547205962240695953369140625e-19", json!(2f64.powi(-60))),
        ("0.1000000000000000055511151231257827021181583404541015625", json!(0.1)),
    ];
    for (text, expected) in exact {
        assert_eq!(parse(text).unwrap(), expected, "{text}");
    }
    let inexact = [
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1e400",
        "-1e400",
        "1e-400",
        "1e99999999999999999999",
        "0.1234567890123456789",
        "0.10000000000000001",
        "9007199254740993.0",
        "3.14159265358979323846",
    ];
    for text in inexact {
        let problem = parse(&format!("{{\"n\": [{text}]}}")).unwrap_err();
        assert_eq!((problem.code, problem.pointer.as_str()), (ArgumentCode::InexactNumber, "/n/0"), "{text}");
    }
}

#[test]
fn problems_say_what_where_and_what_to_do() {
    let cases = [
        "",
        "{",
        "[1, 2",
        r#"{"a": 1"#,
        r#"{"a""#,
        r#"{"a": "b"#,
        r#"{"a": 1,}"#,
        "[1, 2,]",
        "[1 2]",
        r#"{"a" 1}"#,
        r#"{a: 1}"#,
        r#"{'a': 1}"#,
        r#"{"a": True}"#,
        r#"{"a": None}"#,
        r#"{"a": NaN}"#,
        r#"{"a": tru}"#,
        r#"{"a": 1} // done"#,
        r#"{"a": 1}{"b": 2}"#,
        "{\"a\": 1,\n \"b\": {\"c/d\": [0, 1, x]}}",
        r#"{"a": 1, "b": {"c": 1, "c": 2}}"#,
        r#"{"a": 1, "\u0061": 2}"#,
        r#""\x""#,
        r#""\u12g4""#,
        r#""\ud800""#,
        r#""\ud800A""#,
        r#""\udc00""#,
        "\"a\nb\"",
        "\"a long enough line\tb\"",
        "\"a control\u{1}character with enough text behind it\"",
        "01",
        "-",
        "1.",
        ".5",
        "+1",
        "1e",
        "\u{feff}{}",
        "{\"ü\": 1, \"é\": x}",
    ];
    let told: Vec<String> =
        cases.iter().map(|text| format!("{text:?}\n    {}", parse(text).unwrap_err())).collect();
    insta::assert_snapshot!(told.join("\n"));
    for text in cases.iter().filter(|text| !text.is_empty()) {
        let code = parse(text).unwrap_err().code;
        assert!(matches!(code, ArgumentCode::InvalidJson | ArgumentCode::DuplicateKey), "{text}");
    }
}

#[test]
fn limits_hold_before_anything_is_built() {
    let limits = ArgLimits { args_bytes_max: 100, args_depth_max: 3, ..ArgLimits::default() };
    let cases: [(&str, Option<ArgumentCode>); 7] = [
        ("[[[1]]]", None),
        ("[[[[1]]]]", Some(ArgumentCode::TooDeep)),
        (r#"{"a":{"b":{"c":1}}}"#, None),
        (r#"{"a":{"b":{"c":{}}}}"#, Some(ArgumentCode::TooDeep)),
        (r#"{"a":[{"c":[]}]}"#, Some(ArgumentCode::TooDeep)),
        (&format!("\"{}\"", "x".repeat(98)), None),
        (&format!("\"{}\"", "x".repeat(99)), Some(ArgumentCode::TooLarge)),
    ];
    for (text, expected) in cases {
        assert_eq!(strict::parse(text, &limits).err().map(|problem| problem.code), expected, "{text}");
        let value: Value = serde_json::from_str(text).unwrap();
        let measured = strict::measure(&value, &limits);
        assert_eq!(measured.err().map(|problem| problem.code), expected, "measured: {text}");
    }
    let deep = "[".repeat(1_000_000);
    let limits = ArgLimits { args_bytes_max: 10_000_000, ..ArgLimits::default() };
    assert_eq!(strict::parse(&deep, &limits).unwrap_err().code, ArgumentCode::TooDeep);
}

#[test]
fn sizes() {
    let cases = [
        (json!(1), (1, 0)),
        (json!([]), (1, 1)),
        (json!({"a": 1, "b": [true, null]}), (5, 2)),
        (json!([[[[]]]]), (4, 4)),
    ];
    for (value, (nodes, depth)) in cases {
        let size = strict::measure(&value, &ArgLimits::default()).unwrap();
        assert_eq!((size.nodes, size.depth), (nodes, depth), "{value}");
        assert!(
            size.bytes <= value.to_string().len() as u64,
            "{value}: never refuses what parsing would take"
        );
    }
}

#[test]
fn a_value_of_any_depth_is_measured_and_dismantled() {
    for wrap in [|inner| json!([inner]), |inner| json!({ "a": inner })] as [fn(Value) -> Value; 2] {
        let mut value = Value::Null;
        for _ in 0..200_000 {
            value = match wrap(Value::Null) {
                Value::Array(_) => Value::Array(vec![value]),
                _ => Value::Object([("a".to_string(), value)].into_iter().collect()),
            };
        }
        let problem = strict::measure(&value, &ArgLimits::default()).unwrap_err();
        assert_eq!(problem.code, ArgumentCode::TooDeep);
        assert!(canonical::text(&value).len() >= 400_000);
        strict::dismantle(value);
    }
}

#[test]
fn canonical_texts() {
    let cases = [
        (r#"{"b": 1.0, "a": [true, null, "x"]}"#, r#"{"a":[true,null,"x"],"b":1}"#),
        (r#"{"\ue000": 1, "\ud83d\ude00": 2}"#, "{\"\u{1f600}\":2,\"\u{e000}\":1}"),
        (r#""a\u0001\n\"\\\/é""#, "\"a\\u0001\\n\\\"\\\\/é\""),
        ("[1e21, 1e-7, 100.0, -0.0]", "[1e+21,1e-7,100,0]"),
        ("[9007199254740991, -9007199254740991]", "[9007199254740991,-9007199254740991]"),
        (
            "[9007199254740992, 9007199254740993, -9007199254740993]",
            "[9007199254740992n,9007199254740993n,-9007199254740993n]",
        ),
        ("[18446744073709551615, 1.8446744073709552e19]", "[18446744073709551615n,18446744073709552000]"),
        ("[]", "[]"),
        ("{}", "{}"),
    ];
    for (text, expected) in cases {
        assert_eq!(canonical::text(&parse(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn differences_are_pointers_in_order() {
    let cases = [
        ("1", "1.0", ""),
        ("1", "2", "."),
        (r#"{"a":1}"#, r#"{"a":1}"#, ""),
        (r#"{"a":1,"b":2}"#, r#"{"b":3,"c":1}"#, "./a ./b ./c"),
        (r#"{"a":{"b/c":[1,2,3]}}"#, r#"{"a":{"b/c":[1,0,3,4]}}"#, "./a/b~1c/1 ./a/b~1c/3"),
        (r#"{"a":[]}"#, r#"{"a":{}}"#, "./a"),
        ("[9007199254740992]", "[9007199254740993]", "./0"),
        ("[1,2,3,4,5]", "[0,0,0,0,0]", "./0 ./1 ./2 ./3"),
        ("[[1],[2],3]", "[[0],[0],0]", "./0/0 ./1/0 ./2"),
    ];
    for (left, right, expected) in cases {
        let found = canonical::differences(&parse(left).unwrap(), &parse(right).unwrap(), 4);
        let shown: Vec<String> = found.iter().map(|pointer| format!(".{pointer}")).collect();
        assert_eq!(shown.join(" "), expected, "{left} {right}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter_map("finite", |float| serde_json::Number::from_f64(float).map(Value::Number)),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(value in values()) {
            prop_assert_eq!(parse(&value.to_string()).unwrap(), value.clone());
            prop_assert_eq!(parse(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), value);
        }

        #[test]
        fn what_is_written_is_what_serde_json_writes_and_measured_as_ever(
            value in values(),
            bytes_max in 0..200u64,
            depth_max in 0..6u64,
        ) {
            let limits = ArgLimits { args_bytes_max: bytes_max, args_depth_max: depth_max, ..ArgLimits::default() };
            let mut text = "before".to_string();
            let written = strict::write(&value, &limits, &mut text);
            let measured = strict::measure(&value, &limits);
            prop_assert_eq!(written.is_ok(), measured.is_ok());
            if let (Ok(written), Ok(measured)) = (written, measured) {
                prop_assert_eq!(written, measured);
                prop_assert_eq!(text, format!("before{value}"));
            }
        }

        #[test]
        fn any_text_is_taken_or_refused_as_serde_json_does(text in "[\\[\\]{}:,\"\\\\0-9.eEu+tfn a-]{0,24}") {
            match (parse(&text), serde_json::from_str::<Value>(&text)) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(canonical::text(&ours), canonical::text(&theirs)),
                (Ok(ours), Err(error)) => prop_assert!(false, "took {text:?} as {ours}: {error}"),
                (Err(problem), Ok(_)) => prop_assert!(matches!(problem.code, ArgumentCode::DuplicateKey | ArgumentCode::InexactNumber)),
                (Err(_), Err(_)) => {}
            }
        }

        #[test]
        fn the_same_text_means_no_difference(left in values(), right in values()) {
            let same = canonical::text(&left) == canonical::text(&right);
            prop_assert_eq!(canonical::differences(&left, &right, 8).is_empty(), same);
            prop_assert!(canonical::differences(&left, &left, 8).is_empty());
        }
    }
}
