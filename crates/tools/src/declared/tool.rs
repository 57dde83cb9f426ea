//! One `[tools.NAME]` table.

use super::http::DeclaredRequest;
use super::place::{ConfigError, DeclarationSource};
use super::room::{Groups, RoomTable};
use super::rules::TimeRules;
use super::{dedupe, flags, http, keys, narration, sandbox};
use crate::command::{CommandTemplate, CommandTool, Later, Variable, has_place};
use crate::http::HttpTool;
use crate::launcher::Launcher;
use crate::sandbox::{Sandbox, SandboxProfile};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::catalog::Deferral;
use windlass::policy::ApprovalRule;
use windlass::sessions::check_session_name;
use windlass::tool::{Hints, Need, ToolSource, check_name, client_tool, client_tool_within};
use windlass::{EffectClass, Limits, Tool, ToolSpec};

/// A tool as declared, checked.
pub(super) struct DeclaredTool {
    spec: ToolSpec,
    /// The words of the command, if it is one.
    command: Option<Vec<String>>,
    /// The request, if it is one.
    http: Option<DeclaredRequest>,
    /// How long a call waits for its caller, where the tool has a time of its own.
    client_within: Option<Duration>,
    output_media_type: Option<String>,
    reconcile: Option<Vec<String>>,
    later: Option<Later>,
    properties: BTreeSet<String>,
    cwd: Option<String>,
    env: BTreeMap<String, Variable>,
    /// The rules it runs under, if it has some.
    sandbox: Option<SandboxProfile>,
}

/// The table as written; its keys are checked before.
#[derive(Deserialize)]
struct ToolTable {
    #[serde(default)]
    description: String,
    #[serde(default)]
    title: String,
    command: Option<Spanned<Vec<String>>>,
    reconcile: Option<Spanned<Vec<String>>>,
    input: Option<Spanned<toml::Value>>,
    output: Option<Spanned<toml::Value>>,
    #[serde(default)]
    emits: BTreeMap<String, Spanned<toml::Value>>,
    class: Option<Spanned<String>>,
    deferral: Option<Spanned<String>>,
    approval: Option<Spanned<String>>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    hints: BTreeMap<String, bool>,
    #[serde(default)]
    completion: bool,
    #[serde(default)]
    env: BTreeMap<String, Spanned<String>>,
    cwd: Option<String>,
    client: Option<Spanned<bool>>,
    output_media_type: Option<Spanned<String>>,
    #[serde(default)]
    category: String,
    #[serde(default)]
    tags: Vec<String>,
}

impl ToolTable {
    fn read(source: &DeclarationSource<'_>, value: Spanned<DeValue<'_>>) -> Result<ToolTable, ConfigError> {
        ToolTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))
    }
}

/// Parses the table of one tool, which may belong to these groups.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    name: Spanned<Cow<'_, str>>,
    value: Spanned<DeValue<'_>>,
    limits: &Limits,
    groups: &Groups,
) -> Result<DeclaredTool, ConfigError> {
    check_name(name.get_ref()).map_err(|error| source.value_error(name.span(), error.to_string()))?;
    check_keys(source, &name, &value)?;
    let rules = TimeRules::read(source, value.clone())?;
    let part = |name: &str| value.get_ref().as_table().and_then(|table| table.get(name)).cloned();
    let (same, told) = (part("dedupe"), part("narration"));
    let (request, confined) = (part("http"), part("sandbox"));
    let (room, flags) =
        (RoomTable::read(source, value.clone())?, flags::FlagTable::read(source, value.clone())?);
    let table = ToolTable::read(source, value)?;
    let input_schema = table.input.map(|input| schema(source, input)).transpose()?;
    let output_schema = table.output.map(|output| schema(source, output)).transpose()?;
    let emits = kinds(source, table.emits)?;
    let properties = properties(input_schema.as_ref());
    let is_client = table.client.as_ref().is_some_and(|client| *client.get_ref());
    let client_within = rules.client(source, is_client)?;
    let sandbox = confined.map(|given| sandbox::of_tool(source, given, is_client)).transpose()?;
    let request = request.map(|given| http::read(source, given, input_schema.as_ref(), &properties, limits));
    let http = request.transpose()?;
    let command = match is_client || http.is_some() {
        true => no_command(source, table.command.as_ref())?,
        false => Some(command(source, &name, table.command, &properties)?),
    };
    let claims = room.claims(source, &properties, limits)?;
    let mut spec = ToolSpec {
        name: name.get_ref().to_string(),
        title: table.title,
        description: table.description,
        class: table.class.map(|class| effect_class(source, &class)).transpose()?,
        deferral: table.deferral.map_or(Ok(Deferral::Auto), |given| deferral(source, &given))?,
        approval: table.approval.map_or(Ok(ApprovalRule::Never), |given| approval(source, &given))?,
        input_schema,
        output_schema,
        emits,
        hints: hints(&table.hints),
        flags: flags.flags(source, claims.is_some())?,
        deadlines: rules.deadlines(source)?,
        grace_ms: rules.grace_ms(source)?,
        inline_ms: rules.inline_ms(source, flags.background.as_ref())?,
        retry: rules.retry(source)?,
        answer: rules.answer(source)?,
        dedupe: same.map(|given| dedupe::read(source, given, &properties)).transpose()?,
        claims,
        running_max: room.running_max(source)?,
        rate: room.rate(source)?,
        groups: room.groups(source, groups)?,
        narration: told.map_or(Ok(Vec::new()), |given| narration::read(source, given, &properties))?,
        version: table.version,
        category: table.category,
        needs: sandbox.iter().map(|_| Need::Files).collect(),
        tags: table.tags,
        source: ToolSource::Declared,
        ..ToolSpec::default()
    };
    let later = rules.later(source, table.completion)?;
    let reconcile = table.reconcile.map(|words| reconcile(source, words, &spec, &properties)).transpose()?;
    let env = environment(source, table.env)?;
    spec.secrets = secrets(source, &name, &env, http.as_ref())?;
    Ok(DeclaredTool {
        spec,
        command,
        http,
        client_within,
        output_media_type: table.output_media_type.map(|given| media_type(source, &given)).transpose()?,
        reconcile,
        later,
        properties,
        cwd: table.cwd,
        env,
        sandbox,
    })
}

impl DeclaredTool {
    /// The tool, with its paths relative to the folder of the file.
    pub(super) fn into_tool(self, folder: &Path, launcher: &Launcher) -> Arc<dyn Tool> {
        match (&self.command, self.client_within) {
            (Some(_), _) => Arc::new(self.into_command(folder, launcher)),
            (None, Some(within)) => Arc::new(client_tool_within(self.spec, within)),
            (None, None) => match self.http {
                Some(DeclaredRequest { request, client }) => {
                    Arc::new(HttpTool { spec: self.spec, request, client })
                }
                None => Arc::new(client_tool(self.spec)),
            },
        }
    }

    fn into_command(self, folder: &Path, launcher: &Launcher) -> CommandTool {
        let template = |words: &[String]| match words.split_first() {
            Some((program, words)) if program.contains('/') => {
                CommandTemplate::new(folder.join(program), words, &self.properties)
            }
            Some((program, words)) => CommandTemplate::new(program, words, &self.properties),
            None => CommandTemplate::new("", &[], &self.properties),
        };
        CommandTool {
            words: template(self.command.as_deref().unwrap_or_default()),
            reconcile: self.reconcile.as_deref().map(template),
            output_media_type: self.output_media_type,
            later: self.later,
            cwd: match (self.cwd, &self.sandbox) {
                (Some(cwd), _) => folder.join(cwd),
                // The folder of the session, in which every path begins.
                (None, Some(_)) => PathBuf::new(),
                (None, None) => folder.to_path_buf(),
            },
            env: self.env.into_iter().collect(),
            launcher: launcher.clone(),
            sandbox: self.sandbox.map(|profile| Sandbox::new(profile, launcher.clone())),
            spec: self.spec,
        }
    }
}

fn check_keys(
    source: &DeclarationSource<'_>,
    name: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), ConfigError> {
    let table = source.table(value, &format!("tools.{}", name.get_ref()))?;
    for (flag, reason) in FLAGS_OF_NO_COMMAND {
        if let Some((key, _)) = table.get_key_value(flag) {
            let message = format!("`{flag}` is not for commands: {reason}; remove it");
            return Err(source.value_error(key.span(), message));
        }
    }
    keys::check(source, table, &keys::TOOL)?;
    if table.contains_key("http") {
        for (key, reason) in KEYS_OF_NO_REQUEST {
            if let Some((key, _)) = table.get_key_value(key) {
                let message = format!("`{}` is not for requests: {reason}; remove it", key.get_ref());
                return Err(source.value_error(key.span(), message));
            }
        }
    }
    if let Some(hints) = table.get("hints") {
        keys::check_hints(source, source.table(hints, "hints")?)?;
    }
    if let Some(limits) = table.get("limits") {
        keys::check_bounds(source, source.table(limits, "limits")?)?;
    }
    if let Some(retry) = table.get("retry") {
        keys::check_retry(source, source.table(retry, "retry")?)?;
    }
    Ok(())
}

/// Keys without a meaning for requests.
const KEYS_OF_NO_REQUEST: [(&str, &str); 8] = [
    ("client", "the server runs it, and not the caller"),
    ("client_ms", "the server runs it, and not the caller"),
    ("completion", "its response is its result"),
    ("completion_ms", "its response is its result"),
    ("cwd", "no process is started"),
    ("env", "no process is started; secrets stand in `headers`, `url` and `body` as {secret:NAME}"),
    ("output_media_type", "its response says its type"),
    ("reconcile", "nothing is asked about a request that was cut off"),
];

/// Flags without a meaning for commands.
const FLAGS_OF_NO_COMMAND: [(&str, &str); 2] = [
    ("cpu_bound", "a command computes in a process of its own"),
    ("quick", "starting a process takes longer than a caller's task may be held up"),
];

/// A media type as declared: `type/subtype`.
fn media_type(source: &DeclarationSource<'_>, given: &Spanned<String>) -> Result<String, ConfigError> {
    let text = given.get_ref();
    let is_word = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    match text.split_once('/') {
        Some((kind, sub)) if is_word(kind) && is_word(sub) => Ok(text.clone()),
        _ => Err(source.value_error(
            given.span(),
            format!("`output_media_type` is {text:?}, and must be a type like image/png"),
        )),
    }
}

/// The names that `{x}` may stand for.
fn properties(schema: Option<&Value>) -> BTreeSet<String> {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

fn command(
    source: &DeclarationSource<'_>,
    name: &Spanned<Cow<'_, str>>,
    command: Option<Spanned<Vec<String>>>,
    properties: &BTreeSet<String>,
) -> Result<Vec<String>, ConfigError> {
    let Some(command) = command else {
        let message =
            format!("the tool `{}` has no `command`; write command = [\"program\", …]", name.get_ref());
        return Err(source.value_error(name.span(), message));
    };
    check_words(source, &command, properties)?;
    Ok(command.into_inner())
}

fn reconcile(
    source: &DeclarationSource<'_>,
    words: Spanned<Vec<String>>,
    spec: &ToolSpec,
    properties: &BTreeSet<String>,
) -> Result<Vec<String>, ConfigError> {
    if spec.effect_class() == EffectClass::Read {
        let message =
            "`reconcile` is not for the class read: what changes nothing is simply run again; remove it";
        return Err(source.value_error(words.span(), message));
    }
    check_words(source, &words, properties)?;
    Ok(words.into_inner())
}

fn check_words(
    source: &DeclarationSource<'_>,
    words: &Spanned<Vec<String>>,
    properties: &BTreeSet<String>,
) -> Result<(), ConfigError> {
    let refused = |message: &str| Err(source.value_error(words.span(), message));
    match words.get_ref().first() {
        None => refused("the command is empty; its first word is the program"),
        Some(program) if program.is_empty() => {
            refused("the first word of a command is the program, not empty")
        }
        Some(program) if has_place(program, properties) => {
            refused("the program is fixed: an argument may not choose it; use {…} in the later words only")
        }
        Some(_) if words.get_ref().iter().any(|word| word.contains('\0')) => {
            refused("a word contains a NUL character, which no command line can carry")
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn effect_class(
    source: &DeclarationSource<'_>,
    class: &Spanned<String>,
) -> Result<EffectClass, ConfigError> {
    let name = class.get_ref().as_str();
    EffectClass::parse(name).filter(|class| *class != EffectClass::Stepped).ok_or_else(|| {
        let message = if name == "stepped" {
            "a command cannot be `stepped`: its effects are no recorded steps; write read, keyed or once"
                .to_string()
        } else {
            format!("unknown class {name:?}; write read, keyed or once")
        };
        source.value_error(class.span(), message)
    })
}

fn deferral(source: &DeclarationSource<'_>, given: &Spanned<String>) -> Result<Deferral, ConfigError> {
    Deferral::parse(given.get_ref()).ok_or_else(|| {
        let message = format!("unknown deferral {:?}; write auto, never or always", given.get_ref());
        source.value_error(given.span(), message)
    })
}

fn approval(source: &DeclarationSource<'_>, given: &Spanned<String>) -> Result<ApprovalRule, ConfigError> {
    ApprovalRule::parse(given.get_ref()).ok_or_else(|| {
        let message = format!("unknown approval {:?}; write never or ask", given.get_ref());
        source.value_error(given.span(), message)
    })
}

fn hints(given: &BTreeMap<String, bool>) -> Hints {
    let hint = |name: &str| given.get(name).copied();
    Hints {
        read_only: hint("read_only"),
        destructive: hint("destructive"),
        idempotent: hint("idempotent"),
        open_world: hint("open_world"),
        requires_secrets: hint("requires_secrets"),
        long_running: hint("long_running"),
        reads_private: hint("reads_private"),
        ingests_untrusted: hint("ingests_untrusted"),
        sends_out: hint("sends_out"),
    }
}

/// The variables of a command's environment.
pub(super) fn environment(
    source: &DeclarationSource<'_>,
    given: BTreeMap<String, Spanned<String>>,
) -> Result<BTreeMap<String, Variable>, ConfigError> {
    given.into_iter().map(|(name, value)| variable(source, name, value)).collect()
}

/// The kinds of events that a tool emits, with their schemas.
fn kinds(
    source: &DeclarationSource<'_>,
    given: BTreeMap<String, Spanned<toml::Value>>,
) -> Result<BTreeMap<String, Value>, ConfigError> {
    given.into_iter().map(|(kind, given)| Ok((kind, schema(source, given)?))).collect()
}

fn variable(
    source: &DeclarationSource<'_>,
    name: String,
    value: Spanned<String>,
) -> Result<(String, Variable), ConfigError> {
    let refused = |message: String| Err(source.value_error(value.span(), message));
    if name.is_empty() || name.contains(['=', '\0']) {
        return refused(format!("{name:?} cannot be the name of an environment variable; rename it"));
    }
    if name.starts_with("WINDLASS_") {
        return refused(format!(
            "`{name}` is not yours to set: Windlass sets the WINDLASS_ variables; rename it"
        ));
    }
    if let Some(secret) = value.get_ref().strip_prefix("secret:") {
        return Ok((name, Variable::Secret(secret.to_string())));
    }
    if value.get_ref().contains('\0') {
        return refused(format!("`{name}` contains a NUL character, which no environment can carry"));
    }
    Ok((name, Variable::Plain(value.into_inner())))
}

/// Refuses a command beside something else that runs the tool.
fn no_command(
    source: &DeclarationSource<'_>,
    given: Option<&Spanned<Vec<String>>>,
) -> Result<Option<Vec<String>>, ConfigError> {
    let Some(given) = given else { return Ok(None) };
    let message = "a tool is run by its caller (`client`), by a `command` or by a request (`http`), and by one of them alone; remove \
                   the others";
    Err(source.value_error(given.span(), message))
}

/// The names of the secrets that a tool uses.
fn secrets(
    source: &DeclarationSource<'_>,
    name: &Spanned<Cow<'_, str>>,
    env: &BTreeMap<String, Variable>,
    http: Option<&DeclaredRequest>,
) -> Result<Vec<String>, ConfigError> {
    let in_env = env.values().filter_map(|value| match value {
        Variable::Secret(name) => Some(name.clone()),
        Variable::Plain(_) => None,
    });
    let in_request = http.into_iter().flat_map(|http| http.request.secrets()).map(str::to_string);
    let names: BTreeSet<String> = in_env.chain(in_request).collect();
    // The rules of session names.
    if let Some(bad) = names.iter().find(|secret| check_session_name(secret).is_err()) {
        let message =
            format!("{bad:?} cannot be the name of a secret: it has 1 to 64 of a-z, A-Z, 0-9, _, . and -");
        return Err(source.value_error(name.span(), message));
    }
    Ok(names.into_iter().collect())
}

fn schema(source: &DeclarationSource<'_>, schema: Spanned<toml::Value>) -> Result<Value, ConfigError> {
    let span = schema.span();
    let schema = schema.into_inner();
    if !(schema.is_table() || schema.is_bool()) {
        let message = format!("a schema is a table, and this is a value of type {}", schema.type_str());
        return Err(source.value_error(span, message));
    }
    json(schema).map_err(|what| source.value_error(span, format!("a schema cannot hold {what}")))
}

/// The value in JSON, or the part that JSON does not have.
pub(super) fn json(value: toml::Value) -> Result<Value, String> {
    match value {
        toml::Value::String(text) => Ok(Value::String(text)),
        toml::Value::Integer(number) => Ok(number.into()),
        toml::Value::Float(number) if number.is_finite() => Ok(number.into()),
        toml::Value::Float(number) => Err(format!("the number {number}, which JSON does not have")),
        toml::Value::Boolean(truth) => Ok(Value::Bool(truth)),
        toml::Value::Datetime(time) => Err(format!("the date {time}: JSON has none; write it as a string")),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(key, value)| Ok((key, json(value)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn tool(text: &str) -> CommandTool {
        let source = DeclarationSource { text, file: Path::new("/etc/windlass/windlass.toml") };
        let table = DeTable::parse(text).expect("TOML").into_inner();
        let table = Spanned::new(0..0, DeValue::Table(table));
        let name = Spanned::new(0..0, Cow::Borrowed("t"));
        let launcher = Launcher { program: "/bin/windlass".into(), args: Vec::new() };
        let read = read(&source, name, table, &Limits::default(), &Groups::new());
        let declared = read.map_err(|error| error.to_string()).expect("a tool");
        declared.into_command(&source.folder().expect("a folder"), &launcher)
    }

    #[test]
    fn paths_are_taken_from_the_folder_of_the_file() {
        for (text, program, cwd) in [
            ("command = ['date']", "date", "/etc/windlass"),
            ("command = ['./x.sh']\ncwd = 'work'", "/etc/windlass/./x.sh", "/etc/windlass/work"),
            ("command = ['bin/x']\ncwd = '/srv'", "/etc/windlass/bin/x", "/srv"),
            ("command = ['/bin/x']", "/bin/x", "/etc/windlass"),
        ] {
            let tool = tool(text);
            assert_eq!(tool.words.fill(&Value::Null).expect("words"), [program], "{text}");
            assert_eq!(tool.cwd, Path::new(cwd), "{text}");
        }
    }
}
