//! How a batch comes in: what is recorded is answered, what is open is joined, what never ran is run.

use crate::answer::{BatchAnswer, CallAnswer};
use crate::batch::{Head, OpenBatch, Placed, Submission, Used};
use crate::drive;
use crate::error::{BatchError, Lost, no_randomness};
use crate::held::{Fresh, Hold, Past, Submitted as New};
use crate::inside::nested;
use crate::loops::{self, Loops};
use crate::observer::NestedCall;
use crate::request::{Asked, BatchRequest, Checked, check};
use crate::runtime::Inner;
use crate::session::Session;
use crate::stream;
use crate::tool::Place;
use crate::waits;
use std::sync::Arc;
use windlass_core::batch::{Compared, derived_key};
use windlass_core::call::{Call, DetachedBy, Opened};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};
use windlass_core::text::Text;
use windlass_store::{BatchRow, Sequence};

/// A batch that was taken: its key is known, its calls are under way.
pub struct Submitted {
    rt: Arc<Inner>,
    key: Arc<str>,
    /// Where its calls are; nowhere if it has none.
    place: Option<(Arc<Session>, Used)>,
    answers: Vec<Answering>,
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
        (session, batch): (&Arc<Session>, &Used),
        answers: Vec<Answering>,
    ) -> Submitted {
        Submitted { rt: rt.clone(), key: key.clone(), place: Some((session.clone(), batch.clone())), answers }
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
        self.now().await
    }

    /// The same for one who may want to look before that: [`now`](Self::now) has the answers.
    pub async fn ended(&self) -> Result<(), BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(()) };
        if !batch.have_ended(self.ordinals()) {
            let (_waiting, parked) = batch.wait_for();
            session.wake_all(&self.rt, batch, parked);
            batch.settled(self.ordinals(), &session.lane).await?;
        }
        Ok(())
    }

    /// Records the batch and its calls, unless they are recorded: once this returns they survive this process.
    pub async fn admitted(&self) -> Result<(), BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(()) };
        if batch.have_ended(self.ordinals()) {
            return Ok(());
        }
        batch.record(&session.lane).await.map_err(|lost| stream::lose(&self.rt, session, lost))
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
            if waits::stand_still(&self.rt, session, &mut calls) {
                return Ok(());
            }
            if let Some(lost) = session.lane.lost() {
                return Err(lost.into());
            }
            moved.await;
        }
    }

    /// The answers as they stand now, in the order of the calls: those of open calls say where these are by their
    /// journal. What is told is recorded first. A call that became a task after this submission is told to be one, also if it
    /// has ended since: of its end its session is told, and nobody is told twice.
    pub async fn now(&self) -> Result<BatchAnswer, BatchError> {
        let Some((session, batch)) = &self.place else { return Ok(self.empty()) };
        if let Some(answer) = self.try_answer(batch) {
            return Ok(answer);
        }
        self.admitted().await?;
        let head = &batch.head;
        let row = BatchRow { no: head.no, session: session.lane.session(), lookup: head.lookup, open: true };
        let (folded, _) = session.read(&row).await?;
        let calls: Vec<Arc<Call>> = folded.calls.into_iter().map(Arc::new).collect();
        let told = |answering: &Answering| {
            let call = calls.get(usize::from(answering.ordinal.0))?;
            Some(self.told(batch, answering, call))
        };
        Ok(self.answer(batch, self.answers.iter().filter_map(told).collect()))
    }

    /// The answers, if all calls have ended.
    fn try_answer(&self, batch: &OpenBatch) -> Option<BatchAnswer> {
        let told = |place: usize, call: &Arc<Call>| self.told(batch, &self.answers[place], call);
        let calls = batch.try_ended(self.ordinals(), told)?;
        Some(self.answer(batch, calls))
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
        BatchAnswer { key: self.key.clone(), calls: Vec::new(), decided: None }
    }

    fn answer(&self, batch: &OpenBatch, calls: Vec<CallAnswer>) -> BatchAnswer {
        BatchAnswer { key: self.key.clone(), calls, decided: batch.decided() }
    }

    /// What is told of a call.
    fn told(&self, batch: &OpenBatch, answering: &Answering, call: &Arc<Call>) -> CallAnswer {
        let is_task = call.task.is_some() && !answering.over;
        CallAnswer {
            id: CallId { batch: batch.head.no, ordinal: answering.ordinal },
            store: self.rt.store.clone(),
            call: if is_task { Arc::new(call.before_its_end()) } else { call.clone() },
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
    submit_to(rt, (session, None), request).await
}

/// Takes a batch in the child session of this name that a call has opened.
pub(crate) async fn submit_to_child(
    rt: &Arc<Inner>,
    (session, opener): (&str, CallId),
    request: BatchRequest,
) -> Result<Submitted, BatchError> {
    submit_to(rt, (session, Some(opener)), request).await
}

async fn submit_to(
    rt: &Arc<Inner>,
    (session, opener): (&str, Option<CallId>),
    request: BatchRequest,
) -> Result<Submitted, BatchError> {
    let checked = check(request, &rt.limits)?;
    let key = key(rt, &checked)?;
    if checked.calls.is_empty() {
        return Ok(Submitted { rt: rt.clone(), key, place: None, answers: Vec::new() });
    }
    let session = rt.session(session).await?;
    // It may have been removed, and its name be another's: that one has other tools.
    if opener.is_some() && opener != session.opener() {
        return Err(Lost::Removed.into());
    }
    let _admission = session.admission.lock().await;
    session.check_stays()?;
    if session.kin.is_some() {
        // What is new is refused where it is known what that is.
        session.look_closed(rt).await?;
    }
    if session.loops.is_unread() {
        Box::pin(Loops::read(rt, &session)).await;
    }
    take(rt, &session, (checked, key)).await
}

/// Takes a batch that is called from inside a call. `None`: the attempt that calls is over.
pub(crate) async fn submit_inside(
    hold: &Hold,
    asked: &nested::Asked,
    request: BatchRequest,
) -> Result<Option<Submitted>, BatchError> {
    let Hold { rt, session, .. } = hold;
    let checked = Checked { parent: Some(asked.parent), ..check(request, &rt.limits)? };
    let _admission = session.admission.lock().await;
    // Whoever ends the calls inside an attempt waits for the admission first, and misses none.
    if !asked.is_wanted() {
        return Ok(None);
    }
    take(rt, session, (checked, asked.key.clone())).await.map(Some)
}

/// The call that starts a task, and how deep that lies.
#[derive(Clone, Copy)]
pub(crate) struct Starter {
    pub(crate) call: CallId,
    pub(crate) depth: u32,
}

/// Takes a call that another one starts as a task, and records it.
pub(crate) async fn submit_task(
    hold: &Hold,
    (starter, key): (Starter, Arc<str>),
    request: BatchRequest,
) -> Result<CallId, BatchError> {
    let Hold { rt, session, .. } = hold;
    let mut checked = check(request, &rt.limits)?;
    for task in checked.calls.iter_mut().filter_map(|asked| asked.opened.task.as_mut()) {
        (task.starter, task.depth) = (Some(starter.call), starter.depth);
    }
    let submitted = {
        let _admission = session.admission.lock().await;
        session.check_stays()?;
        take(rt, session, (checked, key)).await?
    };
    submitted.admitted().await?;
    submitted.first().ok_or_else(|| BatchError::Shape { what: "a task has one call".to_string() })
}

/// Finds the batch or makes it, and starts what is to be run. Asked for by who has the admission.
async fn take(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (checked, key): (Checked, Arc<str>),
) -> Result<Submitted, BatchError> {
    let batch = find_or_make(rt, session, (&checked, &key)).await?;
    rt.registry.lend(&batch.head.place, checked.overlay);
    if let Some(observer) = checked.observer {
        batch.head.place.observe(observer);
    }
    let observed = observed(&batch, &checked.calls);
    let (answers, mut new) = place(rt, session, &batch, checked.calls)?;
    if let Some(observed) = observed {
        tell(rt, &batch, observed, &answers);
    }
    if loops::is_turn(&key) {
        loops::mark(rt, session, &mut new);
    }
    // To a batch that is open for more, this is a push.
    stream::wait_for_push(rt, session, &batch);
    let on = new.on.clone();
    drive::start_all(&on, new.into_calls()).await;
    if answers.iter().all(|answer| answer.known) && batch.is_over() {
        session.forget(&batch);
    }
    Ok(Submitted::of(rt, &key, (session, &batch), answers))
}

/// The id and the tool of each call, where somebody is told of those that are new.
fn observed(batch: &OpenBatch, calls: &[Asked]) -> Option<Vec<(String, String)>> {
    let is_observed = batch.head.parent.is_some() && batch.head.place.observer().is_some();
    is_observed.then(|| {
        calls.iter().map(|call| (call.opened.id.to_string(), call.opened.tool.to_string())).collect()
    })
}

/// Tells the observer of calls that are new, before they begin.
fn tell(rt: &Inner, batch: &OpenBatch, observed: Vec<(String, String)>, answers: &[Answering]) {
    let (Some(parent), Some(observer)) = (batch.head.parent, batch.head.place.observer()) else { return };
    let handle = |call: CallId| Handle::seal(rt.store.secret(), Kind::Call, call.packed());
    for ((id, tool), answer) in observed.into_iter().zip(answers).filter(|(_, answer)| !answer.known) {
        let call = handle(CallId { batch: batch.head.no, ordinal: answer.ordinal });
        observer.tell(&NestedCall { call, id, tool, inside: handle(parent.call) });
    }
}

/// The batch under this key, from memory or from its journal, or a new one. Asked for by who has the admission.
pub(crate) async fn find_or_make(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (checked, key): (&Checked, &Arc<str>),
) -> Result<Used, BatchError> {
    if let Some(lost) = session.lane.lost() {
        return Err(lost.into());
    }
    let lookup = Lookup::of(session.lane.session(), key);
    match session.find(lookup) {
        Some(open) => Ok(open),
        None => load_or_make(rt, session, (lookup, checked, key)).await,
    }
}

/// Where every call of a batch is answered from; those below `known` were there before.
pub(crate) fn answering_all(batch: &OpenBatch, known: usize) -> Vec<Answering> {
    let places = (0..batch.len()).map(|place| (Ordinal(place as u16), place < known));
    let over = |ordinal, known| known && batch.has_ended(ordinal);
    places
        .map(|(ordinal, known)| Answering { ordinal, known, over: over(ordinal, known), conflict: None })
        .collect()
}

/// The recorded batch under this look-up, or a new one.
async fn load_or_make(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (lookup, checked, key): (Lookup, &Checked, &Arc<str>),
) -> Result<Used, BatchError> {
    let batch = match rt.store.batch(lookup).await? {
        // Nobody waited for it any more, and it left memory.
        Some(row) if let Some(fetched) = Box::pin(session.fetch(rt, row.no)).await? => return Ok(fetched),
        Some(row) => Box::pin(load(session, row)).await?,
        None => {
            checked.check_quorum(&rt.limits)?;
            let head = Head {
                no: BatchNo(rt.store.reserve(Sequence::Batch, 1).await?),
                lookup,
                place: Arc::new(Place::new(session.name.clone(), key.clone(), checked.inputs.clone())),
                turn: checked.turn.clone(),
                siblings: checked.siblings,
                streamed: checked.streamed,
                parent: checked.parent,
                opened_at: rt.clock.now(),
            };
            OpenBatch::new(head, checked.calls.len())
        }
    };
    Ok(session.insert(batch))
}

/// A batch that is recorded, and over.
async fn load(session: &Session, row: BatchRow) -> Result<OpenBatch, BatchError> {
    let (folded, rows) = session.read(&row).await?;
    // Open batches were taken over with the session; nobody would ever end this one.
    if folded.is_open() {
        let what = format!("session {}: an open batch is not listed as open", session.lane.session());
        return Err(BatchError::Unreadable { what });
    }
    Ok(OpenBatch::recorded(session.head(&row, &folded)?, &folded, rows))
}

/// Finds the place of each call; those that never ran are returned, to be driven.
pub(crate) fn place(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: &Used,
    calls: Vec<Asked>,
) -> Result<(Vec<Answering>, New), BatchError> {
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
        return Err(session.closed());
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
    match batch.head.parent.is_some() || calls.first().is_some_and(is_triggered) {
        true => rt.opened_inside(expected),
        false => rt.opened(since_us, expected).inspect_err(|_| session.forget(batch))?,
    }
    let on = Arc::new(Hold { rt: rt.clone(), session: session.clone(), batch: batch.clone() });
    let before = batch.len();
    // Its first calls came with it, unless it was opened for calls to come.
    let is_opened = before == 0 && !batch.head.streamed;
    let at = if is_opened { batch.head.opened_at } else { rt.clock.now() };
    let submission = Submission { before, at };
    let past = Past { since_us, counted_us: 0, fresh: true, waited: false, parked_at: None };
    batch.expect(calls.len());
    let (mut answers, mut new) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for asked in calls {
        let (ordinal, conflict) = match batch.place(&asked.opened, submission, &rt.limits) {
            Placed::New(ordinal) => {
                let id = CallId { batch: batch.head.no, ordinal };
                new.push(Fresh { id, opened: asked.opened, parsed: asked.args, goes_on_with: None });
                answers.push(Answering { ordinal, known: false, over: false, conflict: None });
                continue;
            }
            Placed::Known(ordinal) => (ordinal, None),
            Placed::Conflict(ordinal, compared) => {
                (ordinal, Some(Box::new(Conflict { id: asked.opened.id, compared })))
            }
        };
        let (known, over) = (usize::from(ordinal.0) < submission.before, batch.has_ended(ordinal));
        answers.push(Answering { ordinal, known, over, conflict });
    }
    // The same call twice in one submission is one call.
    let twice = expected - new.len() as u64;
    if twice > 0 {
        rt.turns.expect_less(twice);
        rt.closed(twice);
    }
    Ok((answers, New { on, at: submission.at, past, calls: new }))
}

fn is_triggered(asked: &Asked) -> bool {
    asked.opened.task.as_ref().is_some_and(|task| task.by == DetachedBy::Triggered)
}

fn key(rt: &Inner, checked: &Checked) -> Result<Arc<str>, BatchError> {
    if let Some(key) = &checked.key {
        return Ok(key.as_str().into());
    }
    if checked.ids_given {
        let calls: Vec<&Opened> = checked.calls.iter().map(|asked| &asked.opened).collect();
        return Ok(derived_key(checked.turn.as_deref(), &calls, &rt.limits).into());
    }
    fresh_key().map(Arc::from)
}

/// A key that no other batch has.
pub fn fresh_key() -> Result<String, BatchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Conflict {
    /// What is recorded instead.
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
