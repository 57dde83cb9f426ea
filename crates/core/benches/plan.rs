//! The cost of planning per call, with few and with many calls waiting.
//!
//! `cargo bench -p windlass-core --bench plan` prints nanoseconds per call and the ratio to 64 waiting. A call is
//! entered, started, parked and left, as the runtime does it; the queue is kept at its length, so the figure is one
//! call passing through it. Arguments: seconds per figure, and words of which one must be in a case's name.
#![allow(clippy::disallowed_methods, reason = "a benchmark tells the time it took")]

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};
use windlass_core::claim::Claims;
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::limits::CallLimits;
use windlass_core::plan::{Cap, Entrant, Planner, Ready, ToolNo, Wants};
use windlass_core::tool::EffectClass;

/// Calls that are timed together.
const SLICE: u32 = 256;

/// One way to queue.
struct Case {
    name: &'static str,
    sessions: u64,
    /// The claims of the nth call.
    claims: fn(u64) -> Claims,
    /// How many run at once.
    running: u64,
    limited_tool: bool,
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let seconds = std::env::args().find_map(|text| text.parse().ok()).unwrap_or(0.2);
    let cases = [
        Case {
            name: "writers of one session",
            sessions: 1,
            claims: |_| Claims::of(EffectClass::Once),
            running: 64,
            limited_tool: false,
        },
        Case {
            name: "readers of one session",
            sessions: 1,
            claims: |_| Claims::of(EffectClass::Read),
            running: 64,
            limited_tool: false,
        },
        Case {
            name: "nothing claimed, a tool's limit",
            sessions: 1,
            claims: |_| Claims::NONE,
            running: 64,
            limited_tool: true,
        },
        Case {
            name: "own files in one folder",
            sessions: 1,
            claims: |n| parsed(&format!("write file:/src/{n}.rs")),
            running: 1,
            limited_tool: false,
        },
        Case {
            name: "a few shared files",
            sessions: 1,
            claims: |n| parsed(&format!("write file:/src/{}.rs", n % 7)),
            running: 64,
            limited_tool: false,
        },
        Case {
            name: "writers of 100 sessions",
            sessions: 100,
            claims: |_| Claims::of(EffectClass::Once),
            running: 64,
            limited_tool: false,
        },
        Case {
            name: "one global name",
            sessions: 100,
            claims: |_| parsed("write global:deploy"),
            running: 64,
            limited_tool: false,
        },
    ];
    writeln!(out, "{:<34}{:>10}{:>10}{:>10}{:>8}", "ns per call, waiting:", 0, 64, 10_000, "ratio")?;
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| word.starts_with(char::is_alphabetic)).collect();
    let wanted =
        |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str()));
    for case in cases.iter().filter(wanted) {
        let [none, few, many] = [0, 64, 10_000].map(|waiting| measure(case, waiting, seconds));
        writeln!(out, "{:<34}{none:>10.0}{few:>10.0}{many:>10.0}{:>8.2}", case.name, many / few)?;
    }
    Ok(())
}

fn parsed(text: &str) -> Claims {
    Claims::parse([text], &CallLimits::default()).unwrap_or(Claims::NONE)
}

/// Nanoseconds per call that enters, starts and leaves, while so many wait.
fn measure(case: &Case, waiting: u64, seconds: f64) -> f64 {
    let limits = CallLimits {
        calls_running_max: case.running,
        session_calls_running_max: case.running,
        ..CallLimits::default()
    };
    let mut planner = Planner::new(&limits);
    let tool = match case.limited_tool {
        true => planner.set_tool(0, "limited", Cap { running_max: Some(8), rate: None }, &[]),
        false => ToolNo::UNLIMITED,
    };
    // Made before the clock runs: who claims what is told by the caller.
    let claims: Vec<Claims> = (0..32_768).map(case.claims).collect();
    let mut next = 0;
    let mut enter = |planner: &mut Planner| {
        let call = CallId { batch: BatchNo(next / 64), ordinal: Ordinal((next % 64) as u16) };
        let wants = Wants::Claims(claims[next as usize % claims.len()].clone());
        let ask = Entrant { wants, ..Entrant::new(SessionNo(next % case.sessions), call, tool) };
        next += 1;
        black_box(planner.enter(next, ask).is_ok())
    };
    let (mut ready, mut running) = (Ready::default(), std::collections::VecDeque::new());
    while planner.counts().queued < waiting {
        enter(&mut planner);
        planner.start_ready(0, &mut ready);
        running.extend(ready.start.drain(..));
    }
    let (mut now_us, begun, mut slices) = (0, Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        let slice = Instant::now();
        for _ in 0..SLICE {
            now_us += 1;
            enter(&mut planner);
            planner.start_ready(now_us, &mut ready);
            running.extend(ready.start.drain(..));
            if let Some(call) = running.pop_front() {
                // It gives its room back when its attempt is over, and what it claims when its end is recorded.
                planner.park(call);
                planner.start_ready(now_us, &mut ready);
                running.extend(ready.start.drain(..));
                planner.leave(call);
            }
            // A call that waited takes the place of the one that left.
            planner.start_ready(now_us, &mut ready);
            running.extend(ready.start.drain(..));
        }
        slices.push(slice.elapsed().as_nanos() as f64 / f64::from(SLICE));
    }
    // Nine in ten are slower: on a busy machine, those are the others' time too.
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 10]
}
