//! Authentication and authorisation: tokens stand for principals and have scopes. A caller on the folder's
//! own socket is the local principal, with all scopes. The dashboard's page shows its token in two halves.

use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Tokens, logins};
use axum::extract::Request;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderValue, ORIGIN};
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
    /// Whether that is the login of a browser.
    pub(crate) page: bool,
    /// The number of the last revocation of a token when its own was read.
    pub(crate) checked: u64,
}

impl Caller {
    /// The owner of the data folder.
    pub fn local() -> Caller {
        let (principal, scopes) = (LOCAL.into(), TokenScope::ALL.into());
        Caller { principal, scopes, approves: Arc::default(), token: None, page: false, checked: 0 }
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
    /// rebinding), another site or port, or a foreign origin. The server's own origin is good for the dashboard, which shows no
    /// bearer token.
    pub(crate) fn check(&self, shows: Shows<'_>, wanted: WantedThing) -> Result<(), Problem> {
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
        let is_listed = |origin: &HeaderValue| {
            origin.to_str().is_ok_and(|origin| self.origins.iter().any(|known| known == origin))
        };
        let is_own = |origin: &HeaderValue| {
            let own = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            let is_own = own.is_some_and(|(scheme, name)| {
                ["http", "https"].contains(&scheme) && name.eq_ignore_ascii_case(host)
            });
            is_own && !headers.contains_key(AUTHORIZATION)
        };
        let has_listed = headers.get(ORIGIN).is_some_and(is_listed);
        let may_come_from = |site: &HeaderValue| {
            has_listed || site == "same-origin" || (site == "none" && wanted == WantedThing::Page)
        };
        // Pages of another port of this host count as the same site, and their requests carry its cookies.
        if let Some(site) = headers.get_all(FETCH_SITE).iter().find(|site| !may_come_from(site)) {
            let told = format!(
                "a browser sent this for a page of another site or port (Sec-Fetch-Site: {site:?}); open the dashboard itself"
            );
            return Err(Problem::new(ProblemCode::OriginNotAllowed, told));
        }
        let foreign = |origin: &&HeaderValue| !is_listed(origin) && !is_own(origin);
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

/// The kinds of things that are asked for at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedThing {
    /// A route of the API.
    Api,
    /// The dashboard's page or one of its assets, to which people navigate.
    Page,
}

/// The header by which browsers say which page made them send a request.
const FETCH_SITE: &str = "sec-fetch-site";
/// The header with the page's half of a login.
pub(crate) const PAGE_KEY: &str = "x-windlass-page";
/// Longer than either half.
const HALF_BYTES_MAX: usize = 64;

/// The name of the cookie with the other half: cookies do not know ports, so the port is in the name.
pub(crate) fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
    match behind.rsplit_once(':') {
        Some((_, port)) => format!("windlass-{port}"),
        None => "windlass".to_string(),
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
    if given.is_none()
        && let Some(token) = page_login(shows.headers)?
    {
        return tokens.check_as(&token, shows.guest, true).await;
    }
    let Some((kind, token)) = given.and_then(|given| given.split_once(' ')) else {
        let told = "a token is required: send `Authorization: Bearer TOKEN`; the first token is in DIR/token";
        return Err(Problem::new(ProblemCode::NoToken, told));
    };
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(Problem::new(ProblemCode::NoToken, "send the token as `Authorization: Bearer TOKEN`"));
    }
    tokens.check_as(token.trim(), shows.guest, false).await
}

/// The token of the dashboard's page, of whose two halves both must be there. `None`: the request has neither.
fn page_login(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let cookie = pairs.find(|(known, _)| *known == name).map(|(_, value)| value);
    let page_key = headers.get(PAGE_KEY).and_then(|value| value.to_str().ok());
    let is_half =
        |half: &str| half.len() <= HALF_BYTES_MAX && half.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (cookie, page_key) {
        (None, None) => Ok(None),
        (Some(cookie), Some(page_key)) if is_half(cookie) && is_half(page_key) => {
            Ok(Some(logins::joined(cookie, page_key)))
        }
        _ => {
            let told = "the login of the page is incomplete: its cookie and its page key are both needed; `windlass open` logs in again";
            Err(Problem::new(ProblemCode::NoToken, told))
        }
    }
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
        checked(target, hosts, origin, &[])
    }

    fn checked(
        target: Option<&str>,
        hosts: &[&str],
        origin: Option<&str>,
        more: &[(&'static str, &str)],
    ) -> Result<(), String> {
        let rules =
            AccessRules { hosts: vec!["tools.example".into()], origins: vec!["https://ui.example".into()] };
        let rules = rules.at("fd00::7".parse().unwrap());
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        rules
            .check(Shows { target, headers: &headers, guest: None }, WantedThing::Api)
            .map_err(|problem| problem.code.to_string())
    }

    #[test]
    fn the_own_origin_is_good_for_pages_and_other_sites_and_ports_are_refused() {
        let refused = || Err("origin_not_allowed".to_string());
        let host = ["127.0.0.1:7420"];
        for own in ["http://127.0.0.1:7420", "https://127.0.0.1:7420"] {
            assert_eq!(check(None, &host, Some(own)), Ok(()), "{own}");
            let bearer = [("authorization", "Bearer x")];
            assert_eq!(checked(None, &host, Some(own), &bearer), refused(), "a bearer token is no page's");
        }
        for foreign in
            ["http://127.0.0.1:7421", "http://localhost:7420", "ftp://127.0.0.1:7420", "http://127.0.0.1"]
        {
            assert_eq!(check(None, &host, Some(foreign)), refused(), "{foreign}");
        }
        for (site, expected) in [
            ("same-origin", Ok(())),
            ("same-site", refused()),
            ("cross-site", refused()),
            ("none", refused()),
            ("", refused()),
        ] {
            assert_eq!(checked(None, &host, None, &[("sec-fetch-site", site)]), expected, "{site}");
        }
        let twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
        assert_eq!(checked(None, &host, None, &twice), refused());
        let cross = [("sec-fetch-site", "cross-site")];
        assert_eq!(checked(None, &host, Some("https://ui.example"), &cross), Ok(()), "it is listed");
        let headers = HeaderMap::from_iter([
            (HOST, "127.0.0.1:7420".parse().unwrap()),
            (hyper::header::HeaderName::from_static("sec-fetch-site"), "none".parse().unwrap()),
        ]);
        let shows = Shows { target: None, headers: &headers, guest: None };
        assert!(AccessRules::default().check(shows, WantedThing::Page).is_ok(), "people type addresses");
    }

    #[test]
    fn a_page_login_needs_both_halves() {
        let headers = |host: &str, cookie: Option<&str>, key: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            cookie.map(|cookie| headers.insert(COOKIE, cookie.parse().unwrap()));
            key.map(|key| headers.insert(PAGE_KEY, key.parse().unwrap()));
            page_login(&headers).map_err(|problem| problem.code.to_string())
        };
        let no_token = || Err("no_token".to_string());
        let both = Ok(Some("wl_abcd".to_string()));
        assert_eq!(headers("localhost:1", Some("x=1; windlass-1=ab"), Some("cd")), both);
        assert_eq!(headers("[::1]:1", Some("windlass-1=ab"), Some("cd")), both);
        assert_eq!(headers("localhost", Some("windlass=ab"), Some("cd")), both);
        assert_eq!(headers("localhost:1", None, None), Ok(None));
        assert_eq!(headers("localhost:1", Some("windlass-2=ab"), None), Ok(None), "that of another port");
        assert_eq!(headers("localhost:1", Some("windlass-1=ab"), None), no_token());
        assert_eq!(headers("localhost:1", None, Some("cd")), no_token());
        assert_eq!(headers("localhost:1", Some("windlass-1="), Some("not hex")), no_token());
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
