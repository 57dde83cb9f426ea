//! The claims of a call, for the planner.

use crate::session::arguments::{parse, untagged};
use crate::session::held::Held;
use windlass_core::claim::Claims;
use windlass_core::plan::Wants;
use windlass_core::tool::EffectClass;

/// The claims of a call, under the tool it is pinned to; `None` if they cannot be known yet.
pub(super) fn claims(held: &mut Held) -> Option<Wants> {
    // Another call runs in its place.
    if held.call.same_as().is_some() {
        return Some(Wants::Claims(Claims::NONE));
    }
    if let Some(claims) = held.claims.take() {
        return Some(claims);
    }
    let pin = held.call.pin?;
    let (registry, place) = (&held.on.rt.registry, &held.on.batch.head.place);
    let tool = held.tool.clone().or_else(|| registry.known_for(place, &held.call.opened));
    match tool.filter(|tool| tool.contract == pin.contract) {
        Some(tool) => {
            let declared = parse(held)
                .ok()
                .and_then(|args| tool.claims(&untagged(held, &args.value), &held.on.rt.limits));
            Some(declared.and_then(Result::ok).map_or_else(|| by_class(held), Wants::Claims))
        }
        // A started call holds something, and nothing more will be known of it.
        None => (held.call.attempts > 0).then(|| by_class(held)),
    }
}

/// The claims of a call that declares none.
pub(super) fn by_class(held: &Held) -> Wants {
    undeclared(held, held.call.pin.map_or(EffectClass::Once, |pin| pin.class))
}

/// The default claims by class; a nested call has the claims of its parent.
pub(crate) fn undeclared(held: &Held, class: EffectClass) -> Wants {
    match held.parent() {
        Some(_) => Wants::Inherited,
        None => Wants::Claims(Claims::of(class)),
    }
}
