//! No principal sees what is another's: every route of the description × every kind of object (one's own, another's, one that is
//! not there) × every way to ask (without a token, with each scope alone, as another principal, as an admin).

use crate::tcp::{Answer, Served, read_head};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass::policy::ApprovalRule;
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::{ToolSpec, tool_fn};
use windlass_server::access::TokenScope;
use windlass_server::openapi;

/// One object of each kind that a path can name, all of the principal `alice` and in a session of its own.
pub struct Objects {
    pub session: String,
    call: String,
    question: String,
    /// The key of a call's wait.
    completion: String,
    token: String,
    artifact: String,
    task: String,
    notice: String,
    schedule: String,
    trigger: String,
    webhook: String,
    approval: String,
    grant: String,
    toolbox: String,
}

impl Objects {
    /// Makes them anew: whoever reaches them may change them.
    pub async fn new(rig: &Rig, session: String) -> Objects {
        let served = &rig.served;
        let post = async |path: &str, body: Value| {
            let path = format!("/v1/sessions/{session}/{path}");
            served.ask_as(Some(&rig.alice), "POST", &path, body).await.expect(200)
        };
        post("batches/streamed/calls", json!({"calls": [{"id": "a", "tool": "say"}]})).await;
        let calls = json!([{"id": "w", "tool": "key"}, {"id": "q", "tool": "ask"}]);
        let batch = post("batches", json!({"key": "k", "calls": calls})).await;
        let pair = format!("/v1/sessions/{session}/kv/k");
        served.ask_as(Some(&rig.alice), "PUT", &pair, json!({"value": 1})).await.expect(200);
        let questions = format!("/v1/questions?session={session}");
        let questions = served.ask_as(Some(&rig.alice), "GET", &questions, Value::Null).await.expect(200);
        let file = format!("/v1/sessions/{session}/files/notes.txt");
        served.ask_as(Some(&rig.alice), "PUT", &file, json!("hers")).await.expect(200);
        let calls = json!([{"id": "f", "tool": "file", "args": {"text": "her artifact"}}]);
        let kept = post("batches", json!({"key": "kept", "calls": calls})).await;
        let build = json!({"key": "build", "wait": "settled", "calls": [{"id": "b", "tool": "build"}]});
        let build = post("batches", build).await;
        served.go.add_permits(1);
        let inbox = format!("/v1/sessions/{session}/inbox");
        let notice = loop {
            let page = served.ask_as(Some(&rig.alice), "GET", &inbox, Value::Null).await.expect(200);
            if let Some(id) = page["items"][0]["id"].as_str() {
                break id.to_string();
            }
        };
        let schedules = format!("/v1/sessions/{session}/schedules");
        let nightly = json!({"cron": "0 0 * * *", "tool": "build"});
        let schedule = served.ask_as(Some(&rig.alice), "POST", &schedules, nightly).await.expect(201);
        let triggers = format!("/v1/sessions/{session}/triggers");
        let on_sale = json!({"event": "sold", "tool": "build"});
        let trigger = served.ask_as(Some(&rig.alice), "POST", &triggers, on_sale).await.expect(201);
        let wanted = json!({"principal": "p", "scopes": ["read"]});
        let token = served.post("/v1/tokens", wanted).await.expect(201);
        let wanted = json!({"url": "https://chat.example/", "session": session});
        let webhook = served.post("/v1/webhooks", wanted).await.expect(201);
        let wanted = json!({"session": session, "tool": "say"});
        let grant = served.post("/v1/grants", wanted).await.expect(201);
        let toolbox = format!("box-{session}");
        let path = format!("/v1/toolboxes/{toolbox}");
        served.ask_as(Some(&rig.alice), "PUT", &path, json!({"tools": []})).await.expect(200);
        let risky = json!({"key": "risky", "calls": [{"id": "r", "tool": "risky"}]});
        let batches = format!("/v1/sessions/{session}/batches");
        served.ask_as(Some(&rig.alice), "POST", &batches, risky).await.expect(200);
        let waiting = format!("/v1/waiting?kind=approval&session={session}");
        let waiting = served.ask_as(Some(&rig.alice), "GET", &waiting, Value::Null).await.expect(200);
        let text = |value: &Value| value.as_str().expect("text").to_string();
        let completion = served.keys.lock().expect("no panic").last().expect("it waits").clone();
        Objects {
            session,
            call: text(&batch["calls"][1]["call"]),
            question: text(&questions["items"][0]["id"]),
            completion,
            token: text(&token["id"]),
            artifact: text(&kept["calls"][0]["outcome"]["parts"][0]["artifact"]),
            task: text(&build["calls"][0]["task"]),
            notice,
            schedule: text(&schedule["id"]),
            trigger: text(&trigger["id"]),
            webhook: text(&webhook["id"]),
            approval: text(&waiting["items"][0]["id"]),
            grant: text(&grant["id"]),
            toolbox,
        }
    }

    /// A session, and nothing in it.
    pub fn in_session(session: String) -> Objects {
        Objects { session, ..Objects::nothing() }
    }

    /// Of each kind one that nobody has.
    fn nothing() -> Objects {
        let nothing = || "x".repeat(20);
        Objects {
            session: "nowhere".into(),
            call: nothing(),
            question: nothing(),
            completion: nothing(),
            token: nothing(),
            artifact: nothing(),
            task: nothing(),
            notice: nothing(),
            schedule: nothing(),
            trigger: nothing(),
            webhook: nothing(),
            approval: nothing(),
            grant: nothing(),
            toolbox: nothing(),
        }
    }

    /// The path with its names filled in; a kind of object that this does not know fails the test.
    pub fn fill(&self, path: &str) -> String {
        let parts = path.split('/').map(|part| match part {
            "{session}" => self.session.clone(),
            "{call}" => self.call.clone(),
            "{key}" if path.contains("/completions/") => self.completion.clone(),
            "{key}" if path.ends_with("/calls") || path.ends_with("/close") => "streamed".to_string(),
            "{key}" => "k".to_string(),
            "{id}" if path.contains("/questions/") => self.question.clone(),
            "{id}" if path.contains("/approvals/") => self.approval.clone(),
            "{id}" if path.contains("/remembered/") => "5-1".to_string(),
            "{id}" if path.contains("/tokens/") => self.token.clone(),
            "{id}" if path.contains("/artifacts/") => self.artifact.clone(),
            "{task}" => self.task.clone(),
            "{notice}" => self.notice.clone(),
            "{schedule}" => self.schedule.clone(),
            "{trigger}" => self.trigger.clone(),
            "{webhook}" => self.webhook.clone(),
            "{grant}" => self.grant.clone(),
            "{toolbox}" => self.toolbox.clone(),
            "{attempt}" => "none".to_string(),
            "{path}" => "notes.txt".to_string(),
            "{name}" => "say".to_string(),
            "{provider}" => "mail".to_string(),
            "{event}" => "window".to_string(),
            part if part.starts_with('{') => panic!("what is {part} of {path}? say it here"),
            part => part.to_string(),
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// The ids that a list could show.
    fn shown(&self) -> [&String; 4] {
        [&self.session, &self.call, &self.question, &self.toolbox]
    }
}

/// A body that is right for this route.
pub fn body(method: &str, path: &str) -> Value {
    match method {
        "POST" => {}
        "PUT" if path == "/v1/policy" => return json!({"rules": []}),
        "PUT" if path.contains("/toolboxes/") => return json!({"tools": []}),
        "PUT" if path.contains("/secrets/") => return json!({"value": "correct horse"}),
        "PUT" => return json!({"value": 1}),
        "PATCH" if path.contains("/webhooks/") => return json!({"enabled": true}),
        "PATCH" => return json!({"title": "hers"}),
        _ => return Value::Null,
    }
    if path.starts_with("/mcp") {
        let params = json!({"name": "say", "arguments": {}});
        return json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    }
    match path.rsplit('/').next().expect("a part") {
        "take" if path.contains("/toolboxes/") => json!({"worker": "w", "manifest": "0", "max": 1}),
        "operations" => json!({"worker": "w", "n": 1, "do": {"type": "secret", "name": "github"}}),
        "reports" => json!({"worker": "w", "reports": []}),
        "batches" | "calls" => json!({"calls": [{"id": "m", "tool": "say"}]}),
        "signal" => json!({"name": "go", "payload": 1}),
        "resolve" => json!({"did_not_happen": true}),
        "result" | "{key}" | "{event}" => json!({"ok": 1}),
        // One that started the gated build would take the permit of another.
        "events" => json!({"kind": "nonsense"}),
        "inbox" => json!({"title": "Deployment", "text": "It has begun."}),
        "{provider}" => json!({"connected": true}),
        "{id}" if path.contains("/approvals/") => json!({"decision": "approve", "digest": "0"}),
        "{id}" => json!({"answer": "red"}),
        "messages" => json!({"text": "hello"}),
        "schedules" => json!({"cron": "0 0 * * *", "tool": "build"}),
        "triggers" => json!({"event": "sold", "tool": "build"}),
        "preview" if path.contains("/approvals/") => json!({"args": {}}),
        "preview" => json!({"cron": "0 0 * * *"}),
        "grants" => json!({"session": "hers-1", "tool": "say"}),
        "webhooks" => json!({"url": "https://chat.example/"}),
        "check" if path.contains("/tools/") => json!({}),
        "check" => json!({"tool": "say"}),
        "login" => json!({"code": "00"}),
        "tokens" => json!({"principal": "p", "scopes": ["read"]}),
        _ => json!({}),
    }
}

/// A route as it is described.
pub struct Route {
    pub method: String,
    pub path: String,
    /// The scope it needs; none if no token is needed.
    pub scope: Option<TokenScope>,
}

impl Route {
    pub fn all() -> Vec<Route> {
        let mut routes = Vec::new();
        for (path, methods) in openapi::document()["paths"].as_object().expect("paths") {
            for (method, described) in methods.as_object().expect("methods") {
                let needs = described["security"].as_array().expect("a list").first().cloned();
                let scope = needs.map(|needs| {
                    let named = |scope: &TokenScope| needs["token"][0] == scope.as_str();
                    TokenScope::ALL.into_iter().find(named).expect("a scope")
                });
                routes.push(Route { method: method.to_uppercase(), path: path.clone(), scope });
            }
        }
        routes
    }

    /// Whether the path names an object of a session.
    pub fn is_of_a_session(&self) -> bool {
        ["{session}", "{call}", "/questions/{id}", "/approvals/{id}", "/artifacts/{id}"]
            .iter()
            .any(|part| self.path.contains(part))
    }

    /// Whether the path names an object of one principal.
    fn names_what_is_hers(&self) -> bool {
        self.is_of_a_session() || self.path.contains("{toolbox}")
    }

    /// Whether a session or a toolbox is opened by it.
    pub fn opens(&self) -> bool {
        let opened_by_post =
            ["/batches", "/schedules", "/schedules/preview", "/triggers", "/events", "/inbox"];
        (self.method == "POST" && opened_by_post.iter().any(|end| self.path.ends_with(end)))
            || self.path == "/mcp/{session}"
            || self.path.ends_with("{key}/calls")
            || (self.method == "PUT" && self.names_what_is_hers())
    }

    /// Whether it shows what is there for whoever asks.
    fn lists(&self) -> bool {
        let lists = ["/v1/sessions", "/v1/calls", "/v1/questions", "/v1/schedules", "/v1/toolboxes"];
        self.method == "GET" && lists.contains(&&*self.path)
    }
}

pub struct Rig {
    pub served: Served,
    /// With all scopes but `admin`.
    pub alice: String,
    pub bob: String,
    /// Each principal with each scope alone.
    alone: BTreeMap<(&'static str, TokenScope), String>,
    /// Each scope with `admin`.
    admins: BTreeMap<TokenScope, String>,
    cells: u64,
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::of(1).await
    }

    /// On so many workers: each request goes to any of them.
    pub async fn of(workers: usize) -> Rig {
        // Every cell makes its own objects.
        let key = SecretKey::random().expect("a key");
        let served = Served::fleet(workers, |config| {
            (config.limits.webhooks_max, config.limits.toolboxes_max) = (1_000_000, 1_000_000);
            // Changes of the policy wait for the heartbeats of all workers.
            (config.limits.heartbeat_ms, config.limits.knock_ms) = (100, 20);
            config.secret_key = SecretKeySource::Key(key);
        })
        .await;
        let risky = ToolSpec {
            name: "risky".into(),
            approval: ApprovalRule::Ask,
            claims: Some(Vec::new()),
            ..ToolSpec::default()
        };
        for runtime in served.runtimes() {
            let risky = tool_fn(risky.clone(), |_, _| async { Ok(json!(1).into()) });
            runtime.register(risky).expect("it is new");
        }
        let all = TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::Admin).collect::<Vec<_>>();
        let (alice, bob) = (served.token_of("alice", &all).await, served.token_of("bob", &all).await);
        let (mut alone, mut admins) = (BTreeMap::new(), BTreeMap::new());
        for scope in TokenScope::ALL {
            for principal in ["alice", "bob"] {
                alone.insert((principal, scope), served.token_of(principal, &[scope]).await);
            }
            admins.insert(scope, served.token_of("root", &[scope, TokenScope::Admin]).await);
        }
        Rig { served, alice, bob, alone, admins, cells: 0 }
    }

    /// Asks, and reads all of the answer if it is a refusal; what is shown may never end.
    async fn ask(&mut self, token: Option<&str>, route: &Route, objects: &Objects) -> Answer {
        self.cells += 1;
        let path = objects.fill(&route.path);
        let body = body(&route.method, &route.path);
        let request = Served::request(token, &route.method, &path, body);
        read_head(self.served.send(&request).await).await
    }

    /// It is refused, and told why.
    async fn refused(&mut self, token: Option<&str>, route: &Route, objects: &Objects, told: (u16, &str)) {
        let answer = self.ask(token, route, objects).await;
        let place = format!("{} {}", route.method, objects.fill(&route.path));
        assert_eq!(answer.told(), (told.0, told.1.to_string()), "{place}: {}", answer.body);
    }

    /// A caller that cannot reach an object is not shown it; its owner and an admin are.
    async fn check_list(&mut self, route: &Route, theirs: &Objects, scope: TokenScope) {
        if route.path == "/v1/changes" {
            // It never ends: `overview::changes_are_told_to_whom_they_concern` follows it.
            return;
        }
        let asked = body(&route.method, &route.path);
        let answer = self.served.ask_as(Some(&self.bob), &route.method, &route.path, asked).await;
        for hers in theirs.shown() {
            assert!(!answer.body.contains(&format!("{hers:?}")), "{}: {}", route.path, answer.body);
        }
        self.cells += 1;
        if !route.lists() {
            return;
        }
        for token in [&self.alice, &self.admins[&scope]] {
            let path = format!("{}?limit=200", route.path);
            let answer = self.served.ask_as(Some(token), "GET", &path, Value::Null).await;
            let is_shown = |hers: &&String| answer.body.contains(&format!("{hers:?}"));
            assert!(theirs.shown().iter().any(is_shown), "{} shows nothing: {}", route.path, answer.body);
            self.cells += 1;
        }
    }

    /// It is not refused for who asks: whatever is wrong then is about what is asked.
    async fn reached(&mut self, token: Option<&str>, route: &Route, objects: &Objects) {
        let answer = self.ask(token, route, objects).await;
        let place = format!("{} {}", route.method, objects.fill(&route.path));
        // The stream of an MCP client is for those that have sent `initialize`, whoever asks.
        let is_no_stream = route.method == "GET" && route.path.starts_with("/mcp") && answer.status == 405;
        assert!(
            is_no_stream || matches!(answer.status, 200 | 201 | 409 | 410 | 422),
            "{place}: {} {}",
            answer.status,
            answer.body
        );
    }
}

#[tokio::test]
async fn every_route_and_object_and_principal() {
    every_cell(Rig::new().await).await;
}

/// The answers of one worker, whichever of several is asked.
#[tokio::test]
async fn every_route_and_object_and_principal_at_any_of_several_workers() {
    every_cell(Rig::of(3).await).await;
}

async fn every_cell(mut rig: Rig) {
    let (mut fresh, mut foreign) = (0, 0);
    let mut objects = async |rig: &Rig| {
        fresh += 1;
        Objects::new(rig, format!("hers-{fresh}")).await
    };
    let theirs = objects(&rig).await;
    for route in Route::all() {
        let Some(scope) = route.scope else {
            // The key is enough, and a forged one is none.
            let own = objects(&rig).await;
            match route.path.as_str() {
                "/login" => rig.refused(None, &route, &own, (401, "wrong_token")).await,
                _ => rig.reached(None, &route, &own).await,
            }
            if route.path.contains('{') {
                rig.refused(None, &route, &Objects::nothing(), (404, "not_found")).await;
            }
            continue;
        };
        for asked in [&theirs, &Objects::nothing()] {
            rig.refused(None, &route, asked, (401, "no_token")).await;
            for other in TokenScope::ALL.into_iter().filter(|other| *other != scope) {
                for principal in ["alice", "bob"] {
                    let token = rig.alone[&(principal, other)].clone();
                    rig.refused(Some(&token), &route, asked, (403, "missing_scope")).await;
                }
            }
        }
        // What it is there for: its owner with this scope and no other, and an admin that has it.
        let own = objects(&rig).await;
        let token = rig.alone[&("alice", scope)].clone();
        rig.reached(Some(&token), &route, &own).await;
        let own = objects(&rig).await;
        let token = rig.admins[&scope].clone();
        rig.reached(Some(&token), &route, &own).await;
        if scope == TokenScope::Admin {
            for token in [rig.alice.clone(), rig.bob.clone()] {
                rig.refused(Some(&token), &route, &theirs, (403, "missing_scope")).await;
            }
            continue;
        }
        if route.names_what_is_hers() {
            foreign += 1;
            for token in [rig.bob.clone(), rig.alone[&("bob", scope)].clone()] {
                rig.refused(Some(&token), &route, &theirs, (404, "not_found")).await;
            }
            // One that is not there is told like another's, whoever asks.
            let nobodys = Objects::nothing();
            for token in [rig.bob.clone(), rig.alice.clone(), rig.admins[&scope].clone()] {
                if !route.opens() {
                    rig.refused(Some(&token), &route, &nobodys, (404, "not_found")).await;
                }
            }
        } else {
            rig.check_list(&route, &theirs, scope).await;
        }
    }
    every_route_of_a_gone_session(&mut rig).await;
    assert!(rig.cells > 600 && foreign > 20, "{} cells, {foreign} routes with foreign objects", rig.cells);
    // Nothing of all that has changed what is hers, and she still reaches it.
    let path = format!("/v1/calls/{}", theirs.call);
    let mine = rig.served.ask_as(Some(&rig.alice), "GET", &path, Value::Null).await;
    assert_eq!(mine.expect(200)["state"], "awaiting_input");
    let answer = format!("/v1/questions/{}", theirs.question);
    rig.served.ask_as(Some(&rig.alice), "POST", &answer, json!({"answer": "red"})).await.expect(200);
}

/// A session that was removed is told as gone to the principal that it belonged to and to admins, by every route that names it;
/// to others it is told as one that is not there. Handles of what it had lead nowhere.
async fn every_route_of_a_gone_session(rig: &mut Rig) {
    let gone = Objects::new(rig, "gone".into()).await;
    let path = format!("/v1/sessions/{}", gone.session);
    rig.served.ask_as(Some(&rig.alice), "DELETE", &path, Value::Null).await.expect(200);
    for route in Route::all() {
        let Some(scope) = route.scope.filter(|_| route.is_of_a_session()) else { continue };
        let told = if route.path.contains("{session}") { (410, "gone") } else { (404, "not_found") };
        for token in [rig.alone[&("alice", scope)].clone(), rig.admins[&scope].clone()] {
            rig.refused(Some(&token), &route, &gone, told).await;
        }
        let bob = rig.alone[&("bob", scope)].clone();
        rig.refused(Some(&bob), &route, &gone, (404, "not_found")).await;
    }
    for (token, told) in [(rig.alice.clone(), (410, "gone")), (rig.bob.clone(), (404, "not_found"))] {
        for wanted in [json!({"id": "gone"}), json!({"id": "gone", "parent": "hers-1"})] {
            let opened = rig.served.ask_as(Some(&token), "POST", "/v1/sessions", wanted).await;
            assert_eq!(opened.told(), (told.0, told.1.to_string()), "{}", opened.body);
        }
        rig.cells += 2;
    }
}

#[tokio::test]
async fn a_session_is_its_first_users_and_an_admin_reaches_all() {
    let served = Served::new().await;
    let scopes = [TokenScope::Calls, TokenScope::Read];
    let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
    let path = "/v1/sessions/shared/batches";
    let batch = || json!({"key": "k", "calls": [{"id": "a", "tool": "say"}]});
    // Both want it at once: one gets it.
    let (first, second) = tokio::join!(
        served.ask_as(Some(&alice), "POST", path, batch()),
        served.ask_as(Some(&bob), "POST", path, batch())
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
    let (owner, other) = if first.status == 200 { (&alice, &bob) } else { (&bob, &alice) };
    let list = |token: &str| {
        let token = token.to_string();
        let served = &served;
        async move {
            let page = served.ask_as(Some(&token), "GET", "/v1/sessions", Value::Null).await.expect(200);
            page["items"].as_array().expect("items").len()
        }
    };
    assert_eq!((list(owner).await, list(other).await, list(&served.token).await), (1, 0, 1));
    let opened = served.ask_as(Some(other), "POST", "/v1/sessions", json!({"id": "shared"})).await;
    assert_eq!(opened.told(), (404, "not_found".into()), "nor is it told to who wants to open it");
    assert_eq!(
        served.get("/v1/sessions/shared/calls").await.expect(200)["items"].as_array().map(Vec::len),
        Some(1)
    );
    // What was made in the folder is the local principal's.
    let request = windlass::BatchRequest {
        calls: vec![windlass::CallRequest { tool: "say".into(), ..Default::default() }],
        ..Default::default()
    };
    served.api.runtime().submit("inside", request).await.expect("taken").settled().await.expect("answered");
    let hidden = served.ask_as(Some(&alice), "GET", "/v1/sessions/inside", Value::Null).await;
    assert_eq!(hidden.told(), (404, "not_found".into()));
    assert_eq!(served.get("/v1/sessions/inside").await.expect(200)["principal"], "local");
    assert_eq!(list(&served.token).await, 2);
}
