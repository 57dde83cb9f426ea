//! Progress of a running attempt. Not recorded: the last report is kept while the attempt runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The progress of an attempt; every part is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The amount done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<f64>,
    /// The total amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// The unit, such as `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The current activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The maximum length of a status: it is shown on one line.
const WORDS_CHARS_MAX: usize = 200;

impl Progress {
    /// The share that is done, from 0 to 1, if it is known.
    pub fn share(&self) -> Option<f64> {
        let (current, total) = (self.current?, self.total?);
        (total > 0.0 && current.is_finite()).then(|| (current / total).clamp(0.0, 1.0))
    }

    /// Normalised for storage: short texts, finite numbers.
    pub(crate) fn kept(self) -> Progress {
        let number = |number: Option<f64>| number.filter(|number| number.is_finite());
        Progress {
            current: number(self.current),
            total: number(self.total),
            unit: self.unit.map(|unit| words(&unit)),
            label: self.label.map(|label| words(&label)),
        }
    }
}

/// The first line of a status, shortened.
pub(crate) fn words(text: &str) -> String {
    text.chars().take_while(|letter| *letter != '\n').take(WORDS_CHARS_MAX).collect()
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.as_ref().map_or_else(String::new, |unit| format!(" {unit}"));
        let counted = match (self.current, self.total) {
            (Some(current), Some(total)) => Some(format!("{current} of {total}{unit}")),
            (Some(current), None) => Some(format!("{current}{unit}")),
            (None, _) => None,
        };
        let share = self.share().map(|share| format!("{:.0} %", share * 100.0));
        let told: Vec<String> = [share, counted, self.label.clone()].into_iter().flatten().collect();
        f.write_str(&told.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_well() {
        let all = Progress {
            current: Some(3.0),
            total: Some(10.0),
            unit: Some("files".into()),
            label: Some("copying a.txt".into()),
        };
        assert_eq!(all.to_string(), "30 %, 3 of 10 files, copying a.txt");
        let counted = Progress { total: None, label: None, ..all.clone() };
        assert_eq!(counted.to_string(), "3 files");
        assert_eq!(Progress { label: all.label.clone(), ..Progress::default() }.to_string(), "copying a.txt");
        for (current, total) in [(f64::NAN, 10.0), (1.0, 0.0), (f64::INFINITY, f64::INFINITY)] {
            let odd = Progress { current: Some(current), total: Some(total), ..Progress::default() };
            assert_eq!(odd.kept().share(), None);
        }
        let long = Progress { label: Some(format!("{}\nmore", "x".repeat(500))), ..Progress::default() };
        assert_eq!(long.kept().label.unwrap().len(), WORDS_CHARS_MAX);
    }
}
