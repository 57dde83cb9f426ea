//! A way to PostgreSQL that loses connections around a COMMIT, exactly where it is told to. A statement that appends a group is
//! committed by the message that ends it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::Cluster;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Where the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitCut {
    /// The server never sees the COMMIT.
    BeforeForwarding,
    /// The server has the COMMIT, and may still be at it.
    AfterForwarding,
    /// The server has answered, and the answer is not passed on.
    AfterReply,
}

/// A proxy on a port of its own.
pub struct Proxy {
    port: u16,
    plan: Arc<CutPlan>,
}

struct CutPlan {
    cut: Mutex<CommitCut>,
    /// Every how many COMMITs; 0 for none.
    every: AtomicU32,
    /// How often it may still cut.
    left: AtomicU32,
    seen: AtomicU32,
    cuts: AtomicU32,
    /// After a cut nobody gets through any more.
    for_good: bool,
    closed: AtomicBool,
    /// Of connections with a smaller number nothing gets through any more, and they are not closed.
    silent_below: AtomicU32,
    connections: AtomicU32,
}

impl Proxy {
    /// Cuts at every so-maniest COMMIT, once [`cutting`](Proxy::cutting) has begun.
    pub async fn start(cluster: &Cluster, cut: CommitCut) -> Proxy {
        Proxy::run(cluster.socket(), cut, false).await
    }

    /// Cuts at a COMMIT, and lets nobody through from then on.
    pub async fn for_good(cluster: &Cluster, cut: CommitCut) -> Proxy {
        Proxy::run(cluster.socket(), cut, true).await
    }

    /// Cuts every so many COMMITs from now on; 0: none.
    pub fn cutting(&self, every: u32) {
        self.plan.left.store(u32::MAX, Ordering::SeqCst);
        self.plan.every.store(every, Ordering::SeqCst);
    }

    /// Cuts at the next COMMIT, and at no other.
    pub fn cut_next(&self, cut: CommitCut) {
        *self.plan.cut.lock().unwrap() = cut;
        self.plan.left.store(1, Ordering::SeqCst);
        self.plan.every.store(1, Ordering::SeqCst);
    }

    /// Swallows everything on the connections that there are now, as a network does that lost its way.
    pub fn blackhole(&self) {
        let connections = self.plan.connections.load(Ordering::SeqCst);
        self.plan.silent_below.store(connections, Ordering::SeqCst);
    }

    /// How often it has cut.
    pub fn cuts(&self) -> u32 {
        self.plan.cuts.load(Ordering::SeqCst)
    }

    /// A database as it is reached through here.
    pub fn url(&self, database: &str) -> String {
        let (_, rest) = database.split_once(" user=").unwrap();
        format!("host=127.0.0.1 port={} user={rest}", self.port)
    }

    async fn run(socket: PathBuf, cut: CommitCut, for_good: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let [every, seen, cuts, silent_below, connections] = [(); 5].map(|()| AtomicU32::new(0));
        let (closed, cut, left) = (AtomicBool::new(false), Mutex::new(cut), AtomicU32::new(u32::MAX));
        let plan = CutPlan { cut, every, left, seen, cuts, for_good, closed, silent_below, connections };
        let plan = Arc::new(plan);
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.closed.load(Ordering::SeqCst) {
                    continue;
                }
                // The server may be away.
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                let plan = Arc::clone(&shared);
                let no = shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move { carry(client, server, &plan, no).await });
            }
        });
        Proxy { port, plan }
    }
}

impl CutPlan {
    /// Where the connection is cut at this COMMIT, if it is.
    fn cut_here(&self) -> Option<CommitCut> {
        let every = self.every.load(Ordering::SeqCst);
        if every == 0 || !(self.seen.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(every) {
            return None;
        }
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()?;
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.closed.store(self.for_good, Ordering::SeqCst);
        Some(*self.cut.lock().unwrap())
    }
}

/// Carries both ways until one side ends or the plan says so; then both ends are closed.
async fn carry(mut client: TcpStream, mut server: UnixStream, plan: &CutPlan, no: u32) {
    let is_silent = || no < plan.silent_below.load(Ordering::SeqCst);
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let swallowing = Mutex::new(None);
    let up = async {
        // The first message has no kind; nor has the next one, if it asks for TLS.
        let mut message = read_message(&mut from_client, 0).await?;
        if message.get(4..) == Some(&80_877_103_u32.to_be_bytes()) {
            to_server.write_all(&message).await?;
            message = read_message(&mut from_client, 0).await?;
        }
        let mut seen = ClientMessages::default();
        loop {
            let end = seen.commit(&message);
            let cut = end.and_then(|_| plan.cut_here());
            if cut == Some(CommitCut::BeforeForwarding) {
                return Ok::<(), std::io::Error>(());
            }
            *swallowing.lock().unwrap() = end.filter(|_| cut == Some(CommitCut::AfterReply));
            if !is_silent() {
                to_server.write_all(&message).await?;
            }
            if cut == Some(CommitCut::AfterForwarding) {
                return Ok(());
            }
            message = read_message(&mut from_client, 1).await?;
        }
    };
    let down = async {
        let (mut bytes, mut swallowed) = (vec![0; 64 << 10], Vec::new());
        loop {
            let count = from_server.read(&mut bytes).await?;
            if count == 0 {
                return Ok::<(), std::io::Error>(());
            }
            if is_silent() {
                continue;
            }
            let end: Option<&[u8]> = *swallowing.lock().unwrap();
            let Some(end) = end else {
                to_client.write_all(&bytes[..count]).await?;
                continue;
            };
            // What comes first may still belong to the statement before.
            swallowed.extend_from_slice(&bytes[..count]);
            if swallowed.windows(end.len()).any(|window| window == end) {
                return Ok(());
            }
        }
    };
    // However it ends, it has ended.
    tokio::select! {
        _ended = up => {}
        _ended = down => {}
    }
}

/// The messages of one client.
#[derive(Default)]
struct ClientMessages {
    /// A statement that appends a group is being executed. It has no name, and comes with its execution.
    appending: bool,
}

impl ClientMessages {
    /// If this message commits: the end of the answer to it.
    fn commit(&mut self, message: &[u8]) -> Option<&'static [u8]> {
        let mut texts = message.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        match message.first() {
            Some(b'Q') if message == b"Q\0\0\0\x0bCOMMIT\0" => return Some(b"COMMIT\0"),
            Some(b'P') => self.appending = texts.nth(1).unwrap().starts_with(b"SELECT windlass.append"),
            Some(b'S') if std::mem::take(&mut self.appending) => return Some(b"Z\0\0\0\x05I"),
            _ => {}
        }
        None
    }
}

/// One message of the client: a kind of some bytes, the length of the rest, the rest.
async fn read_message(
    from: &mut (impl AsyncReadExt + Unpin),
    kind_bytes: usize,
) -> Result<Vec<u8>, std::io::Error> {
    let mut message = vec![0; kind_bytes + 4];
    from.read_exact(&mut message).await?;
    let length = u32::from_be_bytes(message[kind_bytes..].try_into().unwrap());
    message.resize(kind_bytes + length as usize, 0);
    from.read_exact(&mut message[kind_bytes + 4..]).await?;
    Ok(message)
}
