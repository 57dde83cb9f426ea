//! Arguments of `windlass run`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use windlass_server::wire::turns::WireName;

/// `windlass run`
#[derive(Args)]
#[command(after_help = "\
The file holds {\"key\": …, \"calls\": [{\"id\", \"tool\", \"args\"}, …]} or one call per line. With --wire it holds a response of a
model provider, whole or only its message; posted again, nothing runs twice.

Example:
  echo '{\"id\": \"1\", \"tool\": \"add\", \"args\": {\"a\": 1, \"b\": 2}}' | windlass run -
  windlass run --wire anthropic response.json")]
pub struct RunArgs {
    /// A file, or - for standard input
    pub file: PathBuf,
    /// The session the calls belong to
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The key of the batch; without one it is derived from the calls
    #[arg(long, conflicts_with = "new")]
    pub key: Option<String>,
    /// Run everything again, under a new key
    #[arg(long)]
    pub new: bool,
    /// Exit without waiting for tasks; the next owner of the folder continues them
    #[arg(long)]
    pub no_wait: bool,
    /// The file is a response of this model provider; prints the messages to append, one per line
    #[arg(long)]
    pub wire: Option<WireArg>,
    /// The turn of the conversation, if the response has no id
    #[arg(long, requires = "wire")]
    pub turn: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The protocol of a model provider.
#[derive(Clone, Copy, ValueEnum)]
pub enum WireArg {
    #[value(name = "openai_chat")]
    OpenaiChat,
    #[value(name = "openai_responses")]
    OpenaiResponses,
    #[value(name = "anthropic")]
    Anthropic,
    #[value(name = "gemini")]
    Gemini,
}

impl From<WireArg> for WireName {
    fn from(wire: WireArg) -> WireName {
        match wire {
            WireArg::OpenaiChat => WireName::OpenaiChat,
            WireArg::OpenaiResponses => WireName::OpenaiResponses,
            WireArg::Anthropic => WireName::Anthropic,
            WireArg::Gemini => WireName::Gemini,
        }
    }
}
