//! Arguments and help texts of the command line.

pub mod approvals;
mod background;
mod backup;
mod events;
mod grants;
mod mcp;
mod policy;
mod run;
mod schedules;
mod secrets;
mod serve;
mod token;
mod toolboxes;
mod triggers;
mod webhooks;

pub use approvals::Connections;
pub use background::{InboxArgs, Logs, MessagesArgs, SayArgs, TasksArgs, TasksCommand};
pub use backup::{BackupArgs, MigrateArgs};
pub use events::{EmitArgs, FulfilArgs, NoticeArgs};
pub use grants::{AttenuateGrant, GrantsArgs, GrantsCommand, IssueGrant, ListGrants, OneGrant};
pub use mcp::{
    McpAcceptArgs, McpAddArgs, McpArgs, McpCommand, McpImportArgs, McpListArg, McpLsArgs, McpTestArgs,
};
pub use policy::{InitArgs, PolicyArgs, PolicyCheckArgs, PolicyCommand, PolicyHistoryArgs, PolicySetArgs};
pub use run::RunArgs;
pub use schedules::{
    AddSchedule, ListSchedules, OneSchedule, PreviewScheduleArgs, SchedulesArgs, SchedulesCommand,
};
pub use secrets::{ListSecrets, OneSecret, SecretsArgs, SecretsCommand};
pub use serve::{Dev, LogFormat, Logging, Serve};
pub use token::{TokenArgs, TokenCreate, TokenWhat};
pub use toolboxes::{ToolboxesArgs, ToolboxesCommand};
pub use triggers::{AddTrigger, ListTriggers, OneTrigger, TriggersArgs, TriggersCommand};
pub use webhooks::{AddWebhook, OneWebhook, WebhooksArgs, WebhooksCommand};

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use windlass_server::wire::StateFilter;

/// Run tool calls durably.
#[derive(Parser)]
#[command(name = "windlass", version, about = "Run tool calls durably", after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// The data folder [default: .windlass; for dev .windlass-dev]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Share the database at postgres://…; WINDLASS_STORE or windlass.toml may name it, too
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Use the server at http://HOST:PORT; the token comes from WINDLASS_TOKEN or --token-file
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// The file that holds the token for --server
    #[arg(long, global = true, requires = "server", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all calls succeeded, 1 one failed, was denied or cancelled, 2 wrong usage, 3 one is unknown,
4 the batch or request was refused or conflicts, 5 a call is still open, 6 the data folder or server is unavailable.

Example: windlass call echo '{\"message\": \"hello\"}'";

/// Builds the command line. The help of each command hides global options that the command does not use.
pub fn command() -> clap::Command {
    let refused: [(&str, &[&str]); 8] = [
        ("init", &["server", "store", "token_file"]),
        ("serve", &["server", "token_file"]),
        ("dev", &["server", "store", "token_file"]),
        ("mcp", &["server", "token_file"]),
        ("backup", &["server", "store", "token_file"]),
        ("migrate", &["server", "token_file"]),
        ("doctor", &["server", "token_file"]),
        ("bench", &["data", "server", "store", "token_file"]),
    ];
    let command = Cli::command();
    let of_all: Vec<clap::Arg> = command.get_arguments().cloned().collect();
    refused.into_iter().fold(command, |command, (name, options)| {
        let hidden = of_all.iter().filter(|option| options.contains(&option.get_id().as_str()));
        let hidden: Vec<clap::Arg> = hidden.map(|option| option.clone().hide(true)).collect();
        command.mut_subcommand(name, |one| one.args(hidden))
    })
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Serve the HTTP API and drive all calls of the data folder
    Serve(Serve),
    /// Serve a demo folder with example tools and calls, and print what to type next
    Dev(Dev),
    /// Serve an MCP client on standard input and output, or manage MCP servers of others
    Mcp(McpArgs),
    /// Write a starter windlass.toml, with a template policy if asked to
    Init(InitArgs),
    /// Run a batch of calls from a file; running it again returns the recorded answers
    Run(RunArgs),
    /// Run one call
    Call(CallArgs),
    /// List the tools, or show one
    Tools(ToolsArgs),
    /// List the sessions
    Sessions(SessionsArgs),
    /// List calls, or show one
    Calls(CallsArgs),
    /// Follow the events of a session
    Watch(Watch),
    /// List background tasks: calls that continue without their callers
    Tasks(TasksArgs),
    /// Print the log of a task, and follow it
    Logs(Logs),
    /// List, take and acknowledge the notices for a session's agent
    Inbox(InboxArgs),
    /// Manage schedules, which start calls at set times
    Schedules(SchedulesArgs),
    /// Manage triggers, which start calls on events
    Triggers(TriggersArgs),
    /// Emit an event, which starts the tasks of its triggers
    Emit(EmitArgs),
    /// Fulfil a named event that calls of a session wait for
    Fulfil(FulfilArgs),
    /// Post a notice for a session's agent
    Notice(NoticeArgs),
    /// Cancel calls
    Cancel(CancelArgs),
    /// Decide whether a call in state unknown took effect
    Resolve(ResolveArgs),
    /// Let a call continue although its tool has changed
    Accept(Accept),
    /// Complete a call that waits for an external answer, by the key its tool issued
    Complete(CompleteArgs),
    /// List everything that waits for a person, with the command that answers it
    Waiting(approvals::WaitingArgs),
    /// List open approvals, and answers that are remembered
    Approvals(approvals::ApprovalsArgs),
    /// Approve a call that waits for it
    Approve(approvals::ApproveArgs),
    /// Deny a call that waits for approval
    Deny(approvals::DenyArgs),
    /// List open questions
    Questions(QuestionsArgs),
    /// Answer a question
    Answer(AnswerArgs),
    /// Send a signal to a call
    Signal(SignalArgs),
    /// Report that a session was connected to a provider, or that the connection was declined
    Connections(Connections),
    /// Show, check and change the policy: which calls run, ask a person first, or are denied
    Policy(PolicyArgs),
    /// Issue, narrow, list and revoke grants, by which a session calls a tool it does not have
    Grants(GrantsArgs),
    /// Store, list and remove secrets, which tools use by name
    Secrets(SecretsArgs),
    /// List and remove toolboxes: tools that other processes run
    Toolboxes(ToolboxesArgs),
    /// Manage webhooks, which post notices and waits for a person to URLs
    Webhooks(WebhooksArgs),
    /// Create, list and revoke the server's tokens
    Token(TokenArgs),
    /// Print a link that opens the dashboard in a browser, once
    Open(OpenLink),
    /// Copy the data folder consistently, also while a process owns it
    Backup(BackupArgs),
    /// Bring a shared database to the format that this version needs, before its workers are replaced
    Migrate(MigrateArgs),
    /// Confirm that the original of a copied data folder is gone
    Confirm(Confirm),
    /// Check the data folder and show the settings in effect
    Doctor(Doctor),
    /// Measure how fast this machine runs calls
    Bench(Bench),
    /// Print a script that completes commands in a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    #[command(after_help = "Example: windlass man > /usr/local/share/man/man1/windlass.1")]
    Man,
}

/// `windlass completions`
#[derive(Args)]
#[command(after_help = "Example: windlass completions bash > /etc/bash_completion.d/windlass")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `windlass sessions`
#[derive(Args)]
#[command(after_help = "Example: windlass sessions --json")]
pub struct SessionsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass call`
#[derive(Args)]
#[command(after_help = "\
Without --id each run is a new call; with one, a second run returns the recorded answer.

Example: windlass call divide '{\"a\": 1, \"b\": 3}'")]
pub struct CallArgs {
    /// The tool
    pub tool: String,
    /// Its arguments, as JSON
    #[arg(default_value = "{}")]
    pub args: String,
    /// The session the call belongs to
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Identity of the call: running the same id again returns the recorded answer
    #[arg(long)]
    pub id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass tools`
#[derive(Args)]
#[command(after_help = "\
Examples:
  windlass tools
  windlass tools echo --json")]
pub struct ToolsArgs {
    /// Show all details of this tool
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass calls`
#[derive(Args)]
#[command(after_help = "\
Works while `windlass run` or `windlass serve` is running, and then also shows calls that are not recorded yet.

Examples:
  windlass calls --state open
  windlass calls --waiting
  windlass calls 01j8a6zc --journal")]
pub struct CallsArgs {
    /// Show this call: its handle, or a prefix of it
    #[arg(conflicts_with_all = ["state", "waiting", "tool", "turn", "session", "limit", "after"])]
    pub call: Option<String>,
    /// Print the call's journal as a story
    #[arg(long, requires = "call")]
    pub journal: bool,
    /// Only calls in this state; open covers every state that is not final
    #[arg(long, value_parser = PossibleValuesParser::new(StateFilter::ALL.map(StateFilter::as_str)))]
    pub state: Option<String>,
    /// Only calls that wait, and what they wait for
    #[arg(long)]
    pub waiting: bool,
    /// Only the calls of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only the calls of this turn of the conversation
    #[arg(long)]
    pub turn: Option<String>,
    /// Only the calls of this session
    #[arg(long)]
    pub session: Option<String>,
    /// The maximum number of calls
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Continue after this call: the previous page's `next`, as --json prints it
    #[arg(long, value_name = "CALL")]
    pub after: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass watch`
#[derive(Args)]
#[command(after_help = "\
Follows the owner of the data folder, also after another process has become the owner. Without an owner it shows the
recorded events, and waits. Ctrl-C ends it.

Examples:
  windlass watch
  windlass watch my-session --after 0 --until-idle
  windlass watch --json | jq 'select(.kind == \"ended\")'")]
pub struct Watch {
    /// The session
    #[arg(default_value = "default")]
    pub session: String,
    /// Start after this cursor, as --json prints it; 0 is before the first event; without a cursor the last events come first
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<u64>,
    /// Exit when no call of the session is open
    #[arg(long)]
    pub until_idle: bool,
    /// The language of the sentences, such as de
    #[arg(long, value_name = "TAG")]
    pub locale: Option<String>,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// `windlass cancel`
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["call", "batch", "session"]))]
#[command(after_help = "\
A running tool is asked to stop, and killed if it does not; a result that it returns in time still counts. Finished calls
do not change. If no process owns the data folder, the request is recorded for the next owner.

Examples:
  windlass cancel 01j8a6zc --reason 'wrong customer'
  windlass cancel --session default")]
pub struct CancelArgs {
    /// The call: its handle, or a prefix of it
    #[arg(conflicts_with_all = ["batch", "session"])]
    pub call: Option<String>,
    /// All calls of the batch with this key, in --session [default session: default]
    #[arg(long, value_name = "KEY")]
    pub batch: Option<String>,
    /// Of the batch only the call with this id of the model's
    #[arg(long, value_name = "ID", requires = "batch")]
    pub id: Option<String>,
    /// All calls of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// The reason, recorded in the journal
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass resolve`
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["landed", "did_not_happen", "ask_tool"]))]
#[command(after_help = "\
First check whether the call took effect: windlass calls CALL --journal shows what it was about to do. Submitting the
call again returns the resolved answer; it never runs again. If no process owns the data folder, the decision is recorded
for the next owner; --ask-tool owns the folder itself until the tool has answered.

Examples:
  windlass resolve 01j8a6zc --landed '{\"charged\": 1250}'
  windlass resolve 01j8a6zc --did-not-happen")]
pub struct ResolveArgs {
    /// The call: its handle, or a prefix of it
    pub call: String,
    /// It took effect, with this result
    #[arg(long, value_name = "JSON")]
    pub landed: Option<String>,
    /// It did not take effect
    #[arg(long)]
    pub did_not_happen: bool,
    /// Ask its tool whether it took effect
    #[arg(long)]
    pub ask_tool: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass accept`
#[derive(Args)]
#[command(after_help = "\
For calls that wait because of tool_changed: `windlass calls --state open` lists them. If no process owns the data folder,
the request is recorded for the next owner. To end such a call instead, use windlass cancel.

Example: windlass accept 01j8a6zc")]
pub struct Accept {
    /// The call: its handle, or a prefix of it
    pub call: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass complete`
#[derive(Args)]
#[command(group = ArgGroup::new("which").required(true).args(["key", "call"]))]
#[command(group = ArgGroup::new("what").required(true).args(["ok", "error", "cancelled", "timeout"]))]
#[command(after_help = "\
The key is enough: anyone who has it may answer, once. Repeating the same answer is fine; a different one is refused. If
no process owns the data folder, the answer is recorded for the next owner.

Examples:
  windlass complete KEY --ok '{\"approved\": true}'
  windlass complete KEY --error out_of_stock --message 'None are left until May.'
  windlass complete KEY --ok '\"done\"' --parts '[{\"type\": \"text\", \"text\": \"Signed by Ann.\"}]'
  windlass complete KEY --timeout")]
pub struct CompleteArgs {
    /// The key, as the tool issued it
    pub key: Option<String>,
    /// Instead of a key, a call in state awaiting_client: its handle, or a prefix of it
    #[arg(long)]
    pub call: Option<String>,
    /// It succeeded, with this result
    #[arg(long, value_name = "JSON")]
    pub ok: Option<String>,
    /// It failed: an error code of your own, for programs
    #[arg(long, value_name = "CODE", requires = "message")]
    pub error: Option<String>,
    /// The error message for the model
    #[arg(long, value_name = "TEXT", requires = "error")]
    pub message: Option<String>,
    /// It was cancelled
    #[arg(long)]
    pub cancelled: bool,
    /// It took too long: the call ends as if its deadline had passed
    #[arg(long)]
    pub timeout: bool,
    /// Parts for the model, in order: an array as answers show them (text, json, image, file)
    #[arg(long, value_name = "JSON", conflicts_with_all = ["cancelled", "timeout"])]
    pub parts: Option<String>,
    /// The raw output of the external system; never shown to the model
    #[arg(long, value_name = "JSON", conflicts_with_all = ["cancelled", "timeout"])]
    pub raw: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass questions`
#[derive(Args)]
#[command(after_help = "\
--json shows the whole text of each question and the schema of its answer.

Example: windlass questions --session default")]
pub struct QuestionsArgs {
    /// Only the questions of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass answer`
#[derive(Args)]
#[command(after_help = "\
The first answer counts. An answer that does not match the question's schema is refused, and the question stays open. If
no process owns the data folder, the answer is recorded for the next owner.

Example: windlass answer 01j8a6zc '\"red\"'")]
pub struct AnswerArgs {
    /// The question: its id, or a prefix of it
    pub id: String,
    /// The answer, as JSON
    #[arg(value_name = "JSON")]
    pub answer: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass signal`
#[derive(Args)]
#[command(after_help = "\
The call's tool declares its signals and the schemas of their payloads; the call receives each signal once, in the order
sent. With --key, repeating the same signal is safe. The folder must have an owner: only the process that drives the call
knows its tool.

Example: windlass signal 01j8a6zc item '{\"n\": 1}' --key order-7")]
pub struct SignalArgs {
    /// The call: its handle, or a prefix of it
    pub call: String,
    /// The signal's name
    pub name: String,
    /// The payload, as JSON
    #[arg(value_name = "JSON")]
    pub payload: String,
    /// Idempotency key: the same signal sent again under this key counts once
    #[arg(long)]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass confirm`
#[derive(Args)]
#[command(after_help = "\
A copied data folder has the same calls and the same secret as its original, which may still be running them. So the first
start on a copy ends calls that were under way as unknown, disables schedules, holds webhooks, and kills no process. If the
original is gone, confirm that before the first start: then the copy recovers as its original would after a crash.

Example: windlass --data restored confirm --original-gone")]
pub struct Confirm {
    /// The original folder is not in use, and will not be used again
    #[arg(long, required = true)]
    pub original_gone: bool,
}

/// `windlass open`
#[derive(Args)]
#[command(after_help = "\
The link logs one browser in, as the owner of the data folder, or as the principal of the token with --server. It can be used once,
within 10 minutes. `windlass token list` lists the logins, and `windlass token revoke` ends them.

Example: windlass open")]
pub struct OpenLink {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass doctor`
#[derive(Args)]
#[command(after_help = "Example: windlass --data .windlass doctor")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass bench`
#[derive(Args)]
#[command(after_help = "\
Each figure is printed next to its floor: the minimum any program needs for the same work, measured in the same run. The
ratio compares the two; the target is the largest ratio allowed. Build with --release: figures of a debug build are
meaningless. The bench touches no data folder.

Example: windlass bench --part A --seconds 1")]
pub struct Bench {
    /// How long each figure is measured, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    pub seconds: f64,
    /// Run only this part
    #[arg(long, ignore_case = true)]
    pub part: Option<BenchPart>,
    /// The folder for the bench's temporary files
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// The number of open calls when recovery after a crash is measured
    #[arg(long, default_value_t = windlass_bench::durable::OPEN, value_name = "CALLS")]
    pub open: u64,
    /// Measure again after this many calls
    #[arg(long, value_name = "CALLS")]
    pub aged: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchPart {
    /// Calls in memory
    #[value(name = "A")]
    A,
    /// Durable calls
    #[value(name = "C")]
    C,
}
