//! Who asks, and what they may: tokens stand for principals, and have scopes. Whoever opens the folder's own socket is the
//! local principal, and may everything.

use crate::guest::Guest;
use crate::problem::Problem;
use crate::tokens::Tokens;
use axum::extract::Request;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// The principal of whoever has the data folder.
pub const LOCAL: &str = "local";

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To open sessions, submit and cancel calls, and post the results of tools that the caller runs.
    Calls,
    /// To look.
    Read,
    /// To answer what calls wait for: questions, connections, unknown calls, changed tools.
    Complete,
    /// To manage tokens and tools, and to reach the sessions of all principals with its other scopes.
    Admin,
}

impl Scope {
    /// Every one there is.
    pub const ALL: [Scope; 4] = [Scope::Calls, Scope::Read, Scope::Complete, Scope::Admin];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Calls => "calls",
            Scope::Read => "read",
            Scope::Complete => "complete",
            Scope::Admin => "admin",
        }
    }
}

/// Whoever asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whom it stands for.
    pub principal: Arc<str>,
    /// What it may.
    pub scopes: Arc<[Scope]>,
}

impl Caller {
    /// Whoever has the data folder.
    pub fn local() -> Caller {
        Caller { principal: LOCAL.into(), scopes: Scope::ALL.into() }
    }

    /// Whether it may do this.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether what belongs to this principal is there for it.
    pub fn reaches(&self, principal: &str) -> bool {
        *self.principal == *principal || self.has(Scope::Admin)
    }
}

/// By which way requests come in.
#[derive(Clone)]
pub enum Door {
    /// The folder's own socket, which only its owner can open.
    Socket,
    /// An address that everybody on it can reach.
    Address(Arc<Rules>),
}

/// What is asked of requests that come in at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Names under which the server may be asked for, beside those of this machine.
    pub hosts: Vec<String>,
    /// Pages that may ask, by their origin; others may not.
    pub origins: Vec<String>,
}

impl Rules {
    /// These rules for a server that listens at this address: whoever asks for the address itself may.
    pub fn at(mut self, address: IpAddr) -> Rules {
        if !address.is_unspecified() {
            self.hosts.push(address.to_string());
        }
        self
    }

    /// Refuses what a web page could have made a browser send: a name that is not ours leads here by a trick of the
    /// network, and pages of other origins have no business here.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).map(name_of).unwrap_or_default();
        let known = ["localhost", "127.0.0.1", "::1"].contains(&host)
            || self.hosts.iter().any(|name| name.eq_ignore_ascii_case(host));
        if !known {
            let told = format!(
                "this server is not asked for as {host:?}; use localhost, or list the name under [server] hosts"
            );
            return Err(Problem::new("host_not_allowed", told));
        }
        let foreign = |origin: &&hyper::header::HeaderValue| {
            !origin.to_str().is_ok_and(|origin| self.origins.iter().any(|known| known == origin))
        };
        match headers.get_all(ORIGIN).iter().find(foreign) {
            None => Ok(()),
            Some(origin) => {
                let told = format!("pages of {origin:?} may not ask here; list it under [server] origins");
                Err(Problem::new("origin_not_allowed", told))
            }
        }
    }
}

/// The name in a `Host` header, without its port.
fn name_of(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or_default();
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// What a request shows of whoever it is from.
#[derive(Clone, Copy)]
pub(crate) struct Shows<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) guest: Option<&'a Guest>,
}

impl<'a> Shows<'a> {
    pub(crate) fn of(request: &'a Request) -> Shows<'a> {
        Shows { headers: request.headers(), guest: request.extensions().get() }
    }
}

/// Whoever a request is from, by its token.
pub(crate) async fn caller(shows: Shows<'_>, tokens: &Tokens) -> Result<Caller, Problem> {
    let given = shows.headers.get(AUTHORIZATION).and_then(|given| given.to_str().ok());
    let Some((kind, token)) = given.and_then(|given| given.split_once(' ')) else {
        let told = "a token is needed: send `Authorization: Bearer TOKEN`; the first is in DIR/token";
        return Err(Problem::new("no_token", told));
    };
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(Problem::new("no_token", "send the token as `Authorization: Bearer TOKEN`"));
    }
    tokens.check(token.trim(), shows.guest).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_ports() {
        for (host, name) in
            [("a:1", "a"), ("a", "a"), ("[::1]:7420", "::1"), ("[::1]", "::1"), ("127.0.0.1:9", "127.0.0.1")]
        {
            assert_eq!(name_of(host), name);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let rules = Rules { hosts: vec!["tools.example".into()], origins: vec!["https://ui.example".into()] };
        let check = |host: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            host.map(|host| headers.insert(HOST, host.parse().unwrap()));
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            rules.check(&headers).map_err(|problem| problem.code)
        };
        for host in ["localhost:7420", "127.0.0.1", "[::1]:1", "TOOLS.example:443"] {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in [None, Some(""), Some("evil.example"), Some("localhost.evil.example"), Some("127.0.0.2")]
        {
            assert_eq!(check(host, None), Err("host_not_allowed".into()), "{host:?}");
        }
        assert_eq!(check(Some("localhost"), Some("https://ui.example")), Ok(()));
        for origin in ["https://evil.example", "null", "http://localhost:7420", "https://ui.example.evil"] {
            assert_eq!(check(Some("localhost"), Some(origin)), Err("origin_not_allowed".into()), "{origin}");
        }
    }
}
