//! A call in the hands of whoever drives it: its state, and what it has noted and not yet committed.

use crate::batch::OpenBatch;
use crate::error::Lost;
use crate::registry::Registered;
use crate::request::Parsed;
use crate::runtime::Inner;
use crate::session::Session;
use std::sync::Arc;
use windlass_core::call::{Call, Fact};
use windlass_core::entry::Packer;
use windlass_core::ids::CallId;
use windlass_core::json::Problem;
use windlass_core::outcome::ModelAnswer;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// A call that is being driven, by this holder alone.
pub(crate) struct Held {
    pub(crate) on: Arc<Hold>,
    pub(crate) id: CallId,
    pub(crate) call: Call,
    /// Its tool, once prepared in this process.
    pub(crate) tool: Option<Arc<Registered>>,
    /// Its arguments, or what is wrong with them, while they need not be read from the journal.
    pub(crate) parsed: Option<Result<Parsed, Problem>>,
    /// Whether its claims are taken.
    pub(crate) admitted: bool,
    /// What the model is told, where it was made from a value that is kept beside the journal.
    pub(crate) model: Option<ModelAnswer>,
    /// When the stage it is in began: what is noted there is noted then.
    at: Timestamp,
    /// Packed at once, since whoever waits for a turn or an answer should take little room.
    notes: Packer,
    rows: Vec<Row>,
}

/// Room for what a call notes until it is first committed.
const NOTES_BYTES: usize = 256;

/// Where calls are driven; one for all that came together.
pub(crate) struct Hold {
    pub(crate) rt: Arc<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) batch: Arc<OpenBatch>,
}

impl Hold {
    pub(crate) fn call(
        self: &Arc<Hold>,
        id: CallId,
        call: Call,
        parsed: Option<Result<Parsed, Problem>>,
    ) -> Box<Held> {
        Box::new(Held {
            on: self.clone(),
            id,
            at: call.opened_at,
            call,
            tool: None,
            parsed,
            admitted: false,
            model: None,
            notes: Packer::default(),
            rows: Vec::new(),
        })
    }
}

/// A call that waits for its turn. It does not hold on to where it is driven, which holds on to it.
pub(crate) struct Parked {
    id: CallId,
    call: Call,
    tool: Option<Arc<Registered>>,
    parsed: Option<Result<Parsed, Problem>>,
    notes: Packer,
}

impl Hold {
    /// Goes on with a call whose turn has come.
    pub(crate) fn unpark(self: &Arc<Hold>, parked: Parked) -> Box<Held> {
        let Parked { id, call, tool, parsed, notes } = parked;
        let mut held = self.call(id, call, parsed);
        held.tool = tool;
        held.admitted = true;
        held.notes = notes;
        held
    }
}

impl Held {
    /// Puts the call aside until its turn comes: then its claims are taken.
    pub(crate) fn park(self) -> Parked {
        Parked { id: self.id, call: self.call, tool: self.tool, parsed: self.parsed, notes: self.notes }
    }

    /// Adds a fact to the call. It is written with the next commit, and nothing is acted on before that.
    pub(crate) fn note(&mut self, fact: Fact) -> Result<(), Lost> {
        self.call.apply(self.at, &fact).map_err(Lost::Broken)?;
        if self.notes.is_empty() {
            self.notes.reserve(NOTES_BYTES);
        }
        self.notes.fact(self.at, self.id.ordinal, &fact);
        Ok(())
    }

    /// Adds rows that travel with the next commit.
    pub(crate) fn carry(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows);
    }

    /// Writes what was noted, and waits until it is durable.
    pub(crate) async fn commit(&mut self) -> Result<(), Lost> {
        let on = self.on.clone();
        on.batch.send(&on.session.lane, std::slice::from_mut(self)).durable().await
    }

    pub(crate) fn take_notes(&mut self, packer: &mut Packer, rows: &mut Vec<Row>) {
        packer.append(&mut self.notes);
        rows.append(&mut self.rows);
    }

    /// How many bytes it has noted.
    pub(crate) fn noted_bytes(&self) -> usize {
        self.notes.len()
    }

    /// A stage begins.
    pub(crate) fn begin_stage(&mut self) {
        self.at = self.on.rt.clock.now();
    }

    /// When the stage began.
    pub(crate) fn now(&self) -> Timestamp {
        self.at
    }
}
