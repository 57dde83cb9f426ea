//! How a batch comes in: what is recorded is answered, what is open is joined, what never ran is run.

mod attended;
mod expired;
mod find;
mod observed;
pub(crate) mod secrets;

use attended::Attended;
use expired::expired;
pub(crate) use find::find_or_make;
use observed::observed;

use crate::api::answer::{BatchAnswer, CallAnswer};
use crate::api::error::{BatchError, Lost, SessionError};
use crate::api::keys::{self, fresh_key};
use crate::path::background;
use crate::path::drive;
use crate::path::grants;
use crate::path::kept::KeptDrive;
use crate::path::nested;
use crate::path::stream;
use crate::session::admission::Admission;
use crate::session::batch::{AnswerNote, CallPlacement, OpenBatch, Submission, Used};
use crate::session::held::{CallPast, DriveContext, SubmittedCalls};
use crate::session::inner::Inner;
use crate::session::loops::{self, Loops};
use crate::session::owner::Session;
use crate::session::standstill::stand_still;
use crate::tools::place::BatchPlace;
use crate::tools::request::{BatchRequest, RecordedRequest, ShapedBatch, check};
use std::sync::Arc;
use windlass_args::text::Text;
use windlass_core::batch::{Compared, derived_key};
use windlass_core::call::{Call, CallClock, DetachedBy, Opened};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass};
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::outcome::Outcome;
use windlass_store::BatchRow;

/// A batch that was taken: its key is known, its calls are under way.
pub struct Submitted {
    rt: Arc<Inner>,
    key: Arc<str>,
    /// Where its calls are; nowhere if it has none.
    place: Option<(Arc<Session>, Attended)>,
    answers: Vec<Answering>,
    /// The calls that were recorded as answered provisionally when they were submitted, since nobody waits for them.
    provisional: Vec<Ordinal>,
    /// The answers of a batch whose record has expired.
    expired: Vec<CallAnswer>,
    /// The rest of the way of its calls, if whoever waits for them drives them.
    kept: KeptDrive,
}

/// Where one submitted call is answered from.
pub(crate) struct Answering {
    ordinal: Ordinal,
    /// It was recorded or under way before this submission.
    known: bool,
    /// It was over before this submission.
    over: bool,
    conflict: Option<Box<Conflict>>,
}

/// A call whose identity is another's.
struct Conflict {
    id: Text,
    compared: Compared,
}

impl Submitted {
    pub(crate) fn of(
        rt: &Arc<Inner>,
        key: &Arc<str>,
        session: &Arc<Session>,
        batch: &Used,
        answers: Vec<Answering>,
    ) -> Submitted {
        let place = Some((session.clone(), Attended::new(rt, batch)));
        let (provisional, expired) = (Vec::new(), Vec::new());
        Submitted {
            rt: rt.clone(),
            key: key.clone(),
            place,
            answers,
            provisional,
            expired,
            kept: KeptDrive::default(),
        }
    }

    /// A batch without calls, or whose calls are answered without a place.
    fn nowhere(rt: &Arc<Inner>, key: Arc<str>, expired: Vec<CallAnswer>) -> Submitted {
        let (answers, provisional) = (Vec::new(), Vec::new());
        Submitted {
            rt: rt.clone(),
            key,
            place: None,
            answers,
            provisional,
            expired,
            kept: KeptDrive::default(),
        }
    }

    /// The key of the batch: given, derived or made.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the first of its calls whose identity is another's differs from that one.
    pub(crate) fn difference(&self) -> Option<String> {
        self.answers.iter().find_map(|answer| Some(answer.conflict.as_ref()?.difference()))
    }

    /// Waits until all calls have ended and are durable, or go on as tasks. Dropping this cancels nothing.
    pub async fn settled(self) -> Result<BatchAnswer, BatchError> {
        let Some((_, batch)) = &self.place else { return Ok(self.empty()) };
        if let Some(answer) = self.try_answer(batch) {
            return Ok(answer);
        }
        self.ended().await?;
        self.receipt().await
    }

    /// Waits until all calls have ended or continue as tasks, without consuming this: [`now`](Self::now) has the answers.
    pub async fn ended(&self) -> Result<(), BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(()) };
        if !batch.have_ended(self.ordinals()) {
            let (_waiting, parked) = batch.wait_for();
            session.wake_all(&self.rt, batch, parked);
            let settled = batch.settled(self.ordinals(), &session.lane);
            self.kept.until(settled).await?;
        }
        Ok(())
    }

    /// Records the batch and its calls, unless they are recorded: once this returns they survive this process.
    pub async fn admitted(&self) -> Result<(), BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(()) };
        if batch.have_ended(self.ordinals()) {
            return Ok(());
        }
        Ok(batch.record(&session.lane).await.map_err(|lost| stream::lose(&self.rt, session, lost))?)
    }

    /// Waits until nothing of it goes on by itself: every call has ended, waits for somebody outside, or for a call that
    /// does. Calls that only take their time (a retry, a sleep, their turn) are waited for.
    pub async fn stands_still(&self) -> Result<(), BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(()) };
        let (_waiting, parked) = batch.wait_for();
        session.wake_all(&self.rt, batch, parked);
        loop {
            let moved = batch.moved();
            let calls = self.answers.iter();
            let mut calls = calls.map(|answer| CallId { batch: batch.head.no, ordinal: answer.ordinal });
            if stand_still(&self.rt, session, &mut calls) {
                return Ok(());
            }
            if let Some(lost) = session.lane.lost() {
                return Err(lost.into());
            }
            moved.await;
        }
    }

    /// The answers as they stand now, in the order of the calls: those of open calls say where these are by their
    /// journal, and are provisional. That is recorded first: a notice tells of each end that comes behind it, so a call that
    /// ends while the record is written is still answered as open, and nobody is told twice. A call that became a task
    /// after this submission is answered as one.
    pub async fn now(&self) -> Result<BatchAnswer, BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(self.empty()) };
        if self.provisional.is_empty()
            && let Some(answer) = self.try_answer(batch)
        {
            return Ok(answer);
        }
        let AnswerNote { commit, mut open } = self.answered(session, batch);
        commit.durable().await.map_err(|lost| stream::lose(&self.rt, session, lost))?;
        open.extend(&self.provisional);
        self.read(session, batch, &open).await
    }

    /// The calls as they stand now, for one who pushed them and waits for their batch: a receipt, and no answer.
    pub async fn receipt(&self) -> Result<BatchAnswer, BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(self.empty()) };
        // Calls that have ended are in memory; only open ones must be read from their journal.
        if let Some(answer) = self.try_answer(batch) {
            return Ok(answer);
        }
        self.admitted().await?;
        self.read(session, batch, &[]).await
    }

    /// Records that its calls are answered before they have ended, those whose identity is another's apart.
    fn answered<'a>(&self, session: &'a Session, batch: &OpenBatch) -> AnswerNote<'a> {
        let own = self.answers.iter().filter(|answering| answering.conflict.is_none());
        let answered =
            batch.answer(&session.lane, self.rt.clock.now(), own.map(|answering| answering.ordinal));
        // Now, though it is not durable: whoever asks may go away, and what starts then commits behind it.
        self.rt.turns.answered(&self.rt, batch.head.no);
        answered
    }

    /// The recorded state of its calls; these are reported as open, whatever has become of them.
    async fn read(
        &self,
        session: &Session,
        batch: &OpenBatch,
        open: &[Ordinal],
    ) -> Result<BatchAnswer, BatchError> {
        let head = &batch.head;
        let (session_no, lookup) = (session.lane.session(), head.lookup);
        let row = BatchRow { no: head.no, session: session_no, lookup, open: true, expired: false };
        let (folded, _) = session.read(&row).await?;
        let calls: Vec<Arc<Call>> = folded.calls.into_iter().map(Arc::new).collect();
        let told = |answering: &Answering| {
            let call = calls.get(usize::from(answering.ordinal.0))?;
            let is_open = answering.conflict.is_none() && open.contains(&answering.ordinal);
            Some(self.told(batch, answering, call, is_open))
        };
        Ok(self.answer(batch, self.answers.iter().filter_map(told).collect()))
    }

    /// The answers, if all calls have ended.
    fn try_answer(&self, batch: &OpenBatch) -> Option<BatchAnswer> {
        let told = |place: usize, call: &Arc<Call>| self.told(batch, &self.answers[place], call, false);
        let calls = batch.try_ended(self.ordinals(), told)?;
        Some(self.answer(batch, calls))
    }

    /// Why its first call was refused before it could be a task, if it was.
    async fn refusal(&self) -> Result<Option<Box<Failure>>, BatchError> {
        let (Some((_, batch)), Some(first)) = (&self.place, self.first()) else {
            return Ok(self.expired.first().map(|_| Box::new(Failure::expired())));
        };
        if batch.is_task(first.ordinal) {
            return Ok(None);
        }
        self.ended().await?;
        let ended = batch.try_ended(std::iter::once(first.ordinal), |_, call| call.outcome().cloned());
        let outcome = ended.and_then(|mut ended| ended.pop().flatten());
        Ok(if let Some(Outcome::Failed(failure)) = outcome { Some(failure) } else { None })
    }

    /// Its first call.
    fn first(&self) -> Option<CallId> {
        let (_, batch) = self.place.as_ref()?;
        self.ordinals().next().map(|ordinal| CallId { batch: batch.head.no, ordinal })
    }

    fn ordinals(&self) -> impl ExactSizeIterator<Item = Ordinal> + Clone {
        self.answers.iter().map(|answer| answer.ordinal)
    }

    fn empty(&self) -> BatchAnswer {
        BatchAnswer { key: self.key.clone(), calls: self.expired.clone(), decided: None }
    }

    fn answer(&self, batch: &OpenBatch, calls: Vec<CallAnswer>) -> BatchAnswer {
        BatchAnswer { key: self.key.clone(), calls, decided: batch.decided() }
    }

    /// The answer of a call, as an open one if that was recorded.
    fn told(&self, batch: &OpenBatch, answering: &Answering, call: &Arc<Call>, is_open: bool) -> CallAnswer {
        let is_task = call.task.is_some() && !answering.over;
        CallAnswer {
            id: CallId { batch: batch.head.no, ordinal: answering.ordinal },
            store: self.rt.store.clone(),
            call: if is_task || is_open { Arc::new(call.before_its_end()) } else { call.clone() },
            recorded: answering.known,
            conflict: answering.conflict.as_ref().map(|conflict| conflict.failure()),
            parent: batch.head.parent.map(|parent| parent.call),
        }
    }
}

/// Takes a batch and starts what is to be run.
pub(crate) async fn submit(
    rt: &Arc<Inner>,
    session: &str,
    request: BatchRequest,
) -> Result<Submitted, BatchError> {
    submit_to(rt, session, None, check(request, &rt.limits)?).await
}

/// As [`submit`]: calls that have to wait are driven by whoever waits for their end.
pub(crate) async fn submit_here(
    rt: &Arc<Inner>,
    session: &str,
    request: BatchRequest,
) -> Result<Submitted, BatchError> {
    submit_to(rt, session, None, ShapedBatch { kept: true, ..check(request, &rt.limits)? }).await
}

/// Takes a batch in the child session of this name that a call has opened.
pub(crate) async fn submit_to_child(
    rt: &Arc<Inner>,
    session: &str,
    opener: CallId,
    request: BatchRequest,
) -> Result<Submitted, BatchError> {
    submit_to(rt, session, Some(opener), check(request, &rt.limits)?).await
}

async fn submit_to(
    rt: &Arc<Inner>,
    session: &str,
    opener: Option<CallId>,
    mut checked: ShapedBatch,
) -> Result<Submitted, BatchError> {
    let mut key = key(rt, &checked)?;
    if checked.calls.is_empty() {
        return Ok(Submitted::nowhere(rt, key, Vec::new()));
    }
    let session = rt.session(session).await?;
    // It may have been removed, and its name be another's: that one has other tools.
    if opener.is_some() && opener != session.opener() {
        return Err(Lost::Removed.into());
    }
    if grants::name_tools(rt, &session, &mut checked.calls).await? {
        key = self::key(rt, &checked)?;
    }
    if rt.secrets.is_used() {
        key = Box::pin(secrets::guarded_key(rt, &session, &checked, key)).await?;
    }
    load_targets(rt, &session, &mut checked).await;
    let admission = session.admit().await;
    admission.check_stays()?;
    if session.kin.is_some() {
        // What is new is refused where it is known what that is.
        session.look_closed(rt).await?;
    }
    if session.loops.is_unread() {
        Box::pin(Loops::read(rt, &session)).await;
    }
    take(rt, &admission, checked, key).await
}

/// Takes a batch that is called from inside a call. `None`: the attempt that calls is over.
pub(crate) async fn submit_inside(
    hold: &DriveContext,
    asked: &nested::NestedRequest,
    request: BatchRequest,
) -> Result<Option<Submitted>, BatchError> {
    let DriveContext { rt, session, .. } = hold;
    let (parent, trace) = (Some(asked.parent), hold.batch.head.trace.clone());
    let mut checked = ShapedBatch { parent, trace, ..check(request, &rt.limits)? };
    grants::name_tools(rt, session, &mut checked.calls).await?;
    let admission = session.admit().await;
    // Whoever ends the calls inside an attempt waits for the admission first, and misses none.
    if !asked.is_wanted() {
        return Ok(None);
    }
    take(rt, &admission, checked, asked.key.clone()).await.map(Some)
}

/// The call that starts a task, and how deep that lies.
#[derive(Clone, Copy)]
pub(crate) struct Starter {
    pub(crate) call: CallId,
    pub(crate) depth: u32,
}

/// Has the tools loaded that are to be called as tasks.
async fn load_targets(rt: &Inner, session: &Session, checked: &mut ShapedBatch) {
    if checked.calls.iter().all(|asked| asked.opened.task.is_none()) {
        return;
    }
    let place = BatchPlace::new(session.name.clone(), "".into(), None);
    if let Some(overlay) = &checked.overlay {
        place.lend(overlay.clone());
    }
    Box::pin(background::load_targets(rt, &place, &checked.calls)).await;
    for opened in checked.calls.iter_mut().map(|asked| &mut asked.opened) {
        if opened.task.as_ref().is_some_and(|task| task.title.is_none()) {
            let title = rt.registry.known_for(&place, opened).and_then(|tool| background::title_of(&tool));
            opened.task.iter_mut().for_each(|task| task.title.clone_from(&title));
        }
    }
}

/// A task that a call started, or why it was refused at once.
pub(crate) enum TaskStart {
    Started(CallId),
    Refused(Box<Failure>),
}

/// Takes a call that another one starts as a task, and records it.
pub(crate) async fn submit_task(
    hold: &DriveContext,
    starter: Starter,
    key: Arc<str>,
    request: BatchRequest,
) -> Result<TaskStart, BatchError> {
    let DriveContext { rt, session, .. } = hold;
    let mut checked = check(request, &rt.limits)?;
    checked.trace = hold.trace_link(starter.call);
    for task in checked.calls.iter_mut().filter_map(|asked| asked.opened.task.as_mut()) {
        (task.starter, task.depth) = (Some(starter.call), starter.depth);
    }
    load_targets(rt, session, &mut checked).await;
    let submitted = {
        let admission = session.admit().await;
        admission.check_stays()?;
        take(rt, &admission, checked, key).await?
    };
    submitted.admitted().await?;
    if let Some(refused) = submitted.refusal().await? {
        return Ok(TaskStart::Refused(refused));
    }
    let first = submitted.first();
    let task = first.ok_or_else(|| BatchError::Shape { what: "a task has one call".to_string() })?;
    rt.meters.started(starter.call, task);
    Ok(TaskStart::Started(task))
}

/// Finds the batch or makes it, and starts what is to be run.
async fn take(
    rt: &Arc<Inner>,
    admission: &Admission<'_>,
    mut checked: ShapedBatch,
    key: Arc<str>,
) -> Result<Submitted, BatchError> {
    let session = admission.session();
    let is_used = rt.secrets.is_used();
    let with_secrets = if is_used { secrets::conceal(rt, session, &key, &mut checked)? } else { Vec::new() };
    let batch = match find_or_make(rt, admission, &checked, &key).await {
        Err(BatchError::Session(SessionError::Expired { .. })) => {
            return Ok(Submitted::nowhere(rt, key.clone(), expired(rt, session, &key, checked.calls).await?));
        }
        found => found?,
    };
    secrets::restore(rt, &batch, &mut checked.calls, with_secrets);
    rt.registry.lend(&batch.head.place, checked.overlay);
    if let Some(observer) = checked.observer {
        batch.head.place.observe(observer);
    }
    batch.head.place.observe_calls(checked.observers);
    let observed = observed(session, &batch, &checked.calls);
    let unattended = checked.unattended;
    let (answers, mut new) = place(rt, session, &batch, checked.calls)?;
    let mut submitted = Submitted::of(rt, &key, session, &batch, answers);
    if let Some(observed) = observed {
        observed.tell(rt, &batch, &submitted.answers);
    }
    if keys::is_turn(&key) {
        loops::mark(rt, session, &mut new);
    }
    // To a batch that is open for more, this is a push.
    stream::wait_for_push(rt, session, &batch);
    if unattended {
        // Nobody waits for this alone: whoever answers waits for what is sent behind it.
        let AnswerNote { commit, open } = submitted.answered(session, &batch);
        drop(commit);
        submitted.provisional = open;
    }
    let on = new.on.clone();
    match checked.kept {
        true => submitted.kept = drive::start_kept(&on, new.into_calls()).await,
        false => drive::start_all(&on, new.into_calls()).await,
    }
    if submitted.answers.iter().all(|answer| answer.known) && batch.is_over() {
        session.forget(&batch);
    }
    Ok(submitted)
}

/// Where every call of a batch is answered from; those below `known` were there before.
pub(crate) fn answering_all(batch: &OpenBatch, known: usize) -> Vec<Answering> {
    let places = (0..batch.len()).map(|place| (Ordinal(place as u16), place < known));
    let over = |ordinal, known| known && batch.has_ended(ordinal);
    places
        .map(|(ordinal, known)| Answering { ordinal, known, over: over(ordinal, known), conflict: None })
        .collect()
}

/// Finds the place of each call; those that never ran are returned, to be driven.
pub(crate) fn place(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: &Used,
    mut calls: Vec<RecordedRequest>,
) -> Result<(Vec<Answering>, SubmittedCalls), BatchError> {
    if batch.head.streamed
        && batch.is_closed()
        && calls.iter().any(|asked| !batch.knows(&asked.opened, &rt.limits))
    {
        session.forget(batch);
        return Err(BatchError::Closed { key: batch.head.place.batch_key.to_string() });
    }
    // What calls of it that still run do ends with them.
    let closed = session.is_known_closed() && batch.head.parent.is_none();
    if closed && calls.iter().any(|asked| !batch.knows(&asked.opened, &rt.limits)) {
        session.forget(batch);
        return Err(session.closed().into());
    }
    let expected = batch.count_new(&calls) as u64;
    let most = rt.limits.batch_calls_max;
    if batch.len() as u64 + expected > most {
        session.forget(batch);
        let what =
            format!("with these calls the batch would have more than {most}; give them a batch of their own");
        return Err(BatchError::Shape { what });
    }
    let since_us = rt.clock.elapsed_us();
    // Whoever waits for it holds what others wait for, or it is recorded with what started it: it is never refused.
    match batch.head.parent.is_some() || calls.first().is_some_and(is_fired) {
        true => rt.opened_inside(expected),
        false => {
            let no = session.lane.session();
            rt.opened(since_us, no, expected).inspect_err(|_| session.forget(batch))?;
        }
    }
    let on = Arc::new(DriveContext { rt: rt.clone(), session: session.clone(), batch: batch.clone() });
    let before = batch.len();
    // Its first calls came with it, unless it was opened for calls to come.
    let is_opened = before == 0 && !batch.head.streamed;
    let at = if is_opened { batch.head.opened_at } else { rt.clock.now() };
    let submission = Submission { before, at };
    let past = CallPast {
        clock: CallClock::starting(since_us),
        fresh: true,
        waited: false,
        moved_us: rt.wheel.moved_us(),
    };
    batch.expect(calls.len());
    let mut answers = Vec::with_capacity(calls.len());
    // Only the new ones stay.
    calls.retain_mut(|asked| {
        let (ordinal, conflict) = match batch.place(&asked.opened, submission, &rt.limits) {
            CallPlacement::New(ordinal) => {
                asked.ordinal = ordinal;
                answers.push(Answering { ordinal, known: false, over: false, conflict: None });
                return true;
            }
            CallPlacement::Known(ordinal) => (ordinal, None),
            CallPlacement::Conflict(ordinal, compared) => {
                (ordinal, Some(Box::new(Conflict { id: asked.opened.id.clone(), compared })))
            }
        };
        let (known, over) = (usize::from(ordinal.0) < submission.before, batch.has_ended(ordinal));
        answers.push(Answering { ordinal, known, over, conflict });
        false
    });
    // The same call twice in one submission is one call.
    let twice = expected - calls.len() as u64;
    if twice > 0 {
        rt.turns.expect_less(twice);
        rt.closed(twice);
    }
    Ok((answers, SubmittedCalls { on, at: submission.at, past, calls }))
}

/// Whether an event or a schedule starts it.
fn is_fired(asked: &RecordedRequest) -> bool {
    let fired = |by| matches!(by, DetachedBy::Triggered | DetachedBy::Scheduled);
    asked.opened.task.as_ref().is_some_and(|task| fired(task.by))
}

fn key(rt: &Inner, checked: &ShapedBatch) -> Result<Arc<str>, BatchError> {
    if let Some(key) = &checked.key {
        return Ok(key.as_str().into());
    }
    if checked.ids_given {
        let calls: Vec<&Opened> = checked.calls.iter().map(|asked| &asked.opened).collect();
        return Ok(derived_key(checked.turn.as_deref(), &calls, rt.limits.call()).into());
    }
    Ok(fresh_key()?.into())
}

impl Conflict {
    /// The recorded difference.
    fn difference(&self) -> String {
        match &self.compared {
            Compared::Same => String::new(),
            Compared::OtherTool => "another tool".to_string(),
            Compared::OtherArgs(pointers) if pointers.is_empty() => "other arguments".to_string(),
            Compared::OtherArgs(pointers) => format!("other arguments at {}", pointers.join(", ")),
        }
    }

    fn failure(&self) -> Box<Failure> {
        let (id, what) = (&self.id, self.difference());
        Box::new(Failure {
            class: FailureClass::Conflict,
            ..Failure::invalid_request(
                Code::Conflict,
                format!(
                    "The call {id:?} of this batch is recorded with {what}. The recorded one is untouched and this one \
                     was not run; give it another id to run it."
                ),
            )
        })
    }
}
