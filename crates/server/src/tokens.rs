//! Tokens: who they stand for, what they may, how often. What is kept of one is a keyed hash.

use crate::access::{Caller, LOCAL, Scope};
use crate::guest::Guest;
use crate::problem::Problem;
use crate::wire::NewToken;
use crate::wire::shown::{Made, Token};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use windlass::core::handle::token_hash;
use windlass::core::limits::Limits;
use windlass::core::rate::{Bucket, Rate};
use windlass::core::time::Timestamp;
use windlass::store::{Change, Guard, Hold, Record, RecordPage, Refused, Row, STORE, Space, Store};
use windlass::{Clock, Runtime, fresh_key, wall_time};

const MINUTE_US: u64 = 60_000_000;
/// So long a token can be good, in seconds: a hundred years.
const EXPIRES_IN_S_MAX: u64 = 3_155_760_000;
const TITLE_CHARS_MAX: usize = 200;
/// Longer than any token of ours; whatever is longer need not be hashed.
const TOKEN_BYTES_MAX: usize = 256;
/// Tokens are looked through in pages of this size.
const PAGE: u64 = 200;

/// The tokens of a store.
pub struct Tokens {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// The folder in which the first token lies, if it does.
    folder: Option<PathBuf>,
    /// What was read of tokens a moment ago, by their hash.
    known: Mutex<HashMap<String, Known>>,
}

struct Known {
    kept: Arc<Kept>,
    read_us: u64,
    bucket: Bucket,
}

/// What is kept of a token, under its hash.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    id: String,
    principal: Arc<str>,
    scopes: Arc<[Scope]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// In microseconds since 1970, as the next one.
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests_per_minute: Option<u32>,
}

impl Tokens {
    /// The tokens of a runtime's store. The first one lies in `folder`, if there is one.
    pub fn new(runtime: &Runtime, folder: Option<&Path>) -> Tokens {
        let (store, clock) = (runtime.store().clone(), runtime.clock().clone());
        let folder = folder.map(Path::to_path_buf);
        Tokens { store, clock, limits: runtime.limits().clone(), folder, known: Mutex::default() }
    }

    /// Makes the first token and writes it into the folder, if the store has none. Returns where it lies, if it does.
    pub async fn first(&self) -> Result<Option<PathBuf>, FirstError> {
        let Some(place) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return Ok(None) };
        if self.page(None, 1).await?.is_empty() {
            // The file first: one that is written and not recorded is recorded at the next start, and never lost.
            let token = match std::fs::read_to_string(&place) {
                Ok(token) => token.trim().to_string(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_new(&place, &fresh()?)?,
                Err(error) => return Err(error.into()),
            };
            let wanted = NewToken {
                principal: LOCAL.to_string(),
                scopes: Scope::ALL.to_vec(),
                title: Some("the first one".to_string()),
                expires_in_s: None,
                requests_per_minute: None,
            };
            self.keep(&token, wanted).await?;
        }
        Ok(place.exists().then_some(place))
    }

    /// Whoever this token stands for, if it is good and was not used too often. `guest`: whoever shows it, if that is known.
    pub async fn check(&self, token: &str, guest: Option<&Guest>) -> Result<Caller, Problem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(wrong());
        }
        let made = || token_hash(self.store.secret(), token);
        let hash = guest.map_or_else(|| made().into(), |guest| guest.hash_of(token, made));
        let now_us = self.clock.elapsed_us();
        let fresh_us = self.limits.token_known_ms.saturating_mul(1_000);
        if let Some(known) = self.lock().get_mut(&*hash)
            && now_us.saturating_sub(known.read_us) < fresh_us
        {
            return self.used(known, now_us);
        }
        let record = self.store.record(STORE, Space::Token, &hash).await?;
        let mut known = self.lock();
        match record.as_ref().and_then(read).map(Arc::new) {
            Some(kept) => self.used(self.renewed(&mut known, (&hash, kept), now_us), now_us),
            None => {
                known.remove(&*hash);
                Err(wrong())
            }
        }
    }

    /// Makes a token. It is told once, and never again.
    pub async fn make(&self, wanted: NewToken) -> Result<Made, Problem> {
        let token = fresh()?;
        let kept = self.keep(&token, wanted).await?;
        Ok(Made { token, shown: shown(&kept) })
    }

    /// A page of tokens, and where the next begins.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Token>, Option<String>), Problem> {
        let mut all = Vec::new();
        let mut page = self.page(None, PAGE).await?;
        while let Some(last) = page.last().map(|record| record.key.clone()) {
            all.extend(page.iter().filter_map(read));
            page = self.page(Some(&last), PAGE).await?;
        }
        // By the ids that are shown: a hash is nobody's business.
        all.sort_by(|a, b| a.id.cmp(&b.id));
        let mut rest = all.iter().filter(|kept| after.is_none_or(|after| kept.id.as_str() > after));
        let items: Vec<Token> = rest.by_ref().take(limit).map(shown).collect();
        let next = rest.next().and(items.last()).map(|last| last.id.clone());
        Ok((items, next))
    }

    /// Makes a token worthless. `false`: there is none of this id.
    pub async fn revoke(&self, id: &str) -> Result<bool, Problem> {
        let mut page = self.page(None, PAGE).await?;
        while let Some(last) = page.last().map(|record| record.key.clone()) {
            let is_it = |record: &&Record| read(record).is_some_and(|kept| kept.id == id);
            if let Some(record) = page.iter().find(is_it) {
                self.remove_file(&record.key)?;
                let row = Row::Remove { space: Space::Token, key: record.key.clone() };
                self.commit(Vec::new(), row).await?;
                self.lock().remove(&record.key);
                return Ok(true);
            }
            page = self.page(Some(&last), PAGE).await?;
        }
        Ok(false)
    }

    async fn keep(&self, token: &str, wanted: NewToken) -> Result<Kept, Problem> {
        check_wanted(&wanted)?;
        let now = self.clock.now();
        let NewToken { principal, mut scopes, title, expires_in_s, requests_per_minute } = wanted;
        scopes.sort();
        scopes.dedup();
        let until =
            |seconds: u64| now.0.saturating_add(i64::try_from(seconds * 1_000_000).unwrap_or(i64::MAX));
        let kept = Kept {
            id: fresh_key()?.chars().take(ID_CHARS).collect(),
            principal: principal.into(),
            scopes: scopes.into(),
            title,
            created_at: now.0,
            expires_at: expires_in_s.map(until),
            requests_per_minute,
        };
        let value = serde_json::to_vec(&kept).map_err(|error| Problem::new("internal", error.to_string()))?;
        let key = token_hash(self.store.secret(), token);
        let room = Guard::Room { space: Space::Token, key: key.clone(), max: self.limits.tokens_max };
        self.commit(vec![room], Row::Put { space: Space::Token, key, value: value.into() }).await?;
        Ok(kept)
    }

    /// What was just read of a token; how often it was used stands.
    fn renewed<'a>(
        &self,
        known: &'a mut HashMap<String, Known>,
        (hash, kept): (&str, Arc<Kept>),
        read_us: u64,
    ) -> &'a mut Known {
        let known = known.entry(hash.to_string()).or_insert_with(|| {
            let usual = u32::try_from(self.limits.token_requests_per_minute).unwrap_or(u32::MAX);
            let count = kept.requests_per_minute.unwrap_or(usual);
            let bucket = Bucket::full(Rate { count, period_us: MINUTE_US }, read_us);
            Known { kept: kept.clone(), read_us, bucket }
        });
        (known.kept, known.read_us) = (kept, read_us);
        known
    }

    /// Counts a request.
    fn used(&self, known: &mut Known, now_us: u64) -> Result<Caller, Problem> {
        let Known { kept, bucket, .. } = known;
        if kept.expires_at.is_some_and(|at| self.clock.now().0 >= at) {
            return Err(wrong());
        }
        let due_us = bucket.due_us(now_us);
        if due_us <= now_us {
            bucket.take(now_us);
            return Ok(Caller { principal: kept.principal.clone(), scopes: kept.scopes.clone() });
        }
        let wait_ms = due_us.saturating_sub(now_us).div_ceil(1_000);
        let told = format!("this token was used too often; come back in {wait_ms} ms");
        Err(Problem { retry_after_ms: Some(wait_ms), ..Problem::new("too_many_requests", told) })
    }

    /// The token in the folder is worthless with what is kept of it; else the next start would take it for a new one.
    fn remove_file(&self, hash: &str) -> Result<(), Problem> {
        let Some(place) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return Ok(()) };
        let Ok(token) = std::fs::read_to_string(&place) else { return Ok(()) };
        if token_hash(self.store.secret(), token.trim()) != hash {
            return Ok(());
        }
        std::fs::remove_file(&place).map_err(|error| {
            Problem::new("internal", format!("{} cannot be removed: {error}", place.display()))
        })
    }

    async fn page(&self, after: Option<&str>, limit: u64) -> Result<Vec<Record>, Problem> {
        let page = RecordPage { session: STORE, space: Space::Token, prefix: "", after, limit };
        Ok(self.store.records(page).await?)
    }

    async fn commit(&self, guards: Vec<Guard>, row: Row) -> Result<(), Problem> {
        let change = Change { session: STORE, hold: Hold::Store, guards, rows: vec![row] };
        match self.store.commit(vec![change]).await?.pop() {
            Some(Err(Refused::Full)) => {
                let told = format!(
                    "there are {} tokens already; revoke one that nobody uses",
                    self.limits.tokens_max
                );
                Err(Problem::new("too_many_tokens", told))
            }
            Some(Err(refused)) => Err(Problem::new("internal", refused.to_string())),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the first token lies, in the data folder.
const FILE: &str = "token";
/// As much of an id as tells tokens apart.
const ID_CHARS: usize = 16;

/// Why the first token could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FirstError {
    /// The store.
    #[error("the first token could not be kept")]
    Store(#[from] Problem),
    /// The file.
    #[error("the file of the first token could not be read or written")]
    File(#[from] std::io::Error),
}

fn wrong() -> Problem {
    Problem::new("wrong_token", "there is no such token, it is expired or was revoked")
}

/// A principal may be named so.
pub(crate) fn check_principal(name: &str) -> Result<(), Problem> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits {
        return Ok(());
    }
    let told = format!("a principal is named by 1 to 64 of a-z, A-Z, 0-9, _, . and -; {name:?} is not");
    Err(Problem::new("invalid_token", told))
}

fn check_wanted(wanted: &NewToken) -> Result<(), Problem> {
    check_principal(&wanted.principal)?;
    let wrong = |told: &str| Err(Problem::new("invalid_token", told));
    if wanted.scopes.is_empty() {
        return wrong(
            "a token without scopes is good for nothing; give it some of calls, read, complete, admin",
        );
    }
    if wanted.title.as_ref().is_some_and(|title| title.chars().count() > TITLE_CHARS_MAX) {
        return wrong("a title has at most 200 characters; say it shorter");
    }
    if wanted.requests_per_minute == Some(0) {
        return wrong(
            "requests_per_minute is 0, with which nothing could be asked; leave it out, or say more",
        );
    }
    if !wanted.expires_in_s.is_none_or(|seconds| (1..=EXPIRES_IN_S_MAX).contains(&seconds)) {
        return wrong(
            "expires_in_s is between 1 and 3155760000; leave it out for a token that does not expire",
        );
    }
    Ok(())
}

/// What nobody can guess: 256 bits.
fn fresh() -> Result<String, Problem> {
    Ok(format!("wl_{}{}", fresh_key()?, fresh_key()?))
}

fn read(record: &Record) -> Option<Kept> {
    serde_json::from_slice(&record.value)
        .inspect_err(|error| tracing::error!(%error, "a token that cannot be read is worthless"))
        .ok()
}

fn shown(kept: &Kept) -> Token {
    Token {
        id: kept.id.clone(),
        principal: kept.principal.to_string(),
        scopes: kept.scopes.to_vec(),
        title: kept.title.clone(),
        created_at: wall_time(Timestamp(kept.created_at)),
        expires_at: kept.expires_at.map(|at| wall_time(Timestamp(at))),
        requests_per_minute: kept.requests_per_minute,
    }
}

/// Writes a token where only the owner of the folder can read it, whole or not at all.
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
