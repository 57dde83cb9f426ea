//! The sibling rules, against the rule in its plainest words.

use proptest::prelude::*;
use windlass_core::ids::Ordinal;
use windlass_core::siblings::{Decision, Siblings, Tally};

/// `+` succeeded, `-` ended otherwise, `|` the number of calls becomes known; what was decided, and at which sign.
fn check(siblings: Siblings, calls: usize, ends: &str) -> String {
    let mut tally = Tally::of(siblings).unwrap();
    let mut known = (!ends.contains('|')).then_some(calls);
    let mut said = Vec::new();
    for (place, sign) in ends.chars().enumerate() {
        let decided = if sign == '|' {
            known = Some(calls);
            tally.count(calls)
        } else {
            tally.end(Ordinal(place as u16), sign == '+', known)
        };
        said.extend(decided.map(|decision| format!("{decision:?} at {place}")));
    }
    let won: Vec<String> = tally.won().iter().map(|call| call.0.to_string()).collect();
    format!("{} by {}", said.join(", "), won.join(" "))
}

#[test]
fn so_many_must_succeed() {
    use Siblings::{FailFast, Quorum, Race};
    for (siblings, calls, ends, expected) in [
        (Race, 3, "-+", "Reached at 1 by 1"),
        (Race, 3, "++", "Reached at 0 by 0"),
        (Race, 3, "--", " by "),
        (Race, 3, "---", "Unreachable at 2 by "),
        (Quorum(2), 4, "+-+", "Reached at 2 by 0 2"),
        (Quorum(2), 4, "+--", " by 0"),
        (Quorum(2), 4, "+---", "Unreachable at 3 by 0"),
        (Quorum(3), 4, "--", "Unreachable at 1 by "),
        (FailFast, 3, "++-", "Unreachable at 2 by 0 1"),
        (FailFast, 3, "-", "Unreachable at 0 by "),
        (FailFast, 2, "++", " by 0 1"),
        // While calls may still come, only what needs no count is decided.
        (Race, 2, "--|", "Unreachable at 2 by "),
        (Quorum(3), 2, "|", "Unreachable at 0 by "),
        (Quorum(2), 2, "+|", " by 0"),
        (Race, 2, "+|", "Reached at 0 by 0"),
        (FailFast, 2, "-|", "Unreachable at 0 by "),
    ] {
        assert_eq!(check(siblings, calls, ends), expected, "{siblings} of {calls}: {ends}");
    }
}

#[test]
fn nothing_is_counted_where_nothing_is_asked() {
    assert_eq!(Tally::of(Siblings::Independent), None);
}

#[test]
fn all_that_are_needed_may_become_more() {
    let mut tally = Tally::of(Siblings::FailFast).unwrap();
    tally.end(Ordinal(0), true, Some(1));
    assert_eq!((tally.decision(), tally.verdict(Some(1))), (None, Some(Decision::Reached)));
    assert_eq!(tally.verdict(Some(2)), None, "one was added");
    tally.end(Ordinal(1), false, Some(2));
    assert_eq!(tally.verdict(Some(2)), Some(Decision::Unreachable));
}

#[test]
fn they_are_written_as_people_write_them() {
    for (siblings, text) in [
        (Siblings::Independent, "\"independent\""),
        (Siblings::FailFast, "\"fail_fast\""),
        (Siblings::Race, "\"race\""),
        (Siblings::Quorum(2), "{\"quorum\":2}"),
    ] {
        assert_eq!(serde_json::to_string(&siblings).unwrap(), text);
        assert_eq!(serde_json::from_str::<Siblings>(text).unwrap(), siblings);
    }
}

proptest! {
    /// A batch whose calls all end is decided exactly once, at the first end after which the rule holds, and by nothing
    /// that comes later.
    #[test]
    fn the_first_end_that_decides_it_decides_it(ends in proptest::collection::vec(any::<bool>(), 1..12), needed in 1..12u32) {
        let calls = ends.len();
        for siblings in [Siblings::Race, Siblings::Quorum(needed), Siblings::FailFast] {
            let n = match siblings {
                Siblings::Race => 1,
                Siblings::Quorum(n) => n as usize,
                Siblings::FailFast | Siblings::Independent => calls,
            };
            let mut tally = Tally::of(siblings).unwrap();
            let mut decided = Vec::new();
            for (place, succeeded) in ends.iter().enumerate() {
                let said = tally.end(Ordinal(place as u16), *succeeded, Some(calls));
                decided.extend(said.map(|decision| (place, decision)));
            }
            let rule = |place: usize| {
                let won = ends[..=place].iter().filter(|won| **won).count();
                let lost = place + 1 - won;
                if won >= n { Some(Decision::Reached) } else { (calls - lost < n).then_some(Decision::Unreachable) }
            };
            let first = (0..calls).find_map(|place| rule(place).map(|decision| (place, decision)));
            let last_word = first.map(|(_, decision)| decision);
            prop_assert_eq!(tally.verdict(Some(calls)), last_word);
            // That all have succeeded is no reason to cancel anybody.
            let final_ = first.filter(|(_, decision)| siblings != Siblings::FailFast || *decision == Decision::Unreachable);
            prop_assert_eq!(decided, final_.into_iter().collect::<Vec<_>>());
        }
    }
}
