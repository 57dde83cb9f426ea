//! Webhooks: notices, and waits for a person, posted to URLs, signed, at least once each.
//!
//! The rows to send are written by `session/outgoing.rs`, in the change they are about; here the owner of a session delivers them.

mod body;
mod courier;
mod delivery;
mod gate;
mod kept;
mod sign;

pub use sign::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, signature};

pub(crate) use courier::{begin, hold_all, load, resume, taken};

use crate::api::answer::{as_wall_time, wall_time};
use crate::api::error::SessionError;
use crate::api::keys::fresh_key;
use crate::api::secret::SecretError;
use crate::features::standing::check_title;
use crate::session::inner::{Inner, Runtime};
use crate::session::outgoing::WebhookKind;
use crate::tools::request::check_session_name;
use crate::tools::transport::WebhookPost;
use kept::KeptWebhook;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::time::Timestamp;

/// A webhook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// The URL that messages are posted to.
    pub url: String,
    /// A note for people on its purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The principals whose sessions it hears of; empty: all.
    pub principals: Vec<String>,
    /// The only session it hears of, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The kinds of messages it gets; empty: all.
    pub kinds: Vec<WebhookKind>,
    /// Whether its URL may lead to an address that is not public, and may be `http://`.
    pub internal: bool,
    /// Its state.
    pub state: WebhookState,
    /// The reason of its state, if it is not enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When it was created.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// The principal who created it.
    pub created_by: String,
    /// The messages that are not delivered yet, counted up to 10,000.
    pub queued: u64,
    /// The messages that were delivered.
    pub delivered: u64,
    /// The messages that were given up.
    pub failed: u64,
    /// The messages that were not queued, because too many were.
    pub dropped: u64,
    /// When a message was last delivered.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_wall_time_or_null")]
    #[schemars(with = "Option<String>")]
    pub last_success: Option<Timestamp>,
    /// The last delivery that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<WebhookFailure>,
}

/// A failed delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WebhookFailure {
    /// When it failed.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The reason.
    pub what: String,
}

/// The state of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WebhookState {
    /// Messages are queued and sent.
    Enabled,
    /// Messages are neither queued nor sent.
    Disabled,
    /// Messages are queued and not sent: the data is a copy, whose original may send them.
    Held,
}

/// A webhook to create. See [`Webhooks::add`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewWebhook {
    /// The URL.
    pub url: String,
    /// A note for people on its purpose.
    pub title: Option<String>,
    /// The principals whose sessions it hears of; empty: all.
    pub principals: Vec<String>,
    /// The only session it hears of, if there is one.
    pub session: Option<String>,
    /// The kinds of messages it gets; empty: all.
    pub kinds: Vec<WebhookKind>,
    /// Whether its URL may lead to an address that is not public, and may be `http://`.
    pub internal: bool,
    /// The secret of its signatures; `None`: a generated one.
    pub secret: Option<String>,
}

/// A created webhook.
#[derive(Clone, Debug)]
pub struct AddedWebhook {
    /// The secret of its signatures, returned only here.
    pub secret: String,
    /// The webhook.
    pub webhook: Webhook,
}

/// The outcome of a test message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookTrial {
    /// Whether the receiver accepted it.
    pub delivered: bool,
    /// The status of its answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A failed operation on webhooks.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// There is none of that id.
    #[error("there is no webhook {id:?}; `windlass webhooks ls` lists them")]
    NotFound {
        /// The id.
        id: String,
    },
    /// A webhook to create is invalid.
    #[error("{what}")]
    Invalid {
        /// The mistake, and what to do.
        what: String,
    },
    /// There are too many.
    #[error("there are {max} webhooks already; remove one that is not used")]
    TooMany {
        /// The limit `webhooks_max`.
        max: u64,
    },
    /// This runtime delivers nothing.
    #[error(
        "this process delivers no messages to webhooks; set `Config::webhooks`, or ask a `windlass` process"
    )]
    NoTransport,
    /// Its signing secret cannot be encrypted, or not be decrypted.
    #[error("the signing secret of a webhook is stored encrypted: {0}")]
    Secret(#[from] SecretError),
    /// The store is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The webhooks of a store. See [`Runtime::webhooks`].
pub struct Webhooks(Arc<Inner>);

impl Runtime {
    /// The webhooks: URLs to which the owner of each session posts its notices, and its waits for a person.
    ///
    /// ```
    /// use windlass::webhooks::{NewWebhook, WebhookKind, WebhookState};
    /// # use windlass::{Config, Runtime, store::memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use windlass::secrets::{SecretKey, SecretKeySource};
    /// # let secret_key = SecretKeySource::Key(SecretKey::random()?);
    /// # let runtime = Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new()?) });
    /// let new = NewWebhook {
    ///     url: "https://chat.example/hooks/windlass".into(),
    ///     kinds: vec![WebhookKind::Question, WebhookKind::Unknown],
    ///     ..NewWebhook::default()
    /// };
    /// let added = runtime.webhooks().add(new, "ops").await?;
    /// assert_eq!(runtime.webhooks().get(&added.webhook.id).await?.state, WebhookState::Enabled);
    /// # Ok(()) }
    /// ```
    pub fn webhooks(&self) -> Webhooks {
        Webhooks(self.0.clone())
    }
}

/// Shorter secrets could be guessed.
const SECRET_CHARS_MIN: u64 = 16;
/// The characters of an id.
const ID_CHARS: usize = 16;
/// Messages that are counted at once.
const COUNTED_MAX: u64 = 10_000;

impl Webhooks {
    /// Creates a webhook. Durable when this returns; notices and waits that are recorded from then on are sent.
    pub async fn add(&self, new: NewWebhook, created_by: &str) -> Result<AddedWebhook, WebhookError> {
        let rt = &self.0;
        check(rt, &new)?;
        let NewWebhook { url, title, principals, session, mut kinds, internal, secret } = new;
        kinds.sort_unstable();
        kinds.dedup();
        let secret = match secret {
            Some(secret) => secret,
            None => format!("whsec_{}{}", fresh_key()?, fresh_key()?),
        };
        rt.secrets.read(&*rt.store, rt.may_meet_others()).await?;
        let id: String = fresh_key()?.chars().take(ID_CHARS).collect();
        let kept = KeptWebhook {
            url,
            title,
            principals,
            session,
            kinds,
            internal,
            state: WebhookState::Enabled,
            why: None,
            sealed_secret: kept::sealed_secret(&rt.secrets.key_or_new()?, &id, &secret)?,
            created_us: rt.clock.now().0,
            created_by: created_by.to_string(),
            delivered: 0,
            failed: 0,
            dropped: 0,
            last_success_us: None,
            last_failure: None,
        };
        rt.secrets.mark_used(&*rt.store).await?;
        kept::add(&*rt.store, &id, &kept, rt.limits.webhooks_max).await?;
        courier::reload(rt).await?;
        Ok(AddedWebhook { secret, webhook: kept.shown(&id, 0) })
    }

    /// All webhooks, by id.
    pub async fn list(&self) -> Result<Vec<Webhook>, WebhookError> {
        let queued = self.queued().await?;
        let all = kept::all(&*self.0.store).await?;
        Ok(all.into_iter().map(|(id, kept)| self.shown(&id, kept, &queued)).collect())
    }

    /// The webhook of this id.
    pub async fn get(&self, id: &str) -> Result<Webhook, WebhookError> {
        let found = kept::one(&*self.0.store, id).await?.ok_or_else(|| not_found(id))?;
        let queued = self.queued().await?;
        Ok(self.shown(id, found, &queued))
    }

    /// Removes a webhook, with the messages that wait for it. `false`: there was none. A delivery that is under way ends.
    pub async fn remove(&self, id: &str) -> Result<bool, WebhookError> {
        let gone = kept::remove(&*self.0.store, id).await?;
        courier::reload(&self.0).await?;
        courier::look_everywhere(&self.0).await?;
        Ok(gone)
    }

    /// Enables a webhook, which also sends what was held; or disables it, which drops what is queued.
    pub async fn enable(&self, id: &str, enabled: bool) -> Result<Webhook, WebhookError> {
        let state = if enabled { WebhookState::Enabled } else { WebhookState::Disabled };
        let why = (!enabled).then(|| "disabled by an admin".to_string());
        let changed = kept::change(&*self.0.store, id, |kept| {
            (kept.state, kept.why) = (state, why.clone());
        });
        changed.await?.ok_or_else(|| not_found(id))?;
        courier::reload(&self.0).await?;
        courier::reopen(&self.0, id);
        courier::look_everywhere(&self.0).await?;
        self.get(id).await
    }

    /// Sends a test message now, once, also to a webhook that is not enabled. Its id is new each time.
    pub async fn test(&self, id: &str) -> Result<WebhookTrial, WebhookError> {
        let rt = &self.0;
        let kept = kept::one(&*rt.store, id).await?.ok_or_else(|| not_found(id))?;
        let transport = rt.webhooks.clone().ok_or(WebhookError::NoTransport)?;
        let event = fresh_key()?;
        let body = body::test(&event, rt.clock.now());
        let post = post(rt, id, &kept, DeliveryBody { event: &event, body })?;
        let said = delivery::answer(transport.post(post)).await;
        Ok(match said {
            Ok(reply) => WebhookTrial {
                delivered: (200..300).contains(&reply.status),
                status: Some(reply.status),
                error: None,
            },
            Err(error) => WebhookTrial { delivered: false, status: None, error: Some(error) },
        })
    }

    /// A webhook with the counts of this process that are not recorded yet.
    fn shown(&self, id: &str, mut kept: KeptWebhook, queued: &BTreeMap<String, u64>) -> Webhook {
        kept.count(&courier::news_of(&self.0, id));
        kept.shown(id, queued.get(id).copied().unwrap_or(0))
    }

    /// The number of queued messages by webhook, counted up to a limit.
    async fn queued(&self) -> Result<BTreeMap<String, u64>, WebhookError> {
        Ok(courier::count_queued(&*self.0.store, COUNTED_MAX).await?)
    }
}

/// A message to deliver.
struct DeliveryBody<'a> {
    /// The id of the message.
    event: &'a str,
    body: Vec<u8>,
}

/// A signed delivery to the webhook of this id.
fn post(
    rt: &Inner,
    id: &str,
    kept: &KeptWebhook,
    message: DeliveryBody<'_>,
) -> Result<WebhookPost, SecretError> {
    let DeliveryBody { event, body } = message;
    let timestamp = rt.clock.now().0.div_euclid(1_000_000);
    let secret = kept.signing_secret(&rt.secrets.key()?, id)?;
    let signed = signature(&secret, timestamp, &body);
    let headers = [
        ("content-type", "application/json".to_string()),
        (ID_HEADER, event.to_string()),
        (TIMESTAMP_HEADER, timestamp.to_string()),
        (SIGNATURE_HEADER, signed),
    ];
    Ok(WebhookPost {
        url: kept.url.clone(),
        internal: kept.internal,
        headers: headers.map(|(name, value)| (name.to_string(), value)).into(),
        body,
        within: Duration::from_millis(rt.limits.webhook_wait_ms),
    })
}

/// A time, if there is one.
fn as_wall_time_or_null<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(wall_time).serialize(serializer)
}

fn not_found(id: &str) -> WebhookError {
    WebhookError::NotFound { id: id.to_string() }
}

/// Refuses a webhook that cannot be.
fn check(rt: &Inner, new: &NewWebhook) -> Result<(), WebhookError> {
    let (limits, invalid) = (&rt.limits, |what: String| WebhookError::Invalid { what });
    let max = limits.webhook_url_chars_max;
    if new.url.chars().count() as u64 > max {
        return Err(invalid(format!("the URL of a webhook has at most {max} characters")));
    }
    let is_http = new.url.starts_with("https://") || new.url.starts_with("http://");
    if !is_http || new.url.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err(invalid(format!("{:?} is no URL; write one like https://chat.example/hook", new.url)));
    }
    if let Some(transport) = &rt.webhooks {
        transport.check(&new.url, new.internal).map_err(|what| invalid(with_advice(what, new.internal)))?;
    }
    check_title(new.title.as_deref(), limits).map_err(invalid)?;
    let max = limits.webhook_principals_max;
    if new.principals.len() as u64 > max {
        return Err(invalid(format!("a webhook names at most {max} principals; leave them out for all")));
    }
    if new.principals.iter().any(|name| name.is_empty() || name.chars().count() > 64) {
        return Err(invalid("the name of a principal has 1 to 64 characters".to_string()));
    }
    if let Some(session) = &new.session {
        check_session_name(session)?;
    }
    let is_good = |secret: &String| {
        (SECRET_CHARS_MIN..=limits.webhook_url_chars_max).contains(&(secret.len() as u64))
            && secret.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !new.secret.as_ref().is_none_or(is_good) {
        let most = limits.webhook_url_chars_max;
        return Err(invalid(format!(
            "the secret of a webhook has {SECRET_CHARS_MIN} to {most} printable ASCII characters without spaces; leave it out \
             for a generated one"
        )));
    }
    Ok(())
}

/// The reason of a refusal, with the way out that an admin has.
fn with_advice(what: String, internal: bool) -> String {
    match internal {
        true => what,
        false => format!(
            "{what}; if the receiver is in your own network, set internal, which allows private addresses and http"
        ),
    }
}
