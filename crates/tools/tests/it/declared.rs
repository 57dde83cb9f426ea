//! Valid content of `windlass.toml`, and the messages about the rest.

use crate::rig::launcher;
use std::fmt::Write;
use std::path::Path;
use windlass::ToolSpec;
use windlass::limits::{Cap, Rate, Retention};
use windlass_tools::{Declared, load};

fn read(text: &str) -> Result<Declared, String> {
    load(text, Path::new("/etc/windlass/windlass.toml"), launcher()).map_err(|error| error.to_string())
}

#[test]
fn retention_is_off_until_it_is_declared() {
    assert!(!read("").unwrap().retention.is_on());
    let declared =
        read("[retention]\nage_ms = 60000\nstore_bytes = 1000\nunknown_too = true\n").unwrap().retention;
    let expected =
        Retention { age_ms: Some(60_000), session_bytes: None, store_bytes: Some(1_000), unknown_too: true };
    assert_eq!(declared, expected);
    let wrong = read("[retention]\nage = 3\n").unwrap_err();
    assert!(wrong.contains("age_ms"), "it names the nearest key: {wrong}");
    assert!(read("[retention]\nage_ms = -3\n").is_err());
}

#[test]
fn a_tool_is_what_it_declares() {
    let declared = read(
        r#"
        [limits]
        problems_max = 3

        [tools.deploy]
        title = "Deploy"
        description = "Deploy a service"
        command = ["./deploy.sh", "--service={service}"]
        input = { type = "object", properties = { service = { type = "string", maxLength = 1.5 } }, required = ["service"] }
        output = { type = "string" }
        class = "keyed"
        version = "2"
        hints = { destructive = true, open_world = false }
        persist_output = true
        env = { REGION = "eu" }
        cwd = "work"
        timeout_ms = 60000
        queue_ms = 1
        total_ms = 90000
        silence_ms = 5000
        grace_ms = 0
        answer_bytes_max = 4000
        answer_lines_max = 40
        retry = { attempts = 2, base_ms = 0, cap_ms = 1000 }
        reconcile = ["./deployed.sh", "--service={service}"]
        claims = ["write service:{service}", "read global:region"]
        limits = { running = 4, per_minute = 60 }
        groups = ["db"]
        dedupe = { key = "{service}", for_ms = 3600000 }

        [groups.db]
        running = 2
        per_minute = 30

        [tools.a]
        command = ["date"]
        claims = []
        dedupe = "once"
        limits = { running = 1 }
        "#,
    )
    .expect("it is right");
    assert_eq!(declared.limits.problems_max, 3);
    assert_eq!(declared.limits.batch_calls_max, 256);
    let specs: Vec<ToolSpec> = declared.tools.iter().map(|tool| tool.spec()).collect();
    insta::assert_debug_snapshot!(specs);
    let rate = Some(Rate { count: 30, period_us: 60_000_000 });
    assert_eq!(declared.groups, [("db".to_string(), Cap { running_max: Some(2), rate })]);
    let reconcile: Vec<bool> = declared.tools.iter().map(|tool| tool.reconciler().is_some()).collect();
    assert_eq!(reconcile, [false, true]);
}

#[test]
fn an_empty_file_declares_nothing() {
    let declared = read("").expect("it is right");
    assert!(declared.tools.is_empty());
    assert_eq!(declared.limits, Default::default());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of mistakes")]
fn problems_as_people_see_them() {
    let cases = [
        ("[tool.t]\n".into(), "top-level key"),
        ("[mcp.x]\n".into(), "MCP server that is nowhere"),
        ("[mcp.x]\nurl = \"http://a.example/\"\n".into(), "MCP server without encryption"),
        ("[mcp.x]\ncommand = [\"a\"]\nheaders = { A = \"b\" }\n".into(), "headers of a command"),
        ("[mcp.x]\ncommand = [\"a\"]\nclas = \"read\"\n".into(), "key of an MCP server"),
        (
            "[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.t]\napproval = \"maybe\"\n".into(),
            "approval of an MCP tool",
        ),
        ("[limits]\nproblems_mx = 3\n".into(), "limit"),
        ("[limits]\nproblems_max = -1\n".into(), "negative limit"),
        ("[limits]\nproblems_max = \"many\"\n".into(), "limit that is no number"),
        ("[limits]\nproblems_max = 0\n".into(), "limit of nothing"),
        ("limits = 3\n".into(), "limits that are no table"),
        ("tools = []\n".into(), "tools that are no table"),
        ("[tools]\nt = 3\n".into(), "tool that is no table"),
        (tool("descripton = \"x\""), "misspelt key"),
        (tool("colour = \"x\""), "key like none"),
        (tool("background_only = true"), "beside what it only goes on"),
        (tool("claims = []\nbackground = true\nstays_direct = true"), "flags that contradict each other"),
        (tool("emits = { sold = 3 }"), "payload of the wrong type"),
        (tool("background = true"), "beside what it goes on"),
        (tool("claims = []\ninline_ms = 5"), "a patience for nothing"),
        (tool("completion_ms = 5"), "wait for a result that cannot come later"),
        (tool("completion = true\ncompletion_ms = 0"), "wait of nothing"),
        (tool("inline_ms = 5"), "key of a later version"),
        (tool("answer_bytes_max = 511"), "answer without room"),
        (tool("timeout_ms = 0"), "no time at all"),
        (tool("timeout_ms = -1"), "negative time"),
        (tool("timeout_ms = \"30s\""), "time with a unit"),
        (tool("timeout_ms = 1.5"), "fraction of a time"),
        (tool("timeout_ms = 9223372036854775807"), "time in another unit"),
        (tool("queue_ms = 0"), "no time to wait"),
        (tool("total_ms = 0"), "no time in all"),
        (tool("silence_ms = 0"), "no silence"),
        (tool("grace_ms = 600001"), "grace that nobody waits for"),
        (tool("timeout = 5"), "misspelt time"),
        (tool("retry = 3"), "retry that is no table"),
        (tool("retry = { attempts = 0 }"), "no attempts"),
        (tool("retry = { attempts = 1001 }"), "too many attempts"),
        (tool("retry = { attempts = \"many\" }"), "attempts that are no number"),
        (tool("retry = { attemps = 1 }"), "misspelt part of a retry rule"),
        (tool("retry = { base_ms = -1 }"), "negative wait"),
        (tool("retry = { base_ms = 200, cap_ms = 100 }"), "cap below the base"),
        (tool("reconcile = []"), "empty reconcile"),
        (tool("reconcile = \"date\""), "reconcile that is no list"),
        (tool("class = \"read\"\nreconcile = [\"date\"]"), "reconcile of a reader"),
        (
            tool("reconcile = [\"{p}\"]\ninput = { properties = { p = {} } }"),
            "reconciling program chosen by an argument",
        ),
        (tool("http = { url = \"https://h\" }"), "both a command and a request"),
        (request("url = \"http://h/x\""), "request that is not encrypted"),
        (request("method = \"GET\""), "request to nowhere"),
        (request("url = \"https://h/{p}\""), "argument in a path that may be missing"),
        (request("url = \"https://{p}/x\""), "host chosen by an argument"),
        (request("url = \"https://h\", method = \"FETCH\""), "method that does not exist"),
        (request("url = \"https://h\", body = \"x\""), "body of a read"),
        (request("url = \"https://h\", headers = { Host = \"x\" }"), "header of ours"),
        (request("url = \"https://h\", headers = { \"a b\" = \"x\" }"), "name of no header"),
        (request("url = \"https://h/{secret:a b}\""), "name of no secret"),
        (request("url = \"https://h\", querry = \"x\""), "misspelt part of a request"),
        (request("url = \"https://h\" }\nenv = { A = \"b\""), "environment of a request"),
        (tool("cpu_bound = true"), "flag that means nothing"),
        (tool("description = 3"), "wrong type"),
        (tool("class = \"stepped\""), "class of no command"),
        (tool("class = \"readonly\""), "no class"),
        (tool("hints = { readonly = true }"), "misspelt hint"),
        (tool("hints = { read_only = \"yes\" }"), "hint of the wrong type"),
        (tool("env = { TOKEN = \"secret:a b\" }"), "secret that cannot have this name"),
        (tool("env = { WINDLASS_CALL = \"x\" }"), "variable of ours"),
        (tool("env = { N = 3 }"), "variable of the wrong type"),
        (tool("input = \"object\""), "schema of the wrong type"),
        (tool("input = { const = 2020-01-01 }"), "date in a schema"),
        (tool("input = { maximum = inf }"), "infinity in a schema"),
        (tool("title = \"a\"\ntitle = \"b\""), "key twice"),
        ("[tools.t]\n".into(), "no command"),
        ("[tools.t]\ncommand = []\n".into(), "empty command"),
        ("[tools.t]\ncommand = \"date\"\n".into(), "command that is no list"),
        (
            "[tools.t]\ncommand = [\"{p}\"]\ninput = { properties = { p = {} } }\n".into(),
            "program chosen by an argument",
        ),
        ("[tools.\"a b\"]\ncommand = [\"date\"]\n".into(), "bad name"),
        ("[tools.t\n".into(), "no TOML"),
    ];
    insta::assert_snapshot!(told(&cases));
}

#[test]
fn problems_of_a_dedupe_key_as_people_see_them() {
    let tool = |dedupe: &str| {
        format!(
            "[tools.t]\ncommand = [\"date\"]\ninput = {{ properties = {{ p = {{}} }} }}\ndedupe = {dedupe}\n"
        )
    };
    let cases = [
        (tool("\"{p}-{order}\""), "argument that is not there"),
        (tool("\"\""), "empty"),
        (tool("{ for_ms = 5 }"), "without a key"),
        (tool("{ key = \"x\", for_ms = 0 }"), "for no time"),
        (tool("{ key = \"x\", form_s = 5 }"), "misspelt part"),
        (tool("3"), "no key"),
    ];
    insta::assert_snapshot!(told(&cases));
}

#[test]
fn problems_with_room_as_people_see_them() {
    let cases = [
        (tool("claims = \"write x\""), "claims that are no list"),
        (tool("claims = [\"write x\", \"change y\"]"), "claim that neither reads nor writes"),
        (tool("claims = [\"write a//b\"]"), "claim with an empty level"),
        (tool("claims = [\"write a/../b\"]"), "claim with dots"),
        (tool("claims = [\"write a:{b}\"]"), "claim of a property without an input"),
        (
            tool("claims = [\"write a:{servce}\"]\ninput = { properties = { service = {} } }"),
            "claim of a misspelt property",
        ),
        (
            tool("claims = [\"write a:{who}\"]\ninput = { properties = { from = {}, service = {} } }"),
            "claim of no property",
        ),
        (
            format!("[limits]\nclaims_max = 1\n{}", tool("claims = [\"read x\", \"read y\"]")),
            "too many claims",
        ),
        (tool("limits = 4"), "limits of a tool that are no table"),
        (tool("limits = { runing = 4 }"), "misspelt limit of a tool"),
        (tool("limits = { running = 0 }"), "nothing may run"),
        (tool("limits = { per_minute = 0 }"), "nothing may start"),
        (tool("limits = { per_minute = 1.5 }"), "fraction of a start"),
        (tool("groups = \"db\""), "groups that are no list"),
        (tool("groups = [\"db\"]"), "group that is not declared"),
        ("[groups.db]\n".into(), "group that bounds nothing"),
        ("[groups.db]\nrunning = -1\n".into(), "group with a negative limit"),
        ("[groups.db]\nper_second = 1\n".into(), "misspelt limit of a group"),
        ("[groups]\ndb = 1\n".into(), "group that is no table"),
    ];
    insta::assert_snapshot!(told(&cases));
}

fn request(http: &str) -> String {
    format!("[tools.t]\ninput = {{ properties = {{ p = {{}} }} }}\nhttp = {{ {http} }}")
}

fn tool(line: &str) -> String {
    format!("[tools.t]\ncommand = [\"date\"]\n{line}\n")
}

/// The messages about each of these files, under its mistake.
fn told(cases: &[(String, &str)]) -> String {
    let mut told = String::new();
    for (text, what) in cases {
        let error = read(text).err().unwrap_or_else(|| panic!("{what}: it is taken"));
        writeln!(told, "--- {what}\n{error}").expect("written");
    }
    told
}
