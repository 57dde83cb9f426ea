//! Figures, with their floors and bars.

use crate::table::{aligned, thousands};
use serde::Serialize;

/// Figures that belong together.
#[derive(Debug, Serialize)]
pub struct FigureTable {
    /// The subject of the figures.
    pub title: String,
    /// The figures.
    pub lines: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// The measured quantity.
    pub what: String,
    /// The figure.
    pub measured: f64,
    /// In what.
    pub unit: Unit,
    /// The floor of the same run, in the same unit.
    pub floor: Option<f64>,
    /// The figure as a multiple of its floor.
    pub ratio: Option<f64>,
    /// The bar of the ratio, or of the figure itself where it has no floor.
    pub bar: Option<Bar>,
    /// Whether it is.
    pub met: Option<bool>,
}

/// The unit of a figure.
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

/// The bar of a figure.
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

impl Figure {
    /// A figure whose ratio to its floor has a bar.
    pub fn against(what: impl Into<String>, measured: f64, unit: Unit, floor: f64, bar: Bar) -> Figure {
        let ratio = measured / floor;
        Figure {
            floor: Some(floor),
            ratio: Some(ratio),
            bar: Some(bar),
            met: Some(bar.is_met(ratio)),
            ..Figure::plain(what, measured, unit)
        }
    }

    /// A figure to be read beside that of its floor.
    pub fn beside(what: impl Into<String>, measured: f64, unit: Unit, floor: f64) -> Figure {
        Figure { floor: Some(floor), ratio: Some(measured / floor), ..Figure::plain(what, measured, unit) }
    }

    /// A figure that has a bar itself.
    pub fn barred(what: impl Into<String>, measured: f64, unit: Unit, bar: Bar) -> Figure {
        Figure { bar: Some(bar), met: Some(bar.is_met(measured)), ..Figure::plain(what, measured, unit) }
    }

    /// A figure to be read beside the others.
    pub fn plain(what: impl Into<String>, measured: f64, unit: Unit) -> Figure {
        Figure { what: what.into(), measured, unit, floor: None, ratio: None, bar: None, met: None }
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
        format!("target {bar}, {}", if met { "met" } else { "missed" })
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

impl FigureTable {
    /// The table for people.
    pub fn text(&self) -> String {
        let mut rows = vec![["", "measured", "floor", "ratio", ""].map(str::to_owned).to_vec()];
        rows.extend(self.lines.iter().map(Figure::cells));
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
            Figure::plain("fsync", 0.25, Unit::Milliseconds),
            Figure::against("call", 1_200.0, Unit::Nanoseconds, 400.0, Bar::AtMost(3.5)),
            Figure::against("calls", 40_000.0, Unit::PerSecond, 100_000.0, Bar::AtLeast(0.5)),
            Figure::beside("work", 600.0, Unit::Nanoseconds, 400.0),
            Figure::barred("start", 6.0, Unit::Seconds, Bar::AtMost(5.0)),
        ];
        let text = FigureTable { title: "figures".into(), lines }.text();
        assert_eq!(
            text,
            "figures\n\n\
             \x20      measured    floor  ratio\n\
             fsync  0.250 ms\n\
             call   1,200 ns      400  3.00×       target ≤ 3.5×, met\n\
             calls  40,000/s  100,000   40 %    target ≥ 50 %, missed\n\
             work     600 ns      400  1.50×\n\
             start    6.00 s                  target ≤ 5.00 s, missed\n"
        );
    }
}
