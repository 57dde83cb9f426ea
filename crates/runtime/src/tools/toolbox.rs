//! The link from a registered tool to the toolbox whose processes run it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::tool::Digest;

/// One version of a toolbox: shared by its tools, and told when a process of it asks for work or reports.
#[derive(Debug)]
pub(crate) struct ToolboxLink {
    /// The name of the toolbox.
    pub(crate) toolbox: Arc<str>,
    /// The digest of its manifest. Calls run in processes that have this one.
    pub(crate) manifest: Digest,
    /// How long its processes may be silent.
    silence_us: u64,
    /// When one was last heard of, by the clock that never jumps; `NEVER` before that.
    heard_us: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl ToolboxLink {
    pub(crate) fn new(toolbox: &str, manifest: Digest, silence_ms: u64) -> ToolboxLink {
        let (silence_us, heard_us) = (silence_ms.saturating_mul(1_000), AtomicU64::new(NEVER));
        ToolboxLink { toolbox: toolbox.into(), manifest, silence_us, heard_us }
    }

    /// A process of it was heard of. Returns whether there was none before.
    pub(crate) fn heard(&self, now_us: u64) -> bool {
        let was_away = self.is_away(now_us);
        self.heard_us.store(now_us, Ordering::SeqCst);
        was_away
    }

    /// Its last process has said that it stops.
    pub(crate) fn left(&self) {
        self.heard_us.store(NEVER, Ordering::SeqCst);
    }

    /// Whether no process serves it.
    pub(crate) fn is_away(&self, now_us: u64) -> bool {
        now_us >= self.away_at_us()
    }

    /// When it is away, unless a process of it is heard of before.
    pub(crate) fn away_at_us(&self) -> u64 {
        match self.heard_us.load(Ordering::SeqCst) {
            NEVER => 0,
            heard_us => heard_us.saturating_add(self.silence_us),
        }
    }
}

/// An attempt that a toolbox has, as its tool is told of it.
#[derive(Clone, Debug)]
pub(crate) struct HandedAttempt {
    /// The token by which its process reports; `None` if that was given out under an earlier owner.
    pub(crate) token: Option<Arc<str>>,
    /// The hash of the token, as it is recorded.
    pub(crate) hash: Arc<str>,
    /// Whether its call is suspected of killing the processes that run it.
    pub(crate) is_suspect: bool,
}
