//! Why something could not be measured.

use crate::floor;
use windlass::store::StoreError;
use windlass::{BatchError, RegisterError};

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The floor could not.
    #[error("a floor could not be measured")]
    Floor(#[from] floor::Error),
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
    /// The server could not be asked.
    #[error("the server of the bench could not be set up: {0}")]
    Server(String),
    /// What was measured is not what should be.
    #[error("the bench would measure the wrong thing: {0}")]
    Wrong(String),
}
