//! The ledger of a fleet. Its tools act by requests to it; it lives apart from the workers, so it also sees the effects that no worker lived
//! to record.

use super::http::header;
use anyhow::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The header by which a worker's tools say whose they are.
pub const WORKER: &str = "x-worker";

/// How often it is looked whether answers are still held.
const HELD_LOOK: Duration = Duration::from_millis(20);

/// Something that a tool did.
#[derive(Clone, Debug)]
pub struct FleetEffect {
    /// The `n` of the call's arguments.
    pub call: String,
    /// Its idempotency key.
    pub key: String,
    /// The name of the worker.
    pub worker: String,
    pub at: Instant,
}

/// A ledger that listens until the process ends.
#[derive(Clone)]
pub struct FleetLedger {
    address: SocketAddr,
    effects: Arc<Mutex<Vec<FleetEffect>>>,
    /// Whether nobody is answered.
    held: Arc<AtomicBool>,
}

impl FleetLedger {
    pub fn start() -> Result<FleetLedger> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let ledger =
            FleetLedger { address: listener.local_addr()?, effects: Arc::default(), held: Arc::default() };
        let shared = ledger.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ledger = shared.clone();
                // A worker that dies ends its connections.
                std::thread::spawn(move || while ledger.answer(&stream).is_ok() {});
            }
        });
        Ok(ledger)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers nobody until this is called with `false`.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// How many effects there were.
    pub fn position(&self) -> usize {
        self.lock().len()
    }

    /// All effects, in their order.
    pub fn effects(&self) -> Vec<FleetEffect> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FleetEffect>> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request, `POST /CALL/MS`: notes its effect, and answers so much later.
    fn answer(&self, stream: &TcpStream) -> Result<()> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            anyhow::ensure!(reader.read_line(&mut head)? > 0, "the connection has ended");
        }
        let length = header(&head, "content-length").map_or(Ok(0), str::parse)?;
        reader.take(length).read_to_end(&mut Vec::new())?;
        let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let (call, ms) = path.split_once('/').unwrap_or_default();
        let field = |name| header(&head, name).unwrap_or_default().to_owned();
        self.lock().push(FleetEffect {
            call: call.to_owned(),
            key: field("idempotency-key"),
            worker: field(WORKER),
            at: Instant::now(),
        });
        std::thread::sleep(Duration::from_millis(ms.parse()?));
        while self.held.load(Ordering::SeqCst) {
            std::thread::sleep(HELD_LOOK);
        }
        let told = format!("{{\"did\":\"{call}\"}}");
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{told}",
            told.len()
        );
        (&mut &*stream).write_all(head.as_bytes())?;
        Ok(())
    }
}
