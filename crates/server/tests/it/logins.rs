//! Logins of the dashboard: codes that work once, tokens in two halves, and the page that is served without one.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use windlass::Limits;
use windlass_server::access::TokenScope;

/// A browser: what it keeps of a login.
struct Browser {
    cookie: String,
    page_key: String,
}

impl Browser {
    /// Logs in, as the page does.
    async fn log_in(served: &Served, credential: Value) -> Result<(Browser, Value), (u16, String)> {
        let answer = served.raw(&page_request(served, "POST", "/login", &[], credential)).await;
        if answer.status != 200 {
            return Err(answer.told());
        }
        let cookie = header(&answer, "set-cookie").expect("a cookie");
        let pair = cookie.split(';').next().expect("a pair").to_string();
        let login = answer.json();
        let page_key = login["page_key"].as_str().expect("a key").to_string();
        Ok((Browser { cookie: pair, page_key }, login))
    }

    async fn ask(&self, served: &Served, method: &str, path: &str, body: Value) -> Answer {
        self.ask_with(served, method, path, body, &[]).await
    }

    async fn ask_with(
        &self,
        served: &Served,
        method: &str,
        path: &str,
        body: Value,
        more: &[(&str, &str)],
    ) -> Answer {
        let mut headers = vec![("cookie", self.cookie.as_str()), ("x-windlass-page", &self.page_key)];
        headers.extend(more);
        served.raw(&page_request(served, method, path, &headers, body)).await
    }
}

/// A request as a page of the server's own origin sends it.
fn page_request(served: &Served, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> String {
    let host = served.at();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !headers.iter().any(|(name, _)| *name == "sec-fetch-site") {
        head.push_str("sec-fetch-site: same-origin\r\n");
    }
    if method == "POST" && !headers.iter().any(|(name, _)| *name == "origin") {
        head.push_str(&format!("origin: http://{host}\r\n"));
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    let line = answer.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.map(str::to_string)
}

async fn code(served: &Served) -> Value {
    let made = served.post("/v1/logins", json!({})).await.expect(201);
    let code = made["code"].as_str().expect("a code");
    let link = format!("http://{}/#login={code}", served.at());
    assert_eq!(made["link"], link, "where it is opened");
    json!({ "code": code })
}

#[tokio::test]
async fn a_code_logs_in_once_and_both_halves_are_needed() {
    let served = Served::new().await;
    let code = code(&served).await;
    let (browser, login) = Browser::log_in(&served, code.clone()).await.expect("it logs in");
    assert_eq!(login["login"]["principal"], "local");
    assert_eq!(login["login"]["page"], true);
    browser.ask(&served, "GET", "/v1/overview", Value::Null).await.expect(200);
    browser.ask(&served, "POST", "/v1/sessions", json!({"id": "mine"})).await.expect(201);
    let used = Browser::log_in(&served, code).await.err();
    assert_eq!(used, Some((401, "wrong_token".into())), "a code works once");
    let port = served.at().port();
    assert!(browser.cookie.starts_with(&format!("windlass-{port}=")), "{}", browser.cookie);
    let (cookie, key) = (browser.cookie.as_str(), browser.page_key.as_str());
    for headers in [
        vec![("cookie", cookie)],
        vec![("x-windlass-page", key)],
        vec![("cookie", cookie), ("x-windlass-page", "")],
        vec![("cookie", cookie), ("x-windlass-page", "00")],
    ] {
        let request = page_request(&served, "GET", "/v1/overview", &headers, Value::Null);
        assert_eq!(served.raw(&request).await.status, 401, "{headers:?}");
    }
    // Put together they are still no bearer token, and a bearer token is no login.
    let half = cookie.split_once('=').expect("a pair").1;
    let bearer = format!("wl_{half}{key}");
    let whole = served.ask_as(Some(&bearer), "GET", "/v1/overview", Value::Null).await;
    assert_eq!(whole.told(), (401, "wrong_token".into()));
    let token = served.token.strip_prefix("wl_").expect("a prefix");
    let split = Browser { cookie: format!("windlass-{port}={}", &token[..32]), page_key: token[32..].into() };
    assert_eq!(split.ask(&served, "GET", "/v1/overview", Value::Null).await.status, 401);
}

#[tokio::test]
async fn requests_of_other_pages_are_refused() {
    let served = Served::new().await;
    let (browser, _) = Browser::log_in(&served, code(&served).await).await.expect("it logs in");
    let refused = (403, "origin_not_allowed".to_string());
    let other = format!("http://127.0.0.1:{}", served.at().port() ^ 1);
    for more in [
        vec![("sec-fetch-site", "same-site")],
        vec![("sec-fetch-site", "cross-site")],
        vec![("origin", other.as_str())],
        vec![("origin", "null")],
        vec![("origin", "http://evil.example")],
    ] {
        let asked = browser.ask_with(&served, "POST", "/v1/sessions", json!({"id": "x"}), &more).await;
        assert_eq!(asked.told(), refused, "{more:?}");
    }
    let read =
        browser.ask_with(&served, "GET", "/v1/overview", Value::Null, &[("sec-fetch-site", "same-site")]);
    assert_eq!(read.await.told(), refused, "another port of this host");
    let rebound = page_request(&served, "GET", "/v1/overview", &[], Value::Null)
        .replace(&format!("host: {}", served.at()), "host: evil.example");
    assert_eq!(served.raw(&rebound).await.told(), (403, "host_not_allowed".into()));
}

#[tokio::test]
async fn logins_are_listed_revoked_and_ended() {
    let served = Served::new().await;
    let (first, login) = Browser::log_in(&served, code(&served).await).await.expect("it logs in");
    let listed = served.get("/v1/tokens").await.expect(200);
    let id = login["login"]["id"].as_str().expect("an id");
    let one = listed["items"].as_array().expect("items").iter().find(|token| token["id"] == id);
    assert!(one.expect("it is listed")["title"].as_str().expect("a title").starts_with("browser "));
    served.ask("DELETE", &format!("/v1/tokens/{id}"), Value::Null).await.expect(200);
    assert_eq!(
        first.ask(&served, "GET", "/v1/overview", Value::Null).await.told(),
        (401, "wrong_token".into())
    );
    // A token logs in, too, and the login ends when its browser says so.
    let scopes = [TokenScope::Read];
    let reader = served.token_of("bob", &scopes).await;
    let (second, login) = Browser::log_in(&served, json!({"token": reader})).await.expect("it logs in");
    assert_eq!((&login["login"]["principal"], &login["login"]["scopes"]), (&json!("bob"), &json!(["read"])));
    let denied = second.ask(&served, "POST", "/v1/sessions", json!({"id": "x"})).await;
    assert_eq!(denied.told(), (403, "missing_scope".into()));
    let out = second.ask(&served, "POST", "/v1/logout", json!({})).await;
    assert!(header(&out, "set-cookie").expect("a cookie").contains("max-age=0"), "{}", out.head);
    assert_eq!(
        second.ask(&served, "GET", "/v1/overview", Value::Null).await.told(),
        (401, "wrong_token".into())
    );
    served.ask_as(Some(&reader), "GET", "/v1/overview", Value::Null).await.expect(200);
    let bearer = served.post("/v1/logout", json!({})).await;
    assert_eq!(bearer.told(), (409, "unfit".into()), "a bearer token is revoked by its id");
    // A login for somebody else, or with more scopes, cannot be asked for.
    let more = served.ask_as(Some(&reader), "POST", "/v1/logins", json!({"scopes": ["admin"]})).await;
    assert_eq!(more.told(), (422, "invalid_token".into()));
    for wrong in [json!({}), json!({"code": "0", "token": "0"})] {
        assert_eq!(Browser::log_in(&served, wrong).await.err(), Some((400, "bad_body".into())));
    }
}

#[tokio::test]
async fn codes_and_logins_expire() {
    let (served, clock) = Served::with_clock(Limits::default()).await;
    let late = code(&served).await;
    clock.advance(std::time::Duration::from_secs(600));
    assert_eq!(Browser::log_in(&served, late).await.err(), Some((401, "wrong_token".into())));
    let (browser, _) = Browser::log_in(&served, code(&served).await).await.expect("it logs in");
    clock.advance(std::time::Duration::from_secs(7 * 24 * 3_600));
    let over = browser.ask(&served, "GET", "/v1/overview", Value::Null).await;
    assert_eq!(over.told(), (401, "wrong_token".into()));
    // The next login removes it from the list.
    Browser::log_in(&served, code(&served).await).await.expect("it logs in");
    let tokens = served.get("/v1/tokens").await.expect(200);
    assert_eq!(tokens["items"].as_array().map(Vec::len), Some(2), "{tokens}");
}

#[tokio::test]
async fn the_page_is_served_to_everybody_and_cannot_be_framed() {
    let served = Served::new().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/ui/calls/x?state=open", "text/html; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/vendor/preact.mjs", "text/javascript; charset=utf-8"),
        ("/assets/style.css", "text/css; charset=utf-8"),
    ] {
        let request = page_request(&served, "GET", path, &[("sec-fetch-site", "none")], Value::Null);
        let answer = served.raw(&request).await;
        assert_eq!((answer.status, header(&answer, "content-type").as_deref()), (200, Some(kind)), "{path}");
        let policy = header(&answer, "content-security-policy").expect("a policy");
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert_eq!(header(&answer, "x-frame-options").as_deref(), Some("deny"), "{path}");
        let tag = header(&answer, "etag").expect("a tag");
        let known = page_request(&served, "GET", path, &[("if-none-match", &tag)], Value::Null);
        assert_eq!(served.raw(&known).await.status, 304, "{path}");
        for site in ["cross-site", "same-site"] {
            let framed = page_request(&served, "GET", path, &[("sec-fetch-site", site)], Value::Null);
            assert_eq!(served.raw(&framed).await.told(), (403, "origin_not_allowed".into()), "{path} {site}");
        }
    }
    for path in ["/assets/../Cargo.toml", "/assets/nothing.js", "/assets/LICENSE-preact"] {
        let request = page_request(&served, "GET", path, &[], Value::Null);
        assert_eq!(served.raw(&request).await.status, 404, "{path}");
    }
}
