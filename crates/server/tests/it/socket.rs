//! Where the socket lies: closed to others, never in the way of the next owner, whatever the folder's path.

use crate::rig::Rig;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Config, Runtime};
use windlass_server::Api;
use windlass_server::client::Client;
use windlass_server::control::Control;
use windlass_testkit::sqlite_in;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

async fn answers(folder: &Path) -> bool {
    let client = Client::find(folder).await.expect("it can be asked");
    match client {
        Some(client) => client.calls(None, &Default::default()).await.is_ok(),
        None => false,
    }
}

#[tokio::test]
async fn it_is_its_owners_alone_and_goes_with_it() {
    let mut rig = Rig::new();
    let place = rig.path().join("control.sock");
    assert_eq!(mode(&place), 0o600);
    assert_eq!(rig.get("/healthz").await, (200, serde_json::json!({"status": "ok"})));
    rig.control.take().expect("served").stop().await;
    assert!(!place.exists());
    assert!(!answers(&rig.path()).await);
    let names: Vec<_> = std::fs::read_dir(rig.path()).expect("a folder").flatten().collect();
    assert!(names.iter().all(|entry| !entry.file_type().expect("a type").is_socket()));
}

#[tokio::test]
async fn what_a_dead_owner_left_is_replaced_and_what_is_no_socket_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::new(Config::new(sqlite_in(folder.path())));
    for name in ["control.sock", "control.sock.new"] {
        // Bound and left, as by `kill -9`.
        drop(UnixListener::bind(folder.path().join(name)).expect("bound"));
    }
    assert!(!answers(folder.path()).await, "nobody is there");
    let control = Control::serve(&Api::new(&runtime, None), folder.path()).expect("served");
    assert!(answers(folder.path()).await);
    drop(control);
    assert!(!folder.path().join("control.sock").exists(), "one that is only dropped leaves nothing either");

    for name in ["control.sock", "control.sock.new"] {
        let place = folder.path().join(name);
        std::fs::write(&place, "somebody's").expect("written");
        let refused =
            Control::serve(&Api::new(&runtime, None), folder.path()).err().expect("refused").to_string();
        assert!(refused.contains("is no socket; move it away"), "{refused}");
        assert_eq!(std::fs::read_to_string(&place).expect("still there"), "somebody's");
        std::fs::remove_file(&place).expect("removed");
    }
}

#[tokio::test]
async fn a_folder_of_any_length_will_do() {
    let root = tempfile::tempdir().expect("a folder");
    // SQLite takes no path beyond 512 bytes.
    for depth in [1, 3, 12] {
        let folder = root.path().join(["a-rather-long-name-for-a-folder"; 12][..depth].join("/"));
        std::fs::create_dir_all(&folder).expect("made");
        let runtime = Runtime::new(Config::new(sqlite_in(&folder)));
        let control = Control::serve(&Api::new(&runtime, None), &folder).expect("served");
        assert!(answers(&folder).await, "{} bytes", folder.as_os_str().len());
        assert_eq!(mode(&folder.join("control.sock")), 0o600);
        control.stop().await;
        assert!(!folder.join("control.sock").exists() && !answers(&folder).await);
    }
}

#[tokio::test]
async fn stopping_lets_go_of_the_store_whoever_is_connected() {
    let mut rig = Rig::new();
    let place = rig.path().join("control.sock");
    let mut slow = tokio::net::UnixStream::connect(&place).await.expect("connected");
    slow.write_all(b"POST /v1/calls/x/cancel HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
        .await
        .expect("sent");
    let idle = tokio::net::UnixStream::connect(&place).await.expect("connected");
    let began = Instant::now();
    rig.control.take().expect("served").stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "it waited for somebody who says nothing");
    let path = rig.path();
    let Rig { folder, runtime, .. } = rig;
    drop(runtime);
    // The folder can be owned again at once: nothing of the server holds the store.
    SqliteStore::open(Options::new(&path)).expect("nobody has it");
    drop((folder, idle, slow));
}

#[tokio::test]
async fn more_than_it_takes_wait_for_their_turn() {
    let rig = Rig::new();
    let place = rig.path().join("control.sock");
    let mut idle = Vec::new();
    for _ in 0..rig.runtime.limits().connections_max {
        idle.push(tokio::net::UnixStream::connect(&place).await.expect("connected"));
    }
    let asked = tokio::spawn({
        let path = rig.path();
        async move { answers(&path).await }
    });
    idle.pop();
    assert!(asked.await.expect("no panic"));
}

/// Run as another user by the test below; does nothing by itself.
#[test]
fn connects_when_told() {
    let Some(place) = std::env::var_os("WINDLASS_TEST_CONNECT") else { return };
    match std::os::unix::net::UnixStream::connect(place) {
        Ok(_) => println!("CONNECTED"),
        Err(error) => println!("REFUSED {:?}", error.kind()),
    }
}

#[tokio::test]
async fn another_user_cannot_connect() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return;
    }
    // Neither what the user's shell takes away nor the closed folder is to be what keeps others out.
    let usual = rustix::process::umask(rustix::fs::Mode::empty());
    let rig = Rig::new();
    rustix::process::umask(usual);
    let place = rig.path().join("control.sock");
    std::fs::set_permissions(rig.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let ours = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(ours.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let binary = ours.path().join("connects");
    std::fs::copy(std::env::current_exe().expect("a name"), &binary).expect("copied");
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).expect("ours");
    let connect = |uid: u32| {
        let mut command = Command::new(&binary);
        command.args(["--exact", "socket::connects_when_told", "--nocapture"]).current_dir("/");
        let output =
            command.env("WINDLASS_TEST_CONNECT", &place).uid(uid).gid(uid).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(connect(0).contains("CONNECTED"));
    let other = connect(65_534);
    assert!(other.contains("REFUSED PermissionDenied"), "{other}");
}
