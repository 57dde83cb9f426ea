//! Bodies and answers about logins of the dashboard.

use super::shown::TokenView;
use crate::access::TokenScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wanted login code.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LoginCodeRequest")]
pub struct LoginCodeBody {
    /// The scopes of the login: some of those of the token that asks; by default all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<TokenScope>>,
}

/// A code that logs a browser in, once.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "LoginCode")]
pub struct LoginCodeView {
    /// The code.
    pub code: String,
    /// Until when it can be used.
    pub expires_at: String,
    /// The address to open in a browser, if the server listens on one. Whoever opens it first is logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// The credential of a login: exactly one of the two.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LoginRequest")]
pub struct LoginBody {
    /// A code of `POST /v1/logins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The login of a browser: one half of its token; the other is in a cookie.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "PageLogin")]
pub struct PageLoginView {
    /// The half that the page sends as the header `X-Windlass-Page`.
    pub page_key: String,
    /// The login as it is listed among the tokens, by which it is revoked.
    pub login: TokenView,
}

/// The receipt of a logout.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "LoggedOut")]
pub struct LogoutReceipt {
    /// Always true.
    pub logged_out: bool,
}
