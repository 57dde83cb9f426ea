//! The link from a registered tool to the toolbox whose processes run it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use windlass_core::tool::Digest;

/// One version of a toolbox: shared by its tools, and told when a process of it asks for work or reports.
#[derive(Debug)]
pub(crate) struct ToolboxLink {
    /// The name of the toolbox.
    pub(crate) toolbox: Arc<str>,
    /// The principal that it belongs to.
    pub(crate) principal: Arc<str>,
    /// The digest of its manifest. Calls run in processes that have this one.
    pub(crate) manifest: Digest,
    /// How long its processes may be silent.
    silence_us: u64,
    /// When one was last heard of, by the clock that never jumps; `NEVER` before that.
    heard_us: AtomicU64,
    /// The attempts whose starts are being recorded: processes will have them in a moment.
    coming: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl ToolboxLink {
    pub(crate) fn new(toolbox: &str, principal: &str, manifest: Digest, silence_ms: u64) -> ToolboxLink {
        let (silence_us, heard_us) = (silence_ms.saturating_mul(1_000), AtomicU64::new(NEVER));
        let (toolbox, principal, coming) = (toolbox.into(), principal.into(), AtomicU64::new(0));
        ToolboxLink { toolbox, principal, manifest, silence_us, heard_us, coming }
    }

    /// How many attempts will be there in a moment.
    pub(crate) fn coming(&self) -> u64 {
        self.coming.load(Ordering::SeqCst)
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
    /// Counts it among those that will be there in a moment.
    pub(crate) coming: Arc<ComingAttempt>,
}

/// Counts an attempt among those that will be there in a moment, until it is or cannot be any more.
#[derive(Debug, Default)]
pub(crate) struct ComingAttempt {
    link: Option<Arc<ToolboxLink>>,
    has_come: AtomicBool,
}

impl ComingAttempt {
    pub(crate) fn new(link: &Arc<ToolboxLink>) -> ComingAttempt {
        link.coming.fetch_add(1, Ordering::SeqCst);
        ComingAttempt { link: Some(link.clone()), has_come: AtomicBool::new(false) }
    }

    /// It is there.
    pub(crate) fn has_come(&self) {
        if let Some(link) = &self.link
            && !self.has_come.swap(true, Ordering::SeqCst)
        {
            link.coming.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for ComingAttempt {
    fn drop(&mut self) {
        self.has_come();
    }
}
