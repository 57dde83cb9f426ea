//! The ledger: a process of its own to which tools go for a side effect. It shares no code with the runtime, is
//! never killed with it, and what it saw is on the disk before it answers.
//!
//! `windlass-ledger FILE` prints its address and serves until its standard input ends. A request is one line of
//! fields with tabs between: kind, key, call, handle, attempt, worker, hash, order. A line of the file is a number
//! from 1, the first seven of these, and the verdict. An answer is the key, the attempt, the verdict, the number.
//!
//! Kinds: `once` is applied each time it is asked for; `keyed` once per key, then told the first number again; `read`
//! is only looked at; `ask` is told whether the key was applied (`landed`, and the first number) or not (`absent`), and
//! what was not is never applied by that attempt of the call or an earlier one afterwards (`late`): whoever is told that nothing
//! happened may rely on it; `connect` makes a connection of this key, and `check` is told whether there is one (`there`,
//! `missing`). Orders: `ok`; `reject`; `reject:N` (the first N under the key); `refuse:N` (the first N of this hash in the
//! worker's trial, whatever their keys); `drop` (apply, then hang up without an answer); `delay:MS` (before it is applied);
//! `late:MS` (after it); `twice` (answer two times). The request `settle` is answered when all others are done.
#![expect(clippy::print_stdout, reason = "its address is what whoever started it waits for")]

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request longer than this is no request.
const LINE_BYTES_MAX: u64 = 4_096;
/// The fields of a request.
const FIELDS: usize = 8;

fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).ok_or_else(|| Error::other("usage: windlass-ledger FILE"))?;
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let (applied, rejected, closed, connected) = Default::default();
    let book = LedgerBook { file, lines: 0, applied, rejected, closed, connected };
    let ledger = Arc::new(LedgerServer { book: Mutex::new(book), busy: Mutex::new(0), done: Condvar::new() });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let ledger = Arc::clone(&ledger);
            *lock(&ledger.busy) += 1;
            std::thread::spawn(move || {
                // Whoever hangs up in the middle, killed or not, is no business of the others.
                let _hung_up = ledger.serve(stream);
                *lock(&ledger.busy) -= 1;
                ledger.done.notify_all();
            });
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

struct LedgerServer {
    book: Mutex<LedgerBook>,
    /// Connections that are open.
    busy: Mutex<u32>,
    done: Condvar,
}

struct LedgerBook {
    file: File,
    lines: u64,
    /// The number under which a key was first applied.
    applied: HashMap<String, u64>,
    /// How often a key, or a hash, was rejected.
    rejected: HashMap<String, u64>,
    /// Up to which attempt of a call a key is not applied any more, because somebody was told that it was not.
    closed: HashMap<String, u64>,
    /// The connections that were made.
    connected: HashSet<String>,
}

impl LedgerServer {
    fn serve(&self, stream: TcpStream) -> Result<(), Error> {
        stream.set_nodelay(true)?;
        let mut answers = stream.try_clone()?;
        let mut requests = BufReader::new(stream);
        loop {
            let mut line = String::new();
            let length = requests.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
            if length == 0 || !line.ends_with('\n') {
                return Ok(());
            }
            let line = line.trim_end();
            if line == "settle" {
                let mut busy = lock(&self.busy);
                while *busy > 1 {
                    busy = self.done.wait(busy).unwrap_or_else(PoisonError::into_inner);
                }
                return answers.write_all(b"settled\n");
            }
            let fields: Vec<&str> = line.split('\t').collect();
            if fields.len() != FIELDS {
                return Ok(());
            }
            let (order, given) = match fields[7].split_once(':') {
                Some((order, given)) => (order, given.parse().unwrap_or(0)),
                None => (fields[7], u64::MAX),
            };
            let wait = Duration::from_millis(given);
            if order == "delay" {
                std::thread::sleep(wait);
            }
            let (verdict, number) = lock(&self.book).enter(&fields, order, given)?;
            if order == "late" {
                std::thread::sleep(wait);
            }
            let answer = format!("{}\t{}\t{verdict}\t{number}\n", fields[1], fields[4]);
            match order {
                "drop" => return Ok(()),
                "twice" => answers.write_all(answer.repeat(2).as_bytes())?,
                _ => answers.write_all(answer.as_bytes())?,
            }
        }
    }
}

impl LedgerBook {
    /// Decides, writes the line, and waits for the disk.
    fn enter(&mut self, fields: &[&str], order: &str, given: u64) -> Result<(&'static str, u64), Error> {
        let (kind, key, attempt) = (fields[0], fields[1], fields[4].parse().unwrap_or(0));
        let number = self.lines + 1;
        let trial = fields[5].split('.').next().unwrap_or_default();
        let counted = if order == "refuse" { format!("{trial} {}", fields[6]) } else { key.to_owned() };
        let rejected = self.rejected.get(&counted).copied().unwrap_or(0);
        if kind == "connect" {
            self.connected.insert(key.to_owned());
        }
        let of_call = format!("{key} {}", fields[2]);
        let is_closed = self.closed.get(&of_call).is_some_and(|closed| attempt <= *closed);
        let (verdict, answer) = match (kind, order, self.applied.get(key)) {
            ("ask", _, Some(&first)) => ("landed", first),
            ("ask", _, None) => ("absent", number),
            ("check" | "connect", ..) if self.connected.contains(key) => ("there", number),
            ("check" | "connect", ..) => ("missing", number),
            _ if is_closed => ("late", number),
            (_, "reject" | "refuse", _) if rejected < given => ("rejected", number),
            ("read", ..) => ("seen", number),
            ("keyed", _, Some(&first)) => ("again", first),
            _ => ("applied", number),
        };
        match verdict {
            "rejected" => _ = self.rejected.insert(counted, rejected + 1),
            "absent" => {
                let closed = self.closed.entry(of_call).or_default();
                *closed = attempt.max(*closed);
            }
            _ => {}
        }
        let line = format!("{number}\t{}\t{verdict}\n", fields[..7].join("\t"));
        self.file.write_all(line.as_bytes())?;
        // A question changes nothing outside.
        if !matches!(kind, "ask" | "check") {
            self.file.sync_data()?;
        }
        self.lines = number;
        if verdict == "applied" {
            self.applied.entry(key.to_owned()).or_insert(number);
        }
        Ok((verdict, answer))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
