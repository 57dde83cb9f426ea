//! Tokens: principals, scopes and rates. Only a keyed hash of each token is stored.

pub(crate) mod logins;
mod rates;

use crate::access::{Caller, LOCAL, TokenScope};
use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::wire::NewToken;
use crate::wire::shown::{NewTokenView, TokenView};
use rates::TokenRates;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use windlass::batch::fresh_key;
use windlass::store::{RecordChange, RecordGuard, RecordPage, Refused, Store, StoreSpace, StoredRecord};
use windlass::time::{Clock, wall_time};
use windlass::{Limits, Runtime};
use windlass_core::handle::token_hash;
use windlass_core::rate::Rate;
use windlass_core::time::Timestamp;

const MINUTE_US: u64 = 60_000_000;
/// The maximum lifetime of a token in seconds: a hundred years.
const EXPIRES_IN_S_MAX: u64 = 3_155_760_000;
const TITLE_CHARS_MAX: usize = 200;
/// Principals that a token may approve for: they are compared with every waiting call.
const APPROVES_MAX: usize = 64;
/// Longer than any token of ours; anything longer need not be hashed.
const TOKEN_BYTES_MAX: usize = 256;
/// Shorter than any token of ours, and too long to guess.
const TOKEN_CHARS_MIN: usize = 32;
/// The page size for reading tokens.
const PAGE: u64 = 200;

/// The tokens of a store.
pub struct Tokens {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    runtime: Runtime,
    limits: Limits,
    /// The folder with the first token, if there is one.
    folder: Option<PathBuf>,
    /// Recently read tokens, by their hash.
    known: Mutex<HashMap<String, CachedToken>>,
    rates: Arc<TokenRates>,
}

struct CachedToken {
    kept: Arc<KeptToken>,
    read: TokenReading,
}

/// When a token was read.
#[derive(Clone, Copy)]
struct TokenReading {
    /// By the clock that never jumps.
    at_us: u64,
    /// The number of the last revocation before.
    revocations: u64,
}

/// The stored record of a token, under its hash.
#[derive(Debug, Deserialize, Serialize)]
struct KeptToken {
    id: String,
    principal: Arc<str>,
    scopes: Arc<[TokenScope]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// In microseconds since 1970, like the next field.
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests_per_minute: Option<u32>,
    /// The principals whose calls it may approve, beside its own.
    #[serde(default, skip_serializing_if = "no_one")]
    approves: Arc<[String]>,
    /// Whether it is the login of a browser: then it is only taken in two halves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    page: bool,
}

fn no_one(approves: &Arc<[String]>) -> bool {
    approves.is_empty()
}

impl Tokens {
    /// The tokens of a runtime's store. The first one is in `folder`, if there is one.
    pub fn new(runtime: &Runtime, folder: Option<&Path>) -> Tokens {
        let (store, clock) = (runtime.store().clone(), runtime.clock().clone());
        let folder = folder.map(Path::to_path_buf);
        let (runtime, limits) = (runtime.clone(), runtime.limits().clone());
        let rates = TokenRates::new(&runtime);
        Tokens { store, clock, runtime, limits, folder, known: Mutex::default(), rates }
    }

    /// Creates the first token and writes it into the folder, if the store has none. Returns the file's path, if it exists.
    pub async fn first(&self) -> Result<Option<PathBuf>, FirstError> {
        let Some(place) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return Ok(None) };
        let written = match std::fs::read_to_string(&place) {
            Ok(token) => Some(token.trim().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let is_first = self.page(None, 1).await?.is_empty();
        if let Some(token) = &written
            && !could_be_ours(token)
            && (is_first || self.is_recorded(token).await?)
        {
            return Err(FirstError::Weak { place, chars: token.chars().count() });
        }
        if is_first {
            // The file first: a token that is written and not recorded is recorded at the next start, and never lost.
            let token = match written {
                Some(token) => token,
                None => write_new(&place, &fresh()?)?,
            };
            let wanted = NewToken {
                principal: LOCAL.to_string(),
                scopes: TokenScope::ALL.to_vec(),
                title: Some("the first one".to_string()),
                expires_in_s: None,
                requests_per_minute: None,
                approves: Vec::new(),
            };
            self.keep(&token, wanted, false).await?;
        }
        Ok(place.exists().then_some(place))
    }

    /// The caller of this token, if it is valid and within its rate. `guest`: the connection, if it is known.
    pub async fn check(&self, token: &str, guest: Option<&Guest>) -> Result<Caller, Problem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(wrong());
        }
        let made = || token_hash(self.store.secret(), token);
        let hash = guest.map_or_else(|| made().into(), |guest| guest.hash_of(token, made));
        let reading = self.reading();
        let now_us = reading.at_us;
        let fresh_us = self.limits.token_known_ms.saturating_mul(1_000);
        if let Some(known) = self.lock().get(&*hash)
            && self.is_fresh(known, reading, fresh_us)
        {
            return self.used(known, &hash, now_us);
        }
        let record = self.store.record(StoreSpace::Token.shelf(), &hash).await?;
        let mut known = self.lock();
        match record.as_ref().and_then(read).map(Arc::new) {
            Some(kept) => self.used(self.renewed(&mut known, &hash, kept, reading), &hash, now_us),
            None => {
                known.remove(&*hash);
                self.rates.forget(&hash);
                Err(wrong())
            }
        }
    }

    /// The caller of this token, if it is of the wanted kind: the login of a browser comes in two halves, all others whole.
    pub(crate) async fn check_as(
        &self,
        token: &str,
        guest: Option<&Guest>,
        page: bool,
    ) -> Result<Caller, Problem> {
        let caller = self.check(token, guest).await?;
        if caller.page == page { Ok(caller) } else { Err(wrong()) }
    }

    /// Whether the token of this hash is still valid, for a long request or response. Does not count as a use.
    pub(crate) async fn still_good(&self, hash: &str) -> Result<(), Problem> {
        let reading = self.reading();
        // Callers check twice in `token_known_ms`.
        let fresh_us = self.limits.token_known_ms.saturating_mul(1_000) / 2;
        let fresh = |known: &&CachedToken| self.is_fresh(known, reading, fresh_us);
        let known = self.lock().get(hash).filter(fresh).map(|known| known.kept.clone());
        if let Some(kept) = known {
            return self.not_expired(&kept);
        }
        let record = self.store.record(StoreSpace::Token.shelf(), hash).await?;
        let mut known = self.lock();
        let Some(kept) = record.as_ref().and_then(read).map(Arc::new) else {
            known.remove(hash);
            self.rates.forget(hash);
            return Err(wrong());
        };
        self.not_expired(&kept)?;
        self.renewed(&mut known, hash, kept, reading);
        Ok(())
    }

    /// Looks again at the token of a caller that was let in before a token was revoked: what it asked for may have been kept waiting.
    pub(crate) async fn check_again(&self, caller: &Caller) -> Result<(), Problem> {
        let is_known = caller.checked == self.runtime.revocations() && self.runtime.is_current();
        match &caller.token {
            Some(hash) if !is_known => self.still_good(hash).await,
            Some(_) | None => Ok(()),
        }
    }

    /// A reading of the store that begins now.
    fn reading(&self) -> TokenReading {
        TokenReading { at_us: self.clock.elapsed_us(), revocations: self.runtime.revocations() }
    }

    /// Whether what was read of a token still counts: it is not old, no token was revoked since, and nobody can have been told that one
    /// was without this worker.
    fn is_fresh(&self, known: &CachedToken, now: TokenReading, fresh_us: u64) -> bool {
        now.at_us.saturating_sub(known.read.at_us) < fresh_us
            && now.revocations == known.read.revocations
            && self.runtime.is_current()
    }

    fn not_expired(&self, kept: &KeptToken) -> Result<(), Problem> {
        match kept.expires_at {
            Some(at) if self.has_expired(kept, at) => Err(wrong()),
            Some(_) | None => Ok(()),
        }
    }

    /// Creates a token. Its secret is returned only here.
    pub async fn make(&self, wanted: NewToken) -> Result<NewTokenView, Problem> {
        let token = fresh()?;
        let kept = self.keep(&token, wanted, false).await?;
        Ok(NewTokenView { token, shown: shown(&kept) })
    }

    /// A page of tokens, and the next page's cursor.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<TokenView>, Option<String>), Problem> {
        let mut all = Vec::new();
        let mut page = self.page(None, PAGE).await?;
        while let Some(last) = page.last().map(|record| record.key.clone()) {
            all.extend(page.iter().filter_map(read));
            page = self.page(Some(&last), PAGE).await?;
        }
        // Ordered by the public ids: hashes are never shown.
        all.sort_by(|a, b| a.id.cmp(&b.id));
        let mut rest = all.iter().filter(|kept| after.is_none_or(|after| kept.id.as_str() > after));
        let items: Vec<TokenView> = rest.by_ref().take(limit).map(shown).collect();
        let next = rest.next().and(items.last()).map(|last| last.id.clone());
        Ok((items, next))
    }

    /// Revokes a token; once this returns, every worker refuses it. `false`: there is none with this id.
    pub async fn revoke(&self, id: &str) -> Result<bool, Problem> {
        let mut page = self.page(None, PAGE).await?;
        while let Some(last) = page.last().map(|record| record.key.clone()) {
            let is_it = |record: &&StoredRecord| read(record).is_some_and(|kept| kept.id == id);
            if let Some(record) = page.iter().find(is_it) {
                self.remove_file(&record.key)?;
                self.forget_everywhere(&record.key).await?;
                return Ok(true);
            }
            page = self.page(Some(&last), PAGE).await?;
        }
        Ok(false)
    }

    /// Removes the record of a token, and has every worker forget what it has read of it.
    async fn forget_everywhere(&self, hash: &str) -> Result<(), Problem> {
        self.commit(RecordChange::remove(StoreSpace::Token, hash)).await?;
        self.lock().remove(hash);
        self.rates.forget(hash);
        let behind = self.runtime.tokens_revoked().await?;
        if behind.is_empty() {
            return Ok(());
        }
        let told = format!(
            "the token is revoked, but {} have not said that they refuse it; each does within {} ms once it reaches the store",
            behind.join(", "),
            self.limits.token_known_ms
        );
        Err(Problem::new(ProblemCode::Unacknowledged, told))
    }

    async fn is_recorded(&self, token: &str) -> Result<bool, Problem> {
        let hash = token_hash(self.store.secret(), token);
        Ok(self.store.record(StoreSpace::Token.shelf(), &hash).await?.is_some())
    }

    /// Records a token; `page`: as the login of a browser.
    async fn keep(&self, token: &str, wanted: NewToken, page: bool) -> Result<KeptToken, Problem> {
        check_wanted(&wanted)?;
        let now = self.clock.now();
        let NewToken { principal, mut scopes, title, expires_in_s, requests_per_minute, approves } = wanted;
        scopes.sort();
        scopes.dedup();
        let kept = KeptToken {
            id: fresh_key()?.chars().take(ID_CHARS).collect(),
            principal: principal.into(),
            scopes: scopes.into(),
            title,
            created_at: now.0,
            expires_at: expires_in_s.map(|seconds| until(now, seconds)),
            requests_per_minute,
            approves: approves.into(),
            page,
        };
        let value = serde_json::to_vec(&kept)
            .map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
        let key = token_hash(self.store.secret(), token);
        let room = RecordGuard::Room(self.limits.tokens_max);
        self.commit(RecordChange::put(StoreSpace::Token, key, value).guarded(room)).await?;
        Ok(kept)
    }

    /// Updates a cached token.
    fn renewed<'a>(
        &self,
        known: &'a mut HashMap<String, CachedToken>,
        hash: &str,
        kept: Arc<KeptToken>,
        read: TokenReading,
    ) -> &'a CachedToken {
        known.entry(hash.to_string()).insert_entry(CachedToken { kept, read }).into_mut()
    }

    /// Whether a token has expired: its time has come, or it has reached its maximum age though the clock was set back.
    fn has_expired(&self, kept: &KeptToken, expires_at: i64) -> bool {
        let length_us = u64::try_from(expires_at.saturating_sub(kept.created_at)).unwrap_or(0);
        self.clock.now().0 >= expires_at || self.runtime.age_us(Timestamp(kept.created_at)) >= length_us
    }

    /// Counts a request.
    fn used(&self, known: &CachedToken, hash: &Arc<str>, now_us: u64) -> Result<Caller, Problem> {
        let CachedToken { kept, read } = known;
        let checked = read.revocations;
        self.not_expired(kept)?;
        let usual = u32::try_from(self.limits.token_requests_per_minute).unwrap_or(u32::MAX);
        let rate = Rate { count: kept.requests_per_minute.unwrap_or(usual), period_us: MINUTE_US };
        let Err(due_us) = self.rates.pass(hash, rate, now_us) else {
            let (principal, scopes) = (kept.principal.clone(), kept.scopes.clone());
            let approves = kept.approves.clone();
            let (token, page) = (Some(hash.clone()), kept.page);
            return Ok(Caller { principal, scopes, approves, token, page, checked });
        };
        let wait_ms = due_us.saturating_sub(now_us).div_ceil(1_000);
        let told = format!("this token has exceeded its rate; try again in {wait_ms} ms");
        Err(Problem { retry_after_ms: Some(wait_ms), ..Problem::new(ProblemCode::TooManyRequests, told) })
    }

    /// The token in the folder is revoked with its record; otherwise the next start would record it as a new one.
    fn remove_file(&self, hash: &str) -> Result<(), Problem> {
        let Some(place) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return Ok(()) };
        let Ok(token) = std::fs::read_to_string(&place) else { return Ok(()) };
        if token_hash(self.store.secret(), token.trim()) != hash {
            return Ok(());
        }
        std::fs::remove_file(&place).map_err(|error| {
            Problem::new(ProblemCode::Internal, format!("{} cannot be removed: {error}", place.display()))
        })
    }

    async fn page(&self, after: Option<&str>, limit: u64) -> Result<Vec<StoredRecord>, Problem> {
        let page = RecordPage { shelf: StoreSpace::Token.shelf(), prefix: "", after, limit };
        Ok(self.store.records(page).await?)
    }

    async fn commit(&self, change: RecordChange) -> Result<(), Problem> {
        match self.store.commit(vec![change.into()]).await?.pop() {
            Some(Err(Refused::Full)) => {
                let told = format!(
                    "there are {} tokens already; revoke one that is not used",
                    self.limits.tokens_max
                );
                Err(Problem::new(ProblemCode::TooManyTokens, told))
            }
            Some(Err(refused)) => Err(Problem::new(ProblemCode::Internal, refused.to_string())),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, CachedToken>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the first token, in the data folder.
const FILE: &str = "token";
/// The part of the hash that serves as an id.
const ID_CHARS: usize = 16;

/// A failure to get the first token.
#[derive(Debug, thiserror::Error)]
pub enum FirstError {
    /// The store.
    #[error("the first token could not be stored")]
    Store(#[from] Problem),
    /// The file.
    #[error("the file of the first token could not be read or written")]
    File(#[from] std::io::Error),
    /// The file's content would become a token with all scopes, and could be guessed.
    #[error(
        "{} holds {chars} characters, which is not a server's token: a token has {TOKEN_CHARS_MIN} to {TOKEN_BYTES_MAX} \
         printable characters without spaces; remove the file, revoke that token if it was used, and start again to get a \
         new one",
        place.display()
    )]
    Weak {
        /// Its path.
        place: PathBuf,
        /// Its length.
        chars: usize,
    },
}

/// Whether a text is long enough to be a token, and can be sent in a header.
fn could_be_ours(token: &str) -> bool {
    (TOKEN_CHARS_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// So many seconds after a time, in microseconds since 1970.
fn until(now: Timestamp, seconds: u64) -> i64 {
    now.0.saturating_add(i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX))
}

fn wrong() -> Problem {
    Problem::new(ProblemCode::WrongToken, "there is no such token, it is expired or was revoked")
}

/// Checks the name of a principal.
pub(crate) fn check_principal(name: &str) -> Result<(), Problem> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits {
        return Ok(());
    }
    let told = format!("a principal is named by 1 to 64 of a-z, A-Z, 0-9, _, . and -; {name:?} is not");
    Err(Problem::new(ProblemCode::InvalidToken, told))
}

fn check_wanted(wanted: &NewToken) -> Result<(), Problem> {
    check_principal(&wanted.principal)?;
    let wrong = |told: &str| Err(Problem::new(ProblemCode::InvalidToken, told));
    if wanted.scopes.is_empty() {
        return wrong("a token needs scopes; give it some of calls, read, complete, approve, admin");
    }
    if wanted.title.as_ref().is_some_and(|title| title.chars().count() > TITLE_CHARS_MAX) {
        return wrong("a title has at most 200 characters; shorten it");
    }
    for principal in &wanted.approves {
        check_principal(principal)?;
    }
    if !wanted.approves.is_empty() && !wanted.scopes.contains(&TokenScope::Approve) {
        return wrong("a token that names principals to approve for needs the scope approve");
    }
    if wanted.approves.len() > APPROVES_MAX {
        return wrong("a token approves for at most 64 principals; leave some out, or use the scope admin");
    }
    if wanted.requests_per_minute == Some(0) {
        return wrong(
            "requests_per_minute is 0, so the token could never be used; leave it out, or set at least 1",
        );
    }
    if !wanted.expires_in_s.is_none_or(|seconds| (1..=EXPIRES_IN_S_MAX).contains(&seconds)) {
        return wrong(
            "expires_in_s is between 1 and 3155760000; leave it out for a token that does not expire",
        );
    }
    Ok(())
}

/// A new secret of 256 bits.
fn fresh() -> Result<String, Problem> {
    Ok(format!("wl_{}{}", fresh_key()?, fresh_key()?))
}

fn read(record: &StoredRecord) -> Option<KeptToken> {
    serde_json::from_slice(&record.value)
        .inspect_err(|error| tracing::error!(%error, "a token that cannot be read is worthless"))
        .ok()
}

fn shown(kept: &KeptToken) -> TokenView {
    TokenView {
        id: kept.id.clone(),
        principal: kept.principal.to_string(),
        scopes: kept.scopes.to_vec(),
        title: kept.title.clone(),
        created_at: wall_time(Timestamp(kept.created_at)),
        expires_at: kept.expires_at.map(|at| wall_time(Timestamp(at))),
        requests_per_minute: kept.requests_per_minute,
        approves: kept.approves.to_vec(),
        page: kept.page,
    }
}

/// Writes a token so that only the owner of the folder can read it, whole or not at all.
fn write_new(place: &Path, token: &str) -> std::io::Result<String> {
    let unfinished = place.with_extension("new");
    if let Err(error) = std::fs::remove_file(&unfinished)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    std::fs::rename(&unfinished, place)?;
    Ok(token.to_string())
}
