//! The owner behind a bridge: found, or started and left behind.

use crate::door::At;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use windlass_server::client::Client;

/// How long an owner may take until it serves its socket: it reads the journals of open calls first.
const START_WAIT: Duration = Duration::from_secs(30);
/// How often the socket is looked for.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How long to wait before another one is started: the folder may be a command's for a moment.
const STARTS_EVERY: Duration = Duration::from_millis(500);
/// The log of owners that bridges start, in the data folder.
const LOG: &str = "mcp-owner.log";
/// A log that is longer is begun anew.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Finds the owner of a folder, or starts one.
pub(super) struct OwnerStarter {
    data: PathBuf,
    program: PathBuf,
    /// The database given with --store.
    store: Option<String>,
    /// Held by whoever starts one.
    starting: Mutex<()>,
}

/// Why there is no owner, for the person at the client.
pub(super) struct OwnerStartError(pub(super) String);

impl OwnerStarter {
    pub(super) fn new(at: &At) -> std::io::Result<OwnerStarter> {
        Ok(OwnerStarter {
            data: at.data.clone(),
            program: std::env::current_exe()?,
            store: at.store.clone(),
            starting: Mutex::new(()),
        })
    }

    /// A client of the owner, if one is running.
    pub(super) async fn running(&self) -> Option<Client> {
        Client::find(&self.data).await.ok().flatten()
    }

    /// A client of the owner.
    pub(super) async fn client(&self) -> Result<Client, OwnerStartError> {
        if let Some(client) = self.running().await {
            return Ok(client);
        }
        let _alone = self.starting.lock().await;
        let (mut child, mut start_at): (Option<Child>, Instant) = (None, Instant::now());
        let deadline = start_at + START_WAIT;
        loop {
            if let Some(client) = self.running().await {
                if let Some(mut child) = child {
                    // It may end long before this process does.
                    std::thread::spawn(move || child.wait());
                }
                return Ok(client);
            }
            // One that has ended found another owner, which serves its socket soon or leaves; or it cannot start.
            let is_gone = child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if Instant::now() > deadline {
                return Err(self.failed("it did not serve its socket in time"));
            }
            if is_gone && Instant::now() >= start_at {
                start_at = Instant::now() + STARTS_EVERY;
                child = Some(self.start().map_err(|error| self.failed(&error.to_string()))?);
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }

    /// Starts an owner in a group of its own: signals to the client's processes do not reach it.
    fn start(&self) -> std::io::Result<Child> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.data)?;
        let log = self.data.join(LOG);
        let is_long = std::fs::metadata(&log).is_ok_and(|log| log.len() > LOG_BYTES_MAX);
        let log = OpenOptions::new()
            .create(true)
            .append(!is_long)
            .write(true)
            .truncate(is_long)
            .mode(0o600)
            .open(log)?;
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(&self.data).args(["serve", "--listen", "127.0.0.1:0", "--leave-when-idle"]);
        if let Some(store) = &self.store {
            command.env(crate::database::VARIABLE, store);
        }
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    }

    fn failed(&self, why: &str) -> OwnerStartError {
        let (data, log) = (self.data.display(), self.data.join(LOG));
        OwnerStartError(format!(
            "the owner of {data} could not be started: {why}; {} may say more",
            log.display()
        ))
    }
}
