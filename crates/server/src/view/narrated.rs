//! Sentences for people about running calls.

use super::{ShownCall, View};
use crate::sessions::SessionAbout;
use std::collections::HashMap;
use windlass::error::AskError;
use windlass_core::narration::Locale;

impl View {
    /// Adds to each call that runs here a sentence in its session's language. Only to calls that are shown: most are not.
    pub(super) async fn narrate(&self, calls: &mut [ShownCall]) -> Result<(), AskError> {
        let Some(runtime) = &self.tools else { return Ok(()) };
        let mut locales: HashMap<&str, Locale> = HashMap::new();
        for call in calls {
            let Some(open) = self.open.get(&call.handle()).filter(|open| open.state == "running") else {
                continue;
            };
            let locale = match locales.get(open.session.as_str()) {
                Some(locale) => *locale,
                None => {
                    let tag = SessionAbout::of(&*self.store, &open.session).await?.locale;
                    let locale = tag.map_or(Locale::English, |tag| Locale::of(&tag));
                    *locales.entry(&open.session).or_insert(locale)
                }
            };
            call.more.narration = runtime.narration(open, locale);
        }
        Ok(())
    }
}
