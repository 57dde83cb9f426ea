//! Tools that block their threads stop themselves, not the runtime.

use crate::rig::{Count, batch, call, echo, memory, n, quick, run, spec, states};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use windlass::Limits;
use windlass::store::memory::MemoryStore;
use windlass::{Config, Cx, Deadlines, EffectClass, Flags, RetryRule, Runtime, ToolSpec, tool_fn};

/// A tool that blocks its thread until it is let go.
fn blocking(spec: ToolSpec) -> (impl windlass::Tool, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let tool = tool_fn(spec, move |args, _: &Cx| {
        let gate = gate.clone();
        async move {
            let _ = gate.lock().unwrap().recv();
            Ok(args.into())
        }
    });
    (tool, go)
}

/// On a runtime with a single thread: if the tool blocked that one, nothing would ever come back.
#[tokio::test(flavor = "current_thread")]
async fn a_tool_that_blocks_its_thread_harms_nobody_else() {
    for flags in [Flags::default(), Flags { cpu_bound: true, ..Flags::default() }] {
        let runtime = memory();
        let (tool, go) = blocking(ToolSpec { flags, ..spec("blocks", EffectClass::Read) });
        runtime.register(tool).unwrap();
        runtime.register(echo(quick("quick", EffectClass::Read), &Count::default())).unwrap();
        runtime.register(echo(spec("task", EffectClass::Read), &Count::default())).unwrap();
        let calls = vec![call("1", "blocks", n(1)), call("2", "quick", n(2)), call("3", "task", n(3))];
        let blocked = runtime.submit("s", batch("k", calls)).await.unwrap();
        let others = vec![call("2", "quick", n(2)), call("3", "task", n(3))];
        assert_eq!(states(&run(&runtime, "s", batch("k", others)).await), "2 succeeded, 3 succeeded");
        assert_eq!(runtime.open_calls(), 1);
        go.send(()).unwrap();
        let answer = blocked.settled().await.unwrap();
        assert_eq!(states(&answer), "1 succeeded, 2 succeeded, 3 succeeded");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_runtime_can_be_dropped_while_a_tool_blocks() {
    let runtime = memory();
    let (tool, _go) = blocking(spec("blocks", EffectClass::Read));
    runtime.register(tool).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("1", "blocks", n(1))])).await.unwrap();
    drop((submitted, runtime));
}

/// Stopped attempts that still have their threads are counted, others run on, and a tool that hangs too often is
/// refused until one of its attempts lets go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_never_lets_go_is_contained() {
    for flags in [Flags::default(), Flags { cpu_bound: true, ..Flags::default() }] {
        let limits = Limits { stop_wait_ms: 1, stuck_attempts_max: 2, ..Limits::default() };
        let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) });
        let deadlines = Deadlines { attempt_ms: Some(1), ..Deadlines::default() };
        let retry = RetryRule { attempts: Some(1), ..RetryRule::default() };
        let hangs =
            ToolSpec { flags, deadlines, retry, grace_ms: Some(1), ..spec("hangs", EffectClass::Read) };
        let (tool, go) = blocking(hangs);
        runtime.register(tool).unwrap();
        runtime.register(echo(spec("task", EffectClass::Read), &Count::default())).unwrap();
        for key in 0.. {
            let answer = run(&runtime, "s", batch(&key.to_string(), vec![call("c", "hangs", n(key))])).await;
            let other =
                run(&runtime, "s", batch(&format!("{key} other"), vec![call("c", "task", n(key))])).await;
            assert_eq!(states(&other), "c succeeded", "another tool is not harmed");
            // On a busy machine an attempt may be given up before its thread has begun: it counts for a moment, and blocks nothing.
            match states(&answer).as_str() {
                "c failed/timeout" => {}
                "c failed/tool_stuck" if runtime.stuck_attempts() == 2 => break,
                "c failed/tool_stuck" => {}
                other => panic!("{other}"),
            }
        }
        go.send(()).unwrap();
        while runtime.stuck_attempts() > 1 {
            tokio::task::yield_now().await;
        }
        let answer = run(&runtime, "s", batch("last", vec![call("c", "hangs", n(1))])).await;
        assert_eq!(states(&answer), "c failed/timeout", "one has let go, so one more may run");
        drop(go);
    }
}
