//! Internal numbers. Public names are [`Handle`](crate::handle::Handle)s.

/// Declares a number type, so that a batch can never be passed for a session.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A session, numbered by the store.
    SessionNo(u64)
}
number! {
    /// A batch, numbered by the store over all sessions; younger batches have larger numbers.
    BatchNo(u64)
}
number! {
    /// The place of a call in its batch, from 0.
    Ordinal(u16)
}
number! {
    /// An entry's number in its session, from 1, without gaps: order, chain and event cursor.
    EntryNo(u64)
}
number! {
    /// The right to write to a session: a larger fence invalidates every smaller one.
    Fence(u64)
}
number! {
    /// An attempt of a call, from 1.
    AttemptNo(u32)
}
number! {
    /// Bytes stored beside a journal in chunks; its public name is an artifact.
    BlobNo(u64)
}

/// An artifact: a blob with a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactId {
    /// The blob.
    pub blob: BlobNo,
    /// The index of the artifact's media type among the blob's, from 0.
    pub media: u16,
}

impl ArtifactId {
    /// The artifact as one number, as handles seal it: the number of the blob, if there is but one media type.
    pub fn packed(self) -> u64 {
        u64::from(self.media) << 40 | self.blob.0
    }

    /// The artifact that [`packed`](Self::packed) gave this number.
    pub fn unpacked(packed: u64) -> ArtifactId {
        ArtifactId { blob: BlobNo(packed & 0xff_ffff_ffff), media: (packed >> 40) as u16 }
    }
}

impl Fence {
    /// A fence that is larger than this one and, by chance, unique among those who take over after it: the
    /// count of owners, and `chance`.
    pub fn after(self, chance: u32) -> Fence {
        Fence(((self.0 >> 32) + 1) << 32 | u64::from(chance))
    }
}

/// The number of a call: its batch and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The batch it came with.
    pub batch: BatchNo,
    /// Its place in the batch.
    pub ordinal: Ordinal,
}

impl CallId {
    /// The call as one number, as handles seal it.
    pub fn packed(self) -> u64 {
        self.batch.0 << 16 | u64::from(self.ordinal.0)
    }

    /// The call that [`packed`](Self::packed) gave this number.
    pub fn unpacked(packed: u64) -> CallId {
        CallId { batch: BatchNo(packed >> 16), ordinal: Ordinal((packed & 0xffff) as u16) }
    }
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.batch, self.ordinal)
    }
}

/// The key for finding the first call of a dedupe key: a hash over the session, the tool and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub [u8; 16]);

impl Mark {
    /// The mark of calls of the tool with this stable id and dedupe key in this session.
    pub fn of(session: SessionNo, tool: &str, key: &str) -> Mark {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&session.0.to_le_bytes());
        hasher.update(&(tool.len() as u64).to_le_bytes());
        hasher.update(tool.as_bytes());
        hasher.update(key.as_bytes());
        let mut mark = [0; 16];
        mark.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Mark(mark)
    }
}

/// The key for finding a batch by its session and key: a hash, so that one fixed-size index serves keys of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lookup(pub [u8; 16]);

/// The maximum size for hashing a number and a key in one piece.
const LOOKUP_BYTES_SHORT: usize = 64;

impl Lookup {
    /// The look-up of the batch with this key in this session.
    pub fn of(session: SessionNo, key: &str) -> Lookup {
        let (number, key) = (session.0.to_le_bytes(), key.as_bytes());
        let mut found = [0; 16];
        // Mostly it is short, and hashed in one piece: that costs half.
        let mut short = [0; LOOKUP_BYTES_SHORT];
        let (before, behind) = short.split_at_mut(number.len());
        let hash = match behind.get_mut(..key.len()) {
            Some(place) => {
                before.copy_from_slice(&number);
                place.copy_from_slice(key);
                blake3::hash(&short[..number.len() + key.len()])
            }
            None => blake3::Hasher::new().update(&number).update(key).finalize(),
        };
        found.copy_from_slice(&hash.as_bytes()[..16]);
        Lookup(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_is_the_same_in_one_piece_and_in_two() {
        let (number, long) = (SessionNo(0x0102_0304_0506_0708), "k".repeat(2 * LOOKUP_BYTES_SHORT));
        for len in 0..long.len() {
            let whole = blake3::Hasher::new()
                .update(&number.0.to_le_bytes())
                .update(&long.as_bytes()[..len])
                .finalize();
            assert_eq!(Lookup::of(number, &long[..len]).0[..], whole.as_bytes()[..16], "{len} bytes");
        }
    }
}
