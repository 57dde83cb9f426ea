//! Why something could not be measured.

use crate::floor;
use windlass::BatchError;
use windlass::error::{PolicyError, RegisterError, SessionError};
use windlass::store::StoreError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The floor could not.
    #[error("a floor could not be measured")]
    Floor(#[from] floor::FloorError),
    /// The folder does not take files.
    #[error("could not write to the folder of the bench")]
    Io(#[from] std::io::Error),
    /// The store does not open.
    #[error("the store of the bench could not be opened")]
    Store(#[from] StoreError),
    /// A tool was refused.
    #[error("a tool of the bench was refused")]
    Register(#[from] RegisterError),
    /// A batch was not taken, or not answered.
    #[error("a batch of the bench was not answered")]
    Batch(#[from] BatchError),
    /// A session could not be used.
    #[error("a session of the bench could not be used")]
    Session(#[from] SessionError),
    /// The policy was refused.
    #[error("the policy of the bench could not be set")]
    Policy(#[from] PolicyError),
    /// The server could not be asked.
    #[error("the server of the bench could not be set up: {0}")]
    Server(String),
    /// The measurement is not of what it should be.
    #[error("the bench measures the wrong thing: {0}")]
    Wrong(String),
}
