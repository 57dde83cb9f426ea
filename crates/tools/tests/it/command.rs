//! The input of a command, and the use of its output.

use crate::rig::{Ran, folder, launcher, run, script, start, words};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use windlass_tools::command::{
    BoundedOutput, CommandEnd, CommandPiece, Invocation, Tail, spawn, start_failed,
};

#[tokio::test]
async fn ends_as_people_see_them() {
    let (_guard, folder) = folder();
    let plain = folder.join("plain.txt");
    std::fs::write(&plain, "no program").expect("written");
    let cases = [
        ("a value", script("echo '{\"ok\": [1, 2]}'")),
        ("text", script("echo hello; echo there")),
        ("nothing", script("")),
        ("a log and a result", script("echo working >&2; echo 7")),
        ("a failure", script("echo one >&2; echo two >&2; exit 3")),
        ("a failure on standard output", script("echo it broke; exit 1")),
        ("a silent failure", script("exit 1")),
        ("progress is not shown", script(r#"echo '{"progress": 0.5}' >&2; echo '{"other": 1}' >&2; exit 1"#)),
        ("a long log", script("for i in $(seq 1000); do echo line $i >&2; done; exit 1")),
        ("one long line", script("printf '%01000d' 7 >&2; exit 1")),
        ("safe to retry", script("echo busy >&2; exit 75")),
        ("a signal", script("kill -9 $$")),
        ("no such program", words(&["windlass-no-such-program", "x"])),
        ("not executable", words(&[plain.to_str().expect("text")])),
    ];
    let mut told = String::new();
    for (what, invocation) in cases {
        let said = run(invocation).await.told().replace(folder.to_str().expect("text"), "FOLDER");
        writeln!(told, "--- {what}\n{said}").expect("written");
    }
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn what_cannot_even_be_tried_did_not_happen() {
    let missing = Invocation { cwd: "/no/such/folder".into(), ..script("true") };
    let long = words(&["/bin/echo", &"x".repeat(3 << 20)]);
    let mut told = String::new();
    for invocation in [missing, long] {
        let Err(error) = spawn(&launcher(), invocation, Tail::new(10)).await else { panic!("it starts") };
        let error = start_failed(&error);
        assert!(error.did_not_happen);
        writeln!(told, "{} {:?} {}", error.class, error.retry, error.message).expect("written");
    }
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn the_environment_is_what_is_listed() {
    let env = vec![("REGION".into(), "eu".into()), ("WINDLASS_CALL".into(), "forged".into())];
    let invocation = Invocation { env, ..words(&["env"]) };
    let call = invocation.call.clone();
    let text = run(invocation).await.text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let path = format!("PATH={}", std::env::var("PATH").expect("a path"));
    assert_eq!(lines, [path.as_str(), "REGION=eu", &format!("WINDLASS_CALL={call}")]);
}

#[tokio::test]
async fn it_runs_in_its_folder() {
    let (_guard, folder) = folder();
    std::fs::write(folder.join("here.sh"), "#!/bin/sh\npwd").expect("written");
    std::fs::set_permissions(folder.join("here.sh"), PermissionsExt::from_mode(0o755)).expect("executable");
    let invocation = Invocation { cwd: folder.clone(), ..words(&["./here.sh"]) };
    let there = run(invocation).await.text();
    assert_eq!(std::path::Path::new(&there), folder.canonicalize().expect("a folder"));
}

#[tokio::test]
async fn arguments_are_on_standard_input() {
    let stdin = vec![b'x'; 3 << 20];
    let ran = run(Invocation { stdin: stdin.clone(), ..words(&["cat"]) }).await;
    assert_eq!(ran.text().as_bytes(), stdin);
    // One that does not read them ends all the same.
    let ran = run(Invocation { stdin, ..words(&["true"]) }).await;
    assert!(matches!(ran.ended.end, CommandEnd::Exited(0)));
}

#[tokio::test]
async fn large_output_is_never_held() {
    let mut running = start(words(&["head", "-c", "100000000", "/dev/zero"])).await;
    let mut held = BoundedOutput::new(100_000);
    let (mut overflowed, mut largest) = (0, 0);
    while let Some(piece) = running.next().await.expect("readable") {
        let CommandPiece::Stdout(piece) = piece else { continue };
        let overflow = held.take(piece).map_or(0, |overflow| overflow.len());
        overflowed += overflow;
        largest = largest.max(overflow);
    }
    assert!(matches!(running.end().await.end, CommandEnd::Exited(0)));
    assert_eq!(overflowed, 100_000_000);
    assert!(largest <= 100_000 + (64 << 10), "{largest}");
    assert_eq!(held.into_result(&windlass::Limits::default()), (serde_json::Value::Null, None));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_as_they_are() {
    let Ran { stdout, .. } = run(script("printf 'a\\377b'")).await;
    assert_eq!(stdout.media_type(), "application/octet-stream");
    assert_eq!(
        stdout.into_result(&windlass::Limits::default()),
        (serde_json::Value::Null, Some(b"a\xffb".to_vec()))
    );
}

#[test]
fn output_is_json_only_if_all_of_it_is() {
    let result = |bytes: &str| {
        let mut held = BoundedOutput::new(100);
        assert!(held.take(bytes.as_bytes()).is_none());
        held.into_result(&windlass::Limits::default()).0.to_string()
    };
    for (bytes, expected) in [
        (" {\"a\": 1}\n", r#"{"a":1}"#),
        ("1\n2\n", r#""1\n2""#),
        ("true", "true"),
        ("{\"a\": 1} trailing", r#""{\"a\": 1} trailing""#),
        ("{'a': 1}", r#""{'a': 1}""#),
        ("text\n\n", r#""text\n""#),
        ("text\r\n", r#""text""#),
        ("", r#""""#),
    ] {
        assert_eq!(result(bytes), expected, "{bytes:?}");
    }
}
