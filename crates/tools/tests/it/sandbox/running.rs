//! Commands in a sandbox that do what they should: results, records, limits of what the configuration allows.

use super::{SandboxStage, backends};
use crate::rig::{alive, in_time, launcher, launcher_of, signal, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use windlass::ask::Target;
use windlass::ids::Handle;
use windlass::inspect;
use windlass::tool::Need;
use windlass::{Args, BatchRequest, CallRequest, ToolSpec};
use windlass_tools::command::{CommandTemplate, CommandTool};
use windlass_tools::sandbox::{NoSandbox, Sandbox, SandboxBackend, SandboxProfile};
use windlass_tools::{Launcher, RunCommand, load};

#[tokio::test]
async fn a_command_works_in_the_folder_of_its_session() {
    for backend in backends() {
        let stage = SandboxStage::new(backend, SandboxProfile::default());
        let script =
            "echo one > a; mkdir b; cp a b/c; cat b/c; echo two >&2; touch $TMPDIR/t && ls $TMPDIR; exit 3";
        let answer = stage.run("s", &["sh", "-c", script]).await;
        let expected = json!({ "exit_code": 3, "stdout": "one\nt\n", "stderr": "two\n" });
        assert_eq!(answer["outcome"]["value"], expected, "{backend}");
        let args = json!({ "argv": ["sh", "-c", "pwd; cat"], "cwd": "b", "stdin": "given" });
        let answer = stage.call("s", "run_command", args).await;
        let folder = stage.data.canonicalize().expect("there").join("files/s/b");
        assert_eq!(answer["outcome"]["value"]["stdout"], format!("{}\ngiven", folder.display()));
        // What it left is the session's, and its temporary files are gone.
        assert_eq!(std::fs::read(stage.data.join("files/s/b/c")).expect("there"), b"one\n");
    }
}

#[tokio::test]
async fn the_rules_are_recorded_with_the_call_and_shown() {
    for backend in backends() {
        let profile = SandboxProfile { network: true, processes: 77, ..SandboxProfile::default() };
        let stage = SandboxStage::new(backend, profile);
        let answer = stage.run("s", &["true"]).await;
        let call = answer["call"].as_str().expect("a handle");
        let handle = Handle::parse(call).expect("a handle");
        let (_, lines) =
            inspect::call(stage.runtime.store(), handle).await.expect("readable").expect("recorded");
        let story: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        let story = story.join("\n");
        let name = backend.to_string();
        assert!(story.contains(&format!("{name} with network")), "{story}");
    }
}

/// bubblewrap names the place that it does not find.
#[tokio::test]
async fn the_places_that_bubblewrap_names_are_for_operators() {
    for backend in backends().into_iter().filter(|backend| *backend == SandboxBackend::Bubblewrap) {
        let stage = SandboxStage::empty();
        let gone = stage.data.join("gone");
        let profile = SandboxProfile { read: vec![gone.clone()], ..SandboxProfile::default() };
        let sandbox = || Sandbox::enforced_by(backend, profile.clone(), launcher());
        let run_command = RunCommand { launcher: launcher(), sandbox: sandbox() };
        stage.runtime.register(run_command).expect("registered");
        let declared =
            CommandTool { sandbox: Some(sandbox()), ..command("declared", backend, &["-c", "true"]) };
        stage.runtime.register(declared).expect("registered");
        for (session, tool, args) in
            [("a", "run_command", json!({ "argv": ["true"] })), ("b", "declared", json!({}))]
        {
            let answer = stage.call(session, tool, args).await;
            let failure = &answer["outcome"]["failure"];
            let (place, told) = (gone.display().to_string(), answer["model"].to_string());
            assert_eq!(failure["tool_code"], "not_started", "{answer}");
            assert!(!told.contains(&place) && told.contains("operator"), "{told}");
            assert!(failure["detail"].to_string().contains(&place), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_read_only_command_changes_no_file() {
    for backend in backends() {
        let stage = SandboxStage::new(backend, SandboxProfile::default());
        stage.run("s", &["sh", "-c", "echo one > a"]).await;
        let args = json!({ "argv": ["sh", "-c", "cat a; echo two > a; echo x > $TMPDIR/x && cat $TMPDIR/x"], "read_only": true });
        let answer = stage.call("s", "run_command", args).await;
        assert_eq!(answer["outcome"]["value"]["stdout"], "one\nx\n", "{backend}: {answer}");
        assert_eq!(std::fs::read(stage.data.join("files/s/a")).expect("there"), b"one\n");
    }
}

/// The end of a command whose launcher is killed while it waits for the file `go`, and its attempts.
async fn cut_off(backend: SandboxBackend, profile: SandboxProfile, read_only: bool) -> (Value, Value) {
    let stage = SandboxStage::new(backend, profile);
    stage.run("s", &["true"]).await;
    let script = "until [ -e go ]; do sleep 0.01; done; echo done";
    let args = json!({ "argv": ["sh", "-c", script], "read_only": read_only });
    let call = CallRequest { tool: "run_command".into(), args: Args::Json(args), ..CallRequest::default() };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    let waiting = stage.runtime.submit("s", batch).await.expect("submitted");
    let handle = stage.runtime.live()[0].call.to_string();
    // The launcher, and what it started.
    wait_until("the command runs", || alive(&handle).len() > 1).await;
    let first = launcher_of(&handle);
    signal(first, rustix::process::Signal::KILL);
    wait_until("it is over", || !alive(&handle).contains(&first)).await;
    std::fs::write(stage.data.join("files/s/go"), "").expect("written");
    let answer = in_time(waiting.settled()).await.expect("settled");
    let mut shown = serde_json::to_value(answer.calls[0].view()).expect("shown");
    wait_until("nothing of the call is left", || alive(&handle).is_empty()).await;
    let stdout = shown["outcome"]["value"]["stdout"].take();
    let how = if stdout.is_null() { shown["state"].take() } else { stdout };
    (how, shown["attempts"].take())
}

#[tokio::test]
async fn a_command_that_could_change_nothing_runs_again_after_a_crash() {
    for backend in backends() {
        let strict = SandboxProfile::default;
        let again = (json!("done\n"), json!(2));
        assert_eq!(cut_off(backend, strict(), true).await, again, "{backend}");
        let unknown = (json!("unknown"), json!(1));
        assert_eq!(cut_off(backend, strict(), false).await, unknown, "{backend}: it may have written");
        let reaches = SandboxProfile { network: true, ..strict() };
        assert_eq!(cut_off(backend, reaches, true).await, unknown, "{backend}: it may have sent something");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_told_and_nothing_happened() {
    for backend in backends() {
        let stage = SandboxStage::new(backend, SandboxProfile::default());
        // Executable, but not shown by the sandbox, however it is named.
        let hidden = stage.data.join("hidden.sh");
        std::fs::write(&hidden, "#!/bin/sh\necho REACHED\n").expect("written");
        std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o755)).expect("executable");
        stage.run("s", &["ln", "-s", &hidden.display().to_string(), "link"]).await;
        for program in ["nonesuch", "./nonesuch", &hidden.display().to_string(), "./link", "../../hidden.sh"]
        {
            let answer = stage.run("s", &[program]).await;
            let failure = &answer["outcome"]["failure"];
            assert_eq!(failure["tool_code"], "not_started", "{backend} {program}: {answer}");
            assert_eq!(failure["did_not_happen"], true, "{answer}");
            assert!(!answer.to_string().contains("REACHED"));
        }
        for args in [
            json!({ "argv": ["ls"], "cwd": "/etc" }),
            json!({ "argv": ["ls"], "cwd": "../other" }),
            json!({ "argv": [""] }),
        ] {
            let answer = stage.call("s", "run_command", args).await;
            assert_eq!(answer["outcome"]["failure"]["class"], "invalid_request", "{answer}");
        }
    }
}

/// The program of a declared command lies where the operator put it, which is nothing for the model.
#[tokio::test]
async fn the_place_of_a_declared_program_is_for_operators() {
    for backend in backends() {
        let stage = SandboxStage::empty();
        let missing = stage.data.join("nonesuch");
        let words = CommandTemplate::new(&missing, &[], &BTreeSet::new());
        stage.runtime.register(CommandTool { words, ..command("t", backend, &[]) }).expect("registered");
        let answer = stage.call("s", "t", json!({})).await;
        let failure = &answer["outcome"]["failure"];
        assert_eq!(
            (&failure["tool_code"], &failure["did_not_happen"]),
            (&json!("not_started"), &json!(true))
        );
        assert!(failure["detail"].as_str().is_some_and(|detail| detail.contains("nonesuch")), "{answer}");
        assert!(!answer["model"].to_string().contains("nonesuch"), "{backend}: {answer}");
    }
}

#[tokio::test]
async fn output_that_is_no_text_becomes_a_file() {
    for backend in backends() {
        let stage = SandboxStage::new(backend, SandboxProfile::default());
        let answer = stage.run("s", &["printf", r"\377\376"]).await;
        assert_eq!(answer["outcome"]["value"]["stdout"], Value::Null, "{answer}");
        assert_eq!(answer["outcome"]["parts"][0]["name"], "stdout", "{answer}");
    }
}

/// A shell with these words, in a sandbox, with a long grace.
fn command(name: &str, backend: SandboxBackend, words: &[&str]) -> CommandTool {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    CommandTool {
        spec: ToolSpec {
            name: name.into(),
            grace_ms: Some(60_000),
            needs: vec![Need::Files],
            ..ToolSpec::default()
        },
        words: CommandTemplate::new("sh", &words, &BTreeSet::new()),
        reconcile: None,
        later: None,
        cwd: PathBuf::new(),
        env: Vec::new(),
        output_media_type: None,
        launcher: launcher(),
        sandbox: Some(Sandbox::enforced_by(backend, SandboxProfile::default(), launcher())),
    }
}

#[tokio::test]
async fn a_stop_lets_the_command_end_by_itself() {
    for backend in backends() {
        let stage = SandboxStage::empty();
        let script = "trap 'echo bye > said; exit 75' TERM; touch ready; sleep 600 & wait";
        stage.runtime.register(command("t", backend, &["-c", script])).expect("registered");
        let call = CallRequest {
            id: Some("c".into()),
            tool: "t".into(),
            args: Args::Json(json!({})),
            ..CallRequest::default()
        };
        let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
        let waiting = stage.runtime.submit("s", batch).await.expect("submitted");
        let files = stage.data.join("files/s");
        wait_until("the command is ready", || files.join("ready").exists()).await;
        let handle = stage.runtime.live()[0].call.clone();
        in_time(stage.runtime.cancel(Target::Call(&handle), None)).await.expect("it is open");
        let answer = in_time(waiting.settled()).await.expect("settled");
        assert_eq!(std::fs::read_to_string(files.join("said")).expect("it was asked to end"), "bye\n");
        let shown = serde_json::to_value(answer.calls[0].view()).expect("shown");
        // By its own account nothing happened.
        assert_eq!(shown["outcome"]["failure"]["tool_code"], "exit 75", "{shown}");
        wait_until("nothing of the call is left", || alive(&handle.to_string()).is_empty()).await;
    }
}

#[tokio::test]
async fn a_declared_command_gets_what_its_sandbox_allows() {
    let stage = SandboxStage::empty();
    std::fs::write(
        stage.data.join("run.sh"),
        "#!/bin/sh\ncat shared/in; echo out > shared/out; cat windlass.toml\n",
    )
    .expect("written");
    std::fs::set_permissions(stage.data.join("run.sh"), PermissionsExt::from_mode(0o755))
        .expect("executable");
    std::fs::create_dir(stage.data.join("shared")).expect("made");
    std::fs::write(stage.data.join("shared/in"), "in\n").expect("written");
    std::fs::write(stage.data.join("windlass.toml"), "secret").expect("written");
    let shared = |key: &str| {
        format!("[tools.t]\ncommand = ['./run.sh']\ncwd = '.'\nsandbox = {{ {key} = ['shared'] }}\n")
    };
    if SandboxBackend::find(&launcher()).is_err() {
        return eprintln!("SKIPPED: no sandbox works here");
    }
    for (key, written) in [("read", false), ("write", true)] {
        let declared =
            load(&shared(key), &stage.data.join("windlass.toml"), launcher()).expect("it is right");
        for tool in declared.tools {
            let _ = stage.runtime.unregister("t");
            stage.runtime.register_shared(tool).expect("registered");
        }
        let answer = stage.call(key, "t", json!({})).await;
        assert!(
            answer.to_string().contains("in\\n") || answer.to_string().contains("exited with code"),
            "{answer}"
        );
        assert!(!answer.to_string().contains("secret"), "{answer}");
        assert_eq!(stage.data.join("shared/out").exists(), written, "{answer}");
    }
}

#[tokio::test]
async fn a_network_that_is_allowed_leads_to_no_unix_socket() {
    for backend in backends() {
        let stage = SandboxStage::new(backend, SandboxProfile { network: true, ..SandboxProfile::default() });
        if !std::path::Path::new("/usr/bin/python3").exists() {
            return eprintln!("SKIPPED: there is no /usr/bin/python3");
        }
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let name = format!("windlass-network-{}-{backend}", std::process::id());
        let _unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name"))
            .expect("a listener");
        let port = tcp.local_addr().expect("an address").port();
        let script = format!(
            "import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)\nprint('connected')\n\
             try: s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); print('REACHED')\nexcept OSError: pass\n\
             try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('REACHED')\nexcept OSError: pass\n"
        );
        let answer = stage.run("s", &["/usr/bin/python3", "-c", &script]).await;
        assert_eq!(answer["outcome"]["value"]["stdout"], "connected\n", "{backend}: {answer}");
    }
}

#[tokio::test]
async fn without_a_sandbox_no_command_runs() {
    let stage = SandboxStage::empty();
    // A launcher that cannot restrict itself.
    let broken = Launcher { program: "/bin/false".into(), args: Vec::new() };
    let sandbox = Sandbox::new(SandboxProfile::default(), broken.clone());
    assert!(matches!(sandbox.backend().await, Err(NoSandbox { .. })));
    stage.runtime.register(RunCommand { launcher: broken, sandbox }).expect("registered");
    let answer = stage.run("s", &["touch", "made"]).await;
    let failure = &answer["outcome"]["failure"];
    assert_eq!(
        (&failure["class"], &failure["did_not_happen"]),
        (&json!("unavailable"), &json!(true)),
        "{answer}"
    );
    assert!(failure["detail"].as_str().expect("for operators").contains("install bubblewrap"), "{answer}");
    assert!(!answer["model"].to_string().contains("bubblewrap"), "{answer}");
    assert!(!stage.data.join("files/s/made").exists());
}
