//! The address of a database: libpq's format, with a few parameters more. From it come all connections.

use super::connection::{DatabaseFailure, DatabaseLink, answered};
use super::tls::{self, ServerTrust, TlsFiles};
use percent_encoding::percent_decode_str;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// No server is given less time to answer, however short the lease is: that is for tests.
const REPLY_MIN: Duration = Duration::from_millis(250);

/// No server is given less time to let somebody in.
const CONNECT_MIN: Duration = Duration::from_secs(1);

/// The largest password.
const PASSWORD_BYTES_MAX: usize = 64 << 10;

/// The parameters of an address that are understood here, and not by the library that connects.
const OWN: [&str; 6] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "password_file", "password_command"];

/// A database and how to reach it.
pub(super) struct DatabaseAddress {
    /// Without the password.
    pub name: PathBuf,
    /// How long an answer may take before the server counts as lost.
    pub reply: Duration,
    config: Config,
    trust: ServerTrust,
    files: TlsFiles,
    password: PasswordSource,
}

/// The place of the password.
enum PasswordSource {
    /// In the address, or there is none.
    Address,
    /// In a file that is read for each connection.
    File(PathBuf),
    /// The output of a command that is run for each connection.
    Command(String),
}

/// A reason why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressFault {
    #[error("the address cannot be read")]
    Parse(#[from] tokio_postgres::Error),
    #[error("the address cannot be read: {0}")]
    Shape(String),
    #[error("sslmode is {0:?}; it is one of disable, prefer, require, verify-ca, verify-full")]
    Mode(String),
    #[error("the address has both password_file and password_command; keep one of them")]
    TwoPasswords,
}

impl DatabaseAddress {
    /// Parses an address, for workers with leases of this length.
    pub fn parse(text: &str, lease: Duration) -> Result<DatabaseAddress, AddressFault> {
        let (rest, mut own) = split(text)?;
        let mut config: Config = rest.parse()?;
        let trust = match own.take("sslmode") {
            Some(mode) => ServerTrust::parse(&mode).ok_or(AddressFault::Mode(mode))?,
            None => default_trust(&config),
        };
        let files = TlsFiles {
            roots: own.take("sslrootcert").filter(|roots| roots != "system").map(PathBuf::from),
            certificate: own.take("sslcert").map(PathBuf::from),
            key: own.take("sslkey").map(PathBuf::from),
        };
        let password = match (own.take("password_file"), own.take("password_command")) {
            (None, None) => PasswordSource::Address,
            (Some(file), None) => PasswordSource::File(file.into()),
            (None, Some(command)) => PasswordSource::Command(command),
            (Some(_), Some(_)) => return Err(AddressFault::TwoPasswords),
        };
        config.ssl_mode(match trust {
            ServerTrust::Plain => SslMode::Disable,
            ServerTrust::Prefer => SslMode::Prefer,
            ServerTrust::Anyone | ServerTrust::Authority | ServerTrust::Name => SslMode::Require,
        });
        // A third: then there is time for another connection and another try before the lease is over.
        let reply = (lease / 3).max(REPLY_MIN);
        let idle = reply.max(Duration::from_secs(1));
        config
            .connect_timeout(reply.max(CONNECT_MIN))
            .tcp_user_timeout(reply)
            .keepalives(true)
            .keepalives_idle(idle)
            .keepalives_interval(idle)
            .keepalives_retries(2)
            // Whoever can only read is no writer any more, or not yet; and may lack what was committed.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        let name = format!("postgresql:{}", config.get_dbname().unwrap_or_default()).into();
        Ok(DatabaseAddress { name, reply, config, trust, files, password })
    }

    /// Connects, as somebody with this role. `notified` is called with the payload of each notification. A task of the calling
    /// runtime drives the connection.
    pub async fn connect(
        &self,
        role: &str,
        notified: impl FnMut(&str) + Send + 'static,
    ) -> Result<DatabaseLink, DatabaseFailure> {
        // The first host may be the one that is gone.
        let hosts = self.config.get_hosts().len().max(1) as u32;
        answered(self.reply.max(CONNECT_MIN) * (hosts + 1), async {
            let mut config = self.config.clone();
            config.application_name(format!("windlass {role}"));
            if let Some(password) = self.password().await? {
                config.password(password);
            }
            let tls = tls::connector(self.trust, &self.files).map_err(setup)?;
            let (client, connection) = config.connect(tls).await?;
            let warned = Arc::new(Mutex::new(None));
            tokio::spawn(super::connection::drive(connection, Arc::clone(&warned), notified));
            Ok::<_, DatabaseFailure>(DatabaseLink { client, warned })
        })
        .await
    }

    /// The password, if it is not in the address. One line end behind it does not belong to it.
    async fn password(&self) -> Result<Option<Vec<u8>>, DatabaseFailure> {
        let mut password = match &self.password {
            PasswordSource::Address => return Ok(None),
            PasswordSource::File(path) => tokio::fs::read(path).await.map_err(|error| {
                let what = format!("the password could not be read from {}", path.display());
                DatabaseFailure::Setup { what, source: Some(Box::new(error)) }
            })?,
            PasswordSource::Command(command) => {
                let failed = |source| {
                    let what = "the password command failed; run it by hand to see why".to_owned();
                    DatabaseFailure::Setup { what, source }
                };
                let mut shell = tokio::process::Command::new("sh");
                shell.args(["-c", command]).stdin(Stdio::null()).kill_on_drop(true);
                let output = shell.output().await.map_err(|error| failed(Some(Box::new(error))))?;
                if !output.status.success() {
                    return Err(failed(Some(output.status.to_string().into())));
                }
                output.stdout
            }
        };
        if password.len() > PASSWORD_BYTES_MAX {
            let what = format!("the password has more than {PASSWORD_BYTES_MAX} bytes");
            return Err(DatabaseFailure::Setup { what, source: None });
        }
        for end in *b"\n\r" {
            if password.last() == Some(&end) {
                password.pop();
            }
        }
        Ok(Some(password))
    }
}

fn setup(fault: tls::TlsFault) -> DatabaseFailure {
    DatabaseFailure::Setup { what: "TLS could not be set up".to_owned(), source: Some(Box::new(fault)) }
}

/// Data that crosses a network is encrypted to a server that proves its name, unless the address says otherwise.
fn default_trust(config: &Config) -> ServerTrust {
    let hosts = config.get_hosts();
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        Host::Unix(_) => true,
    };
    let addresses = config.get_hostaddrs();
    if hosts.iter().all(|host| matches!(host, Host::Unix(_))) && addresses.is_empty() {
        ServerTrust::Plain
    } else if hosts.iter().all(is_local) && addresses.iter().all(std::net::IpAddr::is_loopback) {
        ServerTrust::Prefer
    } else {
        ServerTrust::Name
    }
}

/// Parameters of an address, by name.
#[derive(Default)]
struct OwnParams(Vec<(String, String)>);

impl OwnParams {
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().rposition(|(key, _)| key == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// The address without our own parameters, and those.
fn split(text: &str) -> Result<(String, OwnParams), AddressFault> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        split_url(text)
    } else {
        split_pairs(text)
    }
}

fn split_url(text: &str) -> Result<(String, OwnParams), AddressFault> {
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let (mut rest, mut own) = (Vec::new(), OwnParams::default());
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if !OWN.contains(&key) {
            rest.push(part);
            continue;
        }
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| AddressFault::Shape(format!("{key} is not UTF-8")))?;
        own.0.push((key.to_owned(), value.into_owned()));
    }
    let rest = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((rest, own))
}

/// `key = value` pairs; a value may be quoted, and a backslash takes the next character as it is.
fn split_pairs(text: &str) -> Result<(String, OwnParams), AddressFault> {
    let (mut rest, mut own) = (String::new(), OwnParams::default());
    let mut left = text.trim_start();
    while !left.is_empty() {
        let (key, after) = left.split_once('=').ok_or_else(|| {
            AddressFault::Shape("it is neither a postgres:// URL nor key=value pairs".to_owned())
        })?;
        let (value, after) = value(after.trim_start())?;
        let key = key.trim();
        if OWN.contains(&key) {
            own.0.push((key.to_owned(), value));
        } else {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            rest.push_str(&format!("{key}='{quoted}' "));
        }
        left = after.trim_start();
    }
    Ok((rest, own))
}

/// The value at the beginning of a text, and the text after it.
fn value(text: &str) -> Result<(String, &str), AddressFault> {
    let quoted = text.starts_with('\'');
    let mut chars = text.char_indices().skip(usize::from(quoted));
    let mut value = String::new();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => value.extend(chars.next().map(|(_, char)| char)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            char if !quoted && char.is_whitespace() => return Ok((value, &text[at..])),
            char => value.push(char),
        }
    }
    if quoted { Err(AddressFault::Shape("a quote is not closed".to_owned())) } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<DatabaseAddress, AddressFault> {
        DatabaseAddress::parse(text, Duration::from_secs(9))
    }

    #[test]
    fn only_what_stays_on_the_machine_may_be_plain() {
        for (text, trust) in [
            ("postgres://u@db.example/x", ServerTrust::Name),
            ("postgres://u@10.0.0.7,127.0.0.1/x", ServerTrust::Name),
            ("host=localhost hostaddr=10.0.0.7", ServerTrust::Name),
            ("postgres://u@localhost/x", ServerTrust::Prefer),
            ("postgres://u@127.0.0.1:6432,[::1]/x", ServerTrust::Prefer),
            ("host=/run/postgresql dbname=x", ServerTrust::Plain),
            ("postgres://u@db.example/x?sslmode=require", ServerTrust::Anyone),
            ("postgres://u@db.example/x?sslmode=verify-ca&connect_timeout=3", ServerTrust::Authority),
            ("host=db.example sslmode = 'disable'", ServerTrust::Plain),
        ] {
            assert_eq!(parsed(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).trust, trust, "{text}");
        }
    }

    #[test]
    fn own_parameters_are_taken_out() {
        let url = "postgresql://u:p%40@h/db?sslrootcert=%2Fa%20b%2Fca.pem&keepalives=1&sslcert=c&sslkey=k";
        let address = parsed(url).expect("it is an address");
        assert_eq!(address.files.roots, Some(PathBuf::from("/a b/ca.pem")));
        assert_eq!(address.files.certificate.zip(address.files.key), Some(("c".into(), "k".into())));
        assert_eq!(address.config.get_password(), Some(&b"p@"[..]));
        let pairs = r"host = h user='it\'s me' password_file='/a b' dbname=x";
        let address = parsed(pairs).expect("it is an address");
        assert_eq!(address.config.get_user(), Some("it's me"));
        assert!(matches!(&address.password, PasswordSource::File(file) if file.as_os_str() == "/a b"));
        assert_eq!((address.name, address.reply), ("postgresql:x".into(), Duration::from_secs(3)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, because) in [
            ("windlass.db", "neither a postgres:// URL"),
            ("host='h", "not closed"),
            ("postgres://h/x?sslmode=always", "verify-full"),
            ("host=h password_file=a password_command=b", "keep one"),
            ("postgres://h/x?colour=blue", "cannot be read"),
        ] {
            let fault = parsed(text).err().unwrap_or_else(|| panic!("{text} was taken"));
            assert!(fault.to_string().contains(because), "{text}: {fault}");
        }
    }
}
