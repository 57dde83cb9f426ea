//! Cron of five fields, on civil time alone: which minutes of which days. Zones are handled elsewhere.

use super::ScheduleProblem;
use jiff::civil::{Date, DateTime};

/// Minute, hour, day of the month, month, day of the week: a bit for each matching value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether each of the two kinds of days is restricted. If both are, a day need match only one, as cron has always had it.
    by_day: bool,
    by_weekday: bool,
}

struct Field {
    name: &'static str,
    from: u64,
    to: u64,
    /// Names for the values, from `from` on.
    names: &'static [&'static str],
    example: &'static str,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// Sunday is 0 and 7.
const SUNDAY: u64 = 7;

const FIELDS: [Field; 5] = [
    Field { name: "minute", from: 0, to: 59, names: &[], example: "0, 0,30 or */15" },
    Field { name: "hour", from: 0, to: 23, names: &[], example: "9, 9-17 or */2" },
    Field { name: "day of the month", from: 1, to: 31, names: &[], example: "1, 1,15 or *" },
    Field { name: "month", from: 1, to: 12, names: &MONTHS, example: "1, JAN-MAR or *" },
    Field { name: "day of the week", from: 0, to: SUNDAY, names: &WEEKDAYS, example: "1, MON-FRI or *" },
];

/// Days after which every date has occurred: the 29th of February is missing for eight years around 2100.
const DAYS_MAX: i32 = 8 * 366;

impl Cron {
    /// Parses five fields, each `*`, a value, a range, or a list of those, with a step after `*` or a range.
    pub fn parse(text: &str) -> Result<Cron, ScheduleProblem> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let Ok(fields) = <[&str; 5]>::try_from(fields.as_slice()) else {
            let what = format!(
                "the cron {text:?} has {} fields and needs 5: minute, hour, day of the month, month, day of the week, as in \
                 \"0 9 * * MON-FRI\"",
                fields.len()
            );
            return Err(ScheduleProblem::Cron(what));
        };
        let mut sets = [0; 5];
        for ((set, field), text) in sets.iter_mut().zip(&FIELDS).zip(fields) {
            *set = field.parse(text)?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        let sundays = (weekdays | weekdays >> SUNDAY) & 0x7f;
        let (by_day, by_weekday) = (!fields[2].starts_with('*'), !fields[4].starts_with('*'));
        let cron = Cron { minutes, hours, days, months, weekdays: sundays, by_day, by_weekday };
        // Any start would do: every match occurs within the days that are checked.
        match cron.after(DateTime::constant(2096, 3, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(cron),
            None => Err(ScheduleProblem::Cron(format!(
                "the cron {text:?} never fits: no month it names has such a day; give it another day or month"
            ))),
        }
    }

    /// The first matching minute after this time.
    pub fn after(&self, time: DateTime) -> Option<DateTime> {
        let mut date = time.date();
        if self.has(date)
            && let Some((hour, minute)) = self.later(time.hour(), time.minute())
        {
            return Some(date.at(hour, minute, 0, 0));
        }
        let first = (lowest(self.hours, 0)?, lowest(self.minutes, 0)?);
        for _ in 0..DAYS_MAX {
            date = if self.months >> date.month() & 1 == 1 { date } else { date.last_of_month() };
            date = date.tomorrow().ok()?;
            if self.has(date) {
                return Some(date.at(first.0, first.1, 0, 0));
            }
        }
        None
    }

    /// The last matching minute, this one or an earlier one.
    pub fn at_or_before(&self, time: DateTime) -> Option<DateTime> {
        let mut date = time.date();
        if self.has(date)
            && let Some((hour, minute)) = self.not_later(time.hour(), time.minute())
        {
            return Some(date.at(hour, minute, 0, 0));
        }
        let last = (highest(self.hours, 23)?, highest(self.minutes, 59)?);
        for _ in 0..DAYS_MAX {
            date = if self.months >> date.month() & 1 == 1 { date } else { date.first_of_month() };
            date = date.yesterday().ok()?;
            if self.has(date) {
                return Some(date.at(last.0, last.1, 0, 0));
            }
        }
        None
    }

    /// The first matching minute of a day after this one.
    fn later(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        match lowest(self.minutes, minute + 1) {
            Some(found) if self.hours >> hour & 1 == 1 => Some((hour, found)),
            _ => Some((lowest(self.hours, hour + 1)?, lowest(self.minutes, 0)?)),
        }
    }

    /// The last matching minute of a day until this one.
    fn not_later(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        match highest(self.minutes, minute) {
            Some(found) if self.hours >> hour & 1 == 1 => Some((hour, found)),
            _ => Some((highest(self.hours, hour - 1)?, highest(self.minutes, 59)?)),
        }
    }

    /// The fewest minutes between two matching times.
    pub fn shortest_minutes(&self) -> u64 {
        let minutes: Vec<i32> = self.minutes_of_day().collect();
        let within = minutes.windows(2).map(|two| two[1] - two[0]).min().unwrap_or(i32::MAX);
        let over_midnight = match (minutes.first(), minutes.last()) {
            (Some(first), Some(last)) if self.has_neighbours() => 24 * 60 - last + first,
            _ => i32::MAX,
        };
        within.min(over_midnight).unsigned_abs().into()
    }

    /// Whether it has two consecutive days.
    fn has_neighbours(&self) -> bool {
        let mut date = Date::constant(2096, 3, 1);
        let mut had = false;
        for _ in 0..DAYS_MAX {
            let has = self.has(date);
            if had && has {
                return true;
            }
            had = has;
            let Ok(next) = date.tomorrow() else { return false };
            date = next;
        }
        false
    }

    fn has(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        let fits = if self.by_day && self.by_weekday { day || weekday } else { day && weekday };
        fits && self.months >> date.month() & 1 == 1
    }

    /// The matching minutes of a day.
    fn minutes_of_day(&self) -> impl Iterator<Item = i32> + '_ {
        let hours = (0..24).filter(|hour| self.hours >> hour & 1 == 1);
        hours.flat_map(|hour| {
            (0..60).filter(|minute| self.minutes >> minute & 1 == 1).map(move |minute| hour * 60 + minute)
        })
    }
}

/// The lowest value of a set from this one on.
fn lowest(set: u64, from: i8) -> Option<i8> {
    let rest = set & u64::MAX << from;
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

/// The highest value of a set up to this one.
fn highest(set: u64, to: i8) -> Option<i8> {
    let rest = if to < 0 { 0 } else { set & u64::MAX >> (63 - to) };
    (rest != 0).then(|| 63 - rest.leading_zeros() as i8)
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, ScheduleProblem> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(text, part)?))
    }

    /// One item of a list: a value or a range, maybe with a step.
    fn part(&self, field: &str, part: &str) -> Result<u64, ScheduleProblem> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.from, if self.to == SUNDAY { SUNDAY - 1 } else { self.to }),
            Some((from, to)) => (self.value(field, from, false)?, self.value(field, to, true)?),
            None => {
                let value = self.value(field, range, false)?;
                if step.is_some() {
                    let to = self.to;
                    return Err(
                        self.wrong(field, &format!("{part:?} has a step and no range; write {value}-{to}/N"))
                    );
                }
                (value, value)
            }
        };
        if from > to {
            let (first, last) = (self.from, self.to);
            let what =
                format!("the range {range:?} goes backwards; write it as two, {from}-{last},{first}-{to}");
            return Err(self.wrong(field, &what));
        }
        let step = match step.map(str::parse::<usize>) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => {
                return Err(self.wrong(field, &format!("the step of {part:?} must be a number from 1 on")));
            }
        };
        Ok((from..=to).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, field: &str, text: &str, ends: bool) -> Result<u64, ScheduleProblem> {
        let named = self.names.iter().zip(self.from..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let plain = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        match (named, text.parse::<u64>()) {
            // A week that ends with Sunday.
            (Some((_, 0)), _) if ends => Ok(SUNDAY),
            (Some((_, value)), _) => Ok(value),
            (None, Ok(value)) if plain && (self.from..=self.to).contains(&value) => Ok(value),
            (None, _) => {
                let (from, to) = (self.from, self.to);
                Err(self.wrong(field, &format!("{text:?} is no value from {from} to {to}")))
            }
        }
    }

    fn wrong(&self, field: &str, what: &str) -> ScheduleProblem {
        let (name, example) = (self.name, self.example);
        ScheduleProblem::Cron(format!(
            "the {name} {field:?} of the cron cannot be read: {what} (as in {example})"
        ))
    }
}
