//! Results, errors and reports of tools without the values of secrets.

use super::KnownSecrets;
use crate::api::output::{ErrorExtras, Output, RawOutput, ToolError};
use crate::api::progress::Progress;
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::redact::{SecretMatcher, StreamScrubber};
use zeroize::Zeroizing;

/// Replaces the values of secrets in text that a tool is about to shorten. See [`Cx::scrubber`](crate::Cx::scrubber).
#[derive(Clone, Default)]
pub struct SecretScrubber {
    known: Option<Arc<KnownSecrets>>,
    held: Zeroizing<Vec<u8>>,
}

impl SecretScrubber {
    pub(crate) fn new(known: Option<Arc<KnownSecrets>>) -> SecretScrubber {
        SecretScrubber { known, held: Zeroizing::default() }
    }

    /// Bytes with a marker for each secret.
    pub fn scrub<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.known.as_ref().map_or(Cow::Borrowed(bytes), |known| known.scrub_bytes(bytes))
    }

    /// The next chunk of a stream, without what may be the beginning of a secret; `None`: the chunk is as it was.
    pub fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let known = self.known.as_ref()?;
        let mut stream = StreamScrubber::holding(std::mem::take(&mut self.held));
        let scrubbed = stream.push(known, bytes);
        self.held = stream.into_held();
        Some(scrubbed)
    }

    /// The rest of a stream.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.known.as_ref().map(|known| StreamScrubber::holding(held).finish(known)).unwrap_or_default()
    }
}

impl std::fmt::Debug for SecretScrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretScrubber").finish_non_exhaustive()
    }
}

/// Replaces secrets in a result. Returns whether its value held one.
pub(crate) fn scrub_output(known: &SecretMatcher, output: &mut Output) -> bool {
    known.scrub_parts(&mut output.parts);
    if let Some(control) = &mut output.control {
        known.scrub_value(control);
    }
    if let Some(RawOutput::Bytes { bytes, .. }) = output.raw.as_deref_mut()
        && let Cow::Owned(scrubbed) = known.scrub_bytes(bytes)
    {
        *bytes = scrubbed;
    }
    known.scrub_value(&mut output.value)
}

/// Replaces secrets in an error.
pub(crate) fn scrub_error(known: &SecretMatcher, error: &mut ToolError) {
    known.scrub_string(&mut error.message);
    let texts = [&mut error.tool_code, &mut error.detail];
    texts.into_iter().flatten().for_each(|text| known.scrub_string(text));
    if let Some(connection) = &mut error.connection {
        known.scrub_string(&mut connection.provider);
        connection.setup_url.iter_mut().for_each(|url| known.scrub_string(url));
    }
    if let Some(ErrorExtras { parts, raw, control }) = error.extras.as_deref_mut() {
        known.scrub_parts(parts);
        raw.iter_mut().chain(control).for_each(|value| _ = known.scrub_value(value));
    }
}

/// Replaces secrets in a report of progress.
pub(crate) fn scrub_progress(known: &SecretMatcher, progress: &mut Progress) {
    let texts = [&mut progress.unit, &mut progress.label];
    texts.into_iter().flatten().for_each(|text| known.scrub_string(text));
}
