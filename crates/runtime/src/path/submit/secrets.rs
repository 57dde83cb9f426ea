//! Submissions that hold the values of secrets: the record gets references instead.

use crate::api::error::BatchError;
use crate::session::batch::OpenBatch;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::vault::{KnownSecrets, ReferencePlace};
use crate::tools::request::{RecordedRequest, ShapedBatch};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::call::Opened;
use windlass_core::ids::Lookup;

/// The calls of a batch as they were submitted, where a secret was replaced in them, with their places.
pub(crate) type SubmittedWithSecrets = Vec<(usize, Opened)>;

/// Replaces the secrets of a submission: references stand for them in arguments, markers everywhere else.
pub(crate) fn conceal(
    rt: &Inner,
    session: &Session,
    key: &str,
    checked: &mut ShapedBatch,
) -> Result<SubmittedWithSecrets, BatchError> {
    let Some(known) = session.lane.vault().known() else { return Ok(Vec::new()) };
    let is_in = |text: &str| known.is_in(text);
    if is_in(key)
        || checked.turn.as_deref().is_some_and(is_in)
        || checked.calls.iter().any(|asked| is_in(&asked.opened.id))
    {
        let what = "a key, a turn or an id of the batch holds the value of a secret, and would be recorded; choose another";
        return Err(BatchError::Shape { what: what.to_string() });
    }
    if let Some(inputs) = checked.inputs.take() {
        let mut inputs = Value::Object(inputs);
        known.scrub_value(&mut inputs);
        checked.inputs = inputs.as_object().cloned();
    }
    Ok(conceal_calls(rt, session, key, &known, &mut checked.calls))
}

fn conceal_calls(
    rt: &Inner,
    session: &Session,
    key: &str,
    known: &KnownSecrets,
    calls: &mut [RecordedRequest],
) -> SubmittedWithSecrets {
    let mut submitted = Vec::new();
    for (place, asked) in calls.iter_mut().enumerate() {
        let raw = asked.opened.clone();
        let at = ReferencePlace {
            key: rt.store.secret(),
            session: session.lane.session(),
            batch: key,
            call: &raw.id,
        };
        if let Some(concealed) = session.lane.vault().conceal(at, &raw.args.text) {
            asked.opened.args.text = concealed.into();
            asked.args = None;
            submitted.push((place, raw));
        }
        scrub_opened(known, &mut asked.opened);
    }
    submitted
}

/// Replaces secrets in what is submitted beside the arguments.
fn scrub_opened(known: &KnownSecrets, opened: &mut Opened) {
    if let Cow::Owned(scrubbed) = known.scrub(&opened.tool) {
        opened.tool = scrubbed.into();
    }
    opened.provider.iter_mut().for_each(|provider| known.scrub_text(provider));
    if let Some(task) = opened.task.as_deref_mut() {
        if let Some(title) = &mut task.title
            && let Cow::Owned(scrubbed) = known.scrub(title)
        {
            *title = scrubbed.into();
        }
        task.tags.iter_mut().for_each(|tag| known.scrub_string(tag));
    }
}

/// Takes calls back as they were submitted where they are recorded so: before the secret was stored.
pub(crate) fn restore(
    rt: &Inner,
    batch: &OpenBatch,
    calls: &mut [RecordedRequest],
    submitted: SubmittedWithSecrets,
) {
    for (place, raw) in submitted {
        if let Some(asked) = calls.get_mut(place)
            && !batch.knows(&asked.opened, &rt.limits)
            && batch.knows(&raw, &rt.limits)
        {
            asked.opened = raw;
        }
    }
}

/// The derived key of a batch. One that was derived from secrets is hashed again, with the store's own key, so that nobody can try values
/// against it; a batch that was recorded under the first keeps that.
pub(crate) async fn guarded_key(
    rt: &Inner,
    session: &Session,
    checked: &ShapedBatch,
    key: Arc<str>,
) -> Result<Arc<str>, BatchError> {
    let is_derived = checked.key.is_none() && checked.ids_given;
    let Some(known) = session.lane.vault().known().filter(|_| is_derived) else { return Ok(key) };
    if !checked.calls.iter().any(|asked| known.is_in(&asked.opened.args.text)) {
        return Ok(key);
    }
    let lookup = Lookup::of(session.lane.session(), &key);
    if session.find(lookup).is_some() || rt.store.batch(lookup).await?.is_some() {
        return Ok(key);
    }
    let mut hasher = blake3::Hasher::new_keyed(&rt.store.secret().0);
    hasher.update(b"key of a batch with secrets").update(key.as_bytes());
    Ok(hasher.finalize().to_hex()[..32].into())
}
