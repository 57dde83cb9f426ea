//! A private PostgreSQL for the tests of one process: its own folder, its own socket, gone with the process.
//!
//! `initdb` takes seconds, so it runs once into a template; each process copies that. The server is the child of a
//! shell that waits for the end of a pipe which this process holds, so it ends however this process does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where Debian and its relatives put the programs, one folder per version.
const INSTALLED: &str = "/usr/lib/postgresql";

/// Set where a skipped test must fail.
const EXPECTED: &str = "WINDLASS_EXPECT_POSTGRES";

/// The server writes this when it can be used.
const READY: &str = "database system is ready to accept connections";

const START_MAX: Duration = Duration::from_secs(60);

/// The settings of the server. A socket only: no port can be taken. It syncs as in production.
const SETTINGS: &str = "
listen_addresses = ''
fsync = on
max_connections = 200
shared_buffers = 64MB
";

/// Runs the server until its standard input ends, and removes what it left.
const GUARD: &str = r#"
"$1" -D "$2/data" -k "$2" >"$2/log" 2>&1 &
server=$!
read -r _ignored
kill -QUIT "$server"
wait "$server"
rm -rf "$2"
"#;

/// A running server.
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    databases: AtomicU32,
    /// Its standard input holds the server up.
    _guard: Child,
}

impl Cluster {
    /// The server of this process, started when it is first asked for. `None`: it cannot be started, and why was
    /// said; where `WINDLASS_EXPECT_POSTGRES=1` that is a failure. The template is kept in `templates`, which is
    /// `env!("CARGO_TARGET_TMPDIR")` of the test.
    pub fn of_process(templates: &str) -> Option<&'static Cluster> {
        static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
        let started = CLUSTER.get_or_init(|| match start(Path::new(templates)) {
            Ok(cluster) => Some(cluster),
            Err(error) if std::env::var_os(EXPECTED).is_some_and(|value| value == "1") => {
                panic!("{EXPECTED} is set, and there is no PostgreSQL: {error:#}");
            }
            Err(error) => {
                say(&format!("SKIPPED, there is no PostgreSQL to test with: {error:#}"));
                None
            }
        });
        started.as_ref()
    }

    /// A new empty database, as a client is told of it.
    pub fn database(&self) -> String {
        let name = format!("case_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-q", "-U", "windlass", "-d", "postgres", "-c", &format!("CREATE DATABASE {name}"), "-h"]);
        run(psql.arg(&self.folder)).unwrap();
        format!("host={} user=windlass dbname={name}", self.folder.display())
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }
}

fn start(templates: &Path) -> Result<Cluster> {
    std::fs::create_dir_all(templates)?;
    let lock = File::create(templates.join("postgres.lock"))?;
    lock.lock()?;
    let programs = match programs() {
        Some(programs) => programs,
        None => install()?,
    };
    let template = template(templates, &programs)?;
    drop(lock);
    let folder = own_folder()?;
    run(Command::new("cp").arg("-r").arg(&template).arg(folder.join("data")))?;
    give(&folder)?;
    let guard = as_server()
        .args(["sh", "-c", GUARD, "windlass-postgres"])
        .arg(programs.join("postgres"))
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("the server could not be started")?;
    let cluster = Cluster { programs, folder, databases: AtomicU32::new(0), _guard: guard };
    let (log, started) = (cluster.folder.join("log"), Instant::now());
    loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if said.contains(READY) {
            return Ok(cluster);
        }
        ensure!(started.elapsed() < START_MAX, "the server did not start: {said}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The folder of the newest installed programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("initdb").exists())
        .max();
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    newest.map(|(_, programs)| programs).or_else(in_path)
}

fn install() -> Result<PathBuf> {
    ensure!(is_root(), "it is not installed, and only root may install it");
    say("PostgreSQL is not installed: apt-get install -y postgresql");
    let apt =
        |args: &[&str]| run(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"));
    let wanted = ["install", "-y", "--no-install-recommends", "postgresql"];
    apt(&wanted).or_else(|_| apt(&["update"]).and_then(|()| apt(&wanted)))?;
    programs().context("apt-get installed no initdb")
}

/// A folder that `initdb` has filled, made once.
fn template(templates: &Path, programs: &Path) -> Result<PathBuf> {
    let version = Command::new(programs.join("postgres")).arg("--version").output()?.stdout;
    let version: String =
        String::from_utf8_lossy(&version).chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let template = templates.join(format!("postgres-{version}"));
    if template.exists() {
        return Ok(template);
    }
    let folder = own_folder()?;
    give(&folder)?;
    let data = folder.join("data");
    run(as_server()
        .arg(programs.join("initdb"))
        .args(["--auth=trust", "--username=windlass", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(&data))?;
    let unfinished = templates.join("postgres-unfinished");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)?;
    }
    run(Command::new("cp").arg("-r").arg(&data).arg(&unfinished))?;
    std::fs::remove_dir_all(&folder)?;
    let mut settings = File::options().append(true).open(unfinished.join("postgresql.conf"))?;
    settings.write_all(SETTINGS.as_bytes())?;
    std::fs::rename(&unfinished, &template)?;
    Ok(template)
}

/// A folder for the server, short enough for the name of a socket.
fn own_folder() -> Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("windlass-postgres-").tempdir()?.keep())
}

/// PostgreSQL refuses to run as root: then it runs as somebody without rights.
fn as_server() -> Command {
    // A session of its own: what ends the test's group of processes must not end the guard before it has cleaned up.
    let mut command = Command::new("setsid");
    if is_root() {
        command.args(["runuser", "-u", server_user(), "--"]);
    }
    command.current_dir("/");
    command
}

fn give(folder: &Path) -> Result<()> {
    if is_root() {
        run(Command::new("chown").args(["-R", server_user()]).arg(folder))?;
    }
    run(Command::new("chmod").args(["-R", "u=rwX,go="]).arg(folder))
}

fn server_user() -> &'static str {
    let known = Command::new("id").arg("postgres").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if known.is_ok_and(|status| status.success()) { "postgres" } else { "nobody" }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Past what the test runner captures of a test.
fn say(line: &str) {
    let _shown = writeln!(std::io::stderr(), "{line}");
}
