//! The metrics in Prometheus text format, version 0.0.4.

use crate::session::inner::Inner;
use crate::tools::meter::{ENDS_US, Histogram, Meter, STATES};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// All metrics: name, type, and help. `docs/metrics.md` has a line for each.
pub const METRICS: [(&str, &str, &str); 10] = [
    ("windlass_calls_total", "counter", "Calls that ended in this process, by tool and by how they ended."),
    ("windlass_attempts_total", "counter", "Attempts that were started, by tool."),
    ("windlass_retries_total", "counter", "Attempts that are made again after a wait, by tool."),
    ("windlass_call_queued_seconds", "histogram", "How long calls waited for their first start, by tool."),
    ("windlass_call_run_seconds", "histogram", "How long the attempts of a call ran together, by tool."),
    ("windlass_calls", "gauge", "Calls that are open now, by where they stand."),
    ("windlass_stuck_attempts", "gauge", "Stopped attempts that still block a thread."),
    ("windlass_event_readers", "gauge", "Readers that follow events."),
    ("windlass_commits_total", "counter", "How often the store waited for durability."),
    (
        "windlass_spans_lost_total",
        "counter",
        "Spans that were dropped because the collector did not take them.",
    ),
];

/// The metrics as text.
pub(crate) fn metrics(rt: &Inner) -> String {
    let tools = rt.meters.tools.lock().clone();
    let tools =
        || tools.iter().map(|(name, meter)| (name.as_str(), &**meter)).chain([("", &rt.meters.nameless)]);
    let mut text = String::new();
    for (name, kind, help) in METRICS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        match name {
            "windlass_calls_total" => tools().for_each(|(tool, meter)| ended(&mut text, name, tool, meter)),
            "windlass_attempts_total" => {
                tools().for_each(|(tool, meter)| counter(&mut text, name, tool, &meter.attempts));
            }
            "windlass_retries_total" => {
                tools().for_each(|(tool, meter)| counter(&mut text, name, tool, &meter.retries));
            }
            "windlass_call_queued_seconds" => {
                tools().for_each(|(tool, meter)| histogram(&mut text, name, tool, &meter.queued));
            }
            "windlass_call_run_seconds" => {
                tools().for_each(|(tool, meter)| histogram(&mut text, name, tool, &meter.ran));
            }
            "windlass_calls" => {
                let counts = rt.turns.counts();
                let running: u64 = counts.running.iter().sum();
                let states = [("queued", counts.queued), ("running", running), ("lending", counts.lending)];
                for (state, count) in states.into_iter().chain([("parked", counts.parked)]) {
                    let _ = writeln!(text, "{name}{{state=\"{state}\"}} {count}");
                }
            }
            single => {
                let _ = writeln!(text, "{name} {}", value(rt, single));
            }
        }
    }
    text
}

/// A metric without labels.
fn value(rt: &Inner, name: &str) -> u64 {
    match name {
        "windlass_stuck_attempts" => rt.threads.stuck(),
        "windlass_event_readers" => rt.feeds.readers.load(Ordering::Relaxed),
        "windlass_commits_total" => rt.store.commits(),
        _ => rt.meters.lost_spans.load(Ordering::Relaxed),
    }
}

/// The names of tools need no escaping: see [`check_name`](windlass_core::tool::check_name).
fn counter(text: &mut String, name: &str, tool: &str, counter: &AtomicU64) {
    let count = counter.load(Ordering::Relaxed);
    if count > 0 {
        let _ = writeln!(text, "{name}{{tool=\"{tool}\"}} {count}");
    }
}

fn ended(text: &mut String, name: &str, tool: &str, meter: &Meter) {
    for (state, counter) in STATES.iter().zip(&meter.ended) {
        let count = counter.load(Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(text, "{name}{{tool=\"{tool}\",outcome=\"{state}\"}} {count}");
        }
    }
}

fn histogram(text: &mut String, name: &str, tool: &str, histogram: &Histogram) {
    let (ends, count, sum) = histogram.totals();
    if count == 0 {
        return;
    }
    for (end, at_most) in ENDS_US.iter().zip(ends) {
        let end = *end as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{tool=\"{tool}\",le=\"{end}\"}} {at_most}");
    }
    let _ = writeln!(text, "{name}_bucket{{tool=\"{tool}\",le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum{{tool=\"{tool}\"}} {sum}\n{name}_count{{tool=\"{tool}\"}} {count}");
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    #[test]
    fn every_metric_is_explained() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, kind, help) in METRICS {
            assert!(
                page.contains(&format!("| `{name}` | {kind} | {help} |")),
                "docs/metrics.md has no line for {name}"
            );
        }
        let listed = page.lines().filter(|line| line.starts_with("| `windlass_")).count();
        assert_eq!(listed, METRICS.len(), "docs/metrics.md lists a metric that is gone");
    }
}
