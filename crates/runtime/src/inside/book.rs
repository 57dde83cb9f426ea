//! What an attempt has done by name so far, shared by the tool that does it and whoever drives the call.
//!
//! While an attempt runs, its book has what its driver had noted and not committed, so that what the tool records comes
//! behind it. When the attempt is over the driver takes the book back, and nothing more is written in it.

mod clocks;
pub(crate) mod told;
mod waits;

use super::Misuse;
use super::still::Still;
use crate::batch::{Asked, OpenBatch, With};
use crate::children;
use crate::error::Lost;
use crate::held::{Ack, Held};
use crate::lane::{Commit, Lane};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use windlass_core::call::{Detached, Fact};
use windlass_core::entry::Packer;
use windlass_core::failure::Failure;
use windlass_core::ids::Ordinal;
use windlass_core::operation::{CLIENT, Called, Did, Operation, Operations, RESERVED, Step};
use windlass_core::outcome::{JsonText, Kept};
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// The operations of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Book {
    page: Mutex<Page>,
    /// Told when something that may be waited for is over.
    changed: Notify,
    /// Told when something was asked of the call while it runs.
    rung: Notify,
    still: Still,
}

#[derive(Debug, Default)]
struct Page {
    /// Whether the attempt runs.
    lent: bool,
    ordinal: u16,
    /// Which attempts of the call are one as far as its steps go.
    round: u32,
    /// What was due by then is over, whatever the wall clock says now.
    due_at: Timestamp,
    /// Whether it is only noted that this run of the body began.
    start_is_noted: bool,
    operations: Option<Box<Operations>>,
    /// What is recorded next.
    notes: Packer,
    /// What is written with it.
    rows: Vec<Row>,
    /// What the body has done by name, once it does something so.
    names: Option<Box<Names>>,
    /// How much of what the body did is being written: what it does next is not known until that is done.
    writing: u32,
    /// What is waited for now.
    waits: Vec<Arc<str>>,
    /// How many nested calls are waited for now.
    inside: u32,
    /// Whether the body is being dropped because it only waits.
    aside: bool,
    /// How the call became a task while this attempt runs, if it did.
    detached: Option<Box<Detached>>,
    /// Whoever asked something of the call waits until these are dropped: then it is recorded.
    acks: Vec<Ack>,
}

/// The names that one run of a body uses.
#[derive(Debug, Default)]
struct Names {
    /// Those of steps and sleeps that it has used.
    used: BTreeSet<Arc<str>>,
    /// How many signals of each name it has received or waits for.
    received: BTreeMap<Arc<str>, u32>,
    /// Steps that began and are not recorded: they may have acted.
    unsettled: BTreeSet<Arc<str>>,
}

/// What an attempt left behind.
pub(crate) struct Left {
    /// What it waited for when it was put aside.
    pub(crate) waits: Vec<Arc<str>>,
    /// Whether one of its steps may have acted without being recorded.
    pub(crate) unsettled: bool,
}

/// What is to be done with a step.
pub(super) enum Begun {
    Run,
    Done(JsonText),
    Failed(Box<Failure>),
    Unknown,
}

impl Book {
    /// Gives the book to an attempt. What it waited for until `due_at` is over.
    pub(crate) fn lend(&self, held: &mut Held, due_at: Timestamp) {
        let mut page = self.lock();
        page.lent = true;
        page.due_at = due_at;
        page.ordinal = held.id.ordinal.0;
        page.round = held.call.round();
        if held.call.operations.is_some() {
            page.operations = held.call_mut().operations.take();
        }
        let Page { notes, rows, .. } = &mut *page;
        held.lend_notes(notes, rows);
        page.start_is_noted = !page.notes.is_empty();
    }

    /// Whether a step that runs now would run before it is recorded that its attempt does.
    pub(super) fn runs_unrecorded(&self) -> bool {
        self.lock().start_is_noted
    }

    /// Takes the book back: the attempt is over.
    pub(crate) fn take_back(&self, held: &mut Held) -> Left {
        let mut page = self.lock();
        page.lent = false;
        if let Some(operations) = page.operations.take() {
            held.call_mut().operations = Some(operations);
        }
        if let Some(detached) = page.detached.take() {
            held.call_mut().task = Some(detached);
        }
        let Page { notes, acks, .. } = &mut *page;
        held.take_back_notes(notes, acks);
        held.carry(std::mem::take(&mut page.rows));
        Left { waits: std::mem::take(&mut page.waits), unsettled: page.is_unsettled() }
    }

    /// Begins a step, or says what is recorded of it.
    pub(super) fn begin_step(&self, name: &str, input: &str, max: u64) -> Result<Begun, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let round = page.round;
        let begun =
            match page.operations().step(name, input, round).map_err(|found| Misuse::of(name, found))? {
                Step::Run => Begun::Run,
                Step::Done(value) => Begun::Done(value.clone()),
                Step::Failed(failure) => Begun::Failed(Box::new(failure.clone())),
                Step::Unknown => Begun::Unknown,
            };
        if let Begun::Run = begun {
            page.names().unsettled.insert(name.into());
        }
        Ok(begun)
    }

    /// A step is recorded, durably.
    pub(super) fn settle_step(&self, name: &str) {
        self.lock().names().unsettled.remove(name);
        // Whoever polls the body looks whether it can be put aside.
        self.changed.notify_waiters();
    }

    /// Begins to call other tools: how often that was done under this name, and in which round of the call this is.
    pub(super) fn begin_call(&self, name: &str, max: u64) -> Result<(Option<Called>, u32), Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let called = page.operations().called(name).map_err(|found| Misuse::of(name, found))?;
        Ok((called, page.round))
    }

    /// Whether nested calls were made.
    pub(crate) fn has_called(&self) -> bool {
        self.lock().operations.as_deref().is_some_and(Operations::has_call)
    }

    /// The child sessions that the call has opened.
    pub(crate) fn children(&self) -> Vec<String> {
        children::opened(self.lock().operations.as_deref())
    }

    /// Whether the attempt runs.
    pub(crate) fn is_lent(&self) -> bool {
        self.lock().lent
    }

    /// What is recorded of a look at pairs.
    pub(super) fn pairs_read(&self, name: &str, asked: &str, max: u64) -> Result<Option<JsonText>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let found = page.operations().pairs_read(name, asked).map_err(|found| Misuse::of(name, found))?;
        Ok(found.cloned())
    }

    /// What is recorded of a change of a pair.
    pub(super) fn pair_written(&self, name: &str, asked: &str, max: u64) -> Result<Option<bool>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().pair_written(name, asked).map_err(|found| Misuse::of(name, found))
    }

    /// Begins to attach something: whether that is recorded in this round of the call.
    pub(super) fn begin_attachment(&self, name: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let round = page.round;
        let attached = page.operations().attached_in(name).map_err(|found| Misuse::of(name, found))?;
        Ok(attached == Some(round))
    }

    /// Where this content is, if it is recorded that it was attached.
    pub(super) fn attached(&self, name: &str, content: &str) -> Result<Option<Kept>, Misuse> {
        let mut page = self.open()?;
        let round = page.round;
        page.operations().attached(name, content, round).map_err(|found| Misuse::of(name, found))
    }

    /// Takes what the world outside has answered meanwhile. While the body is being put aside too: what is taken here is
    /// told nobody else. Whether there was something.
    pub(crate) fn hear(&self, batch: &OpenBatch, ordinal: Ordinal, at: Timestamp) -> bool {
        let mut page = self.lock();
        // Once the attempt is over its driver hears.
        if !page.lent {
            return false;
        }
        let answers = batch.hear_answers(ordinal);
        let has_heard = !answers.is_empty();
        for heard in answers {
            if let Asked::Signal(signal) = &heard.what {
                let slot = page.operations().next_signal(&signal.name);
                drop(page.note(at, &slot, Did::Signalled { payload: signal.payload.clone() }));
                page.rows.extend(signal.adopt());
            }
            if let Asked::Complete { name, completion } = heard.what {
                // One that comes too late, or twice, changes nothing.
                drop(page.note(at, &name, Did::Completed(completion)));
            }
            page.acks.extend(heard.ack);
        }
        drop(page);
        self.changed.notify_waiters();
        has_heard
    }

    /// Notes that the call is a task from now on, with the row by which it is found as one.
    pub(crate) fn detach(&self, at: Timestamp, detached: Detached, row: Row) {
        let mut page = self.lock();
        page.rows.push(row);
        let (ordinal, detached) = (Ordinal(page.ordinal), Box::new(detached));
        page.notes.fact(at, ordinal, &Fact::Detached(detached.clone()));
        page.detached = Some(detached);
    }

    /// Whether the call became a task while this attempt runs.
    pub(crate) fn is_detached(&self) -> bool {
        self.lock().detached.is_some()
    }

    /// Notes something that the tool did.
    pub(super) fn note(&self, at: Timestamp, name: &str, did: Did) -> Result<(), Misuse> {
        self.open()?.note(at, name, did)
    }

    /// The same with rows that are written in the same change.
    pub(super) fn note_with(
        &self,
        at: Timestamp,
        (name, did): (&str, Did),
        rows: Vec<Row>,
    ) -> Result<(), Misuse> {
        let mut page = self.open()?;
        page.note(at, name, did)?;
        page.rows.extend(rows);
        Ok(())
    }

    /// Writes what is noted, and waits until it is durable.
    pub(crate) async fn commit(&self, batch: &OpenBatch, lane: &Lane) -> Result<(), Lost> {
        let (sent, acks) = {
            let mut page = self.lock();
            (page.send(batch, lane, With::default()), std::mem::take(&mut page.acks))
        };
        sent.durable().await?;
        drop(acks);
        self.lock().start_is_noted = false;
        Ok(())
    }

    /// Sends what is noted. It is durable before whatever is sent later.
    pub(super) fn send(&self, batch: &OpenBatch, lane: &Lane) {
        // Whoever fails to write what comes behind it is told.
        drop(self.lock().send(batch, lane, With::default()));
    }

    /// Whether what is waited for under this name is over.
    pub(super) fn is_over(&self, name: &str, now: Timestamp) -> bool {
        let page = self.lock();
        let now = now.max(page.due_at);
        page.operations.as_deref().is_some_and(|operations| operations.is_over(name, now))
    }

    /// Something that the body did is being written until what is returned is dropped.
    pub(super) fn writes(&self) -> Writes<'_> {
        self.lock().writing += 1;
        Writes { book: self }
    }

    /// Something is waited for until what is returned is dropped.
    pub(super) fn waits(&self, name: &str) -> Waits<'_> {
        let name: Arc<str> = name.into();
        self.lock().waits.push(name.clone());
        Waits { book: self, name }
    }

    /// Closes the book if all that the attempt does is wait: nothing is lost if its body is dropped now and run again
    /// later.
    pub(crate) fn put_aside(&self) -> bool {
        let mut page = self.lock();
        page.aside = !page.waits.is_empty() && !page.is_unsettled() && page.writing == 0 && page.inside == 0;
        page.aside
    }

    /// Until something may be over.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Something was asked of the call.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Until something is asked of the call.
    pub(crate) fn rung(&self) -> tokio::sync::futures::Notified<'_> {
        self.rung.notified()
    }

    fn open(&self) -> Result<MutexGuard<'_, Page>, Misuse> {
        let page = self.lock();
        if page.lent && !page.aside { Ok(page) } else { Err(Misuse::Over) }
    }

    fn lock(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn send<'a>(&mut self, batch: &OpenBatch, lane: &'a Lane, behind: With) -> Commit<'a> {
        batch.send_notes(lane, (&mut self.notes, std::mem::take(&mut self.rows)), behind)
    }

    fn note(&mut self, at: Timestamp, name: &str, did: Did) -> Result<(), Misuse> {
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

    /// A name is used once in each run of a body.
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

/// Something is waited for.
pub(super) struct Waits<'a> {
    book: &'a Book,
    name: Arc<str>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut page = self.book.lock();
        // An attempt that is put aside is dropped with its waits, and they are what it is put aside for.
        if !page.aside
            && let Some(place) = page.waits.iter().position(|name| *name == self.name)
        {
            page.waits.swap_remove(place);
        }
    }
}

/// Something is being written.
pub(super) struct Writes<'a> {
    book: &'a Book,
}

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        self.book.lock().writing -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Head, Heard, Submission};
    use crate::tool::Place;
    use windlass_core::call::{Arguments, Given, Opened};
    use windlass_core::ids::{BatchNo, Lookup};
    use windlass_core::limits::Limits;
    use windlass_core::operation::Completion;
    use windlass_core::siblings::Siblings;

    pub(super) const NOW: Timestamp = Timestamp(7);

    /// A batch of one call, which the world outside has answered.
    pub(super) fn answered(name: &str) -> OpenBatch {
        let head = Head {
            no: BatchNo(1),
            lookup: Lookup([0; 16]),
            place: Arc::new(Place::new("s".into(), "k".into(), None)),
            turn: None,
            siblings: Siblings::Independent,
            streamed: false,
            parent: None,
            opened_at: NOW,
        };
        let batch = OpenBatch::new(head, 1);
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
        };
        batch.place(&call, Submission { before: 0, at: NOW }, &Limits::default());
        let what = Asked::Complete { name: name.into(), completion: Completion::Ok("1".into()) };
        batch.ask(Ordinal(0), Heard { what, ack: None });
        batch
    }

    #[test]
    fn an_answer_that_comes_while_the_body_is_put_aside_is_kept() {
        let (book, batch) = (Book::default(), answered("person"));
        book.lock().lent = true;
        book.take_key("person", NOW, 10).unwrap();
        let _waits = book.waits("person");
        assert!(book.put_aside(), "all it does is wait");
        book.hear(&batch, Ordinal(0), NOW);
        assert!(book.lock().operations().wait("person").1.is_some());
    }

    #[test]
    fn once_the_attempt_is_over_an_answer_is_left_for_its_driver() {
        let (book, batch) = (Book::default(), answered("person"));
        book.hear(&batch, Ordinal(0), NOW);
        assert_eq!(batch.hear(Ordinal(0)).len(), 1);
    }
}
