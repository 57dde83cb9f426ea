//! Golden entries about the permission of calls.

use super::{asked as asked_for, call, parked};
use std::sync::Arc;
use windlass_core::call::{
    ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Fact, JudgedCall, Opened, Reason, Started, Withheld,
};
use windlass_core::entry::Entry;
use windlass_core::grant::GrantId;
use windlass_core::ids::AttemptNo;
use windlass_core::tool::Digest;

pub fn all() -> Vec<(&'static str, Entry)> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Arc<str>>>();
    let judged =
        |allowed| JudgedCall { allowed, policy: 3, by: names(&["pay"]), reason: Some("ask first".into()) };
    let asked = ApprovalAsked {
        number: 2,
        digest: Digest([7; 32]),
        frame: Digest([8; 32]),
        policy: 3,
        by: names(&["pay", "the tool asks"]),
        sources: names(&["00ff", "the tool asks"]),
        reason: None,
        parked: parked(Reason::Approval),
        four_eyes: true,
        untrusted: true,
        allows_on_expiry: true,
    };
    let plain =
        ApprovalAsked { four_eyes: false, untrusted: false, allows_on_expiry: false, ..asked.clone() };
    let answered = |answer, by: Option<&str>, remembered: Option<&str>| {
        let (by, remembered) = (by.map(Into::into), remembered.map(Into::into));
        call(Fact::ApprovalAnswered(Box::new(ApprovalAnswered { number: 2, answer, by, remembered })))
    };
    let approved =
        |args: Option<&str>| ApprovalAnswer::Approved { digest: Digest([7; 32]), args: args.map(Into::into) };
    let denied = |reason: Option<&str>| ApprovalAnswer::Denied { reason: reason.map(Into::into) };
    let by_grant = Opened { grant: Some(Box::new(GrantId([9; 16]))), ..asked_for() };
    vec![
        ("opened_by_grant", call(Fact::Opened(by_grant))),
        ("judged_allowed", call(Fact::Judged(Arc::new(judged(true))))),
        ("judged_denied", call(Fact::Judged(Arc::new(judged(false))))),
        ("approval_asked", call(Fact::ApprovalAsked(Box::new(plain)))),
        ("approval_asked_strictly", call(Fact::ApprovalAsked(Box::new(asked)))),
        ("approved", answered(approved(None), Some("ann"), Some("m1"))),
        ("approved_with_edits", answered(approved(Some("{\"n\":1}")), Some("ann"), None)),
        ("approved_by_default", answered(approved(None), None, None)),
        ("approval_denied", answered(denied(Some("not today")), Some("ann"), None)),
        ("withheld", call(Fact::Withheld(Withheld { attempt: AttemptNo(2) }))),
        (
            "started_under_policy",
            call(Fact::Started(Started {
                attempt: AttemptNo(1),
                redrive: false,
                policy: std::num::NonZeroU64::new(3),
            })),
        ),
    ]
}
