//! An approved command runs as it was approved: its declaration, its program, the files that it names.

use crate::rig::{RIG, folder, in_time, launcher};
use crate::sandbox::{SandboxStage, backends};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::approvals::ApprovalDecision;
use windlass::inspect::WaitingCall;
use windlass::policy::{ApprovalRule, NewPolicy};
use windlass::store::memory::MemoryStore;
use windlass::tool::Need;
use windlass::{Args, BatchRequest, CallAnswer, CallRequest, Config, Runtime, Submitted, ToolSpec};
use windlass_tools::command::{CommandTemplate, CommandTool};
use windlass_tools::sandbox::{Sandbox, SandboxProfile};
use windlass_tools::{LAUNCH_ARG, Launcher, RunCommand, load};

/// A runtime with one declared tool, `t`, in a folder of its own, about which a person is asked.
struct ApprovalStage {
    runtime: Runtime,
    folder: PathBuf,
    launcher: Launcher,
    _guard: tempfile::TempDir,
}

impl ApprovalStage {
    fn new(keys: &str) -> ApprovalStage {
        ApprovalStage::launched_by(keys, |_| launcher())
    }

    fn launched_by(keys: &str, launcher: impl FnOnce(&Path) -> Launcher) -> ApprovalStage {
        let (guard, folder) = folder();
        let runtime = Runtime::new(Config::new(MemoryStore::new().expect("a store")));
        let launcher = launcher(&folder);
        let stage = ApprovalStage { runtime, folder, launcher, _guard: guard };
        stage.declare(keys);
        stage
    }

    /// Declares the tool, or declares it anew.
    fn declare(&self, keys: &str) {
        let input = "input = { type = 'object', properties = { n = {} } }";
        let text = format!("[tools.t]\nversion = '1'\napproval = 'ask'\n{input}\n{keys}");
        let declared = load(&text, &self.folder.join("windlass.toml"), self.launcher.clone());
        for tool in declared.map_err(|error| error.to_string()).expect("it is right").tools {
            let _before = self.runtime.unregister("t");
            self.runtime.register_shared(tool).expect("registered");
        }
    }

    fn write(&self, file: &str, text: &str) {
        write(&self.folder.join(file), text);
    }
}

/// Writes an executable file in place.
fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("executable");
}

async fn submit(runtime: &Runtime, tool: &str, args: Value) -> Submitted {
    let call = CallRequest {
        id: Some("c".into()),
        tool: tool.into(),
        args: Args::Json(args),
        ..CallRequest::default()
    };
    let submitted = runtime
        .submit("s", BatchRequest { calls: vec![call], ..BatchRequest::default() })
        .await
        .expect("taken");
    in_time(submitted.stands_still()).await.expect("it waits");
    submitted
}

/// The only call that waits for a person.
async fn waiting(runtime: &Runtime) -> Option<WaitingCall> {
    let mut waiting = runtime.waiting().await.expect("readable");
    assert!(waiting.len() < 2, "{waiting:?}");
    waiting.pop().map(|(_, waiting)| waiting)
}

async fn decide(runtime: &Runtime, waits: &WaitingCall, approve: bool) {
    let digest = waits.digest.clone().expect("a digest");
    let decision = ApprovalDecision { approve, digest, ..ApprovalDecision::default() };
    runtime.decide(&waits.id, &decision, "ann").await.expect("decided");
}

async fn settled(submitted: Submitted) -> CallAnswer {
    in_time(submitted.settled()).await.expect("answered").calls.remove(0)
}

const SAYS_OLD: &str = "#!/bin/sh\necho old $1\n";
const SAYS_NEW: &str = "#!/bin/sh\necho new $1\n";

/// Approves a call of `t`, changes something, and expects that nothing runs until that is approved, too.
async fn asks_again(stage: &ApprovalStage, args: Value, change: impl FnOnce(&ApprovalStage)) -> String {
    let submitted = submit(&stage.runtime, "t", args).await;
    let first = waiting(&stage.runtime).await.expect("it asks");
    change(stage);
    decide(&stage.runtime, &first, true).await;
    in_time(submitted.stands_still()).await.expect("it waits again");
    let second = waiting(&stage.runtime).await.expect("it asks again");
    assert_ne!(first.digest, second.digest);
    let now = in_time(submitted.now()).await.expect("shown");
    assert_eq!(now.calls[0].state(), "awaiting_approval");
    decide(&stage.runtime, &second, true).await;
    settled(submitted).await.model_text()
}

#[tokio::test]
async fn a_command_that_changed_after_it_was_shown_is_asked_for_again() {
    type Change = fn(&ApprovalStage);
    let cases: [(&str, Change, &str); 8] = [
        ("command = ['./run', '{n}']", |stage| stage.write("run", SAYS_NEW), "new 7"),
        ("command = ['/bin/sh', 'run', '{n}']", |stage| stage.write("run", SAYS_NEW), "new 7"),
        ("command = ['cat', '{n}']\ncwd = 'files'", |stage| stage.write("files/7", "new"), "new"),
        ("command = ['dd', 'status=none', 'if=data']", |stage| stage.write("data", "new"), "new"),
        ("command = ['./run', '{n}']", |stage| stage.declare("command = ['./run', 'x{n}']"), "old x7"),
        (
            "command = ['printenv', 'A']\nenv = { A = '1' }",
            |stage| stage.declare("command = ['printenv', 'A']\nenv = { A = '2' }"),
            "2",
        ),
        ("command = ['pwd']", |stage| stage.declare("command = ['pwd']\ncwd = 'files'"), "/files"),
        // It was not there when it was shown.
        ("command = ['./later']", |stage| stage.write("later", SAYS_NEW), "new"),
    ];
    for (keys, change, expected) in cases {
        let stage = ApprovalStage::new(keys);
        stage.write("run", SAYS_OLD);
        stage.write("data", "old");
        std::fs::create_dir(stage.folder.join("files")).expect("a folder");
        stage.write("files/7", "old");
        let text = asks_again(&stage, json!({ "n": 7 }), change).await;
        assert!(text.trim().ends_with(expected), "{keys}: {text}");
    }
}

#[tokio::test]
async fn files_that_edited_arguments_do_not_name_are_compared_as_well() {
    let stage = ApprovalStage::new("command = ['./run', '{n}']");
    stage.write("run", SAYS_OLD);
    let submitted = submit(&stage.runtime, "t", json!({ "n": 1 })).await;
    let first = waiting(&stage.runtime).await.expect("it asks");
    stage.write("run", SAYS_NEW);
    let digest = first.digest.clone().expect("a digest");
    let edited = ApprovalDecision {
        approve: true,
        digest,
        args: Some(json!({ "n": 2 })),
        ..ApprovalDecision::default()
    };
    stage.runtime.decide(&first.id, &edited, "ann").await.expect("decided");
    in_time(submitted.stands_still()).await.expect("it waits again");
    let second = waiting(&stage.runtime).await.expect("it asks again");
    decide(&stage.runtime, &second, true).await;
    assert!(settled(submitted).await.model_text().contains("new 2"));
}

/// A launcher that changes files first: after the last check, and before the command is started.
fn late_change(script: &str) -> impl FnOnce(&Path) -> Launcher + use<> {
    let text = format!("#!/bin/sh\n{script}\nexec {RIG} \"$@\"\n");
    move |folder| {
        let program = folder.join("launcher");
        write(&program, &text);
        Launcher { program, args: vec![LAUNCH_ARG.into()] }
    }
}

#[tokio::test]
async fn a_program_that_is_replaced_at_the_last_moment_does_not_run() {
    let python = "#!/usr/bin/env python3\nprint('old')\n";
    let new_python = "#!/usr/bin/env python3\nprint('new')\n";
    for (old, new, change) in [
        (SAYS_OLD, SAYS_NEW, "mv new run"),
        // Also if it is written in place, for a shell reads its script while it runs.
        (SAYS_OLD, SAYS_NEW, "cat new > run"),
        (SAYS_OLD, SAYS_NEW, "rm run"),
        (python, new_python, "mv new run"),
    ] {
        let stage = ApprovalStage::launched_by("command = ['./run', '{n}']", late_change(change));
        stage.write("run", old);
        stage.write("new", new);
        let submitted = submit(&stage.runtime, "t", json!({ "n": 7 })).await;
        decide(&stage.runtime, &waiting(&stage.runtime).await.expect("it asks"), true).await;
        let text = settled(submitted).await.model_text();
        assert!(text.contains("old"), "{change}: {text}");
        assert_ne!(
            std::fs::read_to_string(stage.folder.join("run")).unwrap_or_default(),
            old,
            "it was changed"
        );
    }
    // A binary is executed from its own descriptor, under its own name.
    let stage = ApprovalStage::launched_by("command = ['./run', 'old']", late_change("mv new run"));
    std::fs::copy("/bin/echo", stage.folder.join("run")).expect("copied");
    stage.write("new", SAYS_NEW);
    let submitted = submit(&stage.runtime, "t", json!({})).await;
    decide(&stage.runtime, &waiting(&stage.runtime).await.expect("it asks"), true).await;
    assert_eq!(settled(submitted).await.model_text().trim(), "old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_approved_ever_runs_while_a_script_is_being_replaced() {
    let stage = ApprovalStage::new("command = ['./run', '{n}']");
    let mut ran = 0;
    for round in 0..40 {
        stage.write("run", SAYS_OLD);
        let submitted = submit(&stage.runtime, "t", json!({ "n": round })).await;
        let first = waiting(&stage.runtime).await.expect("it asks");
        let stop = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let (folder, stop) = (stage.folder.clone(), stop.clone());
            move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let text = [SAYS_NEW, SAYS_OLD][count % 2];
                    // By turns in place and as a whole.
                    if count % 4 < 2 {
                        let _ = std::fs::write(folder.join("run"), text);
                    } else {
                        write(&folder.join("next"), text);
                        std::fs::rename(folder.join("next"), folder.join("run")).expect("renamed");
                    }
                    count += 1;
                }
            }
        });
        decide(&stage.runtime, &first, true).await;
        in_time(submitted.stands_still()).await.expect("it waits or has ended");
        if let Some(second) = waiting(&stage.runtime).await {
            decide(&stage.runtime, &second, false).await;
        }
        let answer = settled(submitted).await;
        stop.store(true, Ordering::Relaxed);
        swapper.join().expect("no panic");
        if answer.state() == "succeeded" {
            assert_eq!(answer.model_text().trim(), format!("old {round}"));
            ran += 1;
        } else {
            assert_eq!(answer.state(), "denied", "{}", answer.model_text());
        }
    }
    assert!(ran > 0, "none of them ran");
}

#[tokio::test]
async fn a_retry_runs_nothing_but_what_was_approved() {
    let stage = ApprovalStage::new(
        "command = ['./run']\nclass = 'keyed'\nretry = { attempts = 3, base_ms = 0, cap_ms = 0 }",
    );
    stage.write("run", "#!/bin/sh\ncp new run; exit 75\n");
    stage.write("new", SAYS_NEW);
    let submitted = submit(&stage.runtime, "t", json!({})).await;
    decide(&stage.runtime, &waiting(&stage.runtime).await.expect("it asks"), true).await;
    in_time(submitted.stands_still()).await.expect("it waits again");
    let second = waiting(&stage.runtime).await.expect("it asks again");
    decide(&stage.runtime, &second, true).await;
    let answer = settled(submitted).await;
    let shown = serde_json::to_value(&answer).expect("shown");
    assert_eq!((answer.model_text().trim(), &shown["attempts"]), ("new", &json!(2)));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_cannot_be_approved_and_its_path_stays_here() {
    let stage = ApprovalStage::new("command = ['./run', '{n}']");
    stage.write("run", SAYS_OLD);
    let large = std::fs::File::options().write(true).open(stage.folder.join("run")).expect("opened");
    large.set_len((16 << 20) + 1).expect("it is sparse");
    let answer = settled(submit(&stage.runtime, "t", json!({ "n": 7 })).await).await;
    assert_eq!(answer.state(), "failed");
    let text = answer.model_text();
    assert!(text.contains("cannot be read, so nobody can approve it") && !text.contains("run\""), "{text}");
}

#[tokio::test]
async fn approved_commands_run_in_a_sandbox_from_what_was_approved() {
    for backend in backends() {
        let stage = SandboxStage::empty();
        let profile = SandboxProfile::default();
        let swap = late_change(&format!(
            "cd {0}; test -e new && mv new run; cd {0}/files/s && test -e new && mv new run; cd {0}",
            stage.data.display()
        ));
        let launched = swap(&stage.data);
        let sandbox = Sandbox::enforced_by(backend, profile.clone(), launched.clone());
        let spec = ToolSpec {
            name: "t".into(),
            approval: ApprovalRule::Ask,
            needs: vec![Need::Files],
            ..ToolSpec::default()
        };
        let words = CommandTemplate::new(stage.data.join("run"), &["x".into()], &["n".to_string()].into());
        let (cwd, env) = (PathBuf::new(), Vec::new());
        let command = CommandTool {
            spec,
            words,
            reconcile: None,
            later: None,
            cwd,
            env,
            output_media_type: None,
            launcher: launched.clone(),
            sandbox: Some(sandbox.clone()),
        };
        stage.runtime.register(command).expect("registered");
        let rules = vec![json!({ "name": "ask", "ruling": "ask", "when": { "tool": "run_command" } })];
        stage.runtime.register(RunCommand { launcher: launched, sandbox }).expect("registered");
        stage.runtime.set_policy(NewPolicy { rules, by: "ann".into(), version: None }).await.expect("set");
        write(&stage.data.join("run"), SAYS_OLD);
        write(&stage.data.join("new"), SAYS_NEW);
        let submitted = submit(&stage.runtime, "t", json!({})).await;
        decide(&stage.runtime, &waiting(&stage.runtime).await.expect("it asks"), true).await;
        assert_eq!(settled(submitted).await.model_text().trim(), "old x", "{backend}");
        let own = stage.data.join("files/s");
        write(&own.join("run"), SAYS_OLD);
        write(&own.join("new"), SAYS_NEW);
        let submitted = submit(&stage.runtime, "run_command", json!({ "argv": ["./run", "y"] })).await;
        decide(&stage.runtime, &waiting(&stage.runtime).await.expect("it asks"), true).await;
        let answer = settled(submitted).await.model_text();
        assert!(answer.contains("old y"), "{backend}: {answer}");
        // Changed by another call before it was approved.
        let submitted = submit(&stage.runtime, "run_command", json!({ "argv": ["sh", "run", "z"] })).await;
        let first = waiting(&stage.runtime).await.expect("it asks");
        write(&own.join("run"), SAYS_OLD);
        decide(&stage.runtime, &first, true).await;
        in_time(submitted.stands_still()).await.expect("it waits again");
        let second = waiting(&stage.runtime).await.expect("it asks again");
        decide(&stage.runtime, &second, true).await;
        assert!(settled(submitted).await.model_text().contains("old z"), "{backend}");
    }
}
