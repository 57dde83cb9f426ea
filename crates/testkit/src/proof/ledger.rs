//! The way to the ledger: for tools that want an effect, and for whoever reads what it saw.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use windlass_core::handle::{Secret, idempotency_key};

/// A ledger that runs. It ends when this is dropped, and at no other time.
pub struct Ledger {
    /// Where tools find it.
    pub address: String,
    path: PathBuf,
    /// How much of the file is of earlier trials.
    read: u64,
    child: Child,
    _open: ChildStdin,
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Its number, from 1.
    pub number: u64,
    /// The class it was asked for under.
    pub kind: String,
    /// The idempotency key.
    pub key: String,
    /// Session, batch and id of the call.
    pub call: String,
    /// Our handle of the call.
    pub handle: String,
    /// Which attempt asked.
    pub attempt: u32,
    /// Which worker asked: the trial and the number of the worker in it.
    pub worker: TrialWorker,
    /// The hash of the arguments.
    pub hash: u64,
    /// The verdict: `applied`, `again`, `seen`, `rejected` or `late`; for a question `landed` or `absent`;
    /// for a connection `there` or `missing`.
    pub verdict: String,
}

/// A worker of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialWorker {
    /// Which trial.
    pub trial: u64,
    /// Which worker of the trial, from 1.
    pub number: u32,
}

impl std::fmt::Display for TrialWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.trial, self.number)
    }
}

impl Ledger {
    /// Starts the ledger of this binary on a new file in a folder.
    pub fn start(binary: &Path, folder: &Path) -> Result<Ledger> {
        let path = folder.join("ledger");
        let mut child = Command::new(binary)
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start the ledger {}", binary.display()))?;
        let (Some(open), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the ledger has no pipes")
        };
        let mut address = String::new();
        BufReader::new(said).read_line(&mut address).context("the ledger did not say where it is")?;
        Ok(Ledger { address: address.trim().to_owned(), path, read: 0, child, _open: open })
    }

    /// The ledger's observations since the last call, once nothing is under way any more.
    pub fn effects(&mut self) -> Result<Vec<Effect>> {
        self.settle()?;
        self.seen()
    }

    /// The ledger's answered observations since the last call.
    pub fn seen(&mut self) -> Result<Vec<Effect>> {
        let mut text = String::new();
        let mut file = File::open(&self.path).context("could not open the ledger's file")?;
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_string(&mut text).context("could not read the ledger's file")? as u64;
        text.lines().map(|line| Effect::parse(line).with_context(|| format!("ledger: {line:?}"))).collect()
    }

    fn settle(&self) -> Result<()> {
        let mut stream = std::net::TcpStream::connect(&self.address).context("the ledger is gone")?;
        stream.write_all(b"settle\n")?;
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said)?;
        if said != "settled\n" {
            bail!("the ledger did not settle: {said:?}");
        }
        Ok(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // It would end by itself with its standard input; nothing that matters is on its way any more.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Effect {
    /// Whether it is no effect, but somebody who wants to know of one, or is about a connection.
    pub fn is_question(&self) -> bool {
        matches!(self.kind.as_str(), "ask" | "check" | "connect")
    }

    fn parse(line: &str) -> Option<Effect> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [number, kind, key, call, handle, attempt, worker, hash, verdict] = fields[..] else {
            return None;
        };
        let (trial, of_trial) = worker.split_once('.')?;
        Some(Effect {
            number: number.parse().ok()?,
            kind: kind.to_owned(),
            key: key.to_owned(),
            call: call.to_owned(),
            handle: handle.to_owned(),
            attempt: attempt.parse().ok()?,
            worker: TrialWorker { trial: trial.parse().ok()?, number: of_trial.parse().ok()? },
            hash: u64::from_str_radix(hash, 16).ok()?,
            verdict: verdict.to_owned(),
        })
    }
}

/// A tool's request to the ledger.
pub struct LedgerRequest {
    /// The class, as the ledger knows it.
    pub kind: &'static str,
    /// The idempotency key.
    pub key: String,
    /// Session, batch and id.
    pub call: String,
    /// Our handle.
    pub handle: String,
    /// Which attempt.
    pub attempt: u32,
    /// The hash of the arguments.
    pub hash: u64,
    /// The order to the ledger.
    pub order: String,
}

impl LedgerRequest {
    /// Whether there is a connection, or that there is one. Those of other stores are others.
    pub fn about_a_connection(
        kind: &'static str,
        secret: &Secret,
        call: &str,
        provider: &str,
    ) -> LedgerRequest {
        let key = idempotency_key(secret, call, "connection", provider);
        let (call, handle, order) = (call.to_owned(), String::new(), "ok".to_owned());
        LedgerRequest { kind, key, call, handle, attempt: 0, hash: 0, order }
    }
}

/// A worker's way to the ledger; connections are kept, because each costs a port for a minute.
pub struct LedgerClient {
    address: String,
    worker: TrialWorker,
    idle: Mutex<Vec<BufStream<TcpStream>>>,
}

impl LedgerClient {
    /// Of this worker, to the ledger at this address.
    pub fn new(address: String, worker: TrialWorker) -> LedgerClient {
        LedgerClient { address, worker, idle: Mutex::default() }
    }

    /// A number that is another for each worker.
    pub fn chance(&self) -> u64 {
        self.worker.trial << 32 | u64::from(self.worker.number)
    }

    /// Asks for an effect. Verdict and number, or `None` if the ledger hung up: then nobody knows.
    pub async fn effect(&self, request: &LedgerRequest) -> std::io::Result<Option<(String, u64)>> {
        let LedgerRequest { kind, key, call, handle, attempt, hash, order } = request;
        let worker = self.worker;
        let line = format!("{kind}\t{key}\t{call}\t{handle}\t{attempt}\t{worker}\t{hash:016x}\t{order}\n");
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                BufStream::new(stream)
            }
        };
        stream.write_all(line.as_bytes()).await?;
        stream.flush().await?;
        loop {
            let mut said = String::new();
            if stream.read_line(&mut said).await? == 0 {
                return Ok(None);
            }
            let fields: Vec<&str> = said.trim_end().split('\t').collect();
            let [to_key, to_attempt, verdict, number] = fields[..] else { continue };
            // An answer that came twice is still there when the next one is waited for.
            let is_its_own = match *kind {
                "ask" => matches!(verdict, "landed" | "absent"),
                "check" | "connect" => matches!(verdict, "there" | "missing"),
                _ => matches!(verdict, "applied" | "again" | "seen" | "rejected" | "late"),
            };
            if is_its_own && to_key == key && to_attempt.parse() == Ok(*attempt) {
                let answer = (verdict.to_owned(), number.parse().unwrap_or(0));
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                return Ok(Some(answer));
            }
        }
    }
}
