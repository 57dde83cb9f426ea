//! TLS, certificates and passwords.

use super::{alone, open, outside};
use anyhow::{Result, ensure};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use windlass_store::postgres::PostgresOptions;
use windlass_store::{PostgresStore, StoreError};
use windlass_testkit::postgres::Cluster;
use windlass_testkit::store_suite::{begin, held, journal, one, open as open_session};

/// Rules for who may come in from where: one role by its certificate, one by its password, everybody else as they are.
const RULES: &str = "
local all all trust
hostssl all certified 127.0.0.1/32 cert
hostssl all secret 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
";

/// Makes an authority, a certificate of the server for `localhost`, and one of the role `certified`.
fn with_tls(data: &Path) -> Result<String> {
    std::fs::write(data.join("pg_hba.conf"), RULES)?;
    std::fs::write(data.join("names"), "subjectAltName = DNS:localhost\n")?;
    let openssl = |line: &str| {
        let output = Command::new("openssl").args(line.split(' ')).current_dir(data).output()?;
        ensure!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    for authority in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN={authority} -keyout {authority}.key -out {authority}.crt"
        ))?;
    }
    for name in ["localhost", "certified"] {
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ))?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile names -out {name}.crt"
        ))?;
    }
    Ok("listen_addresses = '127.0.0.1'\nssl = on\nssl_ca_file = 'ca.crt'\nssl_cert_file = 'localhost.crt'\n\
        ssl_key_file = 'localhost.key'\n"
        .to_owned())
}

/// A database as it is reached over TCP.
fn over_tcp(cluster: &Cluster, database: &str, user: &str, host: &str, more: &str) -> String {
    let (_, name) = database.split_once("dbname=").unwrap();
    format!("postgres://{user}@{host}:{}/{name}?{more}", cluster.port())
}

async fn refusal(url: &str) -> String {
    let error = PostgresStore::open(PostgresOptions::new(url)).await.map(|_store| ()).unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    let causes = std::iter::successors(Some(&error as &dyn Error), |cause| (*cause).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_roles_prove_who_they_are() {
    let Some(cluster) = alone(with_tls) else { return };
    let database = cluster.database();
    let outside = outside(&database).await;
    outside
        .batch_execute(
            "CREATE ROLE certified LOGIN SUPERUSER; CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'one'",
        )
        .await
        .unwrap();
    let data = cluster.folder().join("data");
    let file = |name: &str| data.join(name).display().to_string();
    let roots = format!("sslrootcert={}", file("ca.crt"));
    let with = |user: &str, host: &str, more: &str| over_tcp(&cluster, &database, user, host, more);

    for (url, encrypted) in [
        (with("windlass", "localhost", &format!("sslmode=verify-full&{roots}")), true),
        (with("windlass", "127.0.0.1", &format!("sslmode=verify-ca&{roots}")), true),
        (with("windlass", "127.0.0.1", "sslmode=require"), true),
        (with("windlass", "127.0.0.1", ""), true),
        (with("windlass", "127.0.0.1", "sslmode=disable"), false),
    ] {
        let store = open(&url).await;
        begin(&store, open_session(&store, &url).await, &url).await;
        let found = "SELECT bool_and(ssl), bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE application_name LIKE 'windlass%'";
        let found = outside.query_one(found, &[]).await.unwrap();
        assert_eq!((found.get::<_, bool>(0), found.get::<_, bool>(1)), (encrypted, encrypted), "{url}");
    }
    let certificate = format!("sslcert={}&sslkey={}", file("certified.crt"), file("certified.key"));
    open(&with("certified", "localhost", &format!("sslmode=verify-full&{roots}&{certificate}"))).await;
    let other = format!("sslmode=verify-full&sslrootcert={}", file("other.crt"));
    let missing = format!("sslmode=verify-full&sslrootcert={}", file("nothing.crt"));
    for (url, because) in [
        (with("windlass", "127.0.0.1", &format!("sslmode=verify-full&{roots}")), "not valid for name"),
        (with("windlass", "localhost", &other), "UnknownIssuer"),
        (with("windlass", "localhost", &missing), "could not be read from"),
        (with("windlass", "localhost", &format!("sslmode=verify-full&{roots}&sslcert=x")), "go together"),
        (with("certified", "localhost", &format!("sslmode=verify-full&{roots}")), "certificate"),
        (with("secret", "localhost", &format!("sslmode=verify-full&{roots}")), "password"),
    ] {
        let refusal = refusal(&url).await;
        assert!(refusal.contains(because), "{url}: {refusal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_is_asked_for() {
    let plain = |_: &Path| Ok("listen_addresses = '127.0.0.1'\n".to_owned());
    let Some(cluster) = alone(plain) else { return };
    let database = cluster.database();
    let refusal = refusal(&over_tcp(&cluster, &database, "windlass", "127.0.0.1", "sslmode=require")).await;
    assert!(
        refusal.contains("see that the server speaks TLS") && refusal.contains("does not support TLS"),
        "{refusal}"
    );
}

/// A password is changed while the store is open: the next connection uses the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_read_for_each_connection() {
    let Some(cluster) = alone(with_tls) else { return };
    let database = cluster.database();
    let outside = outside(&database).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("password");
    for (by, source) in [
        ("file", format!("password_file={}", file.display())),
        ("command", format!("password_command=cat%20{}", file.display())),
    ] {
        outside.batch_execute(&format!("CREATE ROLE {by} LOGIN SUPERUSER PASSWORD 'one'")).await.unwrap();
        std::fs::write(cluster.folder().join("data/pg_hba.conf"), RULES.replace("secret", by)).unwrap();
        outside.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        std::fs::write(&file, "one\n").unwrap();
        let url = over_tcp(&cluster, &database, by, "127.0.0.1", &source);
        let store = open(&url).await;
        let session = open_session(&store, by).await;
        let batch = begin(&store, session, by).await;
        let ended = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                     WHERE application_name LIKE 'windlass%'";
        outside.batch_execute(&format!("ALTER ROLE {by} PASSWORD 'two'; {ended}")).await.unwrap();
        let sent = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
        std::fs::write(&file, "two\n").unwrap();
        assert!(sent.await.unwrap()[0].is_ok());
        one(&store, held(session, vec![journal(batch, 2, 1)])).await.unwrap();
        std::fs::write(&file, "three").unwrap();
        let refusal = refusal(&url).await;
        assert!(refusal.contains("see that the password is right"), "{refusal}");
    }
}
