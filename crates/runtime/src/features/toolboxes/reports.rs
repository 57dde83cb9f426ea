//! Reports of processes about their attempts: heard, recorded, answered with news.

use super::desk::Desk;
use super::seat::Seat;
use super::talk::{AttemptNews, AttemptReport, AttemptStanding};
use super::{ToolboxError, Toolboxes, check_worker, desk, load_named, silence_us};
use crate::mailbox::ask::{AskError, find_call};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handle::token_hash;

impl Toolboxes {
    /// Takes reports of a process about its attempts, and answers them: as soon as everything is recorded that needs no wait, and
    /// then when there is news, at the latest after `wait`.
    pub async fn report(
        &self,
        name: &str,
        principal: &str,
        worker: &str,
        reports: Vec<AttemptReport>,
        wait: Duration,
    ) -> Result<Vec<AttemptNews>, ToolboxError> {
        let rt = &self.0;
        load_named(rt, name).await?;
        let desk = desk(rt);
        desk.admits_reports(name, principal)?;
        check_worker(worker)?;
        let (worker, now_us): (Arc<str>, _) = (worker.into(), rt.clock.elapsed_us());
        if desk.heard(name, &worker, now_us) {
            // Its next request for work finds it there already, and would wake nobody.
            rt.registry.box_is_back();
        }
        let mut heard = Vec::with_capacity(reports.len());
        for report in reports {
            let hash: Arc<str> = token_hash(rt.store.secret(), &report.token).into();
            let seat = desk.find(name, principal, &hash);
            let seat = seat.filter(|seat| !seat.is_silent(now_us, silence_us(rt)));
            let numbers = report.operations.iter().map(|(number, _)| *number);
            let numbers: Vec<u64> = numbers.chain(report.open.iter().copied()).collect();
            let (token, has_end) = (report.token.clone(), report.end.is_some());
            if has_end && seat.is_some() {
                desk.await_end(&hash);
            }
            if let Some(seat) = &seat {
                seat.report(&worker, report, now_us);
            }
            heard.push(HeardReport { token, hash, seat, numbers, has_end });
        }
        let _ends = EndsAwaited { desk: &desk, heard: &heard };
        self.until_recorded(name, &desk, &heard).await?;
        self.until_news(&desk, &heard, self.due_us(wait)).await;
        let mut news = Vec::with_capacity(heard.len());
        for report in &heard {
            news.push(self.news(name, report).await?);
        }
        Ok(news)
    }

    /// The arguments of an attempt, for the process that has it.
    pub async fn arguments(
        &self,
        name: &str,
        principal: &str,
        token: &str,
    ) -> Result<Arc<Value>, ToolboxError> {
        Ok(self.current(name, principal, token).await?.args.clone())
    }

    /// The handle of an attempt's call, for the process that has it: it may [upload](crate::Runtime::upload) artifacts for that.
    pub async fn call_of(&self, name: &str, principal: &str, token: &str) -> Result<String, ToolboxError> {
        Ok(self.current(name, principal, token).await?.cx.handle().to_string())
    }

    /// The attempt of this token, if it runs. Whoever asks is alive.
    async fn current(&self, name: &str, principal: &str, token: &str) -> Result<Arc<Seat>, ToolboxError> {
        let rt = &self.0;
        load_named(rt, name).await?;
        let desk = desk(rt);
        desk.admits_reports(name, principal)?;
        let hash: Arc<str> = token_hash(rt.store.secret(), token).into();
        let now_us = rt.clock.elapsed_us();
        let seat = desk.find(name, principal, &hash);
        let is_heard = |seat: &Arc<Seat>| !seat.is_over() && !seat.is_silent(now_us, silence_us(rt));
        if let Some(seat) = seat.filter(is_heard) {
            seat.heard(now_us);
            return Ok(seat);
        }
        match self.is_current(name, token, &hash).await? {
            true => Err(ToolboxError::Unheard),
            false => Err(ToolboxError::AttemptOver),
        }
    }

    /// Waits until everything is durable that is so soon.
    async fn until_recorded(
        &self,
        name: &str,
        desk: &Desk,
        heard: &[HeardReport],
    ) -> Result<(), ToolboxError> {
        let rt = &self.0;
        let due_us = self.due_us(Duration::from_millis(rt.limits.toolbox_wait_ms_max));
        let mut look_us = rt.clock.elapsed_us().saturating_add(RECORD_LOOK_US);
        loop {
            let news = desk.news.notified();
            let now_us = rt.clock.elapsed_us();
            // An end that leads to another attempt or a wait is found in the record. That is read once in a while only: it costs
            // more than most ends, which are told of.
            let looks = now_us >= look_us;
            if looks {
                look_us = now_us.saturating_add(RECORD_LOOK_US);
            }
            let mut open = false;
            for report in heard {
                let Some(seat) = &report.seat else { continue };
                open |= seat.owes(&report.numbers);
                open |= report.has_end
                    && !desk.has_ended(&report.hash)
                    && (!seat.is_over()
                        || !looks
                        || self.is_current(name, &report.token, &report.hash).await?);
            }
            if !open || now_us >= due_us {
                return Ok(());
            }
            tokio::select! {
                () = news => {}
                () = rt.wheel.until(due_us.min(look_us)) => {}
            }
        }
    }

    /// Waits until there is an answer, a stop or an end for one of them.
    async fn until_news(&self, desk: &Desk, heard: &[HeardReport], due_us: u64) {
        loop {
            let news = desk.news.notified();
            let is_news = |report: &HeardReport| match &report.seat {
                Some(seat) => {
                    seat.is_over() || seat.stop().is_some() || !seat.answers(&report.numbers).is_empty()
                }
                None => true,
            };
            if self.0.clock.elapsed_us() >= due_us || heard.iter().any(is_news) {
                return;
            }
            tokio::select! {
                () = news => {}
                () = self.0.wheel.until(due_us) => {}
            }
        }
    }

    async fn news(&self, name: &str, report: &HeardReport) -> Result<AttemptNews, ToolboxError> {
        let token = report.token.clone();
        if let Some(seat) = report.seat.as_ref().filter(|seat| !seat.is_over()) {
            let (standing, answers) = (AttemptStanding::Running, seat.answers(&report.numbers));
            let (stop, left) = (seat.stop(), Some(seat.cx.time_left()));
            return Ok(AttemptNews { token, standing, stop, left, answers });
        }
        let has_ended = report.has_end && desk(&self.0).has_ended(&report.hash);
        let standing = match !has_ended && self.is_current(name, &report.token, &report.hash).await? {
            true => AttemptStanding::Unheard,
            false => AttemptStanding::Over,
        };
        Ok(AttemptNews { token, standing, stop: None, left: None, answers: Vec::new() })
    }

    /// Whether the record says that this attempt runs in this toolbox.
    async fn is_current(&self, name: &str, token: &str, hash: &str) -> Result<bool, ToolboxError> {
        let Some((call, _)) = token.split_once('.') else { return Ok(false) };
        match find_call(&*self.0.store, call).await {
            Ok((_, _, call)) => Ok(call
                .handover()
                .is_some_and(|handover| &*handover.token == hash && &*handover.toolbox == name)),
            Err(AskError::Session(error)) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }
}

/// How often the record is looked at for an end that is not the call's.
const RECORD_LOOK_US: u64 = 20_000;

/// A report that was heard.
struct HeardReport {
    token: String,
    hash: Arc<str>,
    seat: Option<Arc<Seat>>,
    /// The operations whose answers it wants.
    numbers: Vec<u64>,
    has_end: bool,
}

/// Forgets the ends that a report waits for.
struct EndsAwaited<'a> {
    desk: &'a Desk,
    heard: &'a [HeardReport],
}

impl Drop for EndsAwaited<'_> {
    fn drop(&mut self) {
        self.heard
            .iter()
            .filter(|report| report.has_end)
            .for_each(|report| self.desk.forget_end(&report.hash));
    }
}
