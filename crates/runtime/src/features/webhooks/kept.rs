//! The records of webhooks.

use super::{Webhook, WebhookError, WebhookFailure, WebhookState};
use crate::api::error::SessionError;
use crate::api::secret::{SecretError, SecretKey};
use crate::session::outgoing::{Subscription, WebhookKind};
use crate::session::vault::seal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::time::Timestamp;
use windlass_store::{RecordChange, RecordGuard, RecordPage, Refused, Store, StoreSpace, StoredRecord};

/// The stored record of a webhook, under its id.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeptWebhook {
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) principals: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kinds: Vec<WebhookKind>,
    #[serde(default)]
    pub(super) internal: bool,
    pub(super) state: WebhookState,
    /// The reason of its state, if it is not enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The key of its signatures, encrypted. It must be readable to sign, so unlike a token it is not kept as a hash.
    pub(super) sealed_secret: String,
    pub(super) created_us: i64,
    pub(super) created_by: String,
    #[serde(default)]
    pub(super) delivered: u64,
    #[serde(default)]
    pub(super) failed: u64,
    #[serde(default)]
    pub(super) dropped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_success_us: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_failure: Option<KeptFailure>,
}

/// A failed delivery.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeptFailure {
    pub(super) at_us: i64,
    pub(super) what: String,
}

/// The outcomes of deliveries that are not recorded yet.
#[derive(Clone, Default)]
pub(super) struct WebhookNews {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dropped: u64,
    pub(super) last_success_us: Option<i64>,
    pub(super) last_failure: Option<KeptFailure>,
}

impl WebhookNews {
    /// Adds later news.
    pub(super) fn add(&mut self, later: WebhookNews) {
        self.delivered += later.delivered;
        self.failed += later.failed;
        self.dropped += later.dropped;
        self.last_success_us = later.last_success_us.or(self.last_success_us);
        self.last_failure = later.last_failure.or(self.last_failure.take());
    }
}

/// The key of a webhook's signatures as it is stored.
pub(super) fn sealed_secret(key: &SecretKey, id: &str, secret: &str) -> Result<String, SecretError> {
    seal::seal_text(key, &place(id), secret).ok_or_else(|| SecretError::Key {
        what: "the machine gives no random numbers, so nothing can be encrypted".to_string(),
    })
}

/// The place for which the key of a webhook's signatures is sealed.
fn place(id: &str) -> Vec<u8> {
    format!("webhook {id}").into_bytes()
}

impl KeptWebhook {
    /// The key of its signatures.
    pub(super) fn signing_secret(&self, key: &SecretKey, id: &str) -> Result<String, SecretError> {
        seal::open_text(key, &place(id), &self.sealed_secret).ok_or_else(|| SecretError::Key {
            what: format!(
                "the secret of the webhook {id:?} was not encrypted with this key; restore the key, or remove the webhook and add it again"
            ),
        })
    }

    /// Counts deliveries.
    pub(super) fn count(&mut self, news: &WebhookNews) {
        self.delivered += news.delivered;
        self.failed += news.failed;
        self.dropped += news.dropped;
        self.last_success_us = self.last_success_us.max(news.last_success_us);
        let at = |failure: &Option<KeptFailure>| failure.as_ref().map(|failure| failure.at_us);
        if at(&news.last_failure) >= at(&self.last_failure) {
            self.last_failure = news.last_failure.clone().or(self.last_failure.take());
        }
    }

    /// The part that decides which messages it gets; none if it is disabled.
    pub(super) fn subscription(&self, id: &str) -> Option<Subscription> {
        let wanted = Subscription {
            id: id.into(),
            principals: self.principals.clone(),
            session: self.session.clone(),
            kinds: self.kinds.clone(),
        };
        (self.state != WebhookState::Disabled).then_some(wanted)
    }

    /// The webhook as admins see it.
    pub(super) fn shown(self, id: &str, queued: u64) -> Webhook {
        let failure = |KeptFailure { at_us, what }| WebhookFailure { at: Timestamp(at_us), what };
        Webhook {
            id: id.to_string(),
            url: self.url,
            title: self.title,
            principals: self.principals,
            session: self.session,
            kinds: self.kinds,
            internal: self.internal,
            state: self.state,
            why: self.why,
            created: Timestamp(self.created_us),
            created_by: self.created_by,
            queued,
            delivered: self.delivered,
            failed: self.failed,
            dropped: self.dropped,
            last_success: self.last_success_us.map(Timestamp),
            last_failure: self.last_failure.map(failure),
        }
    }

    fn read(record: &StoredRecord) -> Result<KeptWebhook, SessionError> {
        let damaged = |error| SessionError::undecodable(format!("the webhook {:?}", record.key), error);
        serde_json::from_slice(&record.value).map_err(damaged)
    }

    fn encoded(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The page size for reading webhooks.
const PAGE: u64 = 100;

/// All webhooks, by id.
pub(super) async fn all(store: &dyn Store) -> Result<Vec<(String, KeptWebhook)>, SessionError> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let shelf = StoreSpace::Webhook.shelf();
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in &records {
            found.push((record.key.clone(), KeptWebhook::read(record)?));
        }
    }
}

/// One webhook.
pub(super) async fn one(store: &dyn Store, id: &str) -> Result<Option<KeptWebhook>, SessionError> {
    let record = store.record(StoreSpace::Webhook.shelf(), id).await?;
    record.as_ref().map(KeptWebhook::read).transpose()
}

/// Writes a new webhook, if there is room.
pub(super) async fn add(
    store: &dyn Store,
    id: &str,
    kept: &KeptWebhook,
    max: u64,
) -> Result<(), WebhookError> {
    let put = RecordChange::put(StoreSpace::Webhook, id, kept.encoded()).guarded(RecordGuard::Room(max));
    match committed(store, put).await? {
        Ok(()) => Ok(()),
        Err(Refused::Full) => Err(WebhookError::TooMany { max }),
        Err(refused) => Err(WebhookError::Invalid { what: refused.to_string() }),
    }
}

/// Removes a webhook. `false`: there was none.
pub(super) async fn remove(store: &dyn Store, id: &str) -> Result<bool, WebhookError> {
    let found = store.record(StoreSpace::Webhook.shelf(), id).await.map_err(SessionError::from)?;
    let is_there = found.is_some();
    if is_there {
        let gone = committed(store, RecordChange::remove(StoreSpace::Webhook, id)).await?;
        gone.map_err(|refused| WebhookError::Invalid { what: refused.to_string() })?;
    }
    Ok(is_there)
}

/// How often a change of a webhook is tried while others change it too.
const TRIES: u32 = 8;

/// Changes a webhook, whoever else does. `None`: there is none.
pub(super) async fn change(
    store: &dyn Store,
    id: &str,
    change: impl Fn(&mut KeptWebhook),
) -> Result<Option<KeptWebhook>, SessionError> {
    let shelf = StoreSpace::Webhook.shelf();
    let mut refused = None;
    for _try in 0..TRIES {
        let Some(record) = store.record(shelf, id).await? else { return Ok(None) };
        let mut kept = KeptWebhook::read(&record)?;
        change(&mut kept);
        let put = RecordChange::put(StoreSpace::Webhook, id, kept.encoded());
        match committed(store, put.guarded(RecordGuard::Generation(record.generation))).await? {
            Ok(()) => return Ok(Some(kept)),
            Err(why) => refused = Some(why),
        }
    }
    let why = refused.map(|why| why.to_string()).unwrap_or_default();
    Err(SessionError::unreadable(format!("the webhook {id:?} is changed by others all the time ({why})")))
}

async fn committed(store: &dyn Store, change: RecordChange) -> Result<Result<(), Refused>, SessionError> {
    let said = store.commit(vec![change.into()]).await?.pop();
    Ok(said.map_or(Ok(()), |said| said.map(drop)))
}
