//! Keys of batches that the runtime itself makes: for nested calls, schedules and triggers.

use crate::api::error::{SessionError, no_randomness};
use windlass_core::handle::Handle;
use windlass_core::time::Timestamp;

/// The prefix of keys of nested batches, and of no others.
pub(crate) const INSIDE: &str = "inside:";

/// Longer names are in the key as a hash.
const KEY_NAME_CHARS_MAX: usize = 64;

/// The key of the batch that a call makes under a name, for the `generation`th time.
pub(crate) fn nested(call: Handle, name: &str, generation: u32) -> String {
    let name = in_key(name);
    match generation {
        1 => format!("{INSIDE}{call}/{name}"),
        _ => format!("{INSIDE}{call}/{name}#{generation}"),
    }
}

/// A name in the form used in a key.
pub(crate) fn in_key(name: &str) -> String {
    let plain = name.len() <= KEY_NAME_CHARS_MAX && name.chars().all(|c| !c.is_control() && c != '#');
    match plain {
        true => name.to_string(),
        false => format!("#{}", &blake3::hash(name.as_bytes()).to_hex()[..32]),
    }
}

/// The key under which the batch was made for the first time: deduplication uses it, however often the batch
/// is made again. Any other key is its own first one.
pub(crate) fn first_key(key: &str) -> &str {
    let name = key.strip_prefix(INSIDE).and_then(|inside| inside.split_once('/'));
    let Some((_, name)) = name else { return key };
    // A hashed name in a key itself begins with `#`.
    let hashed = usize::from(name.starts_with('#'));
    match name[hashed..].find('#') {
        Some(end) => &key[..key.len() - name.len() + hashed + end],
        None => key,
    }
}

/// The prefix of keys of batches that schedules start, and of no others.
pub(crate) const BY_SCHEDULE: &str = "schedule:";

/// The key of the batch that a schedule starts at this time.
pub(crate) fn scheduled(id: &str, nominal: Timestamp) -> String {
    format!("{BY_SCHEDULE}{id}/{}", nominal.0)
}

/// The schedule that started the batch of this key, if one did.
pub(crate) fn schedule_of(key: &str) -> Option<&str> {
    key.strip_prefix(BY_SCHEDULE)?.rsplit_once('/').map(|(id, _)| id)
}

/// The prefix of keys of batches that events start, and of no others.
pub(crate) const BY_TRIGGER: &str = "trigger:";

/// The key of the batch that a trigger starts when a call emits an event under this name. There is one for
/// each event and trigger.
pub(crate) fn triggered(call: Handle, name: &str, trigger: &str) -> String {
    format!("{BY_TRIGGER}{call}/{}/{trigger}", in_key(name))
}

/// The key of the batch that a trigger starts when the host emits the event of this number.
pub(crate) fn triggered_by_host(number: u64, trigger: &str) -> String {
    format!("{BY_TRIGGER}event.{number}/{trigger}")
}

/// The trigger that started the batch of this key, if one did.
pub(crate) fn trigger_of(key: &str) -> Option<&str> {
    key.strip_prefix(BY_TRIGGER)?.rsplit_once('/').map(|(_, id)| id)
}

/// Whether a batch of this key is a model's turn, not started by a tool, a schedule or an event.
pub(crate) fn is_turn(key: &str) -> bool {
    !key.starts_with(INSIDE) && schedule_of(key).is_none() && trigger_of(key).is_none()
}

/// A unique key.
pub fn fresh_key() -> Result<String, SessionError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::handle::{HandleKind, Secret};

    #[test]
    fn what_is_called_again_is_known_by_its_first_key() {
        let call = Handle::seal(&Secret([7; 32]), HandleKind::Call, 1);
        for name in ["a", "a/", "#1", "a#2", "\n", &"x".repeat(100)] {
            let first = nested(call, name, 1);
            for generation in [1, 2, 17] {
                assert_eq!(first_key(&nested(call, name, generation)), first, "{name:?} {generation}");
            }
        }
        assert_eq!(first_key("k#2"), "k#2", "a caller's key is its own");
    }
}
