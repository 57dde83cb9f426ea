//! The named operations of an attempt so far, shared by the tool and the driver of the call.
//!
//! While an attempt runs, its book has the driver's uncommitted notes, so that the tool's records come after
//! them. When the attempt is over the driver takes the book back, and nothing more is written in it.

mod clocks;
pub(crate) mod told;
mod waits;

use crate::api::error::Lost;
use crate::api::locks::{LockGuard, LockRank, OrderedMutex};
use crate::api::misuse::Misuse;
use crate::session::batch::{CallDemand, OpenBatch};
use crate::session::held::{Ack, Held};
use crate::session::kin::opened;
use crate::session::lane::{Commit, Lane};
use crate::session::still::Still;
use crate::session::vault::{KnownSecrets, Vault};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::call::{Detached, Fact};
use windlass_core::entry::Packer;
use windlass_core::failure::Failure;
use windlass_core::ids::Ordinal;
use windlass_core::operation::{CLIENT, Called, Did, Operation, Operations, RESERVED, ReplayStep};
use windlass_core::outcome::{JsonText, KeptBytes};
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// The operations of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Book {
    page: OrderedMutex<BookPage, { LockRank::BookPage as u8 }>,
    /// Notified when a wait may be over.
    changed: Notify,
    /// Notified when a message comes for the running call.
    rung: Notify,
    still: Still,
}

#[derive(Debug, Default)]
struct BookPage {
    /// Whether the attempt runs.
    lent: bool,
    ordinal: u16,
    /// The round: attempts with shared steps.
    round: u32,
    /// Waits due by then are over, whatever the wall clock says now.
    due_at: Timestamp,
    /// Whether the start of this run of the body is only noted, not sent.
    start_is_noted: bool,
    operations: Option<Box<Operations>>,
    /// Entries to record next.
    notes: Packer,
    /// Rows written with them.
    rows: Vec<Row>,
    /// The names used by the body, once it uses one.
    names: Option<Box<Names>>,
    /// The number of operations being written: the body's next operation is not known until they are done.
    writing: u32,
    /// The current waits.
    waits: Vec<Arc<str>>,
    /// The number of nested calls being waited for.
    inside: u32,
    /// Whether it waits for an external answer, and others may have its call's claims.
    is_outside: bool,
    /// Whether the body is being dropped because it only waits.
    aside: bool,
    /// How the call became a task while this attempt runs, if it did.
    detached: Option<Box<Detached>>,
    /// Senders of messages wait until these are dropped: then their message is recorded.
    acks: Vec<Ack>,
    /// The secrets of the session, if there may be any: none is recorded.
    vault: Option<Arc<Vault>>,
}

/// The names used by one run of a body.
#[derive(Debug, Default)]
struct Names {
    /// Used names of steps and sleeps.
    used: BTreeSet<Arc<str>>,
    /// How many signals of each name it has received or waits for.
    received: BTreeMap<Arc<str>, u32>,
    /// Steps that began and are not recorded: they may have acted.
    unsettled: BTreeSet<Arc<str>>,
}

/// The remains of an attempt.
pub(crate) struct AttemptRemains {
    /// The waits it was put aside for.
    pub(crate) waits: Vec<Arc<str>>,
    /// Whether one of its steps may have acted without being recorded.
    pub(crate) unsettled: bool,
}

/// How a step continues.
pub(crate) enum Begun {
    Run,
    Done(JsonText),
    Failed(Box<Failure>),
    Unknown,
}

impl Book {
    /// Lends the book to an attempt. Waits until `due_at` are over.
    pub(crate) fn lend(&self, held: &mut Held, due_at: Timestamp) {
        let mut page = self.page.lock();
        page.lent = true;
        page.due_at = due_at;
        page.ordinal = held.id.ordinal.0;
        page.round = held.call.round();
        page.operations = held.call.lend_operations();
        let BookPage { notes, rows, .. } = &mut *page;
        held.lend_notes(notes, rows);
        page.vault = held.on.rt.secrets.is_used().then(|| held.on.session.lane.vault().clone());
        page.start_is_noted = !page.notes.is_empty();
    }

    /// Shows the recorded operations to a tool that is asked about an attempt. It cannot record any.
    pub(crate) fn show(&self, held: &mut Held) {
        self.page.lock().operations = held.call.lend_operations();
    }

    /// Takes back what was shown.
    pub(crate) fn hide(&self, held: &mut Held) {
        let operations = self.page.lock().operations.take();
        held.call.take_back(operations, None);
    }

    /// Makes it new, for another attempt.
    pub(crate) fn clear(&mut self) {
        *self.page.get_mut() = BookPage::default();
        self.rung = Notify::new();
        self.still = Still::default();
    }

    /// Lets no value of a secret be recorded from now on: the tool has been given one.
    pub(crate) fn guard(&self, vault: &Arc<Vault>) {
        self.page.lock().vault.get_or_insert_with(|| vault.clone());
    }

    /// Whether a step that runs now would run before the start of its attempt is recorded.
    pub(crate) fn runs_unrecorded(&self) -> bool {
        self.page.lock().start_is_noted
    }

    /// Takes the book back: the attempt is over.
    pub(crate) fn take_back(&self, held: &mut Held) -> AttemptRemains {
        let mut page = self.page.lock();
        page.lent = false;
        held.call.take_back(page.operations.take(), page.detached.take());
        let BookPage { notes, acks, .. } = &mut *page;
        held.take_back_notes(notes, acks);
        held.carry(std::mem::take(&mut page.rows));
        AttemptRemains { waits: std::mem::take(&mut page.waits), unsettled: page.is_unsettled() }
    }

    /// Begins a step, or returns its record.
    pub(crate) fn begin_step(&self, name: &str, input: &str, max: u64) -> Result<Begun, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let (round, input) = (page.round, page.recorded(input));
        let begun =
            match page.operations().step(name, &input, round).map_err(|found| Misuse::of(name, found))? {
                ReplayStep::Run => Begun::Run,
                ReplayStep::Done(value) => Begun::Done(value.clone()),
                ReplayStep::Failed(failure) => Begun::Failed(Box::new(failure.clone())),
                ReplayStep::Unknown => Begun::Unknown,
            };
        if let Begun::Run = begun {
            page.names().unsettled.insert(name.into());
        }
        Ok(begun)
    }

    /// The recorded steps that have a value, with their inputs.
    pub(crate) fn done_steps(&self) -> Vec<(Arc<str>, JsonText, JsonText)> {
        let page = self.page.lock();
        page.operations.as_deref().map(|operations| operations.done_steps().collect()).unwrap_or_default()
    }

    /// A step is recorded, durably.
    pub(crate) fn settle_step(&self, name: &str) {
        self.page.lock().names().unsettled.remove(name);
        // The poller of the body checks whether it can be put aside.
        self.changed.notify_waiters();
    }

    /// Begins a nested call: returns how often the name was called, and the round of the call.
    pub(crate) fn begin_call(&self, name: &str, max: u64) -> Result<(Option<Called>, u32), Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let called = page.operations().called(name).map_err(|found| Misuse::of(name, found))?;
        Ok((called, page.round))
    }

    /// Whether nested calls were made.
    pub(crate) fn has_called(&self) -> bool {
        self.page.lock().operations.as_deref().is_some_and(Operations::has_call)
    }

    /// The child sessions that the call has opened.
    pub(crate) fn children(&self) -> Vec<String> {
        opened(self.page.lock().operations.as_deref())
    }

    /// Whether the attempt runs.
    pub(crate) fn is_lent(&self) -> bool {
        self.page.lock().lent
    }

    /// The record of a read of pairs.
    pub(crate) fn pairs_read(&self, name: &str, asked: &str, max: u64) -> Result<Option<JsonText>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let asked = page.recorded(asked);
        let found = page.operations().pairs_read(name, &asked).map_err(|found| Misuse::of(name, found))?;
        Ok(found.cloned())
    }

    /// The record of a write of a pair.
    pub(crate) fn pair_written(&self, name: &str, asked: &str, max: u64) -> Result<Option<bool>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let asked = page.recorded(asked);
        page.operations().pair_written(name, &asked).map_err(|found| Misuse::of(name, found))
    }

    /// Begins an attachment: returns whether it is recorded in this round of the call.
    pub(crate) fn begin_attachment(&self, name: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let round = page.round;
        let attached = page.operations().attached_in(name).map_err(|found| Misuse::of(name, found))?;
        Ok(attached == Some(round))
    }

    /// The artifact of this content, if its attachment is recorded.
    pub(crate) fn attached(&self, name: &str, content: &str) -> Result<Option<KeptBytes>, Misuse> {
        let mut page = self.open()?;
        let round = page.round;
        page.operations().attached(name, content, round).map_err(|found| Misuse::of(name, found))
    }

    /// Takes pending external answers, also while the body is being put aside: an answer taken here goes
    /// nowhere else. Returns whether there were any.
    pub(crate) fn hear(&self, batch: &OpenBatch, ordinal: Ordinal, at: Timestamp) -> bool {
        let mut page = self.page.lock();
        // Once the attempt is over its driver receives messages.
        if !page.lent {
            return false;
        }
        let answers = batch.hear_answers(ordinal);
        let has_heard = !answers.is_empty();
        for heard in answers {
            if let CallDemand::Signal(signal) = &heard.what {
                let slot = page.operations().next_signal(&signal.name);
                drop(page.note(at, &slot, Did::Signalled { payload: signal.payload.clone() }));
                page.rows.extend(signal.adopt());
            }
            if let CallDemand::Complete { name, completion } = heard.what {
                // A late or repeated answer changes nothing.
                drop(page.note(at, &name, Did::Completed(completion)));
            }
            page.acks.extend(heard.ack);
        }
        drop(page);
        self.changed.notify_waiters();
        has_heard
    }

    /// Notes that the call is a task from now on, with the row that lists it as one.
    pub(crate) fn detach(&self, at: Timestamp, detached: Detached, row: Row) {
        let mut page = self.page.lock();
        page.rows.push(row);
        let (ordinal, detached) = (Ordinal(page.ordinal), Box::new(detached));
        page.notes.fact(at, ordinal, &Fact::Detached(detached.clone()));
        page.detached = Some(detached);
    }

    /// Whether the call became a task while this attempt runs.
    pub(crate) fn is_detached(&self) -> bool {
        self.page.lock().detached.is_some()
    }

    /// Notes an operation of the tool.
    pub(crate) fn note(&self, at: Timestamp, name: &str, did: Did) -> Result<(), Misuse> {
        self.open()?.note(at, name, did)
    }

    /// Notes an operation, with rows for the same change.
    pub(crate) fn note_with(
        &self,
        at: Timestamp,
        name: &str,
        did: Did,
        rows: Vec<Row>,
    ) -> Result<(), Misuse> {
        let mut page = self.open()?;
        page.note(at, name, did)?;
        page.rows.extend(rows);
        Ok(())
    }

    /// Adds rows that are written with the next change of the call, at its end at the latest.
    pub(crate) fn carry(&self, rows: Vec<Row>) -> Result<(), Misuse> {
        self.open()?.rows.extend(rows);
        Ok(())
    }

    /// Writes the notes, and waits until they are durable.
    pub(crate) async fn commit(&self, batch: &OpenBatch, lane: &Lane) -> Result<(), Lost> {
        let (sent, acks) = {
            let mut page = self.page.lock();
            (page.send(batch, lane, Vec::new()), std::mem::take(&mut page.acks))
        };
        sent.durable().await?;
        drop(acks);
        self.page.lock().start_is_noted = false;
        Ok(())
    }

    /// Sends the notes. They are durable before anything that is sent later.
    pub(crate) fn send(&self, batch: &OpenBatch, lane: &Lane) {
        // A failure is reported by the next write.
        drop(self.page.lock().send(batch, lane, Vec::new()));
    }

    /// Whether the wait of this name is over.
    pub(crate) fn is_over(&self, name: &str, now: Timestamp) -> bool {
        let page = self.page.lock();
        let now = now.max(page.due_at);
        page.operations.as_deref().is_some_and(|operations| operations.is_over(name, now))
    }

    /// Marks an operation as being written until the returned guard is dropped.
    pub(crate) fn writes(&self) -> BookWrite<'_> {
        self.page.lock().writing += 1;
        BookWrite { book: self }
    }

    /// Marks a wait until the returned guard is dropped.
    pub(crate) fn waits(&self, name: &str) -> Waits<'_> {
        let name: Arc<str> = name.into();
        self.page.lock().waits.push(name.clone());
        Waits { book: self, name }
    }

    /// Closes the book if the attempt only waits: nothing is lost if its body is dropped now and run again
    /// later.
    pub(crate) fn put_aside(&self) -> bool {
        let mut page = self.page.lock();
        page.aside = !page.waits.is_empty() && !page.is_unsettled() && page.writing == 0 && page.inside == 0;
        page.aside
    }

    /// Completes when a wait may be over.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Announces a message for the call.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Completes when a message comes for the call.
    pub(crate) fn rung(&self) -> tokio::sync::futures::Notified<'_> {
        self.rung.notified()
    }

    fn open(&self) -> Result<LockGuard<'_, BookPage>, Misuse> {
        let page = self.page.lock();
        if page.lent && !page.aside { Ok(page) } else { Err(Misuse::Over) }
    }
}

impl BookPage {
    fn send<'a>(&mut self, batch: &OpenBatch, lane: &'a Lane, behind: Vec<Row>) -> Commit<'a> {
        batch.send_notes(lane, &mut self.notes, std::mem::take(&mut self.rows), behind)
    }

    fn note(&mut self, at: Timestamp, name: &str, mut did: Did) -> Result<(), Misuse> {
        if let Some(known) = self.secrets() {
            known.scrub_did(&mut did);
        }
        let operation = Operation { name: name.into(), did };
        if !self.operations().can_follow(&operation) {
            return Err(Misuse::Unfit { name: name.into() });
        }
        let round = self.round;
        self.operations().apply(&operation, round);
        let ordinal = Ordinal(self.ordinal);
        self.notes.fact(at, ordinal, &Fact::Operation(Box::new(operation)));
        Ok(())
    }

    /// The secrets that are not recorded; mostly there are none.
    fn secrets(&self) -> Option<Arc<KnownSecrets>> {
        self.vault.as_ref().and_then(|vault| vault.known())
    }

    /// A JSON text as it is recorded.
    fn recorded<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.secrets() {
            Some(known) => Cow::Owned(known.scrub_json(text).into_owned()),
            None => Cow::Borrowed(text),
        }
    }

    fn names(&mut self) -> &mut Names {
        self.names.get_or_insert_default()
    }

    /// Whether a step began and is not recorded.
    fn is_unsettled(&self) -> bool {
        self.names.as_deref().is_some_and(|names| !names.unsettled.is_empty())
    }

    fn operations(&mut self) -> &mut Operations {
        self.operations.get_or_insert_default()
    }

    /// Registers a name: each is used once in a run of a body.
    fn use_name(&mut self, name: &str, max: u64) -> Result<(), Misuse> {
        self.check_name(name, max)?;
        if self.names().used.insert(name.into()) {
            Ok(())
        } else {
            Err(Misuse::Repeated { name: name.into() })
        }
    }

    fn check_name(&mut self, name: &str, max: u64) -> Result<(), Misuse> {
        if name.trim().is_empty() {
            return Err(Misuse::Blank);
        }
        if name.starts_with(RESERVED) && name != CLIENT {
            return Err(Misuse::Reserved { name: name.into() });
        }
        self.check_count(name, max)
    }

    fn check_count(&mut self, name: &str, max: u64) -> Result<(), Misuse> {
        if self.operations().len() as u64 >= max && !self.operations().knows(name) {
            return Err(Misuse::TooMany { max });
        }
        Ok(())
    }
}

/// A wait, until dropped.
pub(crate) struct Waits<'a> {
    book: &'a Book,
    name: Arc<str>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut page = self.book.page.lock();
        // An attempt that is put aside is dropped with its waits, which it is put aside for.
        if !page.aside
            && let Some(place) = page.waits.iter().position(|name| *name == self.name)
        {
            page.waits.swap_remove(place);
        }
    }
}

/// A write in progress, until dropped.
pub(crate) struct BookWrite<'a> {
    book: &'a Book,
}

impl Drop for BookWrite<'_> {
    fn drop(&mut self) {
        self.book.page.lock().writing -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::clock::SystemClock;
    use crate::api::limits::EnforcedLimits;
    use crate::session::batch::{BatchHead, HeardDemand, Submission};
    use crate::session::wheel::Wheel;
    use crate::tools::place::BatchPlace;
    use windlass_args::arguments::{Arguments, Given};
    use windlass_core::call::Opened;
    use windlass_core::ids::{BatchNo, Lookup};
    use windlass_core::operation::Completion;
    use windlass_core::siblings::Siblings;

    pub(crate) const NOW: Timestamp = Timestamp(7);

    /// A batch of one call with an external answer.
    pub(crate) fn answered(name: &str) -> OpenBatch {
        let head = BatchHead {
            no: BatchNo(1),
            lookup: Lookup([0; 16]),
            place: Arc::new(BatchPlace::new("s".into(), "k".into(), None)),
            turn: None,
            siblings: Siblings::Independent,
            streamed: false,
            parent: None,
            wake: windlass_core::call::Wake::OnEnd,
            trace: crate::api::traced::BatchTrace::default(),
            task_deadlines: false,
            opened_at: NOW,
        };
        let batch = OpenBatch::new(head, 1, &Arc::new(Wheel::new(Arc::new(SystemClock::default()), 5_000)));
        let args = Arguments { given: Given::Json, text: "{}".into() };
        let (id, tool) = ("c".into(), "t".into());
        let call = Opened {
            id,
            tool,
            args,
            provider: None,
            deadlines: None,
            priority: 0,
            inline_ms: None,
            task: None,
            answer: None,
            grant: None,
        };
        batch.place(&call, Submission { before: 0, at: NOW }, &EnforcedLimits::default());
        let what = CallDemand::Complete { name: name.into(), completion: Completion::ok("1") };
        batch.ask(Ordinal(0), HeardDemand { what, ack: None });
        batch
    }

    #[test]
    fn an_answer_that_comes_while_the_body_is_put_aside_is_kept() {
        let (book, batch) = (Book::default(), answered("person"));
        book.page.lock().lent = true;
        book.take_key("person", NOW, 10).unwrap();
        let _waits = book.waits("person");
        assert!(book.put_aside(), "all it does is wait");
        book.hear(&batch, Ordinal(0), NOW);
        assert!(book.page.lock().operations().wait("person").1.is_some());
    }

    #[test]
    fn once_the_attempt_is_over_an_answer_is_left_for_its_driver() {
        let (book, batch) = (Book::default(), answered("person"));
        book.hear(&batch, Ordinal(0), NOW);
        assert_eq!(batch.hear(Ordinal(0)).len(), 1);
    }
}
