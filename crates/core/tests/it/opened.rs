//! A call as it is opened, for tests that are about what follows.

use windlass_args::arguments::{Arguments, Given};
use windlass_core::call::Opened;

/// A call without anything special.
pub fn opened() -> Opened {
    Opened {
        id: "c1".into(),
        tool: "t".into(),
        args: Arguments { given: Given::Json, text: "{}".into() },
        provider: None,
        deadlines: None,
        priority: 0,
        inline_ms: None,
        task: None,
        answer: None,
        grant: None,
    }
}
