//! The planner, told small stories: what starts after each event, and why the others wait.

mod oracle;
mod outside;

use windlass_core::claim::Claims;
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::limits::CallLimits;
use windlass_core::plan::{Arrival, Cap, Entrant, Planner, Pool, Ready, ToolNo, Wants};
use windlass_core::rate::Rate;

/// A planner and the names of its calls: `a` is ordinal 0 of batch 1, `b2` ordinal 1 of batch 2.
struct Story {
    planner: Planner,
    now_us: u64,
}

/// Tells a story, one event per `;`. After each event: what started, joined by `+`, `-` for nothing, or the answer.
///
/// `a [s2] [t=TOOL] [p=PRIORITY] [in=CALL] [task] [parked] [started] : CLAIM, CLAIM` enters a call (`:` and nothing:
/// it claims nothing; `: ?` unknown; `: ^` inherited); `end a`, `park a`, `wake a`, `lend a`, `back a`, `detach a`,
/// `claim a : …`, `answered 1`, `remove T`, `at 500`, `why a`, `out a` (waits for the world outside), `in a` (comes back and
/// goes on), `stood a`. `: *` claims by default, as a call that writes; `away` enters it as one that waits outside.
fn tell(story: &mut Story, events: &str) -> String {
    let told: Vec<String> = events.split(';').map(|event| story.event(event.trim())).collect();
    told.join(" | ")
}

fn check(events: &str, expected: &str) {
    check_with(&CallLimits::default(), events, expected);
}

#[track_caller]
fn check_with(limits: &CallLimits, events: &str, expected: &str) {
    let mut story = Story::new(limits);
    assert_eq!(tell(&mut story, events), expected, "{events}");
}

impl Story {
    /// With the tools `one` (one at a time), `two` and `pair` (together two at a time, group `duo`), `slow` (two in
    /// 100 µs) and `plain`.
    fn new(limits: &CallLimits) -> Story {
        let mut planner = Planner::new(limits);
        let one = Cap { running_max: Some(1), rate: None };
        let two = Cap { running_max: Some(2), rate: None };
        let slow = Cap { running_max: None, rate: Some(Rate { count: 2, period_us: 100 }) };
        planner.set_group(0, "duo", two);
        planner.set_tool(0, "one", one, &[]);
        planner.set_tool(0, "two", Cap::default(), &["duo"]);
        planner.set_tool(0, "pair", Cap::default(), &["duo"]);
        planner.set_tool(0, "slow", slow, &[]);
        planner.set_tool(0, "plain", Cap::default(), &[]);
        Story { planner, now_us: 0 }
    }

    /// Asking for a tool's number changes it back to what it is.
    fn tool(&mut self, id: &str) -> ToolNo {
        let (cap, groups): (Cap, &[&str]) = match id {
            "one" => (Cap { running_max: Some(1), rate: None }, &[]),
            "two" | "pair" => (Cap::default(), &["duo"]),
            "slow" => (Cap { running_max: None, rate: Some(Rate { count: 2, period_us: 100 }) }, &[]),
            _ => (Cap::default(), &[]),
        };
        self.planner.set_tool(self.now_us, id, cap, groups)
    }

    fn event(&mut self, event: &str) -> String {
        let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
        let changed = match word {
            "end" => self.planner.leave(call(rest)),
            "park" => self.planner.park(call(rest)),
            "wake" => self.planner.wake(self.now_us, call(rest)),
            "lend" => self.planner.lend(call(rest)),
            "back" => self.planner.take_back(call(rest)),
            "detach" => self.planner.detach(call(rest)),
            "out" => self.planner.step_outside(self.now_us, call(rest)),
            "in" => {
                let waits = self.planner.come_back_inside(self.now_us, call(rest));
                let started = self.started();
                return if waits { started } else { format!("at once, {started}") };
            }
            "stood" => return self.planner.stood_us(self.now_us, call(rest)).to_string(),
            "why" => {
                let why = self.planner.why(self.now_us, call(rest));
                return why.map_or("runs".to_string(), |why| why.to_string());
            }
            "claim" => {
                let (name, wants) = rest.split_once(':').unwrap();
                let Wants::Claims(claims) = wants_of(wants) else { panic!("claims are given") };
                self.planner.reclaim(self.now_us, call(name.trim()), claims).is_ok()
            }
            _ => self.set(word, rest) || self.enter(event),
        };
        if !changed { "no".to_string() } else { self.started() }
    }

    fn set(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "answered" => self.planner.answered(BatchNo(rest.parse().unwrap())),
            "at" => self.now_us = rest.parse().unwrap(),
            "remove" => {
                let tool = self.tool(rest);
                self.planner.remove_tool(tool);
            }
            "register" => drop(self.tool(rest)),
            _ => return false,
        }
        true
    }

    fn enter(&mut self, event: &str) -> bool {
        let (head, wants) = event.split_once(':').unwrap_or_else(|| panic!("no event: {event:?}"));
        let mut words = head.split_whitespace();
        let mut ask = Entrant::new(SessionNo(1), call(words.next().unwrap()), ToolNo::UNLIMITED);
        ask.wants = wants_of(wants);
        for word in words {
            match word.split_once('=') {
                Some(("t", tool)) => ask.tool = self.tool(tool),
                Some(("p", priority)) => ask.priority = priority.parse().unwrap(),
                Some(("in", parent)) => ask.parent = Some(call(parent)),
                None if word == "task" => ask.pool = Pool::Tasks,
                None if word == "parked" => ask.arrival = Arrival::Parked,
                None if word == "away" => {
                    (ask.arrival, ask.outside) = (Arrival::StartedParked, true);
                }
                None if word == "answered" => ask.answered = true,
                None if word == "started" => ask.arrival = Arrival::Started,
                None if word.starts_with('s') => ask.session = SessionNo(word[1..].parse().unwrap()),
                _ => panic!("no word of an event: {word:?}"),
            }
        }
        match self.planner.enter(self.now_us, ask) {
            Ok(()) => true,
            Err(refused) => {
                assert!(!refused.to_string().is_empty() && !refused.code().as_str().is_empty());
                false
            }
        }
    }

    fn started(&mut self) -> String {
        let mut ready = Ready::default();
        self.planner.start_ready(self.now_us, &mut ready);
        let refused = ready.refuse.iter().map(|(call, _)| format!("!{}", name(*call)));
        let started: Vec<String> = ready.start.iter().map(|call| name(*call)).chain(refused).collect();
        if started.is_empty() { "-".to_string() } else { started.join("+") }
    }
}

fn call(name: &str) -> CallId {
    let mut chars = name.chars();
    let letter = chars.next().unwrap_or_else(|| panic!("a call is named"));
    let batch = chars.as_str().parse().unwrap_or(1);
    CallId { batch: BatchNo(batch), ordinal: Ordinal(letter as u16 - 'a' as u16) }
}

fn name(call: CallId) -> String {
    let letter = char::from(b'a' + call.ordinal.0 as u8);
    if call.batch.0 == 1 { letter.to_string() } else { format!("{letter}{}", call.batch) }
}

fn wants_of(text: &str) -> Wants {
    match text.trim() {
        "?" => Wants::Unknown,
        "^" => Wants::Inherited,
        "" => Wants::Claims(Claims::NONE),
        "*" => Wants::Claims(Claims::of(windlass_core::tool::EffectClass::Once)),
        texts => {
            Wants::Claims(Claims::parse(texts.split(',').map(str::trim), &CallLimits::default()).unwrap())
        }
    }
}

#[test]
fn calls_that_collide_run_in_the_order_given() {
    check("a : read; b : read; c : write; end a; end b", "a | b | - | - | c");
    check("a : write; b : read; c : read; end a", "a | - | - | b+c");
    check("a : read; b : write; c : read; end a; end b", "a | - | - | b | c");
    check(
        "a : write x/1; b : write x/2; c : read x; d : write x/3; end a; end b; end c",
        "a | b | - | - | - | c | d",
    );
    check("a : write x; b : read x/1/2; c : read y; end a", "a | - | c | b");
    check("a : write x; b : write y; c : write x, write y; end b; end a", "a | b | - | - | c");
    check("a : write; b : ; c : write x; end a", "a | b | - | c");
    // Two claims of one call do not collide with each other.
    check("a : read x, write x/1; b : read x/1; c : read x/2; end a", "a | - | c | b");
}

#[test]
fn the_session_covers_all_names_but_global_ones() {
    check("a : write; b : write global:x; c : write y", "a | b | -");
    check("a : write; b s2 : write", "a | b");
    check("a : write global:x; b s2 : write global:x/y; c s2 : write global:z; end a", "a | - | c | b");
}

#[test]
fn a_global_name_is_queued_on_only_when_nothing_in_the_session_stands_before() {
    // b waits for a; c of another session comes later and goes first.
    let events =
        "a : write x; b : write x, write global:g; c s2 : write global:g; end a; why b; end c; why c";
    check(events, "a | - | c | - | waits for global:g, held by call 1.2 | b | runs");
    // First in, first out: d does not pass the waiting b.
    check(
        "a : read global:g; b s2 : write global:g; d s3 : read global:g; why d; end a; end b",
        "a | - | - | waits for global:g, held by call 1.1 | b | d",
    );
    // A parked call keeps nobody in another session waiting.
    check("a parked : write global:g; b : write global:g; c s2 : write global:g", "- | - | c");
}

#[test]
fn a_parked_call_that_nobody_can_wait_for_is_only_counted() {
    let limits = CallLimits { calls_parked_max: 3, calls_running_max: 3, ..Default::default() };
    let mut story = Story::new(&limits);
    assert_eq!(tell(&mut story, "a : ; b : write x; c s2 : write global:g"), "a | b | c");
    let [a, b, c] = [0, 1, 2].map(|ordinal| CallId { batch: BatchNo(1), ordinal: Ordinal(ordinal) });
    assert!(!story.planner.forget_parked(a), "it runs");
    tell(&mut story, "park a; park b; park c");
    let kept = story.planner.kept();
    assert_eq!([a, b, c].map(|call| story.planner.forget_parked(call)), [true, false, false]);
    assert!(!story.planner.forget_parked_session(&[c]), "other sessions wait for it");
    assert!(story.planner.forget_parked_session(&[b]), "only its own session does");
    assert_eq!((story.planner.counts().parked, story.planner.claims(b)), (3, None));
    assert!(story.planner.kept() < kept);
    assert!(story.planner.admit(0, SessionNo(1), 1, 0).is_err(), "they count");
    story.planner.come_back();
    story.planner.come_back();
    assert!(story.planner.admit(0, SessionNo(1), 1, 0).is_ok());
    // Also if it never started: without claims, it keeps no place.
    let mut unstarted = Story::new(&limits);
    tell(&mut unstarted, "a parked : ; b parked : write x");
    assert_eq!([a, b].map(|call| unstarted.planner.forget_parked(call)), [true, false]);
    assert!(!unstarted.planner.forget_parked_session(&[b]), "it would lose its place");
    assert_eq!((unstarted.planner.counts().parked, unstarted.planner.has_still()), (2, false));
    // What has started before and waits for room is told apart.
    tell(&mut story, "d2 : ; e2 : ; f2 : ; wake c");
    assert_eq!((story.planner.again(), story.planner.counts().queued), (1, 1));
    tell(&mut story, "end d2");
    assert_eq!((story.planner.again(), story.planner.counts().queued), (0, 0));
}

#[test]
fn a_parked_call_keeps_its_place_until_its_batch_is_answered() {
    check(
        "a parked : write x; b : write x; c : write y; why b; wake a; end a",
        "- | - | c | waits for x, held by call 1.0 | a | b",
    );
    check(
        "a parked : write x; b2 : write x; answered 1; wake a; why a; end b2",
        "- | - | b2 | - | waits for x, held by call 2.1 | a",
    );
    check(
        "a : write x; b : write x; park b; answered 1; c2 : write x; end a; wake b; end c2",
        "a | - | - | - | - | c2 | - | b",
    );
    // It had started: it keeps its claims, not its room.
    let one = CallLimits { calls_running_max: 1, ..Default::default() };
    check_with(
        &one,
        "a : write x; park a; answered 1; b : write x; c : write y; wake a; end c; end a",
        "a | - | - | - | c | - | a | b",
    );
}

#[test]
fn a_call_that_is_not_prepared_holds_everybody_younger() {
    check(
        "a : ?; b : write x; c : write global:g; d s2 : write x; why a; why b",
        "- | - | - | d | is being prepared | waits for the session, held by call 1.0",
    );
    check(
        "a : ?; b : write x; c : write y; d : write x/1; claim a : write x; end a; end b",
        "- | - | - | - | a+c | b | d",
    );
    check("a : ?; b : write x; claim a : ", "- | - | a+b");
    // An edit that leads elsewhere loses the place, since others may have run there.
    check("a parked : write x; b : write y; claim a : write y; wake a; end b", "- | b | - | - | a");
    check(
        "a parked : write x; b : write x/1; c : write x/2; claim a : write x/1; wake a; end a",
        "- | - | - | c | a | b",
    );
    check("a : write x; claim a : write y; claim b : write y", "a | no | no");
}

#[test]
fn calls_inside_a_call_are_ordered_among_themselves() {
    check(
        "a : write; b : write; c in=a : write x; d in=a : read x; e in=a : write y; end c; end d; end e; end a",
        "a | - | c | - | e | d | - | - | b",
    );
    check("a : write x; b in=a : ^; c in=a : ^; d in=b : ^; end d; end b", "a | b | - | d | - | c");
    check(
        "a : write x; b in=a : write y; c in=a : write; d : write z; e in=d : read z/1; f in=e : write z/1",
        "a | no | no | d | e | no",
    );
    check("a : write x; b in=z : write x; c : write x; d in=c : write x", "a | no | - | no");
    // Its claims stay until the last call inside it is over.
    check(
        "a : write x; b in=a : ^; c : write x; end a; end a; d in=a : ^; end b",
        "a | b | - | - | no | no | c",
    );
    // A global name is held by the call around.
    check(
        "a : write global:g; b in=a : write global:g; c s2 : write global:g; end b; end a",
        "a | b | - | - | c",
    );
}

#[test]
fn a_call_that_waits_for_calls_inside_lends_its_room() {
    let one = CallLimits { calls_running_max: 1, ..Default::default() };
    check_with(
        &one,
        "a : write x; b in=a : ^; why b; lend a; why a; end b; back a; c : ; end a",
        "a | - | waits for room: the process's limit of 1 running calls is reached | b | waits for the calls inside it | - | a | - | c",
    );
    // Going on comes before starting, also where others came first.
    check_with(
        &one,
        "a : write x; b in=a : ^; c : ; lend a; back a; end b; end a",
        "a | - | - | b | - | a | c",
    );
}

#[test]
fn a_limit_held_by_the_calls_around_is_refused() {
    check("a t=one : write x; b in=a t=one : ^; c in=a t=plain : ^; d in=c t=one : ^", "a | no | c | no");
    check("a t=two : write x; b in=a t=pair : ^", "a | no");
    // Parked, it holds nothing; it comes back before the call inside it got room.
    check(
        "a t=one : write x; b in=a t=plain : ^; park a; d s2 t=one : ; c in=b t=one : ^; wake a; end d; lend a; lend b",
        "a | b | - | d | - | - | a | - | !c",
    );
    // In a circle over two sessions, the youngest is refused.
    let circle = "a t=one : write x; b s2 t=two : write x; c s3 t=two : ; d in=a t=pair : ^; e s2 in=b t=one : ^; lend a; lend b; end c; why e";
    check(
        circle,
        "a | b | c | - | - | - | - | d | waits for room: the limit of 1 running calls of the tool one is reached",
    );
    let closed = "a t=one : write x; b s2 t=two : write x; c s3 t=pair : write x; d in=a t=two : ^; e s2 in=b t=one : ^; f s3 in=c t=one : ^; lend a; lend b; lend c; end f; why e; end e; back b; end b";
    check(
        closed,
        "a | b | c | - | - | - | - | - | !f | - | waits for room: the limit of 1 running calls of the tool one is reached | - | b | d",
    );
}

#[test]
fn a_limit_that_is_lowered_under_calls_that_lend_is_found() {
    let mut story = Story::new(&CallLimits::default());
    let rate = Some(Rate { count: 2, period_us: 1_000 });
    let odd = story.planner.set_tool(0, "odd", Cap { running_max: None, rate }, &[]);
    for (name, session, parent) in [("a", 1, None), ("b", 2, None), ("c", 1, Some(call("a")))] {
        let ask = Entrant::new(SessionNo(session), call(name), odd);
        story.planner.enter(0, Entrant { wants: Wants::Claims(Claims::NONE), parent, ..ask }).unwrap();
        assert_eq!(story.started(), if name == "c" { "-" } else { name });
    }
    story.planner.set_tool(0, "odd", Cap { running_max: Some(1), rate: None }, &[]);
    assert_eq!(tell(&mut story, "lend a; end b; end c; back a"), "- | !c | - | a");
}

#[test]
fn limits_of_tools_groups_sessions_and_the_process_hold() {
    check(
        "a t=one : ; b t=one : ; c t=plain : ; why b; end a",
        "a | - | c | waits for room: the limit of 1 running calls of the tool one is reached | b",
    );
    check(
        "a t=two : ; b t=pair : ; c t=two : ; d t=pair : ; why d; end a; end b",
        "a | b | - | - | waits for room: the limit of 2 running calls of the group duo is reached | c | d",
    );
    let small = CallLimits {
        calls_running_max: 2,
        session_calls_running_max: 1,
        session_tasks_running_max: 1,
        ..Default::default()
    };
    check_with(
        &small,
        "a : ; b : ; c s2 : ; d s3 : ; e task : ; f task : ; why b; why d; end a; end c",
        "a | - | c | - | e | - | waits for room: the session's limit of 1 running calls is reached | waits for room: the process's limit of 2 running calls is reached | d | b",
    );
    check_with(&small, "a : ; detach a; b task : ; c : ; detach c; d : ; end a", "a | - | - | c | - | d | -");
}

#[test]
fn a_rate_is_kept_and_says_when_it_is_due() {
    let mut story = Story::new(&CallLimits::default());
    let told =
        tell(&mut story, "a t=slow : ; b t=slow : ; c t=slow : ; d t=slow : ; e : ; why c; at 49; at 50");
    assert_eq!(told, "a | b | - | - | e | waits for the rate of its tool | - | c");
    assert_eq!(story.planner.next_due(), Some(100));
    assert_eq!(tell(&mut story, "end d; end a; end b; end c; end e"), "- | - | - | - | -");
    assert_eq!((story.planner.next_due(), story.planner.kept()), (None, 0));
}

#[test]
fn a_tool_may_go_and_come() {
    check("a t=one : ; remove one; why a; b : ; end a", "a | - | runs | b | -");
    let mut story = Story::new(&CallLimits::default());
    assert_eq!(
        tell(&mut story, "a t=one : ; b t=one : ; remove one; end a; why b; register one"),
        "a | - | - | - | its tool is gone | b"
    );
}

#[test]
fn priority_passes_only_what_does_not_collide_and_did_not_wait_long() {
    let one = CallLimits { calls_running_max: 1, priority_lead_ms: 1, ..Default::default() };
    check_with(
        &one,
        "a : ; b : write x; c p=2 : write x; d p=1 : ; end a; end d; end b",
        "a | - | - | - | d | b | c",
    );
    check_with(
        &one,
        "a : ; b : ; at 999; c p=1 : ; at 1001; d p=1 : ; end a; end c; end b",
        "a | - | - | - | - | - | c | b | d",
    );
}

#[test]
fn sessions_take_turns() {
    let one = CallLimits { calls_running_max: 1, ..Default::default() };
    check_with(
        &one,
        "a : ; b : ; c : ; d s2 : ; e s2 : ; f s3 : ; end a; end b; end d; end f; end c",
        "a | - | - | - | - | - | b | d | f | c | e",
    );
    // Also where each waits for another tool.
    check_with(
        &one,
        "a t=one : ; b t=one : ; c t=one : ; d s2 t=slow : ; e s2 t=slow : ; end a; end b; end d; end c",
        "a | - | - | - | - | b | d | c | e",
    );
}

#[test]
fn limits_change_while_calls_wait() {
    let mut story = Story::new(&CallLimits { calls_running_max: 1, ..Default::default() });
    assert_eq!(tell(&mut story, "a : ; b : ; c : ; d : "), "a | - | - | -");
    story.planner.set_limits(&CallLimits { calls_running_max: 3, ..Default::default() });
    assert_eq!(story.started(), "b+c");
    story.planner.set_limits(&CallLimits { calls_running_max: 1, ..Default::default() });
    assert_eq!(tell(&mut story, "end a; end b; end c"), "- | - | d");
    assert_eq!(tell(&mut story, "e t=one : ; end d; f t=one : "), "- | e | -");
    story.planner.set_limits(&CallLimits::default());
    story.planner.set_tool(0, "one", Cap { running_max: Some(2), rate: None }, &[]);
    assert_eq!(story.started(), "f");
    story.planner.set_tool(0, "one", Cap::default(), &["duo"]);
    story.planner.set_group(0, "duo", Cap { running_max: Some(3), rate: None });
    let told = tell(&mut story, "g t=two : ; h t=two : ; why h; end e");
    let full = "waits for room: the limit of 3 running calls of the group duo is reached";
    assert_eq!(told, format!("g | - | {full} | h"));
}

#[test]
fn one_session_may_run_fewer_than_others() {
    let mut story = Story::new(&CallLimits { session_calls_running_max: 2, ..Default::default() });
    story.planner.set_session(SessionNo(2), [Some(1), None]);
    let told = tell(&mut story, "a : ; b : ; c : ; d s2 : ; e s2 : ; f s2 : ; why e; end d");
    let full = "waits for room: the session's limit of 1 running calls is reached";
    assert_eq!(told, format!("a | b | - | d | - | - | {full} | e"));
    // It never allows more than every session may, and changes while calls wait.
    story.planner.set_session(SessionNo(2), [Some(9), None]);
    assert_eq!(story.started(), "f");
    assert_eq!(tell(&mut story, "g s2 : ; end a"), "- | c");
    story.planner.set_session(SessionNo(2), [Some(1), None]);
    assert_eq!(tell(&mut story, "end e; end f"), "- | g");
}

#[test]
fn a_batch_is_admitted_whole_or_told_when_to_come_back() {
    let limits =
        CallLimits { calls_running_max: 1, calls_queued_max: 3, calls_parked_max: 2, ..Default::default() };
    let mut story = Story::new(&limits);
    assert!(
        story.planner.admit(0, SessionNo(1), 3, 0).is_ok()
            && story.planner.admit(0, SessionNo(1), 4, 0).is_err()
    );
    assert_eq!(tell(&mut story, "a : ; b : ; at 800000; end a; c : ; d : "), "a | - | - | b | - | -");
    assert!(story.planner.admit(800_000, SessionNo(1), 1, 0).is_ok());
    let overloaded = story.planner.admit(800_000, SessionNo(1), 3, 0).unwrap_err();
    assert_eq!(overloaded.retry_after_us, 200_000);
    assert_eq!(overloaded.to_string(), "too many calls are waiting: try again in 200 ms");
    assert_eq!(story.planner.admit(100_000_000, SessionNo(1), 3, 0).unwrap_err().retry_after_us, 60_000_000);
    // A call inside another is never refused for that.
    assert_eq!(
        tell(&mut story, "e in=b : ; f in=b : ; park c; park d; end e; end f"),
        "- | - | - | - | - | -"
    );
    assert!(story.planner.admit(800_000, SessionNo(1), 1, 0).is_err(), "two are parked, and no more may be");
}

#[test]
fn what_is_over_leaves_nothing_behind() {
    let mut story = Story::new(&CallLimits::default());
    tell(
        &mut story,
        "a : write x; b in=a : ^; c : ?; d parked : read y; e : write global:g; f s2 : write global:g",
    );
    assert_eq!(
        tell(&mut story, "end c; end d; end f; end e; end b; end a; end a; wake a; park a; lend a"),
        "- | - | e | - | - | - | no | no | no | no"
    );
    assert_eq!(story.planner.kept(), 0);
}

/// 10,000 calls in 100 sessions of different weight: the process, each session and the limited tool never hold more
/// than they may, every session goes on at the same pace while it has calls, and nothing is kept at the end.
#[test]
fn many_sessions_share_what_there_is() {
    const SESSIONS: usize = 100;
    let limits = CallLimits { session_calls_running_max: 4, ..Default::default() };
    let mut story = Story::new(&limits);
    let (one, plain) = (story.tool("one"), story.tool("plain"));
    // The first session has a hundred times the calls of the last.
    let share = |session: usize| 2 * (SESSIONS - session) - 1;
    let mut waiting = vec![0; SESSIONS];
    for n in 0..share(0) {
        for session in (0..SESSIONS).filter(|&session| n < share(session)) {
            let call = CallId { batch: BatchNo(session as u64), ordinal: Ordinal(n as u16) };
            let tool = if n % 10 == 9 { one } else { plain };
            let wants = Wants::Claims(if n % 3 == 0 {
                Claims::of(windlass_core::tool::EffectClass::Read)
            } else {
                Claims::NONE
            });
            story
                .planner
                .enter(0, Entrant { wants, ..Entrant::new(SessionNo(session as u64), call, tool) })
                .unwrap();
            waiting[session] += 1;
        }
    }
    assert_eq!(waiting.iter().sum::<usize>(), 10_000);
    let (mut running, mut served): (Vec<CallId>, Vec<usize>) = (Vec::new(), vec![0; SESSIONS]);
    let mut ready = Ready::default();
    while waiting.iter().sum::<usize>() + running.len() > 0 {
        story.planner.start_ready(0, &mut ready);
        for call in ready.start.drain(..) {
            waiting[call.batch.0 as usize] -= 1;
            served[call.batch.0 as usize] += 1;
            running.push(call);
        }
        let of = |session| running.iter().filter(|call| call.batch.0 as usize == session).count();
        let limited = running.iter().filter(|call| call.ordinal.0 % 10 == 9).count();
        assert!(running.len() <= 64 && limited <= 1 && (0..SESSIONS).all(|session| of(session) <= 4));
        // Those that still wait were served equally often; what waits for the limited tool only is apart.
        let plainly = (0..SESSIONS).filter(|&session| waiting[session] > share(session) / 10 + 1);
        let (least, most) = plainly.fold((usize::MAX, 0), |(least, most), session| {
            (least.min(served[session]), most.max(served[session]))
        });
        assert!(least == usize::MAX || most - least <= 2, "{least} to {most} were served");
        // The oldest half ends.
        let ends = running.len().div_ceil(2);
        running.drain(..ends).for_each(|call| assert!(story.planner.leave(call)));
    }
    assert_eq!(story.planner.kept(), 0);
}

/// A call that was taken over is entered before its tool is there.
#[test]
fn a_call_turns_out_to_be_of_a_tool_with_a_limit() {
    let mut story = Story::new(&CallLimits::default());
    let (one, other) = (story.tool("one"), story.tool("other"));
    let call = |ordinal| CallId { batch: BatchNo(1), ordinal: Ordinal(ordinal) };
    let planner = &mut story.planner;
    for ordinal in 0..3 {
        let arrival = windlass_core::plan::Arrival::StartedParked;
        let wants = Wants::Claims(Claims::NONE);
        planner
            .enter(
                0,
                Entrant { wants, arrival, ..Entrant::new(SessionNo(1), call(ordinal), ToolNo::UNLIMITED) },
            )
            .unwrap();
        assert!(planner.retool(call(ordinal), one) && planner.wake(0, call(ordinal)));
    }
    let mut ready = Ready::default();
    planner.start_ready(0, &mut ready);
    assert_eq!(ready.start, [call(0)]);
    assert!(planner.has_turn(call(0)) && !planner.has_turn(call(1)));
    assert!(!planner.retool(call(0), other), "it runs");
    // One that stands in line already may be moved to another.
    assert!(planner.retool(call(2), other));
    planner.start_ready(0, &mut ready);
    assert_eq!(ready.start, [call(0), call(2)]);
    planner.leave(call(0));
    planner.start_ready(0, &mut ready);
    assert_eq!(ready.start, [call(0), call(2), call(1)]);
    planner.remove_tool(one);
    assert!(planner.knows_tool("one") && planner.tool("one").is_none(), "gone, but for its call");
    planner.leave(call(1));
    planner.leave(call(2));
    assert!(!planner.knows_tool("one") && planner.tool("other").is_some());
    assert_eq!(planner.kept(), 0);
}
