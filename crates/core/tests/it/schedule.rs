//! The times of schedules, and which of them are used.

mod oracle;

use windlass_core::limits::CallLimits;
use windlass_core::schedule::{
    CatchUp, FiringRules, Overlap, ScheduleDecision, ScheduleStanding, Times, WrittenTimes, decide,
};
use windlass_core::time::Timestamp;

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

fn cron<'a>(cron: &'a str, zone: &'a str) -> WrittenTimes<'a> {
    WrittenTimes { cron: Some(cron), at: None, zone: Some(zone) }
}

fn times(text: &str, zone: &str) -> Times {
    Times::new(cron(text, zone), at("2026-01-01T00:00:00Z"), &CallLimits::default()).unwrap()
}

fn preview(text: &str, zone: &str, after: &str) -> Vec<String> {
    let times = times(text, zone);
    times.preview(at(after), 3).into_iter().map(|at| times.local(at)).collect()
}

#[test]
fn the_next_times_are_shown_by_the_clocks_of_the_zone() {
    assert_eq!(
        preview("0 9 * * MON-FRI", "Europe/Berlin", "2026-03-27T07:00:00Z"),
        ["2026-03-27T09:00:00+01:00", "2026-03-30T09:00:00+02:00", "2026-03-31T09:00:00+02:00"]
    );
    // 2:30 is skipped on the 29th: once, when the clocks were put forward.
    assert_eq!(
        preview("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z"),
        ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    // Four times fall into the gap, and one at its end: that is one.
    assert_eq!(
        preview("*/15 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z"),
        ["2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00", "2026-03-29T03:30:00+02:00"]
    );
    // 2:30 comes twice on the 25th: the first counts.
    assert_eq!(
        preview("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z"),
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]
    );
    assert_eq!(
        preview("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z"),
        ["2104-02-29T00:00:00+00:00", "2108-02-29T00:00:00+00:00", "2112-02-29T00:00:00+00:00"]
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
    let limits = CallLimits { schedule_interval_ms_min: 600_000, ..CallLimits::default() };
    let now = at("2026-01-01T00:00:00Z");
    let refused = |written| Times::new(written, now, &limits).unwrap_err().to_string();
    let of = |text| refused(cron(text, "UTC"));
    insta::assert_snapshot!(
        [
            of("* * * *"),
            of("@daily"),
            of("60 * * * *"),
            of("5/15 * * * *"),
            of("0 22-2 * * *"),
            of("0 0 * FOO *"),
            of("*/0 * * * *"),
            of("0 0 30 2 *"),
            of("*/5 * * * *"),
            of("57,5 0,23 * * *"),
            refused(cron("0 0 * * *", "Mars/Olympus")),
            refused(WrittenTimes::default()),
            refused(WrittenTimes { cron: Some("0 0 * * *"), at: Some("2030-01-01T00:00:00Z"), zone: None }),
            refused(WrittenTimes { at: Some("2025-12-31T23:59:59Z"), ..WrittenTimes::default() }),
            refused(WrittenTimes { at: Some("tomorrow"), ..WrittenTimes::default() }),
        ]
        .join("\n")
    );
    for fine in ["0 0 1 1 *", "0,55 0,23 1 * *", "0 0 * * FRI-SUN", "0 0 * jan 7", "0-30/15,45 0 1-31/2 * *"]
    {
        Times::new(cron(fine, "UTC"), now, &limits).unwrap();
    }
}

#[test]
fn one_time_is_an_instant_or_a_time_by_the_clocks_of_the_zone() {
    let once = |text, zone| {
        let written = WrittenTimes { cron: None, at: Some(text), zone };
        let times = Times::new(written, at("2026-01-01T00:00:00Z"), &CallLimits::default()).unwrap();
        let found = times.preview(Timestamp(0), 2);
        assert_eq!(found.len(), 1);
        assert_eq!((times.until(found[0]), times.after(found[0])), (Some(found[0]), None));
        times.local(found[0])
    };
    assert_eq!(once("2026-07-01T09:00:00Z", None), "2026-07-01T09:00:00+00:00");
    assert_eq!(once("2026-07-01T09:00:00+02:00", Some("Europe/Berlin")), "2026-07-01T09:00:00+02:00");
    assert_eq!(once("2026-07-01T09:00:00", Some("Europe/Berlin")), "2026-07-01T09:00:00+02:00");
    assert_eq!(once("2026-03-29 02:10", Some("europe/berlin")), "2026-03-29T03:00:00+02:00");
}

const HOURLY: &str = "0 * * * *";

/// A schedule that nobody looked at since this time, without a time that waits.
fn unseen_since(handled: &str, is_open: bool) -> ScheduleStanding {
    ScheduleStanding { handled: at(handled), waits: None, is_open }
}

fn decided(catch_up: CatchUp, overlap: Overlap, standing: ScheduleStanding, now: &str) -> ScheduleDecision {
    decide(
        &times(HOURLY, "UTC"),
        FiringRules { catch_up, overlap },
        standing,
        at(now),
        &CallLimits::default(),
    )
}

fn hours(decision: &ScheduleDecision) -> String {
    let times = times(HOURLY, "UTC");
    let hour = |at: &Timestamp| times.local(*at)[11..13].to_string();
    let fired: Vec<String> = decision.fire.iter().map(hour).collect();
    let waits = decision.waits.iter().map(|at| format!(" waits {}", hour(at))).collect::<String>();
    let cancels = if decision.cancels { " cancels" } else { "" };
    format!("{}{waits}{cancels} skips {}", fired.join(","), decision.skipped)
}

#[test]
fn what_nobody_was_there_for_is_caught_up_as_asked() {
    let away = unseen_since("2026-01-01T00:30:00Z", false);
    let late = "2026-01-01T15:10:00Z";
    let of = |catch_up, now| hours(&decided(catch_up, Overlap::Allow, away, now));
    assert_eq!(of(CatchUp::Skip, late), " skips 15");
    assert_eq!(of(CatchUp::One, late), "15 skips 14");
    assert_eq!(of(CatchUp::All, late), "06,07,08,09,10,11,12,13,14,15 skips 5");
    // What is on time is no catching up.
    assert_eq!(of(CatchUp::Skip, "2026-01-01T15:00:59Z"), "15 skips 14");
    assert_eq!(of(CatchUp::Skip, "2026-01-01T01:00:00Z"), "01 skips 0");
    assert_eq!(of(CatchUp::One, "2026-01-01T00:59:59Z"), " skips 0");
    let decision = decided(CatchUp::Skip, Overlap::Allow, away, late);
    assert_eq!(decision.handled, at("2026-01-01T15:00:00Z"));
}

#[test]
fn an_open_run_is_met_as_asked() {
    let of = |overlap, open, now| {
        let standing = unseen_since("2026-01-01T00:30:00Z", open);
        hours(&decided(CatchUp::All, overlap, standing, now))
    };
    let (one, three) = ("2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z");
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::Allow, Overlap::CancelPrevious] {
        assert_eq!(of(overlap, false, one), "01 skips 0");
    }
    assert_eq!(of(Overlap::Skip, true, one), " skips 1");
    assert_eq!(of(Overlap::Skip, false, three), "01 skips 2");
    assert_eq!(of(Overlap::QueueOne, true, one), " waits 01 skips 0");
    assert_eq!(of(Overlap::QueueOne, true, three), " waits 03 skips 2");
    assert_eq!(of(Overlap::QueueOne, false, three), "01 waits 03 skips 1");
    assert_eq!(of(Overlap::Allow, true, three), "01,02,03 skips 0");
    assert_eq!(of(Overlap::CancelPrevious, true, one), "01 cancels skips 0");
    assert_eq!(of(Overlap::CancelPrevious, true, three), "03 cancels skips 2");
    // What waits goes first once it may, and is not counted twice.
    let waiting = |open, now| {
        let handled = at("2026-01-01T01:00:00Z");
        let standing = ScheduleStanding { handled, waits: Some(handled), is_open: open };
        hours(&decided(CatchUp::One, Overlap::QueueOne, standing, now))
    };
    assert_eq!(waiting(true, one), " waits 01 skips 0");
    assert_eq!(waiting(false, one), "01 skips 0");
    assert_eq!(waiting(true, three), " waits 03 skips 2");
    assert_eq!(waiting(false, three), "01 waits 03 skips 1");
}

#[test]
fn a_clock_that_is_put_back_uses_nothing_again() {
    let standing = unseen_since("2026-01-01T05:00:00Z", false);
    let decision = decided(CatchUp::All, Overlap::Allow, standing, "2026-01-01T02:10:00Z");
    assert_eq!((hours(&decision).as_str(), decision.handled), (" skips 0", at("2026-01-01T05:00:00Z")));
}

/// Ten years of every minute are five million times; no more than the limit are looked at.
#[test]
fn being_away_for_years_costs_no_more_than_being_away_for_a_day() {
    let times = times("* * * * *", "America/New_York");
    let standing = ScheduleStanding { handled: at("2026-01-01T00:00:00Z"), waits: None, is_open: false };
    let now = at("2036-01-01T00:00:30Z");
    for (catch_up, fired) in [(CatchUp::Skip, 1), (CatchUp::One, 1), (CatchUp::All, 10)] {
        let rules = FiringRules { catch_up, overlap: Overlap::Allow };
        let decision = decide(&times, rules, standing, now, &CallLimits::default());
        assert_eq!((decision.fire.len(), decision.skipped), (fired, 1_000 - fired as u64));
        assert_eq!(decision.handled, at("2036-01-01T00:00:00Z"));
        assert_eq!(decision.fire.last(), Some(&decision.handled));
    }
}
