//! Logins of the dashboard.

use super::{HandlerResult, json, with_status};
use crate::access::{Caller, cookie_name};
use crate::api::Api;
use crate::bodies::Sender;
use crate::extract::Body;
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::wire::Nothing;
use crate::wire::logins::{LoginBody, LoginCodeBody, LoginCodeView, LogoutReceipt};
use axum::extract::{FromRequest, Request, State};
use axum::response::IntoResponse;
use hyper::header::{HeaderValue, ORIGIN, SET_COOKIE};
use hyper::{HeaderMap, StatusCode};

/// Requests without a token share this name in the budget of bodies; no principal has it.
const VISITORS: &str = "(logins)";

pub async fn make_code(
    State(api): State<Api>,
    caller: Caller,
    Body(LoginCodeBody { scopes }): Body<LoginCodeBody>,
) -> HandlerResult {
    let made = api.tokens().login_code(&caller, scopes).await?;
    let link = api.page_url().map(|url| format!("{url}/#login={}", made.code));
    with_status(StatusCode::CREATED, &LoginCodeView { link, ..made })
}

pub async fn log_in(State(api): State<Api>, mut request: Request) -> HandlerResult {
    let cookie = CookieAttributes::of(request.headers());
    request.extensions_mut().insert(Sender::Key(VISITORS.into()));
    let Body(LoginBody { code, token }) = Body::<LoginBody>::from_request(request, &api).await?;
    let logging_in = api.clone();
    let login = undisturbed(async move {
        match (code, token) {
            (Some(code), None) => logging_in.tokens().log_in_with_code(&code).await,
            (None, Some(token)) => logging_in.tokens().log_in_with_token(token.trim()).await,
            (Some(_), Some(_)) | (None, None) => {
                Err(Problem::new(ProblemCode::BadBody, "send either `code` or `token`"))
            }
        }
    });
    let login = login.await?;
    let mut response = json(&login.view)?.into_response();
    let cookie = cookie.written(&login.cookie, login.max_age_s)?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

pub async fn log_out(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    let logging_out = api.clone();
    undisturbed(async move { logging_out.tokens().log_out(&caller).await }).await?;
    let mut response = json(&LogoutReceipt { logged_out: true })?.into_response();
    response.headers_mut().insert(SET_COOKIE, CookieAttributes::of(&headers).written("", 0)?);
    Ok(response)
}

/// The name and the attributes of the cookie, which follow from the page's address.
struct CookieAttributes {
    name: String,
    is_secure: bool,
}

impl CookieAttributes {
    fn of(headers: &HeaderMap) -> CookieAttributes {
        let is_https = |origin: &HeaderValue| origin.as_bytes().starts_with(b"https://");
        CookieAttributes { name: cookie_name(headers), is_secure: headers.get(ORIGIN).is_some_and(is_https) }
    }

    fn written(&self, value: &str, max_age_s: u64) -> Result<HeaderValue, Problem> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let name = &self.name;
        let text =
            format!("{name}={value}; Path=/v1; HttpOnly; SameSite=Strict; Max-Age={max_age_s}{secure}");
        HeaderValue::try_from(text).map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))
    }
}
