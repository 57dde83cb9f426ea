//! The times of a schedule against a walk over every minute around every change of every zone's clocks.

use super::at;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, civil::DateTime};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::schedule::{Times, WrittenTimes};
use windlass_core::time::Timestamp as Instant;

const PATTERNS: [&str; 20] = [
    "* * * * *",
    "*/5 * * * *",
    "*/7 */3 * * *",
    "0 * * * *",
    "30 * * * *",
    "0 0 * * *",
    "30 0 * * *",
    "59 23 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "0 3 * * *",
    "0 9 * * MON-FRI",
    "30 2 * * SUN",
    "0 2 1 * *",
    "10 1 1,15 * 0",
    "*/10 0-4 * 3,10,NOV 5-7",
    "0 12 29 2 *",
    "5 */2 */2 * 1-5",
];

/// When the clocks of a zone change in the years that are looked at, and how they go before and after.
type Changes = Vec<(Timestamp, Offset, Offset)>;

fn changes(zone: &TimeZone) -> Changes {
    let (from, to) = (at("2024-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"));
    let [from, to] = [from, to].map(|at| Timestamp::from_microsecond(at.0).unwrap());
    let before = |at: Timestamp| zone.to_offset(at - SignedDuration::from_micros(1));
    let all = zone.following(from).take_while(|change| change.timestamp() < to);
    all.map(|change| (change.timestamp(), before(change.timestamp()), change.offset()))
        .filter(|(_, before, after)| before != after)
        .collect()
}

/// One zone for all whose clocks change together.
fn zones() -> BTreeMap<Changes, String> {
    let names: Vec<_> = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
    assert!(names.len() > 500, "{} zones", names.len());
    let changing = names.into_iter().map(|name| (changes(&TimeZone::get(&name).unwrap()), name));
    changing.filter(|(changes, _)| !changes.is_empty()).collect()
}

/// Whether a value fits a field: the field is spelt out from the left, one character after the other.
fn fits(field: &str, value: i64, names: &[&str], base: i64) -> bool {
    let number = |text: &str| {
        let named = names.iter().position(|name| *name == text).map(|place| place as i64 + base);
        named.unwrap_or_else(|| text.parse().unwrap())
    };
    field.split(',').any(|part| {
        let mut halves = part.split('/');
        let (range, step) = (halves.next().unwrap(), halves.next().map_or(1, &number));
        let mut ends = range.split('-');
        let first = ends.next().unwrap();
        let (from, to) = match (first, ends.next()) {
            ("*", _) => (base, 99),
            (first, None) => (number(first), number(first)),
            (first, Some(last)) => (number(first), number(last)),
        };
        value >= from && value <= to && (value - from) % step == 0
    })
}

/// For each field of a pattern which values fit it.
struct Plain {
    fields: [Vec<bool>; 5],
    either_day: bool,
}

fn plain(pattern: &str) -> Plain {
    let months = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
    let days = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let fields: Vec<&str> = pattern.split(' ').collect();
    let table = |field: usize, names: &[&str], base| -> Vec<bool> {
        (0..60).map(|value| fits(fields[field], value, names, base)).collect()
    };
    let mut weekdays = table(4, &days, 0);
    weekdays[0] |= weekdays[7];
    Plain {
        fields: [table(0, &[], 0), table(1, &[], 0), table(2, &[], 1), table(3, &months, 1), weekdays],
        either_day: !fields[2].starts_with('*') && !fields[4].starts_with('*'),
    }
}

fn matches(plain: &Plain, civil: DateTime) -> bool {
    let has = |field: usize, value: i8| plain.fields[field][usize::from(value.unsigned_abs())];
    let (by_day, by_week) = (has(2, civil.day()), has(4, civil.weekday().to_sunday_zero_offset()));
    let day = if plain.either_day { by_day || by_week } else { by_day && by_week };
    day && has(0, civil.minute()) && has(1, civil.hour()) && has(3, civil.month())
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Each minute from a day before a change until a day after it, with the civil minutes that it is the first to have: its own,
/// and those that were skipped before it.
fn minutes(zone: &TimeZone, change: Timestamp) -> Vec<(Timestamp, Vec<DateTime>)> {
    let day = SignedDuration::from_hours(24);
    let mut shown = BTreeSet::new();
    let mut last: Option<DateTime> = None;
    let mut walked = Vec::new();
    let mut minute = change - day;
    while minute <= change + day {
        let civil = zone.to_offset(minute).to_datetime(minute);
        let mut first = Vec::new();
        let mut next = last.map_or(civil, |last| last + MINUTE).min(civil);
        while next <= civil {
            first.extend(shown.insert(next).then_some(next));
            next += MINUTE;
        }
        walked.push((minute, first));
        last = Some(civil);
        minute += MINUTE;
    }
    walked
}

#[test]
fn the_times_are_those_of_a_walk_over_every_minute() {
    let zones = zones();
    assert!(zones.len() > 30, "{} kinds of zones", zones.len());
    let mut fires = 0;
    // Most zones of a kind differ by their offset only in how their clocks change: each change is looked at once.
    let mut seen = BTreeSet::new();
    for (changes, name) in &zones {
        let zone = TimeZone::get(name).unwrap();
        let parsed = PATTERNS.map(|pattern| {
            let written = WrittenTimes { cron: Some(pattern), at: None, zone: Some(name) };
            (pattern, plain(pattern), Times::read(written).unwrap())
        });
        for change in changes.iter().filter(|change| seen.insert(**change)) {
            let walked = minutes(&zone, change.0);
            for (pattern, plain, times) in &parsed {
                fires += compare(&format!("{pattern} in {name}"), plain, times, &walked);
            }
        }
    }
    assert!(fires > 100_000 && seen.len() > 100, "{fires} times at {} changes", seen.len());
    println!("{fires} times at {} changes of {} kinds of zones", seen.len(), zones.len());
}

fn compare(what: &str, plain: &Plain, times: &Times, walked: &[(Timestamp, Vec<DateTime>)]) -> usize {
    let instant = |at: Timestamp| Instant(at.as_microsecond());
    let fires = |first: &[DateTime]| first.iter().any(|civil| matches(plain, *civil));
    let expected: Vec<Instant> =
        walked.iter().filter(|(_, first)| fires(first)).map(|(minute, _)| instant(*minute)).collect();
    let (begin, end) = (instant(walked[0].0), instant(walked[walked.len() - 1].0));
    let next = |at: &Instant| times.after(*at);
    let ours: Vec<Instant> =
        std::iter::successors(times.after(Instant(begin.0 - 1)), next).take_while(|at| *at <= end).collect();
    assert_eq!(ours, expected, "{what}");
    let before = |at: &Instant| times.until(Instant(at.0 - 1));
    let mut back: Vec<Instant> =
        std::iter::successors(times.until(end), before).take_while(|at| *at >= begin).collect();
    back.reverse();
    assert_eq!(back, expected, "{what}, backwards");
    // From anywhere, also within a minute and while civil times come again.
    for (minute, _) in walked.iter().step_by(37) {
        let here = Instant(minute.as_microsecond() + 1_500_000);
        let split = expected.partition_point(|at| *at <= here);
        if let Some(next) = expected.get(split) {
            assert_eq!(times.after(here), Some(*next), "{what} after {minute}");
        }
        if let Some(last) = expected[..split].last() {
            assert_eq!(times.until(here), Some(*last), "{what} until {minute}");
        }
    }
    expected.len()
}
