//! Where the time of a call went: journals and the spans that they make.

use windlass_args::arguments::{Arguments, Given};
use windlass_core::call::{
    Abort, ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Call, CancelAsked, Cause, Connected, Ended, Fact,
    InsideTime, JudgedCall, LiveAttempt, LostAttempt, Model, Opened, Parked, PreparedCall, Reason,
    Result as Attempted, Resumed, Returned, SameAs, Spent, Started, Stopped, Suspended, Then, TimeSpan,
    Unconnected, spans,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::{AttemptNo, BatchNo, CallId, Ordinal};
use windlass_core::operation::{Did, Operation};
use windlass_core::outcome::{ModelAnswer, Outcome, Success};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

fn opened() -> Opened {
    Opened {
        id: "c1".into(),
        tool: "t".into(),
        args: Arguments { given: Given::Json, text: "{}".into() },
        provider: None,
        deadlines: None,
        priority: 0,
        inline_ms: None,
        task: None,
        answer: None,
        grant: None,
    }
}

fn prepared() -> Fact {
    Fact::Prepared(PreparedCall {
        contract: Digest([1; 32]),
        class: EffectClass::Read,
        rules: None,
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    })
}

fn started(attempt: u32, redrive: bool) -> Fact {
    Fact::Started(Started { attempt: AttemptNo(attempt), redrive, policy: None })
}

fn failure() -> Failure {
    Failure { retry: Retry::Safe { after_ms: None }, ..Failure::invalid_request(Code::InvalidArgs, "no") }
}

fn failed(attempt: u32, ran_us: u64) -> Fact {
    let result = Attempted::Failed(Box::new(failure()));
    Fact::Returned(Returned { attempt: AttemptNo(attempt), ran_us, result })
}

fn ok(attempt: u32, ran_us: u64) -> Fact {
    let result = Attempted::Ok(Success::default());
    Fact::Returned(Returned { attempt: AttemptNo(attempt), ran_us, result })
}

fn parking(reason: Reason) -> Parked {
    Parked { reason, wake_at: Timestamp(10_000), length_us: 10_000 }
}

fn parked(reason: Reason) -> Fact {
    Fact::Parked(parking(reason))
}

fn suspended(ran_us: u64, reason: Reason, then: Then) -> Fact {
    let (attempt, parked) = (AttemptNo(1), parking(reason));
    Fact::Suspended(Box::new(Suspended { attempt, ran_us, parked, waits: Vec::new(), then }))
}

fn ended() -> Fact {
    Fact::Ended(Ended { outcome: None, model: Model::ValueText, spent: Spent::default() })
}

fn ended_without_attempt() -> Fact {
    let outcome = Some(Outcome::Failed(Box::new(failure())));
    Fact::Ended(Ended { outcome, model: Model::Own(ModelAnswer::default()), spent: Spent::default() })
}

/// The spans in one line each: `queue 0-4`, `attempt 1 4-9 failed`, `wait input 9-`.
fn rendered(spans: &[TimeSpan]) -> String {
    let line = |span: &TimeSpan| {
        let mut words = vec![span.kind.to_string()];
        words.extend(span.attempt.map(|attempt| attempt.0.to_string()));
        words.extend(span.why.map(|why| why.to_string()));
        words.extend(span.name.clone());
        words.push(format!("{}-{}", span.from.0, span.to.map(|to| to.0.to_string()).unwrap_or_default()));
        words.extend(span.end.map(|end| end.to_string()));
        words.join(" ")
    };
    spans.iter().map(line).collect::<Vec<_>>().join(" | ")
}

/// A journal and its spans. The journal must be one that a call can have.
fn check(rest: &[(i64, Fact)], running: Option<LiveAttempt>, expected: &str) {
    let first = (0, Fact::Opened(opened()));
    let mut call = Call::new(opened(), Timestamp(0));
    for (at, fact) in rest {
        call.apply(Timestamp(*at), fact).unwrap_or_else(|illegal| panic!("{expected}: {illegal:?}"));
    }
    let facts: Vec<(i64, Fact)> = std::iter::once(first).chain(rest.iter().cloned()).collect();
    let inside = |name: &str, generation: u32| {
        (name == "fetch" && generation == 1)
            .then_some(InsideTime { from: Timestamp(12), to: Some(Timestamp(30)) })
    };
    let found = spans(facts.iter().map(|(at, fact)| (Timestamp(*at), fact)), running, &inside);
    assert_eq!(rendered(&found), expected);
    agrees(&call, &found);
}

/// The lengths of the spans add up to what the call itself counts.
fn agrees(call: &Call, spans: &[TimeSpan]) {
    let length = |span: &&TimeSpan| span.to.map_or(0, |to| to.since(span.from));
    let of = |kinds: &[&str]| -> u64 {
        let wanted = |span: &&TimeSpan| {
            kinds.contains(&span.kind.as_str()) && span.end.is_none_or(|end| end.as_str() != "lost")
        };
        spans.iter().filter(wanted).map(|span| length(&span)).sum()
    };
    assert_eq!(of(&["attempt"]), call.ran_us, "{}", rendered(spans));
    let waits = |span: &&TimeSpan| {
        let counts = span.why.is_none_or(|why| !["same_as", "tool_paused"].contains(&why.as_str()));
        ["wait", "retry"].contains(&span.kind.as_str()) && counts
    };
    let waited: u64 = spans.iter().filter(waits).map(|span| length(&span)).sum();
    assert_eq!(waited, call.waited_us, "{}", rendered(spans));
    if let Some(first) = spans.iter().find(|span| span.kind.as_str() == "attempt") {
        let before = spans.iter().take_while(|span| span.kind.as_str() != "attempt");
        let queued: u64 = before.map(|span| length(&span)).sum();
        assert_eq!(queued, first.from.since(call.opened_at), "{}", rendered(spans));
    }
}

#[test]
fn attempts_and_the_waits_between_them() {
    check(
        &[(3, prepared()), (4, started(1, false)), (10, ok(1, 5)), (11, ended())],
        None,
        "queue 0-4 | attempt 1 4-9 ok",
    );
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (9, failed(1, 5)),
            (9, parked(Reason::Retry)),
            (50, started(2, false)),
            (70, ok(2, 20)),
            (71, ended()),
        ],
        None,
        "queue 0-4 | attempt 1 4-9 failed | retry 9-50 | attempt 2 50-70 ok",
    );
    let stopped = Stopped {
        attempt: AttemptNo(1),
        ran_us: 6,
        cause: Cause::Attempt,
        may_have_acted: false,
        stuck: false,
        output: None,
    };
    check(
        &[(3, prepared()), (4, started(1, false)), (11, Fact::Stopped(stopped)), (11, parked(Reason::Retry))],
        None,
        "queue 0-4 | attempt 1 4-10 stopped | retry 11-",
    );
    let abort = Abort { attempt: AttemptNo(1), ran_us: 2, failure: failure() };
    check(
        &[(3, prepared()), (4, started(1, false)), (7, Fact::Aborted(Box::new(abort)))],
        None,
        "queue 0-4 | attempt 1 4-6 aborted",
    );
}

#[test]
fn a_crash_ends_an_attempt_when_it_is_noticed() {
    let lost = Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: true });
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (90, lost),
            (91, started(2, true)),
            (95, ok(2, 4)),
            (96, ended()),
        ],
        None,
        "queue 0-4 | attempt 1 4-90 lost | attempt 2 91-95 ok",
    );
}

#[test]
fn waits_name_their_reason() {
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (9, suspended(5, Reason::Input, Then::Replay)),
            (60, Fact::Resumed(Resumed { attempt: AttemptNo(1) })),
            (63, ok(1, 3)),
            (63, ended()),
        ],
        None,
        "queue 0-4 | attempt 1 4-9 suspended | wait input 9-60 | attempt 1 60-63 ok",
    );
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (9, suspended(5, Reason::Completion, Then::Return)),
            (60, ok(1, 0)),
            (61, ended()),
        ],
        None,
        "queue 0-4 | attempt 1 4-9 suspended | wait completion 9-60",
    );
    check(
        &[(3, prepared()), (5, parked(Reason::ToolPaused)), (40, started(1, false))],
        None,
        "queue 0-5 | wait tool_paused 5-40 | attempt 1 40-",
    );
    let unconnected = Unconnected {
        attempt: AttemptNo(1),
        ran_us: 1,
        parked: parking(Reason::Connection),
        provider: "mail".into(),
        setup_url: None,
    };
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (5, Fact::Unconnected(Box::new(unconnected))),
            (30, Fact::Connected(Connected { connected: true })),
            (31, started(2, false)),
        ],
        None,
        "queue 0-4 | attempt 1 4-5 unconnected | wait connection 5-30 | queue 30-31 | attempt 2 31-",
    );
}

/// Every reason for which a body is put aside, and every one for which it then waits for its tool.
#[test]
fn each_wait_has_its_bar() {
    let aside =
        [Reason::Sleep, Reason::Completion, Reason::Input, Reason::Signal, Reason::Client, Reason::Awaited];
    for reason in aside {
        check(
            &[
                (3, prepared()),
                (4, started(1, false)),
                (9, suspended(5, reason, Then::Replay)),
                (60, Fact::Resumed(Resumed { attempt: AttemptNo(1) })),
                (63, ok(1, 3)),
                (63, ended()),
            ],
            None,
            &format!("queue 0-4 | attempt 1 4-9 suspended | wait {reason} 9-60 | attempt 1 60-63 ok"),
        );
    }
    for reason in [Reason::NoSuchTool, Reason::ToolChanged] {
        check(
            &[
                (3, prepared()),
                (4, started(1, false)),
                (9, suspended(5, Reason::Sleep, Then::Replay)),
                (20, parked(reason)),
                (40, Fact::Resumed(Resumed { attempt: AttemptNo(1) })),
                (43, ok(1, 3)),
                (43, ended()),
            ],
            None,
            &format!(
                "queue 0-4 | attempt 1 4-9 suspended | wait sleep 9-20 | wait {reason} 20-40 | attempt 1 40-43 ok"
            ),
        );
    }
}

#[test]
fn the_losers_of_a_race_are_stopped_or_never_start() {
    let asked = || Fact::CancelAsked(CancelAsked { reason: None });
    let stopped = Stopped {
        attempt: AttemptNo(1),
        ran_us: 16,
        cause: Cause::Cancel,
        may_have_acted: false,
        stuck: false,
        output: None,
    };
    check(
        &[(3, prepared()), (4, started(1, false)), (19, asked()), (21, Fact::Stopped(stopped))],
        None,
        "queue 0-4 | attempt 1 4-20 stopped",
    );
    check(&[(3, prepared()), (19, asked()), (20, ended_without_attempt())], None, "queue 0-20");
}

#[test]
fn an_approval_is_a_wait_before_the_start() {
    let asked = ApprovalAsked {
        number: 1,
        digest: Digest([7; 32]),
        frame: Digest([8; 32]),
        policy: 1,
        by: vec!["rule".into()],
        sources: vec!["00".into()],
        reason: None,
        parked: parking(Reason::Approval),
        four_eyes: false,
        untrusted: false,
        allows_on_expiry: false,
    };
    let answer = ApprovalAnswer::Approved { digest: Digest([7; 32]), args: None };
    let answered = ApprovalAnswered { number: 1, answer, by: Some("ann".into()), remembered: None };
    let asked = Fact::ApprovalAsked(Box::new(asked));
    check(
        &[
            (3, prepared()),
            (4, asked.clone()),
            (44, Fact::ApprovalAnswered(Box::new(answered))),
            (45, started(1, false)),
            (50, ok(1, 5)),
            (50, ended()),
        ],
        None,
        "queue 0-4 | wait approval 4-44 | queue 44-45 | attempt 1 45-50 ok",
    );
    let judged = JudgedCall { allowed: true, policy: 2, by: vec!["rule".into()], reason: None };
    check(
        &[(3, prepared()), (4, asked), (20, Fact::Judged(std::sync::Arc::new(judged)))],
        None,
        "queue 0-4 | wait approval 4-20 | queue 20-",
    );
}

#[test]
fn calls_inside_overlap_with_the_attempt() {
    let called = Operation { name: "fetch".into(), did: Did::Called { generation: 1 } };
    check(
        &[
            (3, prepared()),
            (4, started(1, false)),
            (11, Fact::Operation(Box::new(called))),
            (40, ok(1, 36)),
            (41, ended()),
        ],
        None,
        "queue 0-4 | attempt 1 4-40 ok | inside fetch 12-30",
    );
}

#[test]
fn a_running_attempt_that_is_not_recorded_is_shown() {
    let running = LiveAttempt { attempt: AttemptNo(1), at: Timestamp(6) };
    check(&[], Some(running), "queue 0-6 | attempt 1 6-");
    // Recorded by now: it is not shown twice.
    check(&[(3, prepared()), (4, started(1, false))], Some(running), "queue 0-4 | attempt 1 4-");
    check(&[], None, "queue 0-");
}

#[test]
fn a_call_that_never_ran_only_queued() {
    check(&[(7, ended_without_attempt())], None, "queue 0-7");
}

#[test]
fn a_duplicate_waits_for_the_first_and_a_clock_set_back_makes_nothing_negative() {
    let first = CallId { batch: BatchNo(1), ordinal: Ordinal(0) };
    let same = Fact::SameAs(SameAs { first });
    let facts = [(9, Fact::Opened(opened())), (5, same), (12, ended_without_attempt())];
    let found = spans(facts.iter().map(|(at, fact)| (Timestamp(*at), fact)), None, &|_, _| None);
    assert_eq!(rendered(&found), "queue 9-9 | wait same_as 5-12");
}
