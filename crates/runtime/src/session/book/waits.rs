//! The waits of a body: their beginnings and ends. An answer may come at any moment, so looking for it and
//! noting the wait happen under one lock.

use super::Book;
use crate::api::misuse::Misuse;
use std::sync::Arc;
use windlass_core::operation::{Completion, Did, Question, Until, WaitOutcome, signal_slot};
use windlass_core::time::Timestamp;
use windlass_store::Row;

impl Book {
    /// Begins a sleep, or continues the recorded one; `None` if that is over.
    pub(crate) fn begin_sleep(
        &self,
        name: &str,
        at: Timestamp,
        until: Until,
        max: u64,
    ) -> Result<Option<Until>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        match page.operations().sleep(name).map_err(|found| Misuse::of(name, found))? {
            Some((_, true)) => Ok(None),
            Some((until, false)) => Ok(Some(until)),
            None => {
                page.note(at, name, Did::SleepBegan(until))?;
                Ok(Some(until))
            }
        }
    }

    /// Issues a key. `true`: it was not issued before.
    pub(crate) fn take_key(&self, name: &str, at: Timestamp, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.check_name(name, max)?;
        if page.operations().has_key(name).map_err(|found| Misuse::of(name, found))? {
            return Ok(false);
        }
        page.note(at, name, Did::KeyTaken)?;
        Ok(true)
    }

    /// Begins to wait for an answer, with the rows that announce it, or continues the recorded wait.
    pub(crate) fn begin_wait(
        &self,
        name: &str,
        at: Timestamp,
        until: Until,
        told: Vec<Row>,
    ) -> Result<Until, Misuse> {
        let mut page = self.open()?;
        match page.operations().wait(name) {
            (Some(recorded), _) => Ok(recorded),
            // An answer that came before the wait is there at once.
            (None, Some(_)) => Ok(until),
            (None, None) => {
                page.note(at, name, Did::WaitBegan(until))?;
                page.rows.extend(told);
                Ok(until)
            }
        }
    }

    /// Asks a question, with the rows that announce it, or continues the recorded one. `true`: it was not asked before.
    pub(crate) fn begin_question(
        &self,
        name: &str,
        at: Timestamp,
        mut question: Question,
        told: Vec<Row>,
        max: u64,
    ) -> Result<(Until, bool), Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        if let Some(known) = page.secrets() {
            known.scrub_question(&mut question);
        }
        let recorded = page.operations().asked(name, &question);
        if let Some(asked) = recorded.map_err(|found| Misuse::of(name, found))? {
            return Ok((asked.until, false));
        }
        let until = question.until;
        page.note(at, name, Did::Asked(Arc::new(question)))?;
        page.rows.extend(told);
        Ok((until, true))
    }

    /// Begins to wait for the next signal of this name that this run of the body has not received, or
    /// continues the recorded wait: returns its slot, and its deadline.
    pub(crate) fn begin_signal(
        &self,
        signal: &str,
        at: Timestamp,
        until: Until,
        max: u64,
    ) -> Result<(String, Until), Misuse> {
        let mut page = self.open()?;
        let number = page.names().received.get(signal).copied().unwrap_or(0) + 1;
        let slot = signal_slot(signal, number);
        page.check_count(&slot, max)?;
        page.names().received.insert(signal.into(), number);
        if let Some(recorded) = page.operations().wait(&slot).0 {
            return Ok((slot, recorded));
        }
        page.note(at, &slot, Did::SignalAwaited(until))?;
        Ok((slot, until))
    }

    /// The end of the recorded wait for a task or event under this name. `None`: the wait is new.
    pub(crate) fn awaited(&self, name: &str, what: &str, max: u64) -> Result<Option<Until>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let what = page.recorded(what);
        page.operations().awaited(name, &what).map_err(|found| Misuse::of(name, found))
    }

    /// Notes that what is awaited is over, unless whoever ended it has passed that on in between.
    pub(crate) fn end_awaited(&self, name: &str, at: Timestamp, end: Completion) -> Result<(), Misuse> {
        let mut page = self.open()?;
        match page.operations().wait(name).1 {
            Some(_) => Ok(()),
            None => page.note(at, name, Did::Completed(end)),
        }
    }

    /// The answer under this name, if there is one.
    pub(crate) fn answer(&self, name: &str) -> Result<Option<WaitOutcome>, Misuse> {
        Ok(self.open()?.operations().wait(name).1.cloned())
    }

    /// Ends a wait: with its answer, or by noting that there was none.
    pub(crate) fn end_wait(&self, name: &str, at: Timestamp) -> Result<WaitOutcome, Misuse> {
        let mut page = self.open()?;
        if let Some(answer) = page.operations().wait(name).1 {
            return Ok(answer.clone());
        }
        page.note(at, name, Did::TimedOut)?;
        Ok(WaitOutcome::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::book::tests::{NOW, answered};
    use windlass_core::ids::Ordinal;

    #[test]
    fn an_answer_that_comes_right_before_a_wait_begins_or_ends_is_what_it_ends_with() {
        let (book, until) = (Book::default(), Until { wake_at: NOW, length_us: 0 });
        book.page.lock().lent = true;
        for (name, begun) in [("early", false), ("late", true)] {
            book.take_key(name, NOW, 10).unwrap();
            if begun {
                book.begin_wait(name, NOW, until, Vec::new()).unwrap();
            }
            book.hear(&answered(name), Ordinal(0), NOW);
            assert_eq!(book.begin_wait(name, NOW, until, Vec::new()).unwrap(), until, "{name}");
            let ended = book.end_wait(name, NOW).unwrap();
            assert!(matches!(ended, WaitOutcome::Given(Completion::Ok { .. })), "{name}: {ended:?}");
        }
        // Whoever looks whether it is over may come behind whoever passed its end on.
        let end = || Completion::ok("null");
        let what: windlass_core::outcome::JsonText = "{}".into();
        book.note(NOW, "task", Did::Awaited { what, until }).unwrap();
        book.end_awaited("task", NOW, end()).unwrap();
        book.end_awaited("task", NOW, end()).unwrap();
        book.take_key("never", NOW, 10).unwrap();
        book.begin_wait("never", NOW, until, Vec::new()).unwrap();
        assert!(matches!(book.end_wait("never", NOW), Ok(WaitOutcome::TimedOut)));
    }
}
