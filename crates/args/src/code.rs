//! Codes of problems with arguments and results.

use crate::named;

named! {
    /// The kind of problem that arguments or a result have; each is one of the codes that a failure can carry.
    ArgumentCode {
        /// The text is not JSON.
        InvalidJson = "invalid_json",
        /// An object has the same key twice.
        DuplicateKey = "duplicate_key",
        /// A number cannot be held without rounding it.
        InexactNumber = "inexact_number",
        /// Arrays and objects are nested too deeply.
        TooDeep = "too_deep",
        /// The value is too large.
        TooLarge = "too_large",
        /// The arguments do not fit the tool's input schema.
        InvalidArgs = "invalid_args",
        /// The result does not fit the tool's own output schema.
        InvalidOutput = "invalid_output",
    }
}
