//! Calls of commands that are stopped, fail or do not return, in a runtime and with real processes.

use crate::rig::{in_time, launcher_of, signal, wait_until};
use crate::stage::{Stage, end, submit};
use crate::trees::STRAYS;
use rustix::process::Signal;
use serde_json::json;
use windlass::ask::Target;
use windlass::ids::Handle;
use windlass::store::memory::MemoryStore;
use windlass::{Config, Runtime};
use windlass_tools::{BuiltinGroup, builtin};

/// Long enough that only what ends by itself ends in it.
const LONG_GRACE: &str = "grace_ms = 600000";

#[tokio::test]
async fn what_ends_by_itself_within_the_grace_ends_as_itself() {
    for class in ["read", "keyed", "once"] {
        for (on_term, expected) in [
            ("echo bye; exit 0", "succeeded bye, 1 attempts"),
            ("exit 75", "failed exit 75, 1 attempts"),
            ("exit 3", "failed exit 3, 1 attempts"),
        ] {
            let run = format!("{{ {STRAYS} }} >&2; trap '{on_term}' TERM; touch ready; sleep 1000 & wait");
            let stage = Stage::new(&format!("class = '{class}'\n{LONG_GRACE}"), &run);
            assert_eq!(stage.cancelled().await, expected, "{class} {on_term}");
        }
    }
}

#[tokio::test]
async fn what_dies_of_our_signal_ends_by_its_class() {
    for (class, expected) in [
        ("read", "cancelled{none}, 1 attempts"),
        ("keyed", "cancelled{unknown}, 1 attempts"),
        ("once", "cancelled{unknown}, 1 attempts"),
    ] {
        for dies in ["exec sleep 1000", "trap 'exit 143' TERM; sleep 1000 & wait"] {
            let run = format!("{STRAYS} touch ready; {dies}");
            let stage = Stage::new(&format!("class = '{class}'\n{LONG_GRACE}"), &run);
            assert_eq!(stage.cancelled().await, expected, "{class}: {dies}");
        }
    }
}

/// No wait between attempts, and three of them where the class allows it.
const THREE: &str = "retry = { attempts = 3, base_ms = 0, cap_ms = 0 }";

/// A command that a signal ended has not said what it did, whoever sent the signal.
#[tokio::test]
async fn what_did_not_end_by_itself_ends_by_its_class() {
    for (dies, code, attempts) in [
        ("kill -KILL $$", "signal 9", 3),
        ("kill -TERM $$", "signal 15", 3),
        // As a shell tells of a command that the kernel killed for its memory.
        ("/bin/sh -c 'kill -KILL $$'; exit $?", "exit 137", 3),
        // It would do so again.
        ("kill -SEGV $$", "signal 11", 1),
        ("kill -ABRT $$", "signal 6", 1),
    ] {
        for class in ["read", "keyed"] {
            let stage = Stage::new(&format!("class = '{class}'\n{THREE}"), dies);
            let expected = format!("failed {code}, {attempts} attempts");
            assert_eq!(stage.ends().await, expected, "{class}: {dies}");
        }
        let stage = Stage::new("class = 'once'", dies);
        assert_eq!(stage.ends().await, "unknown, 1 attempts", "{dies}");
        for (says, expected) in [
            ("echo it did", "succeeded it did, 1 attempts"),
            ("exit 75", "failed did_not_happen, 1 attempts"),
            ("exit 1", "unknown, 1 attempts"),
            ("kill -KILL $$", "unknown, 1 attempts"),
        ] {
            let stage = Stage::reconciled("class = 'once'", dies, says);
            assert_eq!(stage.ends().await, expected, "{dies}, then {says}");
        }
    }
    let stage = Stage::new(LONG_GRACE, "trap 'kill -USR1 $$' TERM; touch ready; sleep 1000 & wait");
    assert_eq!(stage.cancelled().await, "cancelled{unknown}, 1 attempts");
}

/// How the call ends when its launcher is killed in the first attempt.
async fn without_launcher(stage: &Stage) -> String {
    let waiting = stage.submit().await;
    wait_until("the command is ready", || stage.folder.join("ready").exists()).await;
    signal(launcher_of(&stage.runtime.live()[0].call), Signal::KILL);
    in_time(end(waiting)).await
}

#[tokio::test]
async fn a_command_whose_launcher_is_killed_ends_by_its_class() {
    let run = "if [ $WINDLASS_ATTEMPT = 1 ]; then touch ready; exec sleep 1000; fi; echo again";
    for (class, expected) in [
        ("read", "succeeded again, 2 attempts"),
        ("keyed", "succeeded again, 2 attempts"),
        ("once", "unknown, 1 attempts"),
    ] {
        let stage = Stage::new(&format!("class = '{class}'\n{THREE}"), run);
        assert_eq!(without_launcher(&stage).await, expected, "{class}");
    }
    let stage = Stage::reconciled("class = 'once'", run, "echo it did");
    assert_eq!(without_launcher(&stage).await, "succeeded it did, 1 attempts");
}

/// More bytes than are read as JSON, and bytes that are no text: neither can be checked.
#[tokio::test]
async fn a_result_that_cannot_be_checked_by_its_schema_is_refused() {
    let large = "head -c 9000000 /dev/zero | tr '\\0' ' '; echo '{}'";
    let bytes = "printf '\\377\\376'";
    for (run, schema) in [(large, "{ type = 'object' }"), (bytes, "{ type = ['object', 'null'] }")] {
        for class in ["read", "once"] {
            let stage = Stage::new(&format!("class = '{class}'\noutput = {schema}\n{THREE}"), run);
            let answer = in_time(stage.submit().await.settled()).await.expect("answered");
            let (call, failure) = (&answer.calls[0], answer.calls[0].failure().expect("it failed"));
            assert_eq!(
                (failure.code.as_str(), call.call().attempts),
                ("invalid_output", 1),
                "{class}: {run}"
            );
            let kept = failure.message.rsplit("kept as artifact ").next().expect("named");
            let handle = Handle::parse(kept.trim_end_matches('.')).expect("a handle");
            let found = stage.runtime.artifact(handle).await.expect("read");
            assert!(found.is_some(), "what it returned is kept: {}", failure.message);
        }
        let stage = Stage::reconciled(&format!("class = 'once'\noutput = {schema}"), "kill -KILL $$", run);
        assert_eq!(stage.ends().await, "unknown, 1 attempts", "what it did cannot be told: {run}");
    }
}

#[tokio::test]
async fn braces_are_literal_where_there_is_no_such_argument() {
    for input in ["", "input = { properties = { x = {} } }"] {
        let text = format!("[tools.t]\ncommand = ['/bin/echo', 'a {{y}} b', '{{y}}', '{{{{x']\n{input}");
        let stage = Stage::declared(&text);
        let waiting = submit(&stage.runtime, "t", json!({ "y": 7 })).await;
        assert_eq!(in_time(end(waiting)).await, "succeeded a {y} b {y} {{x, 1 attempts", "{input}");
    }
}

#[tokio::test]
async fn what_does_not_end_within_the_grace_is_killed() {
    let deaf = format!("trap '' TERM; {STRAYS} touch ready; exec sleep 1000");
    let loud = "trap '' TERM; touch ready; exec yes >&2".to_string();
    for (class, run, expected) in [
        ("read", &deaf, "cancelled{none}, 1 attempts"),
        ("once", &deaf, "cancelled{unknown}, 1 attempts"),
        ("once", &loud, "cancelled{unknown}, 1 attempts"),
    ] {
        for grace in ["grace_ms = 0", ""] {
            let stage = Stage::new(&format!("class = '{class}'\n{grace}"), run);
            assert_eq!(stage.cancelled().await, expected, "{class} {grace} {run}");
        }
    }
}

#[tokio::test]
async fn a_flood_does_not_drown_the_word_to_stop() {
    let run = "trap 'exit 4' TERM; yes >&2 & touch ready; wait";
    assert_eq!(Stage::new(LONG_GRACE, run).cancelled().await, "failed exit 4, 1 attempts");
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_ends_by_its_class() {
    for (keys, expected) in [
        ("class = 'read'\nretry = { attempts = 2, base_ms = 0 }", "failed timeout, 2 attempts"),
        ("class = 'keyed'\nretry = { attempts = 1 }", "failed timeout, 1 attempts"),
        ("class = 'once'\nretry = { attempts = 2 }", "unknown, 1 attempts"),
    ] {
        let stage = Stage::new(&format!("{keys}\ntimeout_ms = 500"), "exec sleep 1000");
        assert_eq!(stage.ends().await, expected, "{keys}");
    }
}

#[tokio::test]
async fn output_of_both_kinds_is_a_sign_of_life_and_its_last_is_kept() {
    let run = "for i in 1 2 3; do sleep 0.7; echo out $i; sleep 0.7; echo log $i >&2; done; exec sleep 1000";
    let keys = "class = 'read'\nretry = { attempts = 1 }\nsilence_ms = 2000";
    let stage = Stage::new(keys, run);
    let answer = in_time(async { stage.submit().await.settled().await.expect("answered") }).await;
    let failure = answer.calls[0].failure().expect("it was silent at last");
    assert_eq!(failure.raw.as_deref(), Some("out 1\nlog 1\nout 2\nlog 2\nout 3\nlog 3\n"));
    assert!(failure.message.contains("no sign of life"), "{}", failure.message);
}

#[tokio::test]
async fn nothing_happened_is_tried_again_whatever_the_class() {
    let run = "echo $WINDLASS_IDEMPOTENCY_KEY >> keys; [ $WINDLASS_ATTEMPT = 2 ] || exit 75; echo done";
    for class in ["read", "keyed", "once"] {
        let stage = Stage::new(&format!("class = '{class}'\nretry = {{ attempts = 3, base_ms = 0 }}"), run);
        assert_eq!(stage.ends().await, "succeeded done, 2 attempts", "{class}");
        let keys = stage.wrote("keys");
        let (first, second) = keys.split_once('\n').expect("two keys");
        assert_eq!(first, second, "{class}");
    }
    let stage = Stage::new("retry = { attempts = 2, base_ms = 0 }", "exit 75");
    assert_eq!(stage.ends().await, "failed exit 75, 2 attempts");
    let stage = Stage::new("class = 'read'\nretry = { attempts = 2, base_ms = 0 }", "exit 1");
    assert_eq!(stage.ends().await, "failed exit 1, 1 attempts");
}

#[tokio::test]
async fn reconcile_tells_what_became_of_an_attempt() {
    for (keys, reconcile, expected) in [
        ("", "echo landed", "succeeded landed, 1 attempts"),
        ("", "exit 75", "failed did_not_happen, 1 attempts"),
        ("retry = { attempts = 2, base_ms = 0 }", "exit 75", "succeeded second, 2 attempts"),
        ("", "exit 1", "unknown, 1 attempts"),
        ("", "kill -9 $$", "unknown, 1 attempts"),
        ("", "trap '' TERM; setsid sleep 1000 & exec sleep 1000", "unknown, 1 attempts"),
        ("output = { type = 'string' }", "echo 7", "unknown, 1 attempts"),
    ] {
        let run = "[ $WINDLASS_ATTEMPT = 2 ] && echo second && exit; exec sleep 1000";
        let stage = Stage::reconciled(&format!("timeout_ms = 500\n{keys}"), run, reconcile);
        assert_eq!(stage.ends().await, expected, "{reconcile}");
    }
    for (reconcile, expected) in [
        ("echo landed", "cancelled{landed}, 1 attempts"),
        ("exit 75", "cancelled{none}, 1 attempts"),
        ("exit 1", "cancelled{unknown}, 1 attempts"),
    ] {
        let stage = Stage::reconciled(LONG_GRACE, "touch ready; exec sleep 1000", reconcile);
        assert_eq!(stage.cancelled().await, expected, "{reconcile}");
    }
}

#[tokio::test]
async fn reconcile_is_given_what_the_attempt_was_given() {
    let given = "env | grep -v '^PWD=\\|^_=\\|^SHLVL=\\|^OLDPWD=' | sort; echo \"$1 $(cat)\"; pwd";
    let keys = "timeout_ms = 500\nenv = { REGION = 'eu' }";
    let stage = Stage::reconciled(keys, &format!("{{ {given}; }} > given; exec sleep 1000"), given);
    assert_eq!(stage.ends().await, format!("succeeded {}, 1 attempts", stage.wrote("given")));
    assert!(stage.wrote("given").contains("REGION=eu\n") && stage.wrote("given").contains("7 {\"n\":7}\n"));
}

/// A program that is not there did nothing, but that says nothing about the attempt it is asked about.
#[tokio::test]
async fn a_reconcile_that_cannot_be_started_tells_nothing() {
    let stage = Stage::new("timeout_ms = 500\nreconcile = ['./no-such-program']", "exec sleep 1000");
    assert_eq!(stage.ends().await, "unknown, 1 attempts");
}

/// Stops its own launcher, so that nobody can kill it but by its handle.
const HANGS: &str = "kill -STOP $PPID; echo $$ > number; exec sleep 1000";
/// Says whether that process still runs.
const RUNS: &str = "case $(cut -d' ' -f3 /proc/$(cat number)/stat) in ''|Z) echo gone;; *) echo runs;; esac";

#[tokio::test]
async fn nothing_of_an_earlier_attempt_runs_when_the_next_one_or_reconcile_starts() {
    let stage = Stage::reconciled("timeout_ms = 3000", HANGS, RUNS);
    assert_eq!(stage.ends().await, "succeeded gone, 1 attempts");
    // The second attempt takes its time, so that it still runs when the first one is seen off.
    let run = format!("[ $WINDLASS_ATTEMPT = 2 ] || {{ {HANGS}; }}; {RUNS}; sleep 1");
    let keys = "class = 'read'\ntimeout_ms = 3000\nretry = { attempts = 2, base_ms = 0 }";
    assert_eq!(Stage::new(keys, &run).ends().await, "succeeded gone, 2 attempts");
}

/// The built-in tools for trying out.
fn with_builtin() -> Runtime {
    let mut config = Config::new(MemoryStore::new().expect("a store"));
    config.limits.grace_ms = 600_000;
    let runtime = Runtime::new(config);
    for tool in builtin(&[BuiltinGroup::Demo]) {
        runtime.register_shared(tool).expect("registered");
    }
    runtime
}

#[tokio::test]
async fn sleep_ends_when_it_is_told_to() {
    let runtime = with_builtin();
    let waiting = submit(&runtime, "sleep", json!({ "ms": 600_000 })).await;
    wait_until("it sleeps", || runtime.live().iter().any(|open| open.state == "running")).await;
    in_time(runtime.cancel(Target::Session("s"), None)).await.expect("it is open");
    assert_eq!(in_time(end(waiting)).await, "cancelled{none}, 1 attempts");
}

#[tokio::test]
async fn fail_fails_as_it_is_asked_to() {
    for (kind, expected) in [
        ("error", "failed tool_failed, 1 attempts"),
        ("internal", "failed internal, 1 attempts"),
        ("panic", "failed tool_panicked, 1 attempts"),
        ("safe", "failed tool_failed, 3 attempts"),
        ("did_not_happen", "failed tool_failed, 3 attempts"),
    ] {
        let runtime = with_builtin();
        let waiting = submit(&runtime, "fail", json!({ "message": "no", "kind": kind })).await;
        assert_eq!(in_time(end(waiting)).await, expected, "{kind}");
    }
}

#[tokio::test]
async fn a_command_with_a_dedupe_key_runs_once_for_each() {
    let stage = Stage::new("dedupe = '{n}'", "echo \"$1\" >> ran; echo done");
    for (n, note, attempts) in [(7, "first", 1), (7, "again", 0), (8, "other", 1), (7, "once more", 0)] {
        let ended = end(submit(&stage.runtime, "t", json!({ "n": n, "note": note })).await);
        assert_eq!(in_time(ended).await, format!("succeeded done, {attempts} attempts"), "{note}");
    }
    assert_eq!(stage.wrote("ran"), "7\n8");
}
