//! The checks of a world that is over: the answers that clients got against the effects that the ledger saw.

use super::client::AskedBatch;
use super::ledger::FleetEffect;
use super::{FleetReport, Standstill};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A worker that goes on after it stood still may act so long before it has noticed that it lost its lease.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// Everything that is known of a world.
pub struct FleetHistory {
    pub asked: Vec<AskedBatch>,
    pub effects: Vec<FleetEffect>,
    pub standstills: Vec<Standstill>,
}

/// Adds what happened to the report, and names every broken promise.
pub fn check(history: &FleetHistory, report: &mut FleetReport) -> Vec<String> {
    let mut found = Vec::new();
    let mut effects: BTreeMap<&str, Vec<(usize, &FleetEffect)>> = BTreeMap::new();
    for (place, effect) in history.effects.iter().enumerate() {
        effects.entry(&effect.call).or_default().push((place, effect));
    }
    let (mut keys, mut handles) = (BTreeSet::new(), BTreeSet::new());
    for batch in &history.asked {
        report.batches += 1;
        report.calls += batch.calls.len() as u64;
        found.extend(
            batch
                .handles
                .iter()
                .filter(|handle| !handles.insert(handle.as_str()))
                .map(|handle| format!("R1: two calls have the handle {handle}")),
        );
        for told in &batch.told {
            let (n, class) = &batch.calls[told.place];
            let did = effects.remove(n.as_str()).unwrap_or_default();
            report.effects += did.len() as u64;
            let own: BTreeSet<&str> = did.iter().map(|(_, effect)| effect.key.as_str()).collect();
            if own.len() > 1 || own.iter().any(|key| !keys.insert(*key)) {
                found.push(format!(
                    "R3: {class} call {n} acted under the keys {own:?}, which are not its own"
                ));
            }
            report.repeated += did.len().saturating_sub(1) as u64;
            let ended =
                FleetCallEnd { n, class, answer: &told.answer, cancelled: batch.cancelled, did: did.len() };
            *report.states.entry(format!("{class} {}", ended.state())).or_default() += 1;
            found.extend(ended.problem());
            for (_, effect) in did.iter().filter(|(place, _)| *place >= told.effects) {
                match history.standstills.iter().any(|still| still.explains(effect)) {
                    true => report.late += 1,
                    false => found
                        .push(format!("R2: {class} call {n} acted after its end was told: {}", told.answer)),
                }
            }
        }
    }
    found.extend(effects.keys().map(|n| format!("R1: call {n} has acted, and nobody was told of its end")));
    found
}

/// A call that has ended, with the number of its effects.
struct FleetCallEnd<'a> {
    n: &'a str,
    class: &'a str,
    answer: &'a Value,
    /// Whether somebody asked for its end.
    cancelled: bool,
    did: usize,
}

impl FleetCallEnd<'_> {
    fn state(&self) -> &str {
        self.answer["state"].as_str().unwrap_or_default()
    }

    /// The promise that is broken, if it has not ended as its class allows after so many effects.
    fn problem(&self) -> Option<String> {
        let FleetCallEnd { n, class, answer, cancelled, did } = *self;
        let effect = answer["outcome"]["effect"].as_str().unwrap_or_default();
        let code = answer["outcome"]["failure"]["code"].as_str().unwrap_or_default();
        let fits = match (self.state(), class) {
            ("succeeded", "once") => did == 1,
            ("succeeded", _) => did >= 1,
            ("unknown", "once") => did <= 1,
            // What only reads has no effect, whatever it asked for.
            ("cancelled", "read") => cancelled,
            ("cancelled", _) => {
                cancelled && (effect != "none" || did == 0) && (effect != "landed" || did > 0)
            }
            // The death of each worker that ran it.
            ("failed", "read" | "keyed") => code == "poison",
            _ => false,
        };
        (!fits).then(|| format!("R3: {class} call {n} acted {did} times and ended as {answer}"))
    }
}

impl Standstill {
    /// Whether this effect is of a worker that had not noticed yet that it lost its lease meanwhile.
    fn explains(&self, effect: &FleetEffect) -> bool {
        self.worker == effect.worker && effect.at >= self.from && effect.at <= self.to + NOTICED_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::ToldCall;
    use super::*;
    use serde_json::json;
    use std::time::Instant;

    fn effect(call: &str, key: &str) -> FleetEffect {
        FleetEffect { call: call.into(), key: key.into(), worker: "w1".into(), at: Instant::now() }
    }

    fn history(class: &'static str, answer: Value, effects: Vec<FleetEffect>) -> FleetHistory {
        let told = vec![ToldCall { place: 0, answer, effects: effects.len() }];
        let asked = AskedBatch {
            session: "s".into(),
            key: "k".into(),
            calls: vec![("n".into(), class)],
            told,
            handles: vec!["h".into()],
            cancelled: false,
        };
        FleetHistory { asked: vec![asked], effects, standstills: Vec::new() }
    }

    fn broken(history: &FleetHistory) -> Vec<String> {
        check(history, &mut FleetReport::default())
    }

    #[test]
    fn each_class_may_act_as_often_as_it_says() {
        let (done, unknown) = (json!({"state": "succeeded"}), json!({"state": "unknown"}));
        let twice = || vec![effect("n", "k"), effect("n", "k")];
        assert!(broken(&history("once", done.clone(), vec![effect("n", "k")])).is_empty());
        assert!(broken(&history("keyed", done.clone(), twice())).is_empty());
        assert!(broken(&history("once", unknown.clone(), Vec::new())).is_empty());
        for wrong in [
            history("once", done.clone(), twice()),
            history("once", done.clone(), Vec::new()),
            history("once", unknown, twice()),
            history("keyed", done.clone(), Vec::new()),
            history("keyed", done, vec![effect("n", "k"), effect("n", "another")]),
            history("keyed", json!({"state": "cancelled", "outcome": {"effect": "none"}}), Vec::new()),
            history("keyed", json!({"state": "failed"}), twice()),
        ] {
            assert_eq!(broken(&wrong).len(), 1, "{:?}", wrong.asked);
        }
    }

    #[test]
    fn nothing_acts_after_its_end_was_told_but_a_worker_that_stood_still() {
        let mut late = history("keyed", json!({"state": "succeeded"}), vec![effect("n", "k")]);
        late.effects.push(effect("n", "k"));
        assert_eq!(broken(&late).len(), 1);
        let (from, to) = (Instant::now(), Instant::now());
        late.effects[1].at = to;
        late.standstills.push(Standstill { worker: "w1".into(), from, to });
        assert!(broken(&late).is_empty());
        late.standstills[0].worker = "w2".into();
        assert_eq!(broken(&late).len(), 1);
    }

    #[test]
    fn an_effect_without_an_end_is_a_loss() {
        let mut lost = history("keyed", json!({"state": "succeeded"}), vec![effect("n", "k")]);
        lost.effects.push(effect("m", "other"));
        assert!(broken(&lost)[0].starts_with("R1"));
    }
}
