//! The memory of a real server under bodies that swell: measured for each, alone and from many clients at once, and bounded.
//!
//! `WINDLASS_TEST_CLIENTS=24 cargo nextest run -p windlass-cli --no-capture memory_of_bodies` prints the table of docs/server.md.

use crate::rig::{Rig, kill, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

const MIB: usize = 1 << 20;
/// The memory a server may take beyond the bodies in flight.
const OVER_MIB_MAX: usize = 64;
/// Bodies of those with a token that are in memory at once (`bodies_bytes_max`, without what is for others).
const IN_FLIGHT_MIB_MAX: usize = 192;
/// How many clients send a body at once; more take longer.
const CLIENTS: &str = "WINDLASS_TEST_CLIENTS";

const TOOLS: &str = "[tools.flood]\ncommand = [\"cat\", \"big.json\"]\n";

struct Server {
    child: Child,
    at: String,
    token: String,
}

fn serve(rig: &Rig) -> Server {
    let mut child = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    let mut greeting = BufReader::new(child.stdout.take().expect("a pipe"));
    greeting.read_line(&mut line).expect("it says where");
    std::thread::spawn(move || std::io::copy(&mut greeting, &mut std::io::sink()));
    let at = line.trim().rsplit("http://").next().expect("an address").to_string();
    let token = std::fs::read_to_string(rig.path(".windlass/token")).expect("a token").trim().to_string();
    Server { child, at, token }
}

impl Server {
    fn peak_mib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let kib: usize = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
        kib.div_ceil(1024)
    }

    /// Sends a body, and returns the status; 0 if the connection was closed before all of it was sent.
    fn post(&self, path: &str, body: &[u8], is_known: bool) -> u16 {
        let mut stream = TcpStream::connect(&self.at).expect("it is served");
        let token =
            if is_known { format!("authorization: Bearer {}\r\n", self.token) } else { String::new() };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-length: {}\r\n\r\n",
            body.len()
        );
        // Whoever is refused in the middle cannot send the rest.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

/// A list of so many bytes, all of it this item.
fn list(item: &str, bytes: usize) -> String {
    format!("[{}{item}]", format!("{item},").repeat(bytes / (item.len() + 1) - 1))
}

struct Case {
    what: &'static str,
    path: &'static str,
    body: String,
    is_known: bool,
}

fn cases() -> Vec<Case> {
    let calls = |args: &str| {
        let one = |n: usize| format!(r#"{{"id":"{n}","tool":"echo","args":{{"message":{args}}}}}"#);
        format!(r#"{{"calls":[{}]}}"#, (0..30).map(one).collect::<Vec<_>>().join(","))
    };
    let batch = "/v1/sessions/s/batches";
    let case = |what, path, body, is_known| Case { what, path, body, is_known };
    vec![
        case(
            "31 MiB of calls `{\"tool\":\"\"}`",
            batch,
            format!("{{\"calls\":{}}}", list("{\"tool\":\"\"}", 31 * MIB)),
            true,
        ),
        case("30 calls with 1 MiB of `{}`", batch, calls(&list("{}", MIB - 200)), true),
        case("30 calls with 1 MiB of `{\"\":0}`", batch, calls(&list("{\"\":0}", MIB - 200)), true),
        case(
            "8 MiB of `{}` to /v1/completions/x, no token",
            "/v1/completions/x",
            format!("{{\"ok\":{}}}", list("{}", 8 * MIB - 20)),
            false,
        ),
        case(
            "31 MiB of calls `{\"tool\":\"\"}`, no token",
            batch,
            format!("{{\"calls\":{}}}", list("{\"tool\":\"\"}", 31 * MIB)),
            false,
        ),
        case(
            "8 MiB of `{\"\":0}` as a signal",
            "/v1/calls/x/signal",
            format!("{{\"name\":\"x\",\"payload\":{}}}", list("{\"\":0}", 8 * MIB - 60)),
            true,
        ),
    ]
}

#[test]
fn memory_of_bodies_is_bounded() {
    let mut table = String::from(
        "| body | clients | body, MiB | peak, MiB | over body and start, MiB |\n|---|---:|---:|---:|---:|\n",
    );
    let mut too_much = Vec::new();
    let many: usize = std::env::var(CLIENTS).map_or(6, |clients| clients.parse().expect("a number"));
    for case in cases() {
        for clients in [1, many] {
            let rig = Rig::new();
            let server = serve(&rig);
            let start = server.peak_mib();
            std::thread::scope(|scope| {
                for _ in 0..clients {
                    scope.spawn(|| {
                        let status = server.post(case.path, case.body.as_bytes(), case.is_known);
                        assert_ne!(status, 500, "{}", case.what);
                    });
                }
            });
            assert_eq!(server.post("/v1/sessions/s/cancel", b"{}", false), 401, "it still answers");
            let (peak, body) = (server.peak_mib(), case.body.len() / MIB);
            // Without a token nothing is in flight but what a connection buffers.
            let in_flight = match case.is_known {
                true => (clients * body).min(IN_FLIGHT_MIB_MAX),
                false => body,
            };
            let over = peak.saturating_sub(start + in_flight);
            table.push_str(&format!("| {} | {clients} | {body} | {peak} | {over} |\n", case.what));
            if over > OVER_MIB_MAX {
                too_much.push(format!("{} from {clients}: {over} MiB", case.what));
            }
            kill(server.child);
        }
    }
    for item in ["{}", "{\"\":0}", "12345678"] {
        let rig = Rig::with(TOOLS);
        rig.write("big.json", list(item, 8 * MIB - 20));
        let server = serve(&rig);
        let start = server.peak_mib();
        let call = br#"{"calls":[{"id":"a","tool":"flood"}],"wait":"settled"}"#;
        assert_eq!(server.post("/v1/sessions/s/batches", call, true), 200);
        let peak = server.peak_mib();
        let over = peak.saturating_sub(start + 8);
        table.push_str(&format!(
            "| a command's 8 MiB of `{item}` on standard output | 1 | 8 | {peak} | {over} |\n"
        ));
        if over > OVER_MIB_MAX {
            too_much.push(format!("{item} on standard output: {over} MiB"));
        }
        kill(server.child);
    }
    println!("{table}");
    assert!(too_much.is_empty(), "{too_much:#?}\n{table}");
}

#[test]
fn idle_connections_leave_health_a_way() {
    let rig = Rig::new();
    let server = serve(&rig);
    let idle: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(&server.at).expect("let in")).collect();
    let mut answer = String::new();
    until("it says that it is there", || {
        let mut stream = TcpStream::connect(&server.at).expect("let in");
        let asked =
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        answer.clear();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    });
    drop(idle);
    kill(server.child);
}
