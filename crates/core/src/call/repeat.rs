//! Which attempts may follow one another, also where the tool became another class in between.
//!
//! An attempt is judged by the class it was started under: that class says what the attempt may have done. The class
//! the call is pinned to now says what its next attempt would do. An operator who accepts a changed tool changes the
//! second, never the first.

use super::fold::Call;
use crate::outcome::Effect;
use crate::tool::EffectClass;

impl Call {
    /// Whether another attempt may be made by itself, given the attempts that may have taken effect without telling us.
    ///
    /// | in doubt under | now `read` | now `keyed` | now `stepped` | now `once` |
    /// |---|---|---|---|---|
    /// | nothing in doubt | yes | yes | yes | yes |
    /// | `keyed` | yes | yes, same key | no | no |
    /// | `stepped` | yes | no | yes, recorded steps return | no |
    /// | `once` | no | no | no | no |
    ///
    /// An attempt that may not be repeated is reconciled, if the tool now can; see [`Call::can_be_asked_after`].
    ///
    /// `read` attempts are never in doubt. Attempts in doubt under several classes count as `once`: no tool knows of all.
    pub fn may_repeat(&self) -> bool {
        match (self.doubt, self.class()) {
            (None, _) => true,
            (Some(EffectClass::Once), _) | (Some(_), None) => false,
            (Some(_), Some(EffectClass::Read)) => true,
            (Some(then), Some(now)) => then == now,
        }
    }

    /// Whether an attempt that returned a failure may be followed by another.
    pub(super) fn may_retry(&self) -> bool {
        self.may_repeat() || crate::mutant::breaks("once-retried")
    }

    /// Whether its tool can tell by the key of the call if an attempt took effect. Of steps that were made while the tool was
    /// `stepped` no tool of another class knows.
    pub fn can_be_asked_after(&self) -> bool {
        self.reconciles && (!self.doubted_steps || self.class() == Some(EffectClass::Stepped))
    }

    /// The class its last attempt was started under.
    pub(super) fn attempt_class(&self) -> Option<EffectClass> {
        self.started_as.or(self.class())
    }

    /// Notes that the last attempt may have taken effect.
    pub(super) fn doubted(&mut self) {
        let Some(class) = self.attempt_class().filter(|class| *class != EffectClass::Read) else { return };
        self.doubted_steps |= class == EffectClass::Stepped;
        self.doubt = match self.doubt {
            Some(before) if before != class => Some(EffectClass::Once),
            Some(_) | None => Some(class),
        };
    }

    /// Notes what was done under the class it had, before its tool becomes another.
    pub(super) fn leaves_class(&mut self, now: EffectClass) {
        let before = self.attempt_class();
        let did = self.operations.as_deref().is_some_and(|operations| operations.effect() != Effect::None);
        // Another class knows nothing of recorded steps.
        if before == Some(EffectClass::Stepped) && now != EffectClass::Stepped && did {
            self.doubted();
        }
    }
}
