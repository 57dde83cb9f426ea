//! Logins of the dashboard. A one-time code, or a token, becomes a token for one browser in two halves: one in a cookie, one kept by
//! the page. Cookies are sent to every port of a host, so neither half is worth anything alone.

use super::{KeptToken, TOKEN_BYTES_MAX, Tokens, read, shown, until, wrong};
use crate::access::{Caller, TokenScope};
use crate::problem::{Problem, ProblemCode};
use crate::wire::NewToken;
use crate::wire::logins::{LoginCodeView, PageLoginView};
use serde::{Deserialize, Serialize};
use windlass::batch::fresh_key;
use windlass::store::{RecordChange, RecordGuard, RecordPage, Refused, StoreSpace};
use windlass::time::wall_time;
use windlass_core::handle::token_hash;
use windlass_core::time::Timestamp;

/// How long a code is good for, in seconds.
const CODE_S: u64 = 600;
/// How long a browser stays logged in, in seconds: a week.
const LOGIN_S: u64 = 7 * 24 * 3_600;
/// Codes that may wait to be used at the same time.
const CODES_MAX: u64 = 100;
/// The prefix of tokens.
const PREFIX: &str = "wl_";
/// The title of logins, before the time.
const TITLE: &str = "browser";

/// The stored record of a code, under its hash: what the login will be allowed to do.
#[derive(Debug, Deserialize, Serialize)]
struct KeptCode {
    principal: String,
    scopes: Vec<TokenScope>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approves: Vec<String>,
    /// In microseconds since 1970.
    expires_at: i64,
}

/// A login that was just made.
pub(crate) struct NewLogin {
    /// The half for the cookie.
    pub(crate) cookie: String,
    /// How long the cookie is to be kept, in seconds.
    pub(crate) max_age_s: u64,
    /// The other half, for the page.
    pub(crate) view: PageLoginView,
}

/// The token of these two halves.
pub(crate) fn joined(cookie: &str, page_key: &str) -> String {
    format!("{PREFIX}{cookie}{page_key}")
}

impl Tokens {
    /// Makes a code that logs a browser in once, as this caller and with at most its scopes.
    pub async fn login_code(
        &self,
        caller: &Caller,
        scopes: Option<Vec<TokenScope>>,
    ) -> Result<LoginCodeView, Problem> {
        let scopes = scopes.unwrap_or_else(|| caller.scopes.to_vec());
        if scopes.is_empty() || !scopes.iter().all(|scope| caller.has(*scope)) {
            let told = "a login has one or more of the scopes of the token that asks for it, and no others";
            return Err(Problem::new(ProblemCode::InvalidToken, told));
        }
        self.forget_expired_codes().await?;
        let code = fresh_key()?;
        let expires_at = until(self.clock.now(), CODE_S);
        let approves = caller.approves.to_vec();
        let kept = KeptCode { principal: caller.principal.to_string(), scopes, approves, expires_at };
        let value = serde_json::to_vec(&kept)
            .map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
        let key = token_hash(self.store.secret(), &code);
        let change = RecordChange::put(StoreSpace::Login, key, value).guarded(RecordGuard::Room(CODES_MAX));
        match self.store.commit(vec![change.into()]).await?.pop() {
            Some(Err(Refused::Full)) => {
                let told =
                    format!("{CODES_MAX} login codes wait to be used; use one, or try again in 10 minutes");
                Err(Problem::new(ProblemCode::TooManyTokens, told))
            }
            Some(Err(refused)) => Err(Problem::new(ProblemCode::Internal, refused.to_string())),
            Some(Ok(_)) | None => {
                Ok(LoginCodeView { code, expires_at: wall_time(Timestamp(expires_at)), link: None })
            }
        }
    }

    /// Logs a browser in with a code, which is used up by that.
    pub(crate) async fn log_in_with_code(&self, code: &str) -> Result<NewLogin, Problem> {
        if code.len() > TOKEN_BYTES_MAX {
            return Err(wrong_code());
        }
        let key = token_hash(self.store.secret(), code);
        let record = self.store.record(StoreSpace::Login.shelf(), &key).await?.ok_or_else(wrong_code)?;
        // Of two that come with the same code, one removes it.
        let used =
            RecordChange::remove(StoreSpace::Login, key).guarded(RecordGuard::Generation(record.generation));
        if !matches!(self.store.commit(vec![used.into()]).await?.pop(), Some(Ok(_))) {
            return Err(wrong_code());
        }
        let kept: KeptCode = serde_json::from_slice(&record.value).map_err(|_| wrong_code())?;
        if self.clock.now().0 >= kept.expires_at {
            return Err(wrong_code());
        }
        self.log_in(kept.principal, kept.scopes, kept.approves, LOGIN_S).await
    }

    /// Logs a browser in with a token; the login does not outlive it.
    pub(crate) async fn log_in_with_token(&self, token: &str) -> Result<NewLogin, Problem> {
        let caller = self.check(token, None).await?;
        if caller.page {
            return Err(wrong());
        }
        let key = token_hash(self.store.secret(), token);
        let record = self.store.record(StoreSpace::Token.shelf(), &key).await?;
        let kept = record.as_ref().and_then(read).ok_or_else(wrong)?;
        let left_s = |at: i64| u64::try_from(at.saturating_sub(self.clock.now().0) / 1_000_000).unwrap_or(0);
        let length_s = kept.expires_at.map_or(LOGIN_S, |at| left_s(at).min(LOGIN_S));
        let (principal, scopes) = (caller.principal.to_string(), caller.scopes.to_vec());
        self.log_in(principal, scopes, caller.approves.to_vec(), length_s.max(1)).await
    }

    async fn log_in(
        &self,
        principal: String,
        scopes: Vec<TokenScope>,
        approves: Vec<String>,
        length_s: u64,
    ) -> Result<NewLogin, Problem> {
        self.forget_expired_logins().await?;
        let (cookie, page_key) = (fresh_key()?, fresh_key()?);
        let title = format!("{TITLE} {}", wall_time(self.clock.now()));
        let wanted = NewToken {
            principal,
            scopes,
            title: Some(title),
            expires_in_s: Some(length_s),
            requests_per_minute: None,
            approves,
        };
        let kept = self.keep(&joined(&cookie, &page_key), wanted, true).await?;
        let view = PageLoginView { page_key, login: shown(&kept) };
        Ok(NewLogin { cookie, max_age_s: length_s, view })
    }

    /// Ends a login: revokes its token.
    pub(crate) async fn log_out(&self, caller: &Caller) -> Result<(), Problem> {
        let Some(hash) = caller.token.as_ref().filter(|_| caller.page) else {
            let told = "only the login of a browser can be ended so; revoke a token by its id";
            return Err(Problem::new(ProblemCode::Unfit, told));
        };
        self.forget_everywhere(hash).await
    }

    /// Removes codes that nobody used in time.
    async fn forget_expired_codes(&self) -> Result<(), Problem> {
        let page = RecordPage { shelf: StoreSpace::Login.shelf(), prefix: "", after: None, limit: CODES_MAX };
        let now = self.clock.now().0;
        for record in self.store.records(page).await? {
            let kept = serde_json::from_slice::<KeptCode>(&record.value);
            if kept.map_or(true, |kept| now >= kept.expires_at) {
                self.store.commit(vec![RecordChange::remove(StoreSpace::Login, record.key).into()]).await?;
            }
        }
        Ok(())
    }

    /// Removes logins that have expired: otherwise they would fill the list of tokens.
    async fn forget_expired_logins(&self) -> Result<(), Problem> {
        let is_over =
            |kept: &KeptToken| kept.page && kept.expires_at.is_some_and(|at| self.has_expired(kept, at));
        let mut page = self.page(None, super::PAGE).await?;
        while let Some(last) = page.last().map(|record| record.key.clone()) {
            for record in page.iter().filter(|record| read(record).as_ref().is_some_and(is_over)) {
                self.commit(RecordChange::remove(StoreSpace::Token, record.key.as_str())).await?;
            }
            page = self.page(Some(&last), super::PAGE).await?;
        }
        Ok(())
    }
}

fn wrong_code() -> Problem {
    let told = "there is no such login code, it was used or is too old; `windlass open` makes another";
    Problem::new(ProblemCode::WrongToken, told)
}
