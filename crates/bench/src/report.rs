//! What was measured, beside its floor and its bar.

use crate::table::{aligned, thousands};
use serde::Serialize;

/// Figures that belong together.
#[derive(Debug, Serialize)]
pub struct Table {
    /// What they are about.
    pub title: String,
    /// The figures.
    pub lines: Vec<Line>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub struct Line {
    /// What was measured.
    pub what: String,
    /// The figure.
    pub measured: f64,
    /// In what.
    pub unit: Unit,
    /// The floor of the same run, in the same unit.
    pub floor: Option<f64>,
    /// The figure as a multiple of its floor.
    pub ratio: Option<f64>,
    /// What the ratio must be, or the figure itself where it has no floor.
    pub bar: Option<Bar>,
    /// Whether it is.
    pub met: Option<bool>,
}

/// What figures are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds for one.
    Nanoseconds,
    /// Milliseconds for one.
    Milliseconds,
    /// Seconds for all.
    Seconds,
    /// So many in a second.
    PerSecond,
    /// So many.
    Number,
}

/// What is fast enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// So much, or less.
    AtMost(f64),
    /// So much, or more.
    AtLeast(f64),
}

impl Bar {
    fn is_met(self, value: f64) -> bool {
        match self {
            Bar::AtMost(most) => value <= most,
            Bar::AtLeast(least) => value >= least,
        }
    }
}

impl Line {
    /// A figure whose ratio to its floor has a bar.
    pub fn against(what: impl Into<String>, (measured, unit): (f64, Unit), floor: f64, bar: Bar) -> Line {
        let ratio = measured / floor;
        Line {
            floor: Some(floor),
            ratio: Some(ratio),
            bar: Some(bar),
            met: Some(bar.is_met(ratio)),
            ..Line::plain(what, (measured, unit))
        }
    }

    /// A figure to be read beside that of its floor.
    pub fn beside(what: impl Into<String>, (measured, unit): (f64, Unit), floor: f64) -> Line {
        Line { floor: Some(floor), ratio: Some(measured / floor), ..Line::plain(what, (measured, unit)) }
    }

    /// A figure that has a bar itself.
    pub fn barred(what: impl Into<String>, (measured, unit): (f64, Unit), bar: Bar) -> Line {
        Line { bar: Some(bar), met: Some(bar.is_met(measured)), ..Line::plain(what, (measured, unit)) }
    }

    /// A figure to be read beside the others.
    pub fn plain(what: impl Into<String>, (measured, unit): (f64, Unit)) -> Line {
        Line { what: what.into(), measured, unit, floor: None, ratio: None, bar: None, met: None }
    }

    fn cells(&self) -> Vec<String> {
        let ratio = match (self.ratio, self.bar) {
            (Some(ratio), Some(Bar::AtLeast(_))) => percent(ratio),
            (Some(ratio), _) => times(ratio),
            (None, _) => String::new(),
        };
        vec![
            self.what.clone(),
            self.unit.with_name(self.measured),
            self.floor.map(|floor| self.unit.number(floor)).unwrap_or_default(),
            ratio,
            self.verdict(),
        ]
    }

    fn verdict(&self) -> String {
        let (Some(bar), Some(met)) = (self.bar, self.met) else { return String::new() };
        let bar = match (bar, self.ratio) {
            (Bar::AtMost(most), Some(_)) => format!("≤ {most}×"),
            (Bar::AtLeast(least), Some(_)) => format!("≥ {}", percent(least)),
            (Bar::AtMost(most), None) => format!("≤ {}", self.unit.with_name(most)),
            (Bar::AtLeast(least), None) => format!("≥ {}", self.unit.with_name(least)),
        };
        format!("bar {bar}, {}", if met { "met" } else { "missed" })
    }
}

impl Unit {
    fn number(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds | Unit::PerSecond => thousands(value),
            Unit::Milliseconds => format!("{value:.3}"),
            Unit::Seconds => format!("{value:.2}"),
            Unit::Number => format!("{value:.1}"),
        }
    }

    fn with_name(self, value: f64) -> String {
        let name = match self {
            Unit::Nanoseconds => " ns",
            Unit::Milliseconds => " ms",
            Unit::Seconds => " s",
            Unit::PerSecond => "/s",
            Unit::Number => "",
        };
        format!("{}{name}", self.number(value))
    }
}

impl Table {
    /// The table for people.
    pub fn text(&self) -> String {
        let mut rows = vec![["", "measured", "floor", "ratio", ""].map(str::to_owned).to_vec()];
        rows.extend(self.lines.iter().map(Line::cells));
        format!("{}\n\n{}", self.title, aligned(&rows))
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_their_floors_and_bars() {
        let lines = vec![
            Line::plain("fsync", (0.25, Unit::Milliseconds)),
            Line::against("call", (1_200.0, Unit::Nanoseconds), 400.0, Bar::AtMost(3.5)),
            Line::against("calls", (40_000.0, Unit::PerSecond), 100_000.0, Bar::AtLeast(0.5)),
            Line::beside("work", (600.0, Unit::Nanoseconds), 400.0),
            Line::barred("start", (6.0, Unit::Seconds), Bar::AtMost(5.0)),
        ];
        let text = Table { title: "figures".into(), lines }.text();
        assert_eq!(
            text,
            "figures\n\n\
             \x20      measured    floor  ratio\n\
             fsync  0.250 ms\n\
             call   1,200 ns      400  3.00×       bar ≤ 3.5×, met\n\
             calls  40,000/s  100,000   40 %    bar ≥ 50 %, missed\n\
             work     600 ns      400  1.50×\n\
             start    6.00 s                  bar ≤ 5.00 s, missed\n"
        );
    }
}
