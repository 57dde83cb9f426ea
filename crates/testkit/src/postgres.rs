//! A private PostgreSQL for the tests of one process: its own folder, its own socket, gone with the process.
//!
//! `initdb` takes seconds, so it runs once into a template; each process copies that. The server is the child of a
//! shell that waits for the end of a pipe which this process holds, so it ends however this process does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod proxy;

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
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

/// Runs the server until its standard input ends, and removes what it left. Until then it stops and starts the server as it is told,
/// and says when a stop is done.
const GUARD: &str = r#"
start() { "$1" -D "$2/data" -k "$2" >>"$2/log" 2>&1 & server=$!; }
start "$1" "$2"
while read -r order; do
    case "$order" in
        stop) kill -QUIT "$server"; wait "$server"; echo stopped ;;
        start) start "$1" "$2" ;;
    esac
done
kill -QUIT "$server"
wait "$server"
rm -rf "$2"
"#;

/// A running server.
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    databases: AtomicU32,
    /// Its standard input holds the server up.
    guard: Mutex<Child>,
}

impl Cluster {
    /// The server of this process, started when it is first asked for. `None`: it cannot be started, and why was
    /// said; where `WINDLASS_EXPECT_POSTGRES=1` that is a failure. The template is kept in `templates`, which is
    /// `env!("CARGO_TARGET_TMPDIR")` of the test.
    pub fn of_process(templates: &str) -> Option<&'static Cluster> {
        static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
        CLUSTER.get_or_init(|| Cluster::alone(templates, |_| Ok(String::new()))).as_ref()
    }

    /// A server of its own, which may be stopped. `settings` is given its data folder, and returns what is added to its configuration.
    pub fn alone(templates: &str, settings: impl FnOnce(&Path) -> Result<String>) -> Option<Cluster> {
        unless_missing("PostgreSQL", start(Path::new(templates), settings))
    }

    /// Stops the server as a crash does, and waits until it is gone.
    pub fn stop(&self) {
        let mut guard = self.guard.lock().unwrap();
        guard.stdin.as_mut().unwrap().write_all(b"stop\n").unwrap();
        let mut told = [0; b"stopped\n".len()];
        guard.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
    }

    /// Starts the server after a stop, and waits until it can be used.
    pub fn start(&self) {
        let before = self.times_ready();
        self.guard.lock().unwrap().stdin.as_mut().unwrap().write_all(b"start\n").unwrap();
        let started = Instant::now();
        while self.times_ready() == before {
            assert!(started.elapsed() < START_MAX, "the server did not start again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn times_ready(&self) -> usize {
        self.log().matches(READY).count()
    }

    /// Everything that the server has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    /// The port of the server, if its settings let it listen on one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A new empty database, as a client is told of it.
    pub fn database(&self) -> String {
        let name = format!("case_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        run(&mut self.psql("postgres", &format!("CREATE DATABASE {name}"))).unwrap();
        format!("host={} port={} user=windlass dbname={name}", self.folder.display(), self.port)
    }

    /// Keeps everybody from writing to the store in a database, until this is dropped. Whoever reads is answered.
    pub fn hold_writes(&self, database: &str) -> HeldWrites<'_> {
        let name = database.rsplit_once("dbname=").map_or(database, |(_, name)| name).to_owned();
        let hold = "BEGIN; LOCK TABLE windlass.records IN EXCLUSIVE MODE; SELECT pg_sleep(600)";
        let holder = self.psql(&name, hold).spawn().unwrap();
        let held = HeldWrites { cluster: self, name, holder };
        while !held.has_lock("relation = 'windlass.records'::regclass AND mode = 'ExclusiveLock' AND granted")
        {
        }
        held
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-q", "-A", "-t", "-U", "windlass", "-d", database, "-c", sql, "-h"]);
        psql.arg(&self.folder).args(["-p", &self.port.to_string()]);
        psql
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// A store that nobody can write to.
pub struct HeldWrites<'a> {
    cluster: &'a Cluster,
    name: String,
    holder: Child,
}

impl HeldWrites<'_> {
    /// Whether somebody waits to write.
    pub fn is_waited_for(&self) -> bool {
        self.has_lock("NOT granted")
    }

    fn has_lock(&self, what: &str) -> bool {
        let count = format!("SELECT count(*) FROM pg_locks WHERE {what}");
        let told = self.cluster.psql(&self.name, &count).output().unwrap();
        !["", "0"].contains(&String::from_utf8_lossy(&told.stdout).trim())
    }
}

impl Drop for HeldWrites<'_> {
    fn drop(&mut self) {
        let _gone = self.holder.kill().and_then(|()| self.holder.wait());
    }
}

/// The thing that was made; `None` if it cannot be: then the reason is printed, or is a failure where it is expected.
pub fn unless_missing<T>(what: &str, made: Result<T>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if std::env::var_os(EXPECTED).is_some_and(|value| value == "1") => {
            panic!("{EXPECTED} is set, and there is no {what}: {error:#}");
        }
        Err(error) => {
            say(&format!("SKIPPED, there is no {what} to test with: {error:#}"));
            None
        }
    }
}

fn start(templates: &Path, settings: impl FnOnce(&Path) -> Result<String>) -> Result<Cluster> {
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
    let port = free_port()?;
    let more = settings(&folder.join("data"))?;
    let mut file = File::options().append(true).open(folder.join("data/postgresql.conf"))?;
    writeln!(file, "port = {port}\n{more}")?;
    give(&folder)?;
    let guard = as_server()
        .args(["sh", "-c", GUARD, "windlass-postgres"])
        .arg(programs.join("postgres"))
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the server could not be started")?;
    let (databases, guard) = (AtomicU32::new(0), Mutex::new(guard));
    let cluster = Cluster { programs, folder, port, databases, guard };
    let started = Instant::now();
    while cluster.times_ready() == 0 {
        ensure!(started.elapsed() < START_MAX, "the server did not start: {}", cluster.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(cluster)
}

/// A port of this machine that nobody uses now.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
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
    install_package("postgresql")?;
    programs().context("apt-get installed no initdb")
}

fn install_package(package: &str) -> Result<()> {
    ensure!(is_root(), "it is not installed, and only root may install it");
    say(&format!("{package} is not installed: apt-get install -y {package}"));
    let apt =
        |args: &[&str]| run(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"));
    let wanted = ["install", "-y", "--no-install-recommends", package];
    apt(&wanted).or_else(|_| apt(&["update"]).and_then(|()| apt(&wanted)))
}

/// A pool in transaction mode in front of a server: pgbouncer.
pub struct PgbouncerPool {
    port: u16,
    process: Child,
    folder: PathBuf,
}

impl PgbouncerPool {
    /// A pool in front of a server, if there can be one. At most `connections` go to each database.
    pub fn start(cluster: &Cluster, connections: u32) -> Option<PgbouncerPool> {
        unless_missing("pgbouncer", start_pool(cluster, connections))
    }

    /// A database as it is reached through the pool.
    pub fn url(&self, database: &str) -> String {
        let (_, name) = database.split_once("user=").unwrap();
        format!("host=127.0.0.1 port={} user={name}", self.port)
    }
}

impl Drop for PgbouncerPool {
    fn drop(&mut self) {
        // It is the child of this process, and nothing of it is needed.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

fn start_pool(cluster: &Cluster, connections: u32) -> Result<PgbouncerPool> {
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].map(Path::new);
    let installed = || program.iter().find(|program| program.exists());
    if installed().is_none() {
        install_package("pgbouncer")?;
    }
    let program = installed().context("apt-get installed no pgbouncer")?;
    let (folder, port) = (own_folder()?, free_port()?);
    let settings = format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 500\n",
        cluster.folder.display(),
        cluster.port,
        folder.join("users").display(),
    );
    // With `any` everybody is the user of the server.
    let settings = settings.replace("* = host", "* = user=windlass host");
    std::fs::write(folder.join("users"), "\"windlass\" \"\"\n")?;
    std::fs::write(folder.join("pool.ini"), settings)?;
    give(&folder)?;
    let log = File::create(folder.join("log"))?;
    let mut command = Command::new(program);
    command.arg("-q");
    if is_root() {
        command.args(["-u", server_user()]);
    }
    let process = command.arg(folder.join("pool.ini")).stderr(log).stdout(Stdio::null()).spawn()?;
    let pool = PgbouncerPool { port, process, folder };
    let started = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        let said = std::fs::read_to_string(pool.folder.join("log")).unwrap_or_default();
        ensure!(started.elapsed() < START_MAX, "pgbouncer did not start: {said}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(pool)
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
