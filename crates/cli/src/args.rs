//! The words of the command line.

mod background;
mod schedules;
mod triggers;

pub use background::{Inbox, Logs, Messages, Say, Tasks, TasksCommand};
pub use schedules::{AddSchedule, ListSchedules, OneSchedule, PreviewSchedule, Schedules, SchedulesCommand};
pub use triggers::{AddTrigger, ListTriggers, OneTrigger, Triggers, TriggersCommand};

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use windlass_server::access::Scope;
use windlass_server::wire::State;

/// Run tool calls durably.
#[derive(Parser)]
#[command(version, about = "Run tool calls durably", after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// The data folder [default: .windlass; of dev .windlass-dev]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Ask the server at http://HOST:PORT; the token is in WINDLASS_TOKEN or --token-file
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// The file that holds the token for --server
    #[arg(long, global = true, requires = "server", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all calls succeeded, 1 one failed, was denied or cancelled, 2 wrong usage, 3 one is unknown,
4 the batch or request was refused or conflicts, 5 a call is still open, 6 the data folder or server cannot be had.

Example: windlass call echo '{\"message\": \"hello\"}'";

/// Where servers listen if nothing is said.
const LISTEN: &str = "127.0.0.1:7420";

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Serve the API at an address, and drive all calls of the data folder
    Serve(Serve),
    /// Serve a folder of its own with example tools and calls, and print what to type next
    Dev(Dev),
    /// Run a batch of calls from a file; again, and what is recorded is answered without running
    Run(Run),
    /// Run one call
    Call(Call),
    /// List the tools, or show one
    Tools(Tools),
    /// List the sessions
    Sessions(Sessions),
    /// List calls, or show one
    Calls(Calls),
    /// Follow what happens in a session
    Watch(Watch),
    /// List the calls that go on without their callers
    Tasks(Tasks),
    /// Print what a task has said, and follow it
    Logs(Logs),
    /// Show what the agent of a session is to be told, take it, acknowledge it
    Inbox(Inbox),
    /// Start calls at their times: add, list, preview, enable, disable and remove schedules
    Schedules(Schedules),
    /// Start calls by events: add, list and remove triggers
    Triggers(Triggers),
    /// Ask calls to stop
    Cancel(Cancel),
    /// Say whether a call that is unknown took effect
    Resolve(Resolve),
    /// Let a call go on although its tool has changed
    Accept(Accept),
    /// Answer what a call waits for, by the key its tool gave out
    Complete(Complete),
    /// List the questions that wait for an answer
    Questions(Questions),
    /// Answer a question
    Answer(Answer),
    /// Send a signal to a call
    Signal(Signal),
    /// Say that a session was connected to what its calls need, or that this was declined
    Connections(Connections),
    /// Make, list and revoke the tokens of the server
    Token(Token),
    /// Check the data folder and show what is in force
    Doctor(Doctor),
    /// Measure how fast this machine runs calls
    Bench(Bench),
}

/// `windlass serve`
#[derive(Args)]
#[command(after_help = "\
The first start writes a token into the data folder. Ctrl-C stops in good order: what is under way may end, and what is
left goes on with the next owner of the folder.

Example: windlass serve --listen 127.0.0.1:7420")]
pub struct Serve {
    /// The address it listens at; port 0 takes a free one
    #[arg(long, default_value = LISTEN, value_name = "ADDR")]
    pub listen: SocketAddr,
    /// The configuration; if not said, windlass.toml in the data folder, else in the current one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `windlass dev`
#[derive(Args)]
#[command(after_help = "\
It is `windlass serve` on .windlass-dev. The first start writes a windlass.toml there, with tools to try and to change; every
start runs a batch of example calls, which is answered from the record when it was run before. Remove the folder to begin
anew.

Examples:
  windlass dev
  windlass dev --listen 127.0.0.1:0 --data /tmp/tour")]
pub struct Dev {
    /// The address it listens at; port 0 takes a free one
    #[arg(long, default_value = LISTEN, value_name = "ADDR")]
    pub listen: SocketAddr,
}

/// `windlass sessions`
#[derive(Args)]
pub struct Sessions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass token`
#[derive(Args)]
pub struct Token {
    /// What to do
    #[command(subcommand)]
    pub what: TokenWhat,
}

/// What is to be done with tokens.
#[derive(Subcommand)]
pub enum TokenWhat {
    /// Make one; it is printed this once
    #[command(
        after_help = "Example: windlass token create ci --scope calls --scope read --expires-in-s 86400"
    )]
    Create(TokenCreate),
    /// List them, but for themselves
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make one worthless
    Revoke {
        /// Its id, as `windlass token list` shows it
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `windlass token create`
#[derive(Args)]
pub struct TokenCreate {
    /// Whom it stands for: sessions belong to a principal
    pub principal: String,
    /// What it may be used for; can be said several times
    #[arg(long, required = true, value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::as_str)))]
    pub scope: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// For how long it is good
    #[arg(long, value_name = "SECONDS")]
    pub expires_in_s: Option<u64>,
    /// How often it may be used in a minute
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass run`
#[derive(Args)]
#[command(after_help = "\
The file holds {\"key\": …, \"calls\": [{\"id\", \"tool\", \"args\"}, …]} or one call per line.

Example:
  echo '{\"id\": \"1\", \"tool\": \"add\", \"args\": {\"a\": 1, \"b\": 2}}' | windlass run -")]
pub struct Run {
    /// A file, or - for standard input
    pub file: PathBuf,
    /// The session the calls belong to
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The key of the batch; without one it is derived from the calls
    #[arg(long, conflicts_with = "new")]
    pub key: Option<String>,
    /// Run everything anew, under a new key
    #[arg(long)]
    pub new: bool,
    /// Leave tasks for the next owner of the folder instead of staying until they end
    #[arg(long)]
    pub no_wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass call`
#[derive(Args)]
#[command(after_help = "\
Without --id each run is a new call; with one, a second run returns the recorded answer.

Example: windlass call divide '{\"a\": 1, \"b\": 3}'")]
pub struct Call {
    /// The tool
    pub tool: String,
    /// Its arguments, as JSON
    #[arg(default_value = "{}")]
    pub args: String,
    /// The session the call belongs to
    #[arg(long, default_value = "default")]
    pub session: String,
    /// What makes it one call, however often it is run
    #[arg(long)]
    pub id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass tools`
#[derive(Args)]
pub struct Tools {
    /// Show this one whole
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass calls`
#[derive(Args)]
#[command(after_help = "\
Works beside a running `windlass run` too, and then also shows what is not recorded yet.

Examples:
  windlass calls --state open
  windlass calls --waiting
  windlass calls 01j8a6zc --journal")]
pub struct Calls {
    /// Show this one: its handle, or the beginning of it
    #[arg(conflicts_with_all = ["state", "waiting", "tool", "session", "limit", "after"])]
    pub call: Option<String>,
    /// Print its journal as a story
    #[arg(long, requires = "call")]
    pub journal: bool,
    /// Only the calls in this state; open is every one in which it is not over
    #[arg(long, value_parser = PossibleValuesParser::new(State::ALL.map(State::as_str)))]
    pub state: Option<String>,
    /// Only the calls that wait, and for what
    #[arg(long)]
    pub waiting: bool,
    /// Only the calls of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only the calls of this session
    #[arg(long)]
    pub session: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Go on after this call: `next` of the list before, as --json prints it
    #[arg(long, value_name = "CALL")]
    pub after: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass watch`
#[derive(Args)]
#[command(after_help = "\
Follows whoever owns the data folder, also when that is another process after a while; where nobody does it shows what is
recorded, and waits. Ends with Ctrl-C.

Examples:
  windlass watch
  windlass watch my-session --after 0 --until-idle
  windlass watch --json | jq 'select(.kind == \"ended\")'")]
pub struct Watch {
    /// The session
    #[arg(default_value = "default")]
    pub session: String,
    /// From behind this cursor, as --json prints it; 0 is before the first event, and without one the last events come first
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<u64>,
    /// End when no call of the session is open
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
A running tool is told to stop, and killed if it does not; what it returns in time still counts. A call that is
over stays as it is. Where no process owns the data folder, the request is left for the next one.

Examples:
  windlass cancel 01j8a6zc --reason 'wrong customer'
  windlass cancel --session default")]
pub struct Cancel {
    /// This call: its handle, or the beginning of it
    #[arg(conflicts_with_all = ["batch", "session"])]
    pub call: Option<String>,
    /// All calls of the batch with this key, in --session (if not said: default)
    #[arg(long, value_name = "KEY")]
    pub batch: Option<String>,
    /// All calls of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Why, for whoever reads the journal
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
Look first whether the call took effect: windlass calls CALL --journal tells what it was about to do. Whoever submits
the call again gets the resolved answer; it is never run again. Where no process owns the data folder, what you say is
left for the next one; --ask-tool owns the folder itself until the tool has answered.

Examples:
  windlass resolve 01j8a6zc --landed '{\"charged\": 1250}'
  windlass resolve 01j8a6zc --did-not-happen")]
pub struct Resolve {
    /// The call: its handle, or the beginning of it
    pub call: String,
    /// It took effect, and this is its result
    #[arg(long, value_name = "JSON")]
    pub landed: Option<String>,
    /// It did not take effect
    #[arg(long)]
    pub did_not_happen: bool,
    /// Ask its tool whether it did
    #[arg(long)]
    pub ask_tool: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass accept`
#[derive(Args)]
#[command(after_help = "\
For calls that wait as tool_changed: `windlass calls --state open` shows them. Where no process owns the data folder,
it is left for the next one. To end such a call instead, use windlass cancel.

Example: windlass accept 01j8a6zc")]
pub struct Accept {
    /// The call: its handle, or the beginning of it
    pub call: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass complete`
#[derive(Args)]
#[command(group = ArgGroup::new("which").required(true).args(["key", "call"]))]
#[command(group = ArgGroup::new("what").required(true).args(["ok", "error", "cancelled"]))]
#[command(after_help = "\
The key is all that is needed: whoever has it may answer, once. The same again is fine, another answer is refused. Where
no process owns the data folder, the answer is recorded and left for the next one.

Examples:
  windlass complete KEY --ok '{\"approved\": true}'
  windlass complete KEY --error out_of_stock --message 'None are left until May.'")]
pub struct Complete {
    /// The key, as the tool gave it out
    pub key: Option<String>,
    /// Instead of a key, the call that waits as awaiting_client: its handle, or the beginning of it
    #[arg(long)]
    pub call: Option<String>,
    /// It is done, and this is the result
    #[arg(long, value_name = "JSON")]
    pub ok: Option<String>,
    /// It went wrong: a code of your own, for programs
    #[arg(long, value_name = "CODE", requires = "message")]
    pub error: Option<String>,
    /// What the model is told of it
    #[arg(long, value_name = "TEXT", requires = "error")]
    pub message: Option<String>,
    /// It was called off
    #[arg(long)]
    pub cancelled: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass questions`
#[derive(Args)]
#[command(after_help = "\
The whole text of a question and what an answer must fit are in --json.

Example: windlass questions --session default")]
pub struct Questions {
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
The first answer counts; one that does not fit what is asked is refused, and the question stays. Where no process owns
the data folder, the answer is recorded and left for the next one.

Example: windlass answer 01j8a6zc '\"red\"'")]
pub struct Answer {
    /// The question: its id, or the beginning of it
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
The call's tool says which signals it takes and what they must say; the call receives each once, in the order in which they
were sent. With --key the same signal can be sent again, and is still one. The folder must be owned: who drives the call
knows its tool.

Example: windlass signal 01j8a6zc item '{\"n\": 1}' --key order-7")]
pub struct Signal {
    /// The call: its handle, or the beginning of it
    pub call: String,
    /// The signal's name
    pub name: String,
    /// What it says, as JSON
    #[arg(value_name = "JSON")]
    pub payload: String,
    /// What makes it one signal, however often it is sent
    #[arg(long)]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass connections`
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["connected", "declined"]))]
#[command(after_help = "\
For calls that wait as awaiting_connection: `windlass calls --state awaiting_connection` shows what they need. All of the
session that wait for it run again, or fail. Where no process owns the data folder, it is left for the next one.

Example: windlass connections default mail --connected")]
pub struct Connections {
    /// The session
    pub session: String,
    /// What it was connected to
    pub provider: String,
    /// It is connected
    #[arg(long)]
    pub connected: bool,
    /// Nobody will connect it
    #[arg(long)]
    pub declined: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass doctor`
#[derive(Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass bench`
#[derive(Args)]
#[command(after_help = "\
Each figure stands beside its floor, the least any correct program must do, taken in the same run.
The data folder is not touched.

Example: windlass bench --part A --seconds 1")]
pub struct Bench {
    /// For how long each figure is measured
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    pub seconds: f64,
    /// Only this part
    #[arg(long, ignore_case = true)]
    pub part: Option<Part>,
    /// Where the files of the bench are made, and removed again
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// With how many open calls a runtime is started
    #[arg(long, default_value_t = windlass_bench::durable::OPEN, value_name = "CALLS")]
    pub open: u64,
    /// Also measure after so many calls
    #[arg(long, value_name = "CALLS")]
    pub aged: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Calls in memory
    #[value(name = "A")]
    A,
    /// Durable calls
    #[value(name = "C")]
    C,
}
