//! A store of values under names, which calls read when they start and write when they end.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The values under the leaves of the names that are claimed; those of a session, or the global ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<&'static str, u64>);

/// The names that stories are about; the session is the empty one.
pub const NAMES: [&str; 9] = ["", "a", "a/b", "a/b/d", "a/c", "e", "global:g", "global:g/h", "global:k"];

/// The number of the session's name.
pub const SESSION: usize = 0;

/// Those below which nothing lies, so that a claim stands for a set of these.
const LEAVES: [&str; 7] = ["a/b/d", "a/b/x", "a/c", "e", "global:g/h", "global:g/x", "global:k"];

/// A claim by number: whether it writes, and which of [`NAMES`].
pub type Claimed = (bool, usize);

pub fn is_global(name: usize) -> bool {
    NAMES[name].starts_with("global:")
}

fn covers(upper: usize, lower: &str) -> bool {
    match NAMES[upper] {
        "" => !lower.starts_with("global:"),
        upper => lower.strip_prefix(upper).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}

/// Whether two names have a leaf in common.
fn meet(left: usize, right: usize) -> bool {
    LEAVES.iter().any(|leaf| covers(left, leaf) && covers(right, leaf))
}

/// Whether the claims of two calls collide, each pair of them looked at.
pub fn collide(left: &[Claimed], right: &[Claimed]) -> bool {
    left.iter()
        .any(|&(writes, name)| right.iter().any(|&(also, other)| (writes || also) && meet(name, other)))
}

/// Whether all of `inner` lies within `outer`: each leaf may be used as it is, and no name is wider.
pub fn within(outer: &[Claimed], inner: &[Claimed]) -> bool {
    inner.iter().all(|&(writes, name)| {
        outer.iter().any(|&(may, upper)| {
            (may || !writes)
                && if NAMES[name].is_empty() { upper == name } else { covers(upper, NAMES[name]) }
        })
    })
}

impl Values {
    /// The state that a call with these claims sees.
    pub fn read(&self, claims: &[Claimed]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for leaf in LEAVES.iter().filter(|leaf| claims.iter().any(|&(_, name)| covers(name, leaf))) {
            (leaf, self.0.get(leaf)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The state that a call leaves after it saw this.
    pub fn write(&mut self, claims: &[Claimed], call: usize, seen: u64) {
        for leaf in LEAVES {
            if claims.iter().any(|&(writes, name)| writes && covers(name, leaf)) {
                let mut hasher = DefaultHasher::new();
                (call, seen, self.0.get(leaf)).hash(&mut hasher);
                self.0.insert(leaf, hasher.finish());
            }
        }
    }
}
