//! Output of commands that would swell, break or deceive whoever reads it: the answer is right and bounded, and all of it can be read.

use super::{SandboxStage, backends};
use serde_json::{Value, json};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Config, Runtime};
use windlass_tools::sandbox::{Sandbox, SandboxBackend, SandboxProfile};
use windlass_tools::{RunCommand, builtin};

/// How many bytes each of the long outputs has; less where the machine is slow.
const FLOOD: &str = "WINDLASS_TEST_FLOOD_BYTES";
/// How many pieces of one byte; less where the machine is slow.
const PIECES: &str = "WINDLASS_TEST_TINY_PIECES";
/// The memory that an output may cost (SPEC §15).
const MEMORY_KIB_MAX: u64 = 64 << 10;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |given| given.parse().expect("a number"))
}

/// A stage with `run_command` and `read_artifact`, whose records go to the disk.
fn stage(backend: SandboxBackend) -> SandboxStage {
    let stage = SandboxStage::empty();
    let store = SqliteStore::open(Options::new(stage.data.join("store"))).expect("a store");
    let runtime = Runtime::new(Config { files: Some(stage.data.join("files")), ..Config::new(store) });
    let stage = SandboxStage { runtime, ..stage };
    let sandbox = Sandbox::enforced_by(backend, SandboxProfile::default(), crate::rig::launcher());
    stage.runtime.register(RunCommand { launcher: crate::rig::launcher(), sandbox }).expect("registered");
    for tool in builtin(&[]) {
        stage.runtime.register_shared(tool).expect("registered");
    }
    stage
}

/// All text of the model's answer.
fn model_text(answer: &Value) -> String {
    let parts = answer["model"]["parts"].as_array().expect("parts");
    let text = |part: &Value| part["text"].as_str().map_or_else(|| part["value"].to_string(), str::to_string);
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// The artifact that the answer names.
fn artifact(answer: &Value) -> String {
    let text = model_text(answer);
    let named = text.split_once("as artifact ").map(|(_, id)| id);
    let cut = || text.split_once("\"artifact\":\"").map(|(_, id)| id);
    let id = named.or_else(cut).unwrap_or_else(|| panic!("no artifact in {text}"));
    id.chars().take_while(char::is_ascii_alphanumeric).collect()
}

async fn read(stage: &SandboxStage, args: Value) -> Value {
    let answer = stage.call("s", "read_artifact", args).await;
    assert_eq!(answer["state"], "succeeded", "{answer:#}");
    answer["outcome"]["value"].clone()
}

/// All of an artifact, read in pieces as a model reads it.
async fn read_all(stage: &SandboxStage, id: &str) -> String {
    let (mut text, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let page = read(stage, json!({ "artifact": id, "offset": offset })).await;
        text.push_str(page["text"].as_str().expect("text"));
        offset = page["next_offset"].clone();
    }
    text
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_and_stray_ones_hide_nothing() {
    for backend in backends() {
        let stage = stage(backend);
        let every = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done";
        let binary = stage.run("s", &["sh", "-c", every]).await;
        assert_eq!(binary["outcome"]["value"]["stdout"], Value::Null, "{backend}: {binary:#}");
        assert!(model_text(&binary).contains("256 bytes of application/octet-stream"), "{binary:#}");
        let page = read(&stage, json!({ "artifact": artifact(&binary) })).await;
        assert_eq!(page["lossy"], true);
        assert!(page["text"].as_str().expect("text").contains("ABCDEFG"), "{page}");
        let names = stage.run("s", &["printf", r"main.rs\0lib.rs\0"]).await;
        assert_eq!(names["outcome"]["value"]["stdout"], "main.rs\0lib.rs\0", "{names:#}");
        let zeros = stage.run("s", &["head", "-c", "5000", "/dev/zero"]).await;
        assert_eq!(zeros["outcome"]["value"]["stdout"], Value::Null, "{zeros:#}");
        // A test log with a letter in another encoding is still a log.
        let stray = stage.run("s", &["sh", "-c", "echo test one; printf 'caf\\351 '; echo failed"]).await;
        assert_eq!(stray["outcome"]["value"]["stdout"], "test one\ncaf\u{fffd} failed\n", "{stray:#}");
        assert_eq!(stray["outcome"]["parts"][0]["name"], "stdout", "the bytes are kept: {stray:#}");
    }
}

#[tokio::test]
async fn deep_json_and_terminal_escapes_are_only_text() {
    for backend in backends() {
        let stage = stage(backend);
        let deep = stage.run("s", &["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' '['"]).await;
        let shown = model_text(&deep);
        assert!(shown.len() <= 50 << 10, "{}", shown.len());
        let whole = read_all(&stage, &artifact(&deep)).await;
        let whole: Value = serde_json::from_str(&whole).expect("the answer, whole");
        assert_eq!(whole["stdout"].as_str().map(str::len), Some(200_000));
        let escapes = "printf '\\033]0;title\\007\\033[2J\\033[31mred\\r\\n'";
        let escaped = stage.run("s", &["sh", "-c", escapes]).await;
        let expected = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[31mred\r\n";
        assert_eq!(escaped["outcome"]["value"]["stdout"], expected, "{backend}");
        let shown = model_text(&escaped);
        assert!(!shown.contains('\u{1b}'), "a terminal shows it and does not obey it: {shown:?}");
    }
}

/// In a process of its own: other tests use memory too.
#[test]
fn a_gigabyte_and_ten_million_pieces_cost_little_memory() {
    const ALONE: &str = "WINDLASS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return threads.expect("threads").block_on(floods());
    }
    let name = "sandbox::outputs::a_gigabyte_and_ten_million_pieces_cost_little_memory";
    let mut own = std::process::Command::new(std::env::current_exe().expect("this test"));
    let ended = own.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().expect("it runs");
    let told = [ended.stdout, ended.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
    eprintln!("{}", told.lines().filter(|line| line.contains("KiB")).collect::<Vec<_>>().join("\n"));
}

async fn floods() {
    // One backend is enough: the output takes the same way.
    let Some(backend) = backends().pop() else { return };
    let stage = stage(backend);
    stage.run("s", &["seq", "1", "2000000"]).await;
    let before = crate::files::peak_kib();
    // Each line is a number of nine digits, so every piece says where it is from.
    let lines = from_env(FLOOD, 1 << 30) / 10;
    let (first, last) = (100_000_000, 100_000_000 + lines - 1);
    let flood = stage.run("s", &["seq", &first.to_string(), &last.to_string()]).await;
    let text = flood["outcome"]["value"]["stdout"].as_str().unwrap_or_else(|| panic!("{flood:#}"));
    assert!(text.starts_with("100000000\n100000001\n") && text.ends_with(&format!("{last}\n")), "both ends");
    assert!(text.len() < 40 << 10 && model_text(&flood).len() <= 50 << 10, "{}", text.len());
    let id = artifact(&flood);
    let middle = lines / 2;
    let page = read(&stage, json!({ "artifact": id, "offset": middle * 10, "limit": 20 })).await;
    assert_eq!(page["text"], format!("{}\n{}\n", first + middle, first + middle + 1));
    eprintln!("{} bytes: {} KiB more", lines * 10, crate::files::peak_kib() - before);
    let pieces = from_env(PIECES, 10_000_000);
    let count = format!("count={pieces}");
    let tiny = stage.run("s", &["dd", "if=/dev/zero", "bs=1", &count, "status=none"]).await;
    let shown = model_text(&tiny);
    assert!(shown.starts_with(r#"{"exit_code":0,"stderr":"","stdout":null}"#), "{shown}");
    let page = read(&stage, json!({ "artifact": artifact(&tiny), "offset": pieces - 1 })).await;
    assert_eq!((&page["text"], &page["next_offset"]), (&json!("\0"), &Value::Null), "all of them are kept");
    let grown = crate::files::peak_kib().saturating_sub(before);
    eprintln!("{pieces} pieces of one byte: {grown} KiB more");
    assert!(grown < MEMORY_KIB_MAX, "{grown} KiB more");
}
