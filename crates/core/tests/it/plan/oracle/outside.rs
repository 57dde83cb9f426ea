//! Calls that wait for the world outside, as the oracle knows them.

use super::model::{Call, Dice, State, World, claims_of, own};
use windlass_core::claim::Claims;
use windlass_core::tool::EffectClass;

/// A part of a call that ran alone: until it waited for the world outside.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub at: usize,
    pub place: Option<u64>,
}

impl World {
    /// Only calls without others inside or around them, so that what they saw is known by the piece.
    pub fn may_step_outside(&self, at: usize) -> bool {
        let call = &self.calls[at];
        let alone = call.parent.is_none() && !self.calls.iter().any(|other| other.parent == Some(at));
        let rests = call.parked || call.state == State::Running;
        self.is_open(at) && alone && call.started.is_some() && !call.outside && rests && call.place.is_some()
    }

    pub fn step_outside(&mut self, at: usize, dice: &mut Dice) {
        if !self.calls[at].parked && dice.roll(2) == 0 {
            self.park(at);
        }
        assert!(self.planner.step_outside(self.now_us, self.calls[at].id));
        self.calls[at].outside = true;
        if self.calls[at].defaulted {
            self.disturbed.gave_way += 1;
            let call = self.calls[at].clone();
            // It may have come back and not have gone on.
            if call.has_begun {
                self.pieces.push(Piece { at, place: call.place });
                self.values[call.session].write(&own(&call.claims), at, call.seen.0);
            }
            (self.calls[at].place, self.calls[at].in_pieces, self.calls[at].has_begun) = (None, true, false);
        }
    }

    pub fn come_back(&mut self, at: usize) {
        if self.calls[at].parked {
            return self.wake(at);
        }
        let gave_way = self.calls[at].place.is_none();
        let behind = self.held_up_by(at);
        assert_eq!(self.planner.come_back_inside(self.now_us, self.calls[at].id), gave_way);
        self.calls[at].outside = false;
        if gave_way {
            self.calls[at].state = State::Waiting;
            self.stand_anew(at);
            behind.into_iter().for_each(|behind| self.stand_anew(behind));
        }
    }

    /// The calls of its batch that stand anew behind a call that comes back.
    pub fn held_up_by(&self, at: usize) -> Vec<usize> {
        let call = &self.calls[at];
        if call.answered || call.started.is_none() || call.place.is_some() {
            return Vec::new();
        }
        let stands = |&other: &usize| {
            let one = &self.calls[other];
            let beside = one.id.batch == call.id.batch && one.id.ordinal > call.id.ordinal;
            let stands = one.place.is_some() && one.started.is_none() && self.is_open(other);
            let moves = one.parked || one.unknown || !self.is_clear(other);
            beside && one.parent == call.parent && one.session == call.session && stands && moves
        };
        (0..self.calls.len()).filter(stands).collect()
    }

    pub fn stand_anew(&mut self, at: usize) {
        self.calls[at].place = self.place();
        if self.calls[at].parent.is_none() {
            self.calls[at].lead_us = self.lead_us(self.calls[at].priority);
        }
    }
}

impl Call {
    /// Its claims, as the planner knows them.
    pub fn wanted(&self) -> Claims {
        match (self.defaulted, self.claims.first()) {
            (true, Some((true, _))) => Claims::of(EffectClass::Once),
            (true, Some((false, _))) => Claims::of(EffectClass::Read),
            (true, None) | (false, _) => claims_of(&self.claims),
        }
    }
}
