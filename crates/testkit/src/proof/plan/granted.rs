//! Plans from a seed whose calls are made by grants: with few uses, copied, and revoked while they are used.

use super::random::{call, cancel};
use super::{BatchPlan, CallPlan, Connects, FirstReply, Nested, ProofPlan, Says, SessionPlan};
use crate::chance::Chance;
use crate::proof::kind::CallKind;

/// A grant that the client issues before it calls.
#[derive(Clone, Debug)]
pub struct GrantPlan {
    /// Its name among the client's grants.
    pub name: String,
    /// The session it is issued to.
    pub session: String,
    /// The tool it is for.
    pub kind: CallKind,
    /// How many calls may start by it.
    pub uses: Option<u64>,
    /// The name of the grant that it is a copy of.
    pub of: Option<String>,
    /// Whether some worker's client revokes it.
    pub is_revoked: bool,
}

/// The grant of a call.
#[derive(Clone, Debug)]
pub struct CallGrant {
    /// Its name among the client's grants.
    pub name: String,
    /// Its token, once it is issued.
    pub token: String,
}

impl ProofPlan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn grants(seed: u64) -> ProofPlan {
        let mut seed = Chance::new(seed).branch(5);
        let (mut calls, mut grants) = (0, Vec::new());
        let sessions: Vec<_> =
            (1..=seed.between(1, 2)).map(|no| session(no, &mut seed, &mut calls, &mut grants)).collect();
        let cancels = sessions.iter().filter(|_| seed.percent(30)).cloned().collect::<Vec<_>>();
        let cancels = cancels.iter().filter_map(|session| cancel(session, &mut seed)).collect();
        ProofPlan { sessions, cancels, grants, resolved_percent: 50, ..ProofPlan::default() }
    }

    /// One call at a time by one grant, each tried twice: each commit is the same one in every run.
    pub fn granted() -> ProofPlan {
        let kind = CallKind::KEYED;
        let call = |id: &str| CallPlan {
            order: "reject:1".to_owned(),
            says: Says::Safe,
            grant: Some(CallGrant { name: "g1".to_owned(), token: String::new() }),
            ..CallPlan::new(id, kind)
        };
        let batch = |no: u32| BatchPlan {
            key: format!("b{no}"),
            calls: vec![call(&format!("c{no}"))],
            ..BatchPlan::default()
        };
        let (name, batches) = ("s1".to_owned(), vec![batch(1), batch(2)]);
        let grants = vec![GrantPlan {
            name: "g1".to_owned(),
            session: name.clone(),
            kind,
            uses: Some(9),
            of: None,
            is_revoked: false,
        }];
        ProofPlan { sessions: vec![SessionPlan { name, batches, ahead: 1 }], grants, ..ProofPlan::default() }
    }
}

fn session(no: u64, seed: &mut Chance, calls: &mut u64, grants: &mut Vec<GrantPlan>) -> SessionPlan {
    let name = format!("s{no}");
    let first = grants.len();
    for number in 1..=seed.between(1, 3) {
        let kind = call(seed, &mut 0).kind;
        let kind = if kind.has_code() { kind } else { CallKind::KEYED };
        let kind = if seed.percent(60) { kind.apart() } else { kind };
        let uses = seed.percent(80).then(|| seed.between(1, 5));
        let is_revoked = seed.percent(35);
        let grant = GrantPlan {
            name: format!("{name}g{number}"),
            session: name.clone(),
            kind,
            uses,
            of: None,
            is_revoked,
        };
        if seed.percent(40) {
            let taken = uses.map_or(2, |uses| seed.between(1, uses));
            let (copy, of) = (format!("{}c", grant.name), Some(grant.name.clone()));
            let is_revoked = seed.percent(20);
            grants.push(grant.clone());
            grants.push(GrantPlan { name: copy, uses: Some(taken), of, is_revoked, ..grant });
        } else {
            grants.push(grant);
        }
    }
    let own = grants[first..].to_vec();
    let batch = |no, seed: &mut Chance, calls: &mut u64| BatchPlan {
        key: format!("b{no}"),
        calls: (0..seed.between(1, 5)).map(|_| granted(seed, calls, &own)).collect(),
        walks_away: seed.percent(25),
        asks: seed.one_of(&[FirstReply::AtTheEnd, FirstReply::Early, FirstReply::Unattended]),
        silent: seed.percent(15),
        ..BatchPlan::default()
    };
    let batches = (1..=seed.between(1, 3)).map(|no| batch(no, seed, calls)).collect();
    SessionPlan { name, batches, ahead: seed.between(1, 3) as usize }
}

/// A call by one of these grants, mostly.
fn granted(seed: &mut Chance, calls: &mut u64, grants: &[GrantPlan]) -> CallPlan {
    let mut granted = call(seed, calls);
    if !granted.kind.has_code() {
        granted.kind = CallKind::KEYED;
    }
    (granted.connects, granted.nested) = (Connects::Nothing, Nested::default());
    if seed.percent(15) {
        return granted;
    }
    let grant = &grants[seed.below(grants.len() as u64) as usize];
    granted.kind = grant.kind;
    granted.inside = match granted.kind.class == CallKind::STEPPED.class {
        true => super::InsidePlan { step: seed.percent(70), nap: seed.percent(40), ..granted.inside },
        false => super::InsidePlan::default(),
    };
    if !granted.kind.is_brief() {
        granted.then = super::Then::Return;
    }
    // Half of them are tried more than once.
    if seed.percent(50) {
        (granted.order, granted.says) = (format!("reject:{}", seed.between(1, 2)), Says::Safe);
    }
    granted.grant = Some(CallGrant { name: grant.name.clone(), token: String::new() });
    granted
}
