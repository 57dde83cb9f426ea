//! Arguments of `windlass webhooks`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use windlass::webhooks::WebhookKind;

/// `windlass webhooks`
#[derive(Args)]
#[command(
    after_help = "Example: windlass webhooks add https://chat.example/hook --kind question --kind unknown"
)]
pub struct WebhooksArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: WebhooksCommand,
}

#[derive(Subcommand)]
pub enum WebhooksCommand {
    /// List webhooks with their deliveries (secrets are never shown)
    #[command(after_help = "Example: windlass webhooks ls --json")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create a webhook; its secret is printed only once
    Add(AddWebhook),
    /// Remove a webhook, with the messages that wait for it
    #[command(after_help = "Example: windlass webhooks rm 4f2a")]
    Rm(OneWebhook),
    /// Send a test message to a webhook now, once
    #[command(after_help = "Example: windlass webhooks test 4f2a")]
    Test(OneWebhook),
    /// Enable a webhook, which also sends what was held
    #[command(after_help = "Example: windlass webhooks enable 4f2a")]
    Enable(OneWebhook),
    /// Disable a webhook; messages that wait for it are dropped
    #[command(after_help = "Example: windlass webhooks disable 4f2a")]
    Disable(OneWebhook),
}

/// `windlass webhooks add`
#[derive(Args)]
#[command(after_help = "\
Notices and waits for a person are posted to the URL as JSON, signed with the secret, at least once each. Private addresses
and http:// need --internal.

Example: windlass webhooks add https://chat.example/hook --kind question --kind unknown --principal ann")]
pub struct AddWebhook {
    /// The URL that messages are posted to
    pub url: String,
    /// Only messages of this kind; repeatable
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(WebhookKind::ALL.map(WebhookKind::as_str)))]
    pub kinds: Vec<String>,
    /// Only messages of this principal's sessions; repeatable
    #[arg(long = "principal", value_name = "NAME")]
    pub principals: Vec<String>,
    /// Only messages of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Allow private addresses and http://
    #[arg(long)]
    pub internal: bool,
    /// Read the secret from this file [default: generated]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<std::path::PathBuf>,
    /// A note on its purpose
    #[arg(long)]
    pub title: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One webhook.
#[derive(Args)]
pub struct OneWebhook {
    /// The webhook: its id, or a prefix of it
    pub webhook: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
