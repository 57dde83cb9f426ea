//! Signatures of messages, by which receivers know that a message is ours and fresh.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header with the id of a message, the same at every delivery.
pub const ID_HEADER: &str = "windlass-id";
/// The header with the time of the delivery, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "windlass-timestamp";
/// The header with the signature.
pub const SIGNATURE_HEADER: &str = "windlass-signature";

/// The value of the header `Windlass-Signature`: `v1=` and the HMAC-SHA256, in hexadecimal digits, of the timestamp, a dot and the body.
/// The key is the secret as text.
///
/// ```
/// let signed = windlass::webhooks::signature("whsec_0123456789abcdef", 1_700_000_000, b"{}");
/// assert_eq!(signed, "v1=d0c329a0542d1a8e66b0b5503cf2d2f8f8e174c98224b843c11f74ea14c341e9");
/// ```
pub fn signature(secret: &str, timestamp: i64, body: &[u8]) -> String {
    // HMAC takes keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(timestamp.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut signed = String::from("v1=");
    for byte in mac.finalize().into_bytes() {
        signed.push_str(&format!("{byte:02x}"));
    }
    signed
}
