//! The courier: delivers the messages of the sessions that this process owns.
//!
//! A delivery belongs to a session and a webhook. Of each such route one message is on its way at once, and no route waits for another
//! unless both are of one webhook, whose gate bounds it. The next time of a message is in the key of its row, so a session with many
//! messages keeps one alarm in memory, and a restart continues where the rows are.

use super::delivery::exchange;
use super::gate::{WebhookGate, backoff_us};
use super::kept::{self, KeptFailure, KeptWebhook, WebhookNews};
use super::{DeliveryBody, WebhookState, body, post};
use crate::api::error::{SessionError, chain};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::inner::Inner;
use crate::session::outgoing::{Outgoing, OutgoingPost, post_key, read_key};
use crate::session::owner::Session;
use crate::session::wheel::{Alarm, WakeTime, Wheel};
use crate::tools::transport::WebhookReply;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, SessionRow, Space, Store, StoredRecord};

/// The page size for reading sessions and rows.
const PAGE: u64 = 100;
/// The pause after the store refused something.
const AGAIN_US: u64 = 1_000_000;

/// The deliveries of a process.
pub(super) struct Courier {
    state: OrderedMutex<CourierState, { LockRank::Courier as u8 }>,
    /// The deliveries that may go on at once.
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct CourierState {
    /// The deliveries that are under way, by session and webhook, and whether to look again at the end.
    rounds: HashMap<DeliveryRoute, bool>,
    gates: HashMap<Arc<str>, Arc<WebhookGate>>,
    /// The webhooks and their states, as they were last read.
    known: Vec<(String, WebhookState)>,
    alarms: HashMap<Arc<str>, (u64, Alarm)>,
    /// The outcomes that are not recorded yet, by webhook.
    news: BTreeMap<Arc<str>, WebhookNews>,
}

/// A session and a webhook.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DeliveryRoute {
    session: Arc<str>,
    hook: Arc<str>,
}

/// Read once, before the first session is taken.
#[derive(Default)]
struct FirstLoad(OnceCell<()>);

impl Courier {
    fn of(rt: &Inner) -> Arc<Courier> {
        rt.slots.of_or(|| {
            let room = usize::try_from(rt.limits.webhook_sends_max).unwrap_or(1);
            Arc::new(Courier { state: OrderedMutex::default(), room: Arc::new(Semaphore::new(room)) })
        })
    }

    fn gate(&self, rt: &Inner, hook: &Arc<str>) -> Arc<WebhookGate> {
        let mut state = self.state.lock();
        let new = || Arc::new(WebhookGate::new(rt.limits.webhook_sends_each_max));
        state.gates.entry(hook.clone()).or_insert_with(new).clone()
    }

    /// Begins a round, unless one is under way: then it looks again at its end.
    fn begins(&self, route: &DeliveryRoute) -> bool {
        self.state.lock().rounds.insert(route.clone(), true).is_none()
    }

    /// A round looks at everything that was there until now.
    fn looks(&self, route: &DeliveryRoute) {
        self.state.lock().rounds.insert(route.clone(), false);
    }

    /// Ends a round. `false`: something came meanwhile, so it goes on.
    fn ends(&self, route: &DeliveryRoute) -> bool {
        let mut state = self.state.lock();
        let is_over = state.rounds.get(route) != Some(&true);
        if is_over {
            state.rounds.remove(route);
        }
        is_over
    }

    /// Looks at a session again then, unless that happens earlier.
    fn look_at(&self, rt: &Inner, session: &Arc<str>, due_us: u64) {
        let mut state = self.state.lock();
        if state.alarms.get(session).is_some_and(|(earlier_us, _)| *earlier_us <= due_us) {
            return;
        }
        let alarm = rt.wheel.alarm_session(WakeTime { due_us, wall: None }, session, alarmed);
        if let Some((_, later)) = state.alarms.insert(session.clone(), (due_us, alarm)) {
            rt.wheel.clear(later);
        }
    }

    fn tell(&self, rt: &Inner, hook: &Arc<str>, news: WebhookNews) {
        self.state.lock().news.entry(hook.clone()).or_default().add(news);
        rt.outgoing.arrived.notify_one();
    }
}

/// Begins to deliver, if this runtime can, and to look for webhooks that other workers add.
pub(crate) fn begin(rt: &Arc<Inner>) {
    if rt.webhooks.is_some() {
        rt.outgoing.has_courier();
    } else if !rt.owners.has_others() {
        return;
    }
    rt.tasks.spawn(keep_delivering(rt.outgoing.clone(), rt.wheel.clone(), Arc::downgrade(rt)));
}

async fn keep_delivering(outgoing: Arc<Outgoing>, wheel: Arc<Wheel>, weak: Weak<Inner>) {
    let mut tick_us: Option<u64> = None;
    while !outgoing.is_over() {
        let ticks = async {
            match tick_us {
                Some(due_us) => wheel.until(due_us).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = outgoing.arrived.notified() => {}
            () = ticks => {}
        }
        let Some(rt) = weak.upgrade() else { return };
        for session in outgoing.take_due() {
            look_soon(&rt, &session);
        }
        let now_us = rt.clock.elapsed_us();
        if tick_us.is_some_and(|due_us| now_us >= due_us) {
            tick_us = None;
            if rt.owners.has_others()
                && let Err(error) = refresh(&rt).await
            {
                tracing::warn!(error = %chain(&error), "webhooks could not be read; they are read again");
            }
            record_news(&rt).await;
        }
        if tick_us.is_none() && (rt.owners.has_others() || has_news(&rt)) {
            tick_us = Some(now_us.saturating_add(rt.limits.webhook_known_ms.saturating_mul(1_000)));
        }
    }
}

fn has_news(rt: &Inner) -> bool {
    let courier = Courier::of(rt);
    for (hook, dropped) in rt.outgoing.take_dropped() {
        let news = WebhookNews { dropped, ..WebhookNews::default() };
        courier.state.lock().news.entry(hook).or_default().add(news);
    }
    !courier.state.lock().news.is_empty()
}

/// Adds the counts of this process to the records.
async fn record_news(rt: &Arc<Inner>) {
    let news = std::mem::take(&mut Courier::of(rt).state.lock().news);
    for (hook, news) in news {
        if let Err(error) = kept::change(&*rt.store, &hook, |kept| kept.count(&news)).await {
            tracing::warn!(webhook = %hook, error = %chain(&error), "deliveries were not counted; they are counted later");
            Courier::of(rt).state.lock().news.entry(hook).or_default().add(news);
        }
    }
}

/// The outcomes of deliveries that are not recorded yet.
pub(super) fn news_of(rt: &Inner, hook: &str) -> WebhookNews {
    let _collected = has_news(rt);
    Courier::of(rt).state.lock().news.get(hook).cloned().unwrap_or_default()
}

/// Reads the webhooks again.
pub(super) async fn reload(rt: &Arc<Inner>) -> Result<(), SessionError> {
    read_all(rt).await.map(drop)
}

/// Reads the webhooks. `true`: one was added, removed, enabled or disabled.
async fn read_all(rt: &Arc<Inner>) -> Result<bool, SessionError> {
    let all = kept::all(&*rt.store).await?;
    rt.outgoing.set(all.iter().filter_map(|(id, kept)| kept.subscription(id)).collect());
    let states: Vec<(String, WebhookState)> = all.into_iter().map(|(id, kept)| (id, kept.state)).collect();
    let courier = Courier::of(rt);
    let mut state = courier.state.lock();
    state.gates.retain(|hook, _| states.iter().any(|(id, _)| **id == **hook));
    let is_changed = state.known != states;
    state.known = states;
    Ok(is_changed)
}

/// Reads the webhooks that other workers may have changed, and delivers what one that is enabled again may have waiting.
async fn refresh(rt: &Arc<Inner>) -> Result<(), SessionError> {
    if read_all(rt).await? { look_everywhere(rt).await } else { Ok(()) }
}

/// Reads the webhooks, once.
pub(crate) async fn load(rt: &Arc<Inner>) -> Result<(), SessionError> {
    if rt.outgoing.is_loaded() {
        return Ok(());
    }
    let first = rt.slots.of::<FirstLoad>();
    first.0.get_or_try_init(|| reload(rt)).await.copied()
}

/// A session was opened or taken: its messages are counted, and delivered.
pub(crate) async fn taken(rt: &Arc<Inner>, session: &Session) {
    if !rt.outgoing.is_any() || session.is_new {
        return;
    }
    // If they cannot be counted now, they are looked at, and that is tried again.
    let queued = rt.store.count_records(Space::Outgoing.of(session.lane.session())).await.unwrap_or(1);
    session.lane.outbox().count(queued);
    if queued > 0 {
        rt.outgoing.look_at(&session.name);
    }
}

/// Takes every session with messages that are not delivered.
pub(crate) async fn resume(rt: &Arc<Inner>) -> Result<(), SessionError> {
    load(rt).await?;
    if rt.webhooks.is_none() {
        return Ok(());
    }
    let mut after = None;
    loop {
        let found = rt.store.sessions_with(Space::Outgoing, after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(()) };
        after = Some(last.no);
        for SessionRow { name, .. } in &found {
            if let Some(taken) = rt.left_session(name).await? {
                rt.outgoing.look_at(&taken.name);
            }
        }
    }
}

/// Looks at all sessions of this process with messages.
pub(super) async fn look_everywhere(rt: &Arc<Inner>) -> Result<(), SessionError> {
    let mut after = None;
    loop {
        let found = rt.store.sessions_with(Space::Outgoing, after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(()) };
        after = Some(last.no);
        for session in found.iter().filter_map(|row| rt.owned_session(&row.name)) {
            rt.outgoing.look_at(&session.name);
        }
    }
}

/// Holds every webhook of a copy: the original sends its messages. Returns their number.
pub(crate) async fn hold_all(rt: &Arc<Inner>) -> Result<u64, SessionError> {
    let mut held = 0;
    for (id, found) in kept::all(&*rt.store).await? {
        if found.state == WebhookState::Enabled {
            let why = "this data is a copy, and its original may send the messages; enable it to send them from here";
            let hold =
                |kept: &mut KeptWebhook| (kept.state, kept.why) = (WebhookState::Held, Some(why.into()));
            kept::change(&*rt.store, &id, hold).await?;
            held += 1;
        }
    }
    reload(rt).await?;
    Ok(held)
}

/// Counts queued messages by webhook, at most so many in all.
pub(super) async fn count_queued(
    store: &dyn Store,
    most: u64,
) -> Result<BTreeMap<String, u64>, SessionError> {
    let (mut counts, mut counted, mut after) = (BTreeMap::new(), 0, None);
    loop {
        let found = store.sessions_with(Space::Outgoing, after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(counts) };
        after = Some(last.no);
        for session in &found {
            let (shelf, mut from) = (Space::Outgoing.of(session.no), None::<String>);
            loop {
                let page = RecordPage { shelf, prefix: "", after: from.as_deref(), limit: PAGE };
                let rows = store.records(page).await?;
                let Some(last) = rows.last() else { break };
                from = Some(last.key.clone());
                for (hook, _) in rows.iter().filter_map(|row| row.key.split_once('/')) {
                    *counts.entry(hook.to_string()).or_default() += 1;
                    counted += 1;
                }
                if counted >= most {
                    return Ok(counts);
                }
            }
        }
    }
}

/// Forgets the failures of a webhook: an admin says that it works.
pub(super) fn reopen(rt: &Inner, hook: &str) {
    let gate = Courier::of(rt).state.lock().gates.get(hook).cloned();
    if let Some(gate) = gate {
        gate.open();
    }
}

/// The alarm of a session: a message of it is due.
fn alarmed(rt: &Arc<Inner>, session: &Arc<str>) {
    Courier::of(rt).state.lock().alarms.remove(session);
    look_soon(rt, session);
}

/// Looks at the messages of a session in a task of its own.
fn look_soon(rt: &Arc<Inner>, session: &Arc<str>) {
    let (weak, session) = (Arc::downgrade(rt), session.clone());
    rt.tasks.spawn(async move {
        let Some(rt) = weak.upgrade() else { return };
        if let Err(error) = look(&rt, &session).await {
            later(&rt, &session, &error);
        }
    });
}

/// Tries a failed look again later, unless another owner does it.
fn later(rt: &Arc<Inner>, session: &Arc<str>, error: &SessionError) {
    if matches!(error, SessionError::Lost(_) | SessionError::Owned { .. } | SessionError::Gone { .. }) {
        return;
    }
    tracing::error!(%session, error = %chain(error), "messages to webhooks wait, because the store failed");
    Courier::of(rt).look_at(rt, session, rt.clock.elapsed_us().saturating_add(AGAIN_US));
}

/// The session of this name, if it exists: nothing here opens one, and nothing of a copy is sent.
async fn owned(rt: &Arc<Inner>, name: &Arc<str>) -> Result<Option<Arc<Session>>, SessionError> {
    if rt.store.is_copy() {
        return Ok(None);
    }
    if let Some(session) = rt.owned_session(name) {
        return Ok(Some(session));
    }
    match rt.store.session(name).await? {
        Some(_) => rt.session(name).await.map(Some),
        None => Ok(None),
    }
}

/// Begins a round for each webhook with messages of the session.
async fn look(rt: &Arc<Inner>, name: &Arc<str>) -> Result<(), SessionError> {
    let Some(session) = owned(rt, name).await? else { return Ok(()) };
    // Everything sent before is in the store then.
    session.lane.commit_rows(Vec::new()).await?;
    let shelf = Space::Outgoing.of(session.lane.session());
    let mut after = None::<String>;
    loop {
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: 1 };
        let Some(first) = rt.store.records(page).await?.pop() else { break };
        let hook: Arc<str> = first.key.split('/').next().unwrap_or_default().into();
        // The next character after the slash: the first row of the next webhook follows.
        after = Some(format!("{hook}0"));
        let route = DeliveryRoute { session: name.clone(), hook };
        if Courier::of(rt).begins(&route) {
            rt.tasks.spawn(round(Arc::downgrade(rt), route));
        }
    }
    if after.is_none() {
        session.lane.outbox().count(0);
    }
    Ok(())
}

/// Delivers what is due of a session to a webhook.
async fn round(weak: Weak<Inner>, route: DeliveryRoute) {
    loop {
        {
            let Some(rt) = weak.upgrade() else { return };
            Courier::of(&rt).looks(&route);
        }
        let ended = deliver_due(&weak, &route).await;
        let Some(rt) = weak.upgrade() else { return };
        let courier = Courier::of(&rt);
        match ended {
            Ok(Some(due_us)) => courier.look_at(&rt, &route.session, due_us),
            Ok(None) => {}
            Err(error) => later(&rt, &route.session, &error),
        }
        if courier.ends(&route) {
            return;
        }
    }
}

/// The next thing to do about a session and a webhook.
enum NextMessage {
    Send(Box<DueMessage>),
    /// Nothing is due before this point of the clock that never jumps.
    At(u64),
    Nothing,
}

struct DueMessage {
    key: String,
    event: String,
    row: OutgoingPost,
    kept: KeptWebhook,
}

/// Delivers messages one after the other; returns when the next one is due. Nothing of the runtime is held while a receiver is waited
/// for.
async fn deliver_due(weak: &Weak<Inner>, route: &DeliveryRoute) -> Result<Option<u64>, SessionError> {
    loop {
        let Some(rt) = weak.upgrade() else { return Ok(None) };
        match next(&rt, route).await? {
            NextMessage::Nothing => return Ok(None),
            NextMessage::At(due_us) => return Ok(Some(due_us)),
            NextMessage::Send(_) => {}
        }
        let courier = Courier::of(&rt);
        let gate = courier.gate(&rt, &route.hook);
        if let Some(open_us) = gate.closed(rt.clock.elapsed_us()) {
            return Ok(Some(open_us));
        }
        let all = courier.room.clone();
        drop((rt, courier));
        let (Ok(_room), Ok(_place)) = (gate.room.acquire().await, all.acquire().await) else {
            return Ok(None);
        };
        let Some(rt) = weak.upgrade() else { return Ok(None) };
        if gate.closed(rt.clock.elapsed_us()).is_some() {
            continue;
        }
        // The wait for room may have been long.
        let NextMessage::Send(due) = next(&rt, route).await? else { continue };
        let (Some(transport), Some(session)) = (rt.webhooks.clone(), owned(&rt, &route.session).await?)
        else {
            return Ok(None);
        };
        let body = body::of(&rt, &session, &due.event, &due.row).await?;
        let message = DeliveryBody { event: &due.event, body };
        let signed = post(&rt, &route.hook, &due.kept, message);
        drop((rt, session));
        let said = match signed {
            Ok(sent) => exchange(&*transport, sent).await,
            Err(error) => Err(error.to_string()),
        };
        let Some(rt) = weak.upgrade() else { return Ok(None) };
        settle(&rt, route, &gate, *due, said).await?;
    }
}

/// The first message of the route, if it is due. Messages that nobody wants any more, or that are too old, are removed.
async fn next(rt: &Arc<Inner>, route: &DeliveryRoute) -> Result<NextMessage, SessionError> {
    let Some(session) = owned(rt, &route.session).await? else { return Ok(NextMessage::Nothing) };
    loop {
        let (shelf, prefix) = (Space::Outgoing.of(session.lane.session()), format!("{}/", route.hook));
        let page = RecordPage { shelf, prefix: &prefix, after: None, limit: 1 };
        let Some(record) = rt.store.records(page).await?.pop() else { return Ok(NextMessage::Nothing) };
        let kept = kept::one(&*rt.store, &route.hook).await?;
        let Some(kept) = kept.filter(|kept| kept.state != WebhookState::Disabled) else {
            drop_all(rt, &session, &prefix).await?;
            return Ok(NextMessage::Nothing);
        };
        if kept.state == WebhookState::Held {
            return Ok(NextMessage::Nothing);
        }
        let read = serde_json::from_slice::<OutgoingPost>(&record.value).ok().zip(read_key(&record.key));
        let Some((row, (next, event))) = read else {
            tracing::error!(session = %route.session, key = %record.key, "a message to a webhook cannot be read; it is dropped");
            remove(&session, vec![record.key]).await?;
            continue;
        };
        if rt.wheel.age_us(Timestamp(row.created_us)) >= rt.limits.webhook_give_up_ms.saturating_mul(1_000) {
            give_up(rt, &session, route, record, &row).await?;
            continue;
        }
        let (now, now_us) = (rt.clock.now(), rt.clock.elapsed_us());
        let left_us = next.since(now);
        // A message is never put off for longer than this: the wall clock was set back.
        let is_due = left_us == 0 || left_us > rt.limits.webhook_retry_ms_max.saturating_mul(2_000);
        if !is_due {
            return Ok(NextMessage::At(now_us.saturating_add(left_us)));
        }
        let event = event.to_string();
        return Ok(NextMessage::Send(Box::new(DueMessage { key: record.key, event, row, kept })));
    }
}

/// Removes a message that is too old.
async fn give_up(
    rt: &Inner,
    session: &Session,
    route: &DeliveryRoute,
    record: StoredRecord,
    row: &OutgoingPost,
) -> Result<(), SessionError> {
    let (hook, kind, tries) = (&route.hook, row.kind.as_str(), row.tries);
    tracing::error!(webhook = %hook, session = %route.session, kind, tries, "a message to a webhook is given up");
    remove(session, vec![record.key]).await?;
    let what = format!("a message of the kind {kind} was given up after {tries} failed deliveries");
    let last_failure = Some(KeptFailure { at_us: rt.clock.now().0, what });
    Courier::of(rt).tell(rt, hook, WebhookNews { failed: 1, last_failure, ..WebhookNews::default() });
    Ok(())
}

async fn remove(session: &Session, keys: Vec<String>) -> Result<(), SessionError> {
    let rows = keys.into_iter().map(|key| Row::Remove { space: Space::Outgoing, key });
    Ok(session.lane.commit_rows(rows.collect()).await?)
}

/// Removes all messages of a session to a webhook.
async fn drop_all(rt: &Inner, session: &Session, prefix: &str) -> Result<(), SessionError> {
    loop {
        let shelf = Space::Outgoing.of(session.lane.session());
        let page = rt.store.records(RecordPage { shelf, prefix, after: None, limit: PAGE }).await?;
        if page.is_empty() {
            return Ok(());
        }
        remove(session, page.into_iter().map(|record| record.key).collect()).await?;
    }
}

/// Records the outcome of a delivery.
async fn settle(
    rt: &Arc<Inner>,
    route: &DeliveryRoute,
    gate: &WebhookGate,
    due: DueMessage,
    said: Result<WebhookReply, String>,
) -> Result<(), SessionError> {
    let (courier, now) = (Courier::of(rt), rt.clock.now());
    // Whoever has the session now sends it again.
    let Some(session) = owned(rt, &route.session).await? else { return Ok(()) };
    let (what, retry_after) = match said {
        Ok(WebhookReply { status: 200..300, .. }) => {
            gate.open();
            let (delivered, last_success_us) = (1, Some(now.0));
            courier.tell(
                rt,
                &route.hook,
                WebhookNews { delivered, last_success_us, ..WebhookNews::default() },
            );
            return remove(&session, vec![due.key]).await;
        }
        Ok(WebhookReply { status: 410, .. }) => return gone(rt, &session, route).await,
        Ok(WebhookReply { status, retry_after }) => {
            (format!("the receiver answered with {status}"), retry_after)
        }
        Err(error) => (error, None),
    };
    tracing::warn!(webhook = %route.hook, session = %route.session, error = %what, "a delivery to a webhook failed");
    gate.failed(rt.clock.elapsed_us(), rt.limits.webhook_retry_ms);
    let last_failure = Some(KeptFailure { at_us: now.0, what });
    courier.tell(rt, &route.hook, WebhookNews { last_failure, ..WebhookNews::default() });
    let DueMessage { key, event, row, .. } = due;
    let next = Timestamp(now.0.saturating_add_unsigned(pause_us(rt, row.tries, retry_after)));
    let value = OutgoingPost { tries: row.tries.saturating_add(1), ..row }.encoded();
    let put = Row::Put { space: Space::Outgoing, key: post_key(&route.hook, next, &event), value };
    let rows = vec![Row::Remove { space: Space::Outgoing, key }, put];
    Ok(session.lane.commit_rows(rows).await?)
}

/// The wait before the next try: doubled each time and spread, at least as long as the receiver asks for.
fn pause_us(rt: &Inner, tries: u32, retry_after: Option<Duration>) -> u64 {
    let limits = &rt.limits;
    let max_us = limits.webhook_retry_ms_max.saturating_mul(1_000);
    let whole_us = backoff_us(u64::from(tries), limits.webhook_retry_ms.saturating_mul(1_000), max_us);
    let spread_us = whole_us / 2 + rt.chance() % (whole_us / 2 + 1);
    let asked_us = retry_after.map_or(0, |asked| u64::try_from(asked.as_micros()).unwrap_or(u64::MAX));
    spread_us.max(asked_us.min(max_us))
}

/// The receiver is gone for good: the webhook is disabled, and its messages are dropped.
async fn gone(rt: &Arc<Inner>, session: &Session, route: &DeliveryRoute) -> Result<(), SessionError> {
    tracing::error!(webhook = %route.hook, "the receiver of a webhook answered with 410; the webhook is disabled");
    let at_us = rt.clock.now().0;
    let disabled = kept::change(&*rt.store, &route.hook, |kept| {
        let what = "the receiver answered with 410 Gone".to_string();
        (kept.state, kept.why) = (WebhookState::Disabled, Some(what.clone()));
        kept.last_failure = Some(KeptFailure { at_us, what });
    });
    disabled.await?;
    reload(rt).await?;
    drop_all(rt, session, &format!("{}/", route.hook)).await
}
