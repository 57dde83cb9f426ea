//! Rules that a process can be told to break, to show that the proofs notice. Only with the feature
//! `mutants`, and only the one that `WINDLASS_MUTANT` names; without the feature this compiles to nothing.

/// Whether this process breaks the rule of this name on purpose.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn breaks(_rule: &str) -> bool {
    false
}

/// Whether this process breaks the rule of this name on purpose.
#[cfg(feature = "mutants")]
pub fn breaks(rule: &str) -> bool {
    static BROKEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    BROKEN.get_or_init(|| std::env::var("WINDLASS_MUTANT").ok()).as_deref() == Some(rule)
}
