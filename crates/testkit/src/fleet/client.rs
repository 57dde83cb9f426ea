//! A client of a fleet: it submits batches to any worker, asks again under the same key until somebody has answered, cancels some,
//! and looks at what it was told before.

use super::http::ask;
use super::ledger::FleetLedger;
use super::{CLASSES, FleetRun};
use crate::chance::Chance;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Sessions of a world; several clients use each.
const SESSIONS: u64 = 12;
/// Longer than any takeover.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// A worker that stands still answers nobody: then another one is asked.
const REQUEST_MAX: Duration = Duration::from_secs(20);
/// The pause before a request that found nobody is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A batch that was submitted.
#[derive(Clone, Debug)]
pub struct AskedBatch {
    pub session: String,
    pub key: String,
    /// The `n` and the class of each call.
    pub calls: Vec<(String, &'static str)>,
    /// The ends of calls that the client was told.
    pub told: Vec<ToldCall>,
    /// The handles that it was told.
    pub handles: Vec<String>,
    /// Whether it asked for the end of the batch.
    pub cancelled: bool,
}

/// The end of a call, as a client was told of it.
#[derive(Clone, Debug)]
pub struct ToldCall {
    /// Its place in the batch.
    pub place: usize,
    pub answer: Value,
    /// How much was in the ledger then.
    pub effects: usize,
}

/// A client, with all that it has asked for.
pub struct FleetClient<'a> {
    pub run: &'a FleetRun,
    pub ledger: FleetLedger,
    pub number: u64,
    pub chance: Chance,
    pub asked: Vec<AskedBatch>,
    /// How many batches it has submitted, answered or not.
    pub submitted: u64,
    /// The longest time that a batch took to be acknowledged.
    pub slowest: Duration,
}

impl FleetClient<'_> {
    /// Works until the run is over.
    pub fn work(mut self) -> (Vec<AskedBatch>, Duration) {
        while !self.run.is_over() {
            match (self.chance.below(10), self.asked.len() as u64) {
                (0..6, _) | (_, 0) => self.submit(),
                (6, _) => self.cancel(),
                (_, known) => {
                    let at = self.chance.below(known) as usize;
                    let _shown = self.look_at(at);
                }
            }
        }
        (self.asked, self.slowest)
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let number = self.submitted;
        let calls: Vec<(String, &'static str)> = (0..self.chance.between(1, 3))
            .map(|call| (format!("{}-{number}-{call}", self.number), self.chance.one_of(&CLASSES)))
            .collect();
        let session = format!("s{}", self.chance.below(SESSIONS));
        let key = format!("{}-{number}", self.number);
        let requests: Vec<Value> = calls
            .iter()
            .map(|(n, class)| {
                let ms = self.chance.one_of(&[0, 0, 5, 50, 300, 1_500]);
                json!({"id": n, "tool": class, "args": {"n": n, "ms": ms}})
            })
            .collect();
        let wait = self.chance.one_of(&["settled", "settled", "inline", "none"]);
        let body = json!({"key": key, "calls": requests, "wait": wait, "timeout_ms": 2_000});
        let request = format!("POST /v1/sessions/{session}/batches");
        let mut batch =
            AskedBatch { session, key, calls, told: Vec::new(), handles: Vec::new(), cancelled: false };
        let began = Instant::now();
        // Why nobody has answered was said.
        let Some(answer) = self.until_answered(&request, Some(&body)) else { return };
        self.slowest = self.slowest.max(began.elapsed());
        self.note(&mut batch, &answer);
        self.asked.push(batch);
    }

    fn cancel(&mut self) {
        let at = self.chance.below(self.asked.len() as u64) as usize;
        let batch = &mut self.asked[at];
        // Before it is sent: the answer may be lost.
        batch.cancelled = true;
        let request = format!("POST /v1/sessions/{}/batches/{}/cancel", batch.session, batch.key);
        self.until_answered(&request, Some(&json!({})));
    }

    /// Looks at a batch again; `false`: it was not shown.
    fn look_at(&mut self, at: usize) -> bool {
        let mut batch = self.asked[at].clone();
        let request = format!("GET /v1/sessions/{}/batches/{}", batch.session, batch.key);
        let Some(answer) = self.until_answered(&request, None) else { return false };
        self.note(&mut batch, &answer);
        self.asked[at] = batch;
        true
    }

    /// Notes what an answer says of calls that have ended, and that everything which was said before still holds.
    fn note(&self, batch: &mut AskedBatch, answer: &Value) {
        let effects = self.ledger.position();
        let calls = answer["calls"].as_array().map_or(&[][..], Vec::as_slice);
        if calls.len() != batch.calls.len() {
            self.run.broken(format!("R1: batch {} is answered with {answer}", batch.key));
            return;
        }
        let handles: Vec<String> =
            calls.iter().map(|call| call["call"].as_str().unwrap_or_default().to_owned()).collect();
        if !batch.handles.is_empty() && batch.handles != handles {
            self.run.broken(format!("R1: batch {} had {:?} and has {handles:?}", batch.key, batch.handles));
        }
        batch.handles = handles;
        for (place, call) in calls.iter().enumerate().filter(|(_, call)| has_ended(call)) {
            match batch.told.iter().find(|told| told.place == place) {
                Some(told) if told.answer != *call => {
                    self.run.broken(format!("R2: it was told {} and then {call}", told.answer));
                }
                Some(_) => {}
                None => batch.told.push(ToldCall { place, answer: call.clone(), effects }),
            }
        }
    }

    /// Asks one worker after the other until one answers; `None` if that takes too long, or the answer is a mistake of ours.
    fn until_answered(&mut self, request: &str, body: Option<&Value>) -> Option<Value> {
        let (began, mut last) = (Instant::now(), String::new());
        while began.elapsed() < ANSWERED_WITHIN {
            let worker = self.chance.one_of(&self.run.addresses);
            match ask(worker, &self.run.token, request, body, REQUEST_MAX) {
                Ok((200..300, answer)) => return Some(answer),
                // Nobody could take it, and says so.
                Ok((429 | 503, answer)) => last = answer.to_string(),
                Ok((status, answer)) => {
                    self.run.broken(format!("{request} was answered with {status}: {answer}"));
                    return None;
                }
                // It was not there, as a load balancer notices too.
                Err(error) if !self.run.undisturbed || error.kind() == ErrorKind::ConnectionRefused => {
                    last = error.to_string();
                }
                Err(error) => {
                    self.run.broken(format!("the answer to {request} broke off: {error}"));
                    return None;
                }
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        self.run.broken(format!("R8: nobody answered {request} within {ANSWERED_WITHIN:?}: {last}"));
        None
    }

    /// Waits until all calls of all batches have ended, and has each worker tell how.
    pub fn drain(&mut self, within: Duration) {
        let began = Instant::now();
        for at in 0..self.asked.len() {
            while self.look_at(at) {
                let batch = &self.asked[at];
                if batch.told.len() == batch.calls.len() {
                    break;
                }
                if began.elapsed() > within {
                    self.run.broken(format!("R8: {batch:?} has not ended within {within:?}"));
                    return;
                }
                std::thread::sleep(AGAIN_AFTER);
            }
        }
    }
}

/// Whether the answer for a call is its last.
fn has_ended(call: &Value) -> bool {
    matches!(call["state"].as_str(), Some("succeeded" | "failed" | "unknown" | "cancelled" | "denied"))
}
