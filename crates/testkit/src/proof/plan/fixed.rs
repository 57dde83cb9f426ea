//! Plans in which nothing is left to chance.

use super::{
    BatchPlan, CallPlan, CancelPlan, CancelTime, Connects, InsidePlan, Nested, ProofPlan, Says, SessionPlan,
    Then,
};
use crate::proof::kind::CallKind;
use windlass::batch::Siblings;

impl ProofPlan {
    /// A call, and beside it a session that is deleted.
    pub fn deletion() -> ProofPlan {
        let calls = vec![CallPlan::new("c1", CallKind::KEYED)];
        let batch = BatchPlan { key: "b1".into(), calls, ..BatchPlan::default() };
        let sessions = vec![SessionPlan { name: "s1".into(), batches: vec![batch], ahead: 1 }];
        ProofPlan { sessions, deletions: 1, ..ProofPlan::default() }
    }

    /// A session in which calls [start and await tasks](crate::proof::context), alone.
    pub fn context() -> ProofPlan {
        ProofPlan { contexts: 1, ..ProofPlan::default() }
    }

    /// The plan in which every kind of write happens and nothing is left to chance.
    pub fn every_write() -> ProofPlan {
        let ok = |id: &str, kind| CallPlan::new(id, kind);
        let long = |id: &str, kind| CallPlan { long: true, ..ok(id, kind) };
        let then = |id: &str, kind, then| CallPlan { then, ..ok(id, kind) };
        let batch =
            |key: &str, calls, grows| BatchPlan { key: key.into(), calls, grows, ..BatchPlan::default() };
        let first = vec![
            ok("c1", CallKind::ONCE),
            ok("c2", CallKind::KEYED),
            long("c3", CallKind::READ),
            ok("c4", CallKind::MISSING),
        ];
        let second = vec![
            ok("c5", CallKind::READ),
            ok("c6", CallKind::ONCE),
            ok("c7", CallKind::ONCE),
            long("c8", CallKind::KEYED),
        ];
        let third = vec![
            // It is tried again; it is cancelled and asked after; it takes too long and is resolved by the client.
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c9", CallKind::KEYED) },
            then("c10", CallKind::ONCE.asks(), Then::Hang),
            then("c11", CallKind::ONCE.brief(), Then::Hang),
            then("c12", CallKind::READ, Then::Hang),
        ];
        let session = |name: &str, batches, ahead| SessionPlan { name: name.into(), batches, ahead };
        let fourth = vec![
            CallPlan { inside: InsidePlan::ALL, ..ok("c13", CallKind::STEPPED) },
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c14", CallKind::STEPPED) },
            CallPlan {
                inside: InsidePlan { step: true, ..InsidePlan::default() },
                ..ok("c15", CallKind::STEPPED)
            },
        ];
        let sessions = vec![
            session("s3", vec![batch("b4", fourth, false)], 1),
            session("s1", vec![batch("b1", first, false), batch("b2", second, true)], 2),
            session("s2", vec![batch("b3", third, false)], 1),
            ProofPlan::outside(),
        ];
        let cancel = |call: &str| CancelPlan {
            session: "s2".into(),
            batch: Some("b3".into()),
            call: Some(call.into()),
            when: CancelTime::Running,
        };
        let cancels = vec![cancel("c10"), cancel("c12")];
        ProofPlan { sessions, cancels, resolved_percent: 100, ..ProofPlan::default() }
    }

    /// Calls that wait for their client, call others, or are pushed.
    fn outside() -> SessionPlan {
        let ok = CallPlan::new;
        let batch = |key: &str, calls| BatchPlan { key: key.into(), calls, ..BatchPlan::default() };
        let asks = InsidePlan { step: true, question: true, ..InsidePlan::default() };
        let needs = |id: &str, kind, connects| CallPlan { connects, ..ok(id, kind) };
        let waits = vec![
            CallPlan { inside: asks, ..ok("c16", CallKind::STEPPED.apart()) },
            needs("c17", CallKind::ONCE.apart(), Connects::Made),
            needs("c18", CallKind::KEYED.apart(), Connects::Declined),
            ok("c19", CallKind::CLIENT),
        ];
        let hangs = |id: &str, kind: CallKind| CallPlan { then: Then::Hang, ..ok(id, kind.apart()) };
        let refused = |id: &str| CallPlan { order: "refuse:1".into(), ..ok(id, CallKind::KEYED) };
        let one = Nested {
            calls: vec![ok("c20a", CallKind::KEYED), ok("c20b", CallKind::ONCE), ok("c20c", CallKind::READ)],
            race: vec![
                hangs("c20d", CallKind::ONCE),
                hangs("c20e", CallKind::KEYED),
                ok("c20f", CallKind::KEYED.apart()),
            ],
        };
        let other = Nested { calls: vec![ok("c21a", CallKind::READ), refused("c21b")], race: Vec::new() };
        let last = Nested { calls: vec![ok("c22a", CallKind::KEYED)], race: Vec::new() };
        let inside = InsidePlan { step: true, ..InsidePlan::default() };
        let calls = vec![
            CallPlan { nested: one, inside, ..ok("c20", CallKind::STEPPED) },
            CallPlan { nested: other, ..ok("c21", CallKind::KEYED) },
            CallPlan { nested: last, ..ok("c22", CallKind::ONCE) },
        ];
        let pushed = vec![ok("c23", CallKind::KEYED), ok("c24", CallKind::READ), ok("c25", CallKind::ONCE)];
        let streamed = BatchPlan { streamed: true, ..batch("b7", pushed) };
        let left = BatchPlan { walks_away: true, ..batch("b5", waits) };
        // Alone in its batch, which leaves memory between two signals.
        let signals = InsidePlan { signal: true, ..InsidePlan::default() };
        let signalled = vec![CallPlan { inside: signals, ..ok("c26", CallKind::STEPPED.apart()) }];
        let signalled = BatchPlan { walks_away: true, ..batch("b8", signalled) };
        let batches = vec![left, signalled, batch("b6", calls), streamed];
        SessionPlan { name: "s4".into(), batches, ahead: 1 }
    }

    /// Batches whose calls decide about each other while some of them run. Each is decided, whoever dies.
    pub fn siblings() -> ProofPlan {
        let ok = |id: &str, kind: CallKind| CallPlan::new(id, kind.apart());
        let hangs = |id: &str, kind| CallPlan { then: Then::Hang, ..ok(id, kind) };
        let refused = |id: &str, kind| CallPlan { order: "reject".into(), ..ok(id, kind) };
        let batch = |key: &str, siblings, calls| BatchPlan {
            key: key.into(),
            calls,
            siblings,
            ..BatchPlan::default()
        };
        let race = vec![hangs("c1", CallKind::ONCE), hangs("c2", CallKind::KEYED), ok("c3", CallKind::KEYED)];
        let quorum = vec![
            hangs("c4", CallKind::READ),
            ok("c5", CallKind::KEYED),
            ok("c6", CallKind::KEYED),
            ok("c7", CallKind::ONCE),
        ];
        let fail_fast = vec![
            hangs("c8", CallKind::ONCE.asks()),
            hangs("c9", CallKind::KEYED),
            refused("c10", CallKind::KEYED),
        ];
        let batches = vec![
            batch("b1", Siblings::Race, race),
            BatchPlan { grows: true, ..batch("b2", Siblings::Quorum(2), quorum) },
            batch("b3", Siblings::FailFast, fail_fast),
        ];
        let sessions = vec![SessionPlan { name: "s1".into(), batches, ahead: 1 }];
        ProofPlan { sessions, ..ProofPlan::default() }
    }

    /// One stepped call with two steps and nobody beside it: each commit is the same one in every run.
    pub fn two_steps() -> ProofPlan {
        let inside = InsidePlan { step: true, ..InsidePlan::default() };
        let call = CallPlan { inside, ..CallPlan::new("c1", CallKind::STEPPED) };
        let batch = BatchPlan { key: "b1".into(), calls: vec![call], ..BatchPlan::default() };
        let sessions = vec![SessionPlan { name: "s1".into(), batches: vec![batch], ahead: 1 }];
        ProofPlan { sessions, ..ProofPlan::default() }
    }

    /// One of its sessions alone: `s3` has its stepped calls, `s4` what waits, calls others or is pushed, `s2` what is
    /// tried again, stopped, asked after, cancelled and resolved.
    pub fn only(mut self, session: &str) -> ProofPlan {
        self.sessions.retain(|other| other.name == session);
        self.cancels.retain(|cancel| cancel.session == session);
        self
    }

    /// This plan with no batch that grows.
    pub fn whole(mut self) -> ProofPlan {
        for batch in self.sessions.iter_mut().flat_map(|session| &mut session.batches) {
            batch.grows = false;
        }
        self
    }
}
