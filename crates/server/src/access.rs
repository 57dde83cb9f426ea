//! Authentication and authorisation: tokens stand for principals and have scopes. A caller on the folder's
//! own socket is the local principal, with all scopes.

use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Tokens;
use axum::extract::Request;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// The principal of the data folder's owner.
pub use windlass::sessions::LOCAL;

/// The permissions of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Scope")]
pub enum TokenScope {
    /// Open sessions, submit and cancel calls, and post the results of tools that the caller runs.
    Calls,
    /// Read.
    Read,
    /// Answer calls that wait: questions, connections, unknown calls, changed tools.
    Complete,
    /// Approve or deny calls that wait for that. Not for agents: one must not approve its own calls.
    Approve,
    /// Offer tools as a toolbox, take their attempts, and report about them.
    Tools,
    /// Manage tokens and tools, and use the token's other scopes on the sessions of all principals.
    Admin,
}

impl TokenScope {
    /// All scopes.
    pub const ALL: [TokenScope; 6] = [
        TokenScope::Calls,
        TokenScope::Read,
        TokenScope::Complete,
        TokenScope::Approve,
        TokenScope::Tools,
        TokenScope::Admin,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenScope::Calls => "calls",
            TokenScope::Read => "read",
            TokenScope::Complete => "complete",
            TokenScope::Approve => "approve",
            TokenScope::Tools => "tools",
            TokenScope::Admin => "admin",
        }
    }
}

/// The author of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The principal it acts for.
    pub principal: Arc<str>,
    /// The scopes it has.
    pub scopes: Arc<[TokenScope]>,
    /// The principals whose calls it may approve, beside its own.
    pub(crate) approves: Arc<[String]>,
    /// The hash of its token; `None` on the folder's own socket.
    pub(crate) token: Option<Arc<str>>,
}

impl Caller {
    /// The owner of the data folder.
    pub fn local() -> Caller {
        let (principal, scopes) = (LOCAL.into(), TokenScope::ALL.into());
        Caller { principal, scopes, approves: Arc::default(), token: None }
    }

    /// Whether it has this scope.
    pub fn has(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether it may approve calls of this principal, if it has the scope for that.
    pub fn answers_for(&self, principal: Option<&str>) -> bool {
        self.reaches(principal)
            || principal.is_some_and(|principal| self.approves.iter().any(|known| known == principal))
    }

    /// Whether it is shown calls of this principal that wait for a person.
    pub fn sees_waiting(&self, principal: Option<&str>) -> bool {
        self.reaches(principal) || (self.has(TokenScope::Approve) && self.answers_for(principal))
    }

    /// Whether it may see objects of this principal; objects without a principal are visible to admins.
    pub fn reaches(&self, principal: Option<&str>) -> bool {
        principal == Some(&*self.principal) || self.has(TokenScope::Admin)
    }
}

/// The listener a request came in through.
#[derive(Clone)]
pub enum Entrance {
    /// The folder's own socket, which only the folder's owner can open.
    Socket,
    /// A network address.
    Address(Arc<AccessRules>),
}

/// The checks for requests that come in at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// Host names accepted in addition to those of this machine.
    pub hosts: Vec<String>,
    /// Origins of web pages that may send requests.
    pub origins: Vec<String>,
}

impl AccessRules {
    /// These rules for a server that listens on this address, which is accepted as a host, too.
    pub fn at(mut self, address: IpAddr) -> AccessRules {
        if !address.is_unspecified() {
            self.hosts.push(address.to_string());
        }
        self
    }

    fn is_ours(&self, host: &str) -> bool {
        let known =
            ["localhost", "127.0.0.1", "::1"].into_iter().chain(self.hosts.iter().map(String::as_str));
        name_of(host).is_some_and(|name| known.into_iter().any(|known| name.is(known)))
    }

    /// Refuses requests that a foreign web page could have made a browser send: a foreign host name (DNS
    /// rebinding), or a foreign origin.
    pub(crate) fn check(&self, shows: Shows<'_>) -> Result<(), Problem> {
        let headers = shows.headers;
        let mut hosts = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let (host, more) = (hosts.next().unwrap_or_default(), hosts.next());
        // Proxies go by the host name in the request target, so it must be ours as well.
        let target = shows.target.into_iter();
        let foreign = target.chain([host]).find(|host| !self.is_ours(host));
        if let Some(foreign) = foreign.or(more) {
            let told = format!(
                "this server has no host name {foreign:?}; use localhost, or list the name under [server] hosts, and send \
                 it once"
            );
            return Err(Problem::new(ProblemCode::HostNotAllowed, told));
        }
        let foreign = |origin: &&hyper::header::HeaderValue| {
            !origin.to_str().is_ok_and(|origin| self.origins.iter().any(|known| known == origin))
        };
        match headers.get_all(ORIGIN).iter().find(foreign) {
            None => Ok(()),
            Some(origin) => {
                let told = format!(
                    "pages of {origin:?} may not send requests here; list the origin under [server] origins"
                );
                Err(Problem::new(ProblemCode::OriginNotAllowed, told))
            }
        }
    }
}

/// The name in a `Host` header, without its port; `None` if it is malformed.
fn name_of(host: &str) -> Option<HostName<'_>> {
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => {
            let (address, behind) = inner.split_once(']')?;
            (HostName::Address(IpAddr::V6(address.parse().ok()?)), behind)
        }
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            (HostName::Name(name), port)
        }
    };
    let is_port = |port: &str| !port.starts_with('+') && port.parse::<u16>().is_ok();
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// The host in a request.
#[derive(Debug, PartialEq, Eq)]
enum HostName<'a> {
    Name(&'a str),
    Address(IpAddr),
}

impl HostName<'_> {
    fn is(&self, known: &str) -> bool {
        match self {
            HostName::Name(name) => name.eq_ignore_ascii_case(known),
            HostName::Address(address) => known.trim_matches(['[', ']']).parse() == Ok(*address),
        }
    }
}

/// The parts of a request that identify its sender.
#[derive(Clone, Copy)]
pub(crate) struct Shows<'a> {
    /// The host name in the request target, if it has one.
    pub(crate) target: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) guest: Option<&'a Guest>,
}

impl<'a> Shows<'a> {
    pub(crate) fn of(request: &'a Request) -> Shows<'a> {
        let target = request.uri().authority().map(|authority| authority.as_str());
        Shows { target, headers: request.headers(), guest: request.extensions().get() }
    }
}

/// The caller of a request, by its token.
pub(crate) async fn caller(shows: Shows<'_>, tokens: &Tokens) -> Result<Caller, Problem> {
    let given = shows.headers.get(AUTHORIZATION).and_then(|given| given.to_str().ok());
    let Some((kind, token)) = given.and_then(|given| given.split_once(' ')) else {
        let told = "a token is required: send `Authorization: Bearer TOKEN`; the first token is in DIR/token";
        return Err(Problem::new(ProblemCode::NoToken, told));
    };
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(Problem::new(ProblemCode::NoToken, "send the token as `Authorization: Bearer TOKEN`"));
    }
    tokens.check(token.trim(), shows.guest).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_ports() {
        let v6 = |text: &str| Some(HostName::Address(text.parse().unwrap()));
        for (host, name) in [
            ("a:1", Some(HostName::Name("a"))),
            ("a", Some(HostName::Name("a"))),
            ("127.0.0.1:9", Some(HostName::Name("127.0.0.1"))),
            ("[::1]:7420", v6("::1")),
            ("[0:0:0:0:0:0:0:1]", v6("::1")),
            ("[::1].evil.example", None),
            ("[::1]evil.example", None),
            ("[::1]:7420.evil.example", None),
            ("[localhost]", None),
            ("[::1", None),
            ("localhost:evil.example", None),
            ("localhost:80:80", None),
            ("localhost:", None),
            ("localhost:+80", None),
            ("localhost:99999", None),
        ] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }

    fn check(target: Option<&str>, hosts: &[&str], origin: Option<&str>) -> Result<(), String> {
        let rules =
            AccessRules { hosts: vec!["tools.example".into()], origins: vec!["https://ui.example".into()] };
        let rules = rules.at("fd00::7".parse().unwrap());
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
        rules
            .check(Shows { target, headers: &headers, guest: None })
            .map_err(|problem| problem.code.to_string())
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for host in [
            "localhost:7420",
            "LOCALHOST",
            "LocalHost:80",
            "127.0.0.1",
            "[::1]:1",
            "[0::1]",
            "TOOLS.example:443",
            "[fd00:0::7]:7420",
        ] {
            assert_eq!(check(None, &[host], None), Ok(()), "{host}");
            assert_eq!(check(Some(host), &[host], None), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.2",
            "[::1].evil.example",
            "[::2]",
            "::1",
            "localhost:evil.example",
            "localhost@evil.example",
            "evil.example:80@localhost",
            "tools.example.evil",
            "xtools.example",
            " localhost",
        ] {
            let refused = Err("host_not_allowed".to_string());
            assert_eq!(check(None, &[host], None), refused, "{host:?}");
            assert_eq!(check(Some(host), &["localhost"], None), refused, "as target: {host:?}");
            assert_eq!(check(None, &["localhost", host], None), refused, "as second: {host:?}");
        }
        for hosts in [&[][..], &["localhost", "localhost"], &["evil.example", "localhost"]] {
            assert_eq!(check(None, hosts, None), Err("host_not_allowed".into()), "{hosts:?}");
        }
        assert_eq!(check(None, &["localhost"], Some("https://ui.example")), Ok(()));
        for origin in ["https://evil.example", "null", "http://localhost:7420", "https://ui.example.evil"] {
            let refused = check(None, &["localhost"], Some(origin));
            assert_eq!(refused, Err("origin_not_allowed".into()), "{origin}");
        }
    }
}
