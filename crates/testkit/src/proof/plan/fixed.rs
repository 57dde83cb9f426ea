//! Plans in which nothing is left to chance.

use super::{BatchPlan, CallPlan, CancelPlan, Connects, Inside, Nested, Plan, Says, SessionPlan, Then, When};
use crate::proof::kind::Kind;
use windlass::Siblings;

impl Plan {
    /// The plan in which every kind of write happens and nothing is left to chance.
    pub fn every_write() -> Plan {
        let ok = |id: &str, kind| CallPlan::new(id, kind);
        let long = |id: &str, kind| CallPlan { long: true, ..ok(id, kind) };
        let then = |id: &str, kind, then| CallPlan { then, ..ok(id, kind) };
        let batch =
            |key: &str, calls, grows| BatchPlan { key: key.into(), calls, grows, ..BatchPlan::default() };
        let first = vec![
            ok("c1", Kind::ONCE),
            ok("c2", Kind::KEYED),
            long("c3", Kind::READ),
            ok("c4", Kind::MISSING),
        ];
        let second =
            vec![ok("c5", Kind::READ), ok("c6", Kind::ONCE), ok("c7", Kind::ONCE), long("c8", Kind::KEYED)];
        let third = vec![
            // It is tried again; it is cancelled and asked after; it takes too long and is resolved by the client.
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c9", Kind::KEYED) },
            then("c10", Kind::ONCE.asks(), Then::Hang),
            then("c11", Kind::ONCE.brief(), Then::Hang),
            then("c12", Kind::READ, Then::Hang),
        ];
        let session = |name: &str, batches, ahead| SessionPlan { name: name.into(), batches, ahead };
        let fourth = vec![
            CallPlan { inside: Inside::ALL, ..ok("c13", Kind::STEPPED) },
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c14", Kind::STEPPED) },
            CallPlan { inside: Inside { step: true, ..Inside::default() }, ..ok("c15", Kind::STEPPED) },
        ];
        let sessions = vec![
            session("s3", vec![batch("b4", fourth, false)], 1),
            session("s1", vec![batch("b1", first, false), batch("b2", second, true)], 2),
            session("s2", vec![batch("b3", third, false)], 1),
            Plan::outside(),
        ];
        let cancel = |call: &str| CancelPlan {
            session: "s2".into(),
            batch: Some("b3".into()),
            call: Some(call.into()),
            when: When::Running,
        };
        let cancels = vec![cancel("c10"), cancel("c12")];
        Plan { sessions, cancels, resolved_percent: 100, ..Plan::default() }
    }

    /// What waits for its client, calls others, or is pushed.
    fn outside() -> SessionPlan {
        let ok = CallPlan::new;
        let batch = |key: &str, calls| BatchPlan { key: key.into(), calls, ..BatchPlan::default() };
        let asks = Inside { step: true, question: true, ..Inside::default() };
        let needs = |id: &str, kind, connects| CallPlan { connects, ..ok(id, kind) };
        let waits = vec![
            CallPlan { inside: asks, ..ok("c16", Kind::STEPPED.apart()) },
            needs("c17", Kind::ONCE.apart(), Connects::Made),
            needs("c18", Kind::KEYED.apart(), Connects::Declined),
            ok("c19", Kind::CLIENT),
        ];
        let hangs = |id: &str, kind: Kind| CallPlan { then: Then::Hang, ..ok(id, kind.apart()) };
        let refused = |id: &str| CallPlan { order: "refuse:1".into(), ..ok(id, Kind::KEYED) };
        let one = Nested {
            calls: vec![ok("c20a", Kind::KEYED), ok("c20b", Kind::ONCE), ok("c20c", Kind::READ)],
            race: vec![
                hangs("c20d", Kind::ONCE),
                hangs("c20e", Kind::KEYED),
                ok("c20f", Kind::KEYED.apart()),
            ],
        };
        let other = Nested { calls: vec![ok("c21a", Kind::READ), refused("c21b")], race: Vec::new() };
        let last = Nested { calls: vec![ok("c22a", Kind::KEYED)], race: Vec::new() };
        let inside = Inside { step: true, ..Inside::default() };
        let calls = vec![
            CallPlan { nested: one, inside, ..ok("c20", Kind::STEPPED) },
            CallPlan { nested: other, ..ok("c21", Kind::KEYED) },
            CallPlan { nested: last, ..ok("c22", Kind::ONCE) },
        ];
        let pushed = vec![ok("c23", Kind::KEYED), ok("c24", Kind::READ), ok("c25", Kind::ONCE)];
        let streamed = BatchPlan { streamed: true, ..batch("b7", pushed) };
        let left = BatchPlan { walks_away: true, ..batch("b5", waits) };
        // Alone in its batch, which leaves memory between two signals.
        let signals = Inside { signal: true, ..Inside::default() };
        let signalled = vec![CallPlan { inside: signals, ..ok("c26", Kind::STEPPED.apart()) }];
        let signalled = BatchPlan { walks_away: true, ..batch("b8", signalled) };
        let batches = vec![left, signalled, batch("b6", calls), streamed];
        SessionPlan { name: "s4".into(), batches, ahead: 1 }
    }

    /// Batches whose calls decide about each other while some of them run. Each is decided, whoever dies.
    pub fn siblings() -> Plan {
        let ok = |id: &str, kind: Kind| CallPlan::new(id, kind.apart());
        let hangs = |id: &str, kind| CallPlan { then: Then::Hang, ..ok(id, kind) };
        let refused = |id: &str, kind| CallPlan { order: "reject".into(), ..ok(id, kind) };
        let batch = |key: &str, siblings, calls| BatchPlan {
            key: key.into(),
            calls,
            siblings,
            ..BatchPlan::default()
        };
        let race = vec![hangs("c1", Kind::ONCE), hangs("c2", Kind::KEYED), ok("c3", Kind::KEYED)];
        let quorum =
            vec![hangs("c4", Kind::READ), ok("c5", Kind::KEYED), ok("c6", Kind::KEYED), ok("c7", Kind::ONCE)];
        let fail_fast =
            vec![hangs("c8", Kind::ONCE.asks()), hangs("c9", Kind::KEYED), refused("c10", Kind::KEYED)];
        let batches = vec![
            batch("b1", Siblings::Race, race),
            BatchPlan { grows: true, ..batch("b2", Siblings::Quorum(2), quorum) },
            batch("b3", Siblings::FailFast, fail_fast),
        ];
        let sessions = vec![SessionPlan { name: "s1".into(), batches, ahead: 1 }];
        Plan { sessions, ..Plan::default() }
    }

    /// One stepped call with two steps and nobody beside it: each commit is the same one in every run.
    pub fn two_steps() -> Plan {
        let inside = Inside { step: true, ..Inside::default() };
        let call = CallPlan { inside, ..CallPlan::new("c1", Kind::STEPPED) };
        let batch = BatchPlan { key: "b1".into(), calls: vec![call], ..BatchPlan::default() };
        let sessions = vec![SessionPlan { name: "s1".into(), batches: vec![batch], ahead: 1 }];
        Plan { sessions, ..Plan::default() }
    }

    /// One of its sessions alone: `s3` has its stepped calls, `s4` what waits, calls others or is pushed, `s2` what is
    /// tried again, stopped, asked after, cancelled and resolved.
    pub fn only(mut self, session: &str) -> Plan {
        self.sessions.retain(|other| other.name == session);
        self.cancels.retain(|cancel| cancel.session == session);
        self
    }

    /// The same with no batch that grows.
    pub fn whole(mut self) -> Plan {
        for batch in self.sessions.iter_mut().flat_map(|session| &mut session.batches) {
            batch.grows = false;
        }
        self
    }
}
