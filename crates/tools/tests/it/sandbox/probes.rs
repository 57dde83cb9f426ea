//! Probes: attempts to get out of the sandbox, to reach other processes or the network, or to use too much. None may succeed in
//! any sandbox, and each is shown to succeed without one.

use super::{PLACE, SandboxStage, backends};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use windlass_tools::sandbox::SandboxProfile;

const PROBES: &str = include_str!("probes.py");

/// Every probe begins so; the numbers of system calls are those of x86-64.
const BEGIN: &str = "
import ctypes, errno, json, os, signal, socket, stat, struct, sys, time
L = ctypes.CDLL(None, use_errno=True)
AT = -100
def sc(*args):
    result = L.syscall(*args)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def ino(fd):
    try: return os.fstat(fd).st_ino
    except OSError: return None
";

/// So many probes must be effective without a sandbox: when root runs them, and when an ordinary user does.
const EFFECTIVE_MIN: usize = 100;
const ORDINARY_EFFECTIVE_MIN: usize = 60;

fn probes() -> Vec<(&'static str, &'static str)> {
    let pieces = PROBES.split("\n### ").skip(1);
    pieces.map(|piece| piece.split_once('\n').expect("a name and a script")).collect()
}

/// The things that probes try to reach.
struct Surroundings {
    data: PathBuf,
    outside: PathBuf,
    victim: Child,
    places: Value,
    shm: PathBuf,
    _leak: File,
    _listeners: (TcpListener, Option<TcpListener>, UnixListener, UnixListener, UnixDatagram),
}

impl Surroundings {
    fn new(stage: &SandboxStage) -> Surroundings {
        let outside = stage.data.parent().expect("a parent").join("outside");
        let other = stage.data.join("files/other");
        for folder in [&outside, &other] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        for file in ["token", "windlass.db", "windlass.toml", "files/other/secret"] {
            std::fs::write(stage.data.join(file), "canary").expect("written");
        }
        let mut sleeper = Command::new("sleep");
        let victim =
            sleeper.arg("600").env("PROBE_SECRET", "canary").current_dir(&outside).spawn().expect("a victim");
        let tcp = TcpListener::bind("0.0.0.0:0").expect("a listener");
        let tcp6 = TcpListener::bind("[::1]:0").ok();
        let name = |part: &str| format!("windlass-probe-{}-{part}", std::process::id());
        let abstracted = |name: &str| SocketAddr::from_abstract_name(name).expect("a name");
        let unix = UnixListener::bind_addr(&abstracted(&name("stream"))).expect("a listener");
        let socket = outside.join("socket");
        let path = UnixListener::bind(&socket).expect("a listener");
        let datagrams = UnixDatagram::bind_addr(&abstracted(&name("datagram"))).expect("a socket");
        let leak = File::open(stage.data.join("token")).expect("opened");
        rustix::io::fcntl_setfd(leak.as_fd(), rustix::io::FdFlags::empty()).expect("it is passed on");
        let shm = PathBuf::from("/dev/shm").join(name("shm"));
        std::fs::write(&shm, "canary").expect("written");
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let places = json!({
            "outside": outside.join("secret"), "outside_dir": outside, "other": other, "data": stage.data,
            "victim": victim.id(), "owner": std::process::id(), "shm": name("shm"),
            "leak": leak.metadata().expect("metadata").ino(),
            "port": port(&tcp), "port6": tcp6.as_ref().map_or(0, port), "udp": echo(), "address": own_address(),
            "abstract": name("stream"), "abstract_udp": name("datagram"), "socket": socket,
        });
        let _listeners = (tcp, tcp6, unix, path, datagrams);
        Surroundings { data: stage.data.clone(), outside, victim, places, shm, _leak: leak, _listeners }
    }

    /// Makes everything as it was.
    fn restore(&self) {
        for entry in std::fs::read_dir(&self.outside).expect("a folder").flatten() {
            if entry.file_name() != "socket" {
                let _gone = std::fs::remove_file(entry.path()).or_else(|_| std::fs::remove_dir(entry.path()));
            }
        }
        let mut secret = File::create(self.outside.join("secret")).expect("made");
        secret.write_all(b"canary").expect("written");
    }

    fn script(&self, probe: &str) -> String {
        format!("{BEGIN}P = json.loads({:?})\n{probe}\nprint('REACHED')\n", self.places.to_string())
    }

    /// Whether the probe gets through without a sandbox.
    fn is_effective(&self, probe: &str) -> Result<(), String> {
        self.restore();
        let session = self.data.join("files/naive");
        std::fs::create_dir_all(&session).expect("a folder");
        let said = self.data.join("said");
        let output = File::create(&said).expect("made");
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", &self.script(probe)])
            .current_dir(&session)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("cloned"))
            .stderr(output)
            .process_group(0)
            .spawn()
            .expect("python3 runs");
        child.wait().expect("it ends");
        let group = rustix::process::Pid::from_child(&child);
        // What it left; most leave nothing.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        std::fs::remove_dir_all(session).expect("removed");
        let said = std::fs::read_to_string(said).expect("text");
        match said.contains("REACHED") {
            true => Ok(()),
            false => Err(said.lines().last().unwrap_or("no reason").to_string()),
        }
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        let _gone = self.victim.kill().and_then(|()| self.victim.wait());
        let _gone = std::fs::remove_file(&self.shm);
    }
}

/// The port of a socket that sends back what it gets.
fn echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, from)) = socket.recv_from(&mut byte) {
            let _ = socket.send_to(&byte, from);
        }
    });
    port
}

/// An address of this machine that others reach, if it has one.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Nothing is sent: this only chooses a way.
    match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(address) => address.ip().to_string(),
        Err(_) => "127.0.0.1".to_string(),
    }
}

fn small() -> SandboxProfile {
    SandboxProfile {
        processes: 100,
        memory_bytes: 256 << 20,
        file_bytes: 64 << 20,
        cpu_ms: 1_000,
        ..SandboxProfile::default()
    }
}

/// Why no probe can run here.
fn cannot_probe() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the probes use numbers of system calls of x86-64");
    }
    let python = Command::new("/usr/bin/python3").arg("-c").arg("import ctypes").status();
    (!python.is_ok_and(|status| status.success())).then_some("there is no /usr/bin/python3")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_probe_gets_out_of_any_sandbox() {
    if let Some(why) = cannot_probe() {
        return eprintln!("SKIPPED: {why}");
    }
    for backend in backends() {
        let stage = SandboxStage::new(backend, small());
        let around = Surroundings::new(&stage);
        let mut escaped = Vec::new();
        for (name, probe) in probes() {
            around.restore();
            let answer = stage.run(name, &["/usr/bin/python3", "-c", &around.script(probe)]).await;
            let text = answer.to_string();
            eprintln!("{backend} {name}: {}", answer["outcome"]);
            // A probe that never began proves nothing.
            let began = text.contains("Traceback") || text.contains("sandbox") || text.contains("exit_code");
            if text.contains("REACHED\\n")
                || !began
                || std::fs::read(around.outside.join("secret")).ok().as_deref() != Some(b"canary")
            {
                escaped.push(format!("{name}: {}", answer["outcome"]));
            }
        }
        let left: BTreeSet<_> =
            std::fs::read_dir(&around.outside).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, BTreeSet::from(["secret".into(), "socket".into()]), "{backend}");
        assert!(
            escaped.is_empty(),
            "{backend}: {} probes got through:\n{}",
            escaped.len(),
            escaped.join("\n")
        );
    }
}

/// A user without privileges, as `nobody` is on most systems.
const ORDINARY: u32 = 65_534;

/// The probes once more, run by an ordinary user. Root has to be there to become one.
#[test]
fn no_probe_of_an_ordinary_user_gets_out_either() {
    if let Some(why) = cannot_probe().or_else(cannot_be_ordinary) {
        return eprintln!("SKIPPED: {why}");
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    std::os::unix::fs::chown(place.path(), Some(ORDINARY), Some(ORDINARY)).expect("given away");
    for (name, needed) in [
        ("sandbox::probes::no_probe_gets_out_of_any_sandbox", "1 passed"),
        ("sandbox::probes::every_probe_gets_through_without_a_sandbox", "effective without a sandbox"),
    ] {
        let test = std::env::current_exe().expect("this test");
        let args = [name, "--exact", "--nocapture"];
        let output = as_ordinary(&test).args(args).env(PLACE, place.path()).output().expect("setpriv runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(output.status.success() && told.contains(needed), "{name}:\n{told}");
        let worth_saying = |line: &&str| line.contains("SKIPPED") || line.contains("are effective");
        told.lines().filter(worth_saying).for_each(|line| eprintln!("as an ordinary user: {line}"));
    }
}

/// A command that the ordinary user runs, without any privilege of root.
fn as_ordinary(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let user = ORDINARY.to_string();
    command.args([
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ]);
    command.arg(program);
    command
}

/// Why the probes cannot be run as another user.
fn cannot_be_ordinary() -> Option<&'static str> {
    if !rustix::process::getuid().is_root() {
        return Some("only root becomes another user; the other tests ran as an ordinary one");
    }
    if !as_ordinary(Path::new("true")).status().is_ok_and(|status| status.success()) {
        return Some("setpriv cannot become an ordinary user here");
    }
    let reads = |program: &Path| {
        let listed = as_ordinary(program).arg("--list").stdout(Stdio::null()).stderr(Stdio::null()).status();
        listed.is_ok_and(|status| status.success())
    };
    let test = std::env::current_exe().ok()?;
    (!reads(&test)).then_some("an ordinary user cannot reach the folder that the tests were built in")
}

#[tokio::test]
async fn every_probe_gets_through_without_a_sandbox() {
    if let Some(why) = cannot_probe() {
        return eprintln!("SKIPPED: {why}");
    }
    let stage = SandboxStage::empty();
    let around = Surroundings::new(&stage);
    let mut effective = 0;
    for (name, probe) in probes() {
        match around.is_effective(probe) {
            Ok(()) => effective += 1,
            Err(why) => eprintln!("NOT EFFECTIVE HERE: {name}: {why}"),
        }
    }
    eprintln!("{effective} of {} probes are effective without a sandbox", probes().len());
    let is_root = rustix::process::getuid().is_root();
    assert!(effective >= if is_root { EFFECTIVE_MIN } else { ORDINARY_EFFECTIVE_MIN }, "{effective}");
}
