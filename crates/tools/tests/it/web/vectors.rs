//! URLs that try to reach internal addresses, in a network namespace where every internal address has a canary that listens. None may be
//! reached; those that a client without the guard reaches are counted.

use super::names;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_http::{HttpClient, HttpConfig, HttpRequest};

/// An address that stands for the internet.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// Internal addresses of every kind.
const INTERNAL: [&str; 16] = [
    "127.0.0.1",
    "127.8.9.10",
    "127.255.255.254",
    "10.0.0.1",
    "10.255.255.254",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.0.1",
    "192.168.255.254",
    "169.254.169.254",
    "169.254.170.2",
    "100.64.0.1",
    "100.100.100.200",
    "198.18.0.1",
    "192.0.0.8",
    "0.0.0.0",
];

/// Internal addresses that only IPv6 has.
const INTERNAL_SIX: [&str; 14] = [
    "::1",
    "::",
    "fc00::1",
    "fd00:ec2::254",
    "fd12:3456::1",
    "fe80::1",
    "fec0::1",
    "2001:db8::1",
    "2001::1",
    "100::1",
    "64:ff9b:1::1",
    "5f00::1",
    "3fff::1",
    "2001:2::1",
];

/// An address in every notation that some parser takes for it.
fn notations(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    let (high, low) = (bits >> 16, bits & 0xffff);
    vec![
        format!("{address}"),
        format!("{bits}"),
        format!("0x{bits:x}"),
        format!("0X{bits:08X}"),
        format!("0{bits:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a}.{}", bits & 0xff_ffff),
        format!("{a}.{b}.{}", bits & 0xffff),
        format!("0x{a:x}.{b}.0{c:o}.{d}"),
        format!("{address}."),
        format!("{a}。{b}。{c}。{d}"),
        format!("{a}．{b}．{c}｡{d}"),
        address
            .to_string()
            .chars()
            .map(|letter| match letter.to_digit(10) {
                Some(digit) => char::from_u32(0xff10 + digit).unwrap_or(letter),
                None => letter,
            })
            .collect(),
        address.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect(),
        format!("[::ffff:{address}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:ffff:{high:x}:{low:x}]"),
        format!("[::{address}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
    ]
}

/// Hosts that are, or resolve to, internal addresses.
fn targets() -> Vec<String> {
    let mut targets = Vec::new();
    for address in INTERNAL {
        let address: Ipv4Addr = address.parse().expect("an address");
        targets.extend(notations(address));
        let dashed = address.to_string().replace('.', "-");
        targets.extend(["a", "both", "cname"].map(|scheme| format!("{scheme}-{dashed}.test")));
        targets.push(format!("six-{:032x}.test", address.to_ipv6_mapped().to_bits()));
    }
    for address in INTERNAL_SIX {
        targets.push(format!("[{address}]"));
        let bits = address.parse::<std::net::Ipv6Addr>().expect("an address").to_bits();
        targets.push(format!("six-{bits:032x}.test"));
    }
    targets.extend(
        [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "metadata.google.internal",
            "[fe80::1%25lo]",
            "[::1%25lo]",
            "ⓛocalhost",
            "loc%61lhost",
            "127.1",
            "0",
            "0x0",
            "127.0.1",
        ]
        .map(str::to_string),
    );
    targets
}

/// All URLs.
fn vectors() -> Vec<String> {
    let (targets, mut vectors) = (targets(), Vec::new());
    vectors.extend(targets.iter().map(|target| format!("http://{target}/")));
    // The same behind a redirect of a public server.
    vectors.extend(targets.iter().map(|target| format!("http://{PUBLIC}/302/http://{target}/")));
    let local = "127.0.0.1";
    vectors.extend([
        format!("http://public.test@{local}/"),
        format!("http://public.test:80@{local}/"),
        format!("http://public.test#@{local}/"),
        format!("http://public.test\\@{local}/"),
        format!("http://{local}\\@public.test/"),
        format!("http://{local}#@public.test/"),
        format!("http://{local}?@public.test/"),
        format!("http://{local}:80/"),
        format!("http:{local}/"),
        format!("http:/{local}/"),
        format!("http:///{local}/"),
        format!("hTTp://{local}/"),
        format!("  http://{local}/ "),
        format!("http://{local}\t/"),
        "ht\ntp://127.0.0\n.1/".into(),
        format!("//{local}/"),
        format!("http://{local}%2f@public.test/"),
        format!("http://[::ffff:{local}%25lo]/"),
        "file:///etc/passwd".into(),
        "gopher://127.0.0.1:80/_GET".into(),
        "ftp://127.0.0.1/".into(),
        "ws://127.0.0.1/".into(),
        "unix:///var/run/docker.sock".into(),
        "data:text/html,x".into(),
        "jar:http://127.0.0.1/!/".into(),
        "view-source:http://127.0.0.1/".into(),
        "blob:http://127.0.0.1/x".into(),
    ]);
    for status in [301, 303, 307, 308] {
        vectors.push(format!("http://{PUBLIC}/{status}/http://{local}/"));
    }
    for place in [
        format!("//{local}/"),
        format!("///{local}/"),
        format!("\\\\{local}/"),
        "file:///etc/passwd".into(),
        format!("http://x@{local}/"),
    ] {
        vectors.push(format!("http://{PUBLIC}/302/{place}"));
    }
    vectors.push(format!("http://{PUBLIC}/302/http://{PUBLIC}/302/http://{PUBLIC}/302/http://{local}/"));
    vectors.extend((0..4).map(|n| format!("http://rebind-{n}.test/")));
    vectors
}

/// Listens on every address, and notes which ones are connected to. The public one redirects to where the path says.
struct Canaries {
    reached: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Canaries {
    fn new() -> Canaries {
        let reached: Arc<Mutex<BTreeSet<IpAddr>>> = Arc::default();
        let listener = TcpListener::bind("[::]:80").expect("nobody else is here");
        std::thread::spawn({
            let reached = reached.clone();
            move || {
                for stream in listener.incoming().flatten() {
                    let reached = reached.clone();
                    std::thread::spawn(move || serve(stream, &reached));
                }
            }
        });
        Canaries { reached }
    }

    /// The internal addresses that were reached since the last look.
    fn take(&self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut *self.reached.lock().expect("no panic"))
    }
}

fn serve(mut stream: TcpStream, reached: &Mutex<BTreeSet<IpAddr>>) {
    let Ok(address) = stream.local_addr() else { return };
    let address = address.ip().to_canonical();
    if address != IpAddr::V4(PUBLIC) {
        reached.lock().expect("no panic").insert(address);
    }
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|len| len == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or("/").trim_start_matches('/');
    let answer =
        match path.split_once('/').and_then(|(status, place)| Some((status.parse::<u16>().ok()?, place))) {
            Some((status, place)) => format!(
                "HTTP/1.1 {status} x\r\nlocation: {place}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            ),
            None => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\ncanary".to_string(),
        };
    let _ = stream.write_all(answer.as_bytes());
}

async fn fetch(client: &HttpClient, url: &str) -> bool {
    client.send(HttpRequest::get(url)).await.is_ok()
}

fn rules(allowed: &[&str]) -> HttpConfig {
    HttpConfig {
        allowed: allowed.iter().map(|range| range.parse().expect("a range")).collect(),
        plain_http: true,
        timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(1),
        ..HttpConfig::default()
    }
}

fn system(words: &str) {
    let mut words = words.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// Every internal address is ours here, and names are resolved by our own server.
fn prepare(folder: &std::path::Path) {
    system("ip link set lo up");
    system(&format!("ip addr add {PUBLIC}/32 dev lo"));
    for address in INTERNAL.iter().filter(|address| !address.starts_with("127.") && **address != "0.0.0.0") {
        system(&format!("ip addr add {address}/32 dev lo"));
    }
    for address in INTERNAL {
        let bits = address.parse::<Ipv4Addr>().expect("an address").to_bits();
        let (high, low) = (bits >> 16, bits & 0xffff);
        for six in [format!("64:ff9b::{high:x}:{low:x}"), format!("2002:{high:x}:{low:x}::1")] {
            system(&format!("ip -6 addr add {six}/128 dev lo nodad"));
        }
    }
    for six in INTERNAL_SIX.iter().filter(|six| six.len() > 3) {
        system(&format!("ip -6 addr add {six}/128 dev lo nodad"));
    }
    for (file, text) in [
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ] {
        std::fs::write(folder.join(file), text).expect("written");
        system(&format!("mount --bind {}/{file} /etc/{file}", folder.display()));
    }
    let socket = UdpSocket::bind("127.0.0.1:53").expect("nobody else is here");
    std::thread::spawn(move || names::serve(&socket, PUBLIC));
}

/// Set in the process that has a network of its own.
const INSIDE: &str = "WINDLASS_TEST_NAMESPACE";

#[tokio::test(flavor = "multi_thread")]
async fn no_url_leads_to_an_internal_address() {
    if std::env::var_os(INSIDE).is_some() {
        return inside_the_namespace().await;
    }
    let probe = Command::new("unshare").args(["--net", "--mount", "ip", "link", "set", "lo", "up"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: a network namespace needs root, unshare and ip");
    }
    let test = std::env::current_exe().expect("this test");
    let ran = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private"])
        .arg(test)
        .args(["--exact", "web::vectors::no_url_leads_to_an_internal_address", "--nocapture"])
        .env(INSIDE, "yes")
        .status();
    assert!(ran.is_ok_and(|status| status.success()), "see above");
}

async fn inside_the_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let canaries = Canaries::new();
    let guarded = HttpClient::new(rules(&[])).expect("a client");
    let naive = HttpClient::new(rules(&["0.0.0.0/0", "::/0"])).expect("a client");
    assert!(
        fetch(&guarded, &format!("http://{PUBLIC}/")).await && fetch(&guarded, "http://public.test/").await
    );
    let vectors = vectors();
    let (mut effective, mut escaped) = (0, Vec::new());
    for url in &vectors {
        // Twice: a name may lead elsewhere at the second look.
        for _ in 0..2 {
            fetch(&guarded, url).await;
        }
        let reached = canaries.take();
        if !reached.is_empty() {
            escaped.push(format!("{url} reached {reached:?}"));
        }
        // Names that change have changed by now, as they do between the look and the connection of a naive guard.
        fetch(&naive, url).await;
        match canaries.take().is_empty() {
            false => effective += 1,
            true => eprintln!("NOT EFFECTIVE: {url}"),
        }
    }
    eprintln!(
        "{} vectors, {effective} of them reach a canary without the guard, {} with it",
        vectors.len(),
        escaped.len()
    );
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
    assert!(vectors.len() >= 200 && effective >= 200, "{} vectors, {effective} effective", vectors.len());
}
