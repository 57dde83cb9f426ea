//! Plans from a seed whose calls wait for people, and the rules by which they are asked about.

use super::random::{call, cancel};
use super::{BatchPlan, CallPlan, Connects, FirstReply, InsidePlan, Nested, ProofPlan, SessionPlan, Then};
use crate::chance::Chance;
use crate::proof::kind::CallKind;
use serde_json::{Value, json};

/// How a person answers the question about a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlannedAnswer {
    /// No rule is there that could ask.
    #[default]
    Unruled,
    /// Nobody is asked, which the arguments must say: what is not known of them counts against a call.
    Unasked,
    /// It is approved.
    Approve,
    /// It is approved with other arguments; each worker's person gives others.
    Edit,
    /// It is denied.
    Deny,
    /// It is approved and denied at once.
    Race,
    /// It is approved, and so is the next of its kind.
    Remember,
    /// Nobody answers, and so it is denied.
    Lapse,
    /// Nobody answers, and so it runs.
    LapseAllowed,
    /// Its caller tries to approve it, and then somebody else does.
    FourEyes,
    /// It is approved, and the rule that asks is changed before or after that.
    Changes,
}

/// How long nobody answers.
const LAPSE_MS: u64 = 15;
/// How long answers are waited for: longer than all jumps of the clock together.
const PATIENT_MS: u64 = 20 * 86_400_000;

impl PlannedAnswer {
    const ALL: [(PlannedAnswer, &'static str); 10] = [
        (PlannedAnswer::Unasked, "unasked"),
        (PlannedAnswer::Approve, "approve"),
        (PlannedAnswer::Edit, "edit"),
        (PlannedAnswer::Deny, "deny"),
        (PlannedAnswer::Race, "race"),
        (PlannedAnswer::Remember, "remember"),
        (PlannedAnswer::Lapse, "lapse"),
        (PlannedAnswer::LapseAllowed, "lapse allowed"),
        (PlannedAnswer::FourEyes, "four eyes"),
        (PlannedAnswer::Changes, "changes"),
    ];

    /// As it stands in the arguments.
    pub fn name(self) -> &'static str {
        PlannedAnswer::ALL.iter().find(|(answer, _)| *answer == self).map_or("", |(_, name)| name)
    }

    /// From the arguments that are shown.
    pub fn of(args: &Value) -> PlannedAnswer {
        let name = args["ask"].as_str().unwrap_or_default();
        PlannedAnswer::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map_or(PlannedAnswer::Unruled, |(answer, _)| *answer)
    }

    fn when(self) -> Value {
        json!({"args": [{"pointer": "/ask", "equals": self.name()}]})
    }
}

/// The rules that the host declares: one for each kind of answer.
pub fn declared_rules() -> Value {
    let rule = |(answer, name): &(PlannedAnswer, &str)| {
        let mut rule =
            json!({"name": name, "ruling": "ask", "when": answer.when(), "expires_ms": PATIENT_MS});
        match answer {
            PlannedAnswer::FourEyes => rule["four_eyes"] = json!(true),
            PlannedAnswer::Lapse => rule["expires_ms"] = json!(LAPSE_MS),
            PlannedAnswer::LapseAllowed => {
                rule["expires_ms"] = json!(LAPSE_MS);
                rule["on_expiry"] = json!("allow");
            }
            PlannedAnswer::Unruled
            | PlannedAnswer::Unasked
            | PlannedAnswer::Approve
            | PlannedAnswer::Edit
            | PlannedAnswer::Deny
            | PlannedAnswer::Race
            | PlannedAnswer::Remember
            | PlannedAnswer::Changes => {}
        }
        rule
    };
    let asked = PlannedAnswer::ALL.iter().filter(|(answer, _)| *answer != PlannedAnswer::Unasked);
    json!({"rules": asked.map(rule).collect::<Vec<_>>()})
}

/// The rule that is changed from worker to worker: each time it is another text.
pub fn changed_rule(reason: &str) -> Value {
    let when = PlannedAnswer::Changes.when();
    json!({"name": "changed", "ruling": "ask", "when": when, "reason": reason, "expires_ms": PATIENT_MS})
}

/// Answers as often as they are listed.
const ANSWERS: [PlannedAnswer; 15] = [
    PlannedAnswer::Unasked,
    PlannedAnswer::Unasked,
    PlannedAnswer::Approve,
    PlannedAnswer::Approve,
    PlannedAnswer::Edit,
    PlannedAnswer::Edit,
    PlannedAnswer::Deny,
    PlannedAnswer::Race,
    PlannedAnswer::Remember,
    PlannedAnswer::Remember,
    PlannedAnswer::Remember,
    PlannedAnswer::Lapse,
    PlannedAnswer::LapseAllowed,
    PlannedAnswer::FourEyes,
    PlannedAnswer::Changes,
];

impl ProofPlan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn approvals(seed: u64) -> ProofPlan {
        let mut seed = Chance::new(seed).branch(4);
        let mut calls = 0;
        let sessions: Vec<_> =
            (1..=seed.between(1, 2)).map(|no| session(no, &mut seed, &mut calls)).collect();
        let cancels = sessions.iter().filter(|_| seed.percent(40)).cloned().collect::<Vec<_>>();
        let cancels = cancels.iter().filter_map(|session| cancel(session, &mut seed)).collect();
        ProofPlan { sessions, cancels, resolved_percent: 50, ..ProofPlan::default() }
    }

    /// Whether people are asked about calls of it.
    pub fn asks_people(&self) -> bool {
        self.calls().any(|(_, _, call)| call.answer != PlannedAnswer::Unruled)
    }
}

fn session(no: u64, seed: &mut Chance, calls: &mut u64) -> SessionPlan {
    let batch = |no, seed: &mut Chance, calls: &mut u64| BatchPlan {
        key: format!("b{no}"),
        calls: (0..seed.between(1, 5)).map(|_| asked(seed, calls)).collect(),
        walks_away: seed.percent(25),
        asks: seed.one_of(&[
            FirstReply::AtTheEnd,
            FirstReply::Early,
            FirstReply::Early,
            FirstReply::Unattended,
        ]),
        silent: seed.percent(15),
        ..BatchPlan::default()
    };
    SessionPlan {
        name: format!("s{no}"),
        batches: (1..=seed.between(1, 3)).map(|no| batch(no, seed, calls)).collect(),
        ahead: seed.between(1, 3) as usize,
    }
}

/// A call about which people are asked, mostly.
fn asked(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    let mut asked = call(seed, calls);
    if !asked.kind.has_code() {
        asked.kind = CallKind::KEYED;
    }
    asked.connects = Connects::Nothing;
    asked.answer = seed.one_of(&ANSWERS);
    if asked.answer == PlannedAnswer::Remember {
        // Of one tool, so that the next of its kind comes.
        asked.kind = CallKind::KEYED.apart();
        (asked.then, asked.inside) = (Then::Return, InsidePlan::default());
    }
    if seed.percent(50) {
        asked.nested = Nested::default();
        asked = asked.apart();
    }
    for inside in asked.nested.calls.iter_mut().chain(&mut asked.nested.race) {
        let answers = [PlannedAnswer::Unasked, PlannedAnswer::Approve, PlannedAnswer::FourEyes];
        inside.answer = seed.one_of(&answers);
    }
    asked
}
