//! The waits of a body: how each begins, and how it ends. What is waited for may come at any moment, so what is there is looked for
//! and noted under one lock.

use super::Book;
use crate::inside::Misuse;
use std::sync::Arc;
use windlass_core::operation::{Answer, Did, Question, Until, signal_slot};
use windlass_core::time::Timestamp;
use windlass_store::Row;

impl Book {
    /// Begins a sleep, or goes on with the one that is recorded; `None` if that is over.
    pub(in crate::inside) fn begin_sleep(
        &self,
        name: &str,
        (at, until): (Timestamp, Until),
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

    /// Gives out a key. `true`: it was not given out before.
    pub(in crate::inside) fn take_key(&self, name: &str, at: Timestamp, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.check_name(name, max)?;
        if page.operations().has_key(name).map_err(|found| Misuse::of(name, found))? {
            return Ok(false);
        }
        page.note(at, name, Did::KeyTaken)?;
        Ok(true)
    }

    /// Begins to wait for an answer, or goes on with the wait that is recorded.
    pub(in crate::inside) fn begin_wait(
        &self,
        name: &str,
        (at, until): (Timestamp, Until),
    ) -> Result<Until, Misuse> {
        let mut page = self.open()?;
        match page.operations().wait(name) {
            (Some(recorded), _) => Ok(recorded),
            // What was answered before anybody waited is there at once.
            (None, Some(_)) => Ok(until),
            (None, None) => {
                page.note(at, name, Did::WaitBegan(until))?;
                Ok(until)
            }
        }
    }

    /// Asks a question, with the rows that tell of it, or goes on with the one that is recorded. `true`: it was not asked before.
    pub(in crate::inside) fn begin_question(
        &self,
        name: &str,
        ((at, question), told): ((Timestamp, Question), Vec<Row>),
        max: u64,
    ) -> Result<(Until, bool), Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let recorded = page.operations().asked(name, &question);
        if let Some(asked) = recorded.map_err(|found| Misuse::of(name, found))? {
            return Ok((asked.until, false));
        }
        let until = question.until;
        page.note(at, name, Did::Asked(Arc::new(question)))?;
        page.rows.extend(told);
        Ok((until, true))
    }

    /// Begins to wait for the next signal of this name that this run of the body has not received, or goes on with the
    /// wait that is recorded: its slot, and until when.
    pub(in crate::inside) fn begin_signal(
        &self,
        signal: &str,
        (at, until): (Timestamp, Until),
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

    /// What was answered under this name, if anything was.
    pub(in crate::inside) fn answer(&self, name: &str) -> Result<Option<Answer>, Misuse> {
        Ok(self.open()?.operations().wait(name).1.cloned())
    }

    /// Ends a wait: with what was answered, or by noting that nothing was.
    pub(in crate::inside) fn end_wait(&self, name: &str, at: Timestamp) -> Result<Answer, Misuse> {
        let mut page = self.open()?;
        if let Some(answer) = page.operations().wait(name).1 {
            return Ok(answer.clone());
        }
        page.note(at, name, Did::TimedOut)?;
        Ok(Answer::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::book::tests::{NOW, answered};
    use windlass_core::ids::Ordinal;
    use windlass_core::operation::Completion;

    #[test]
    fn an_answer_that_comes_right_before_a_wait_begins_or_ends_is_what_it_ends_with() {
        let (book, until) = (Book::default(), Until { wake_at: NOW, length_us: 0 });
        book.lock().lent = true;
        for (name, begun) in [("early", false), ("late", true)] {
            book.take_key(name, NOW, 10).unwrap();
            if begun {
                book.begin_wait(name, (NOW, until)).unwrap();
            }
            book.hear(&answered(name), Ordinal(0), NOW);
            assert_eq!(book.begin_wait(name, (NOW, until)).unwrap(), until, "{name}");
            let ended = book.end_wait(name, NOW).unwrap();
            assert!(matches!(ended, Answer::Given(Completion::Ok(_))), "{name}: {ended:?}");
        }
        book.take_key("never", NOW, 10).unwrap();
        book.begin_wait("never", (NOW, until)).unwrap();
        assert!(matches!(book.end_wait("never", NOW), Ok(Answer::TimedOut)));
    }
}
