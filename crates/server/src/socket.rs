//! The path of the socket, and how to reach it however long the path of its folder is.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

const NAME: &str = "control.sock";
/// Renamed to the real name once permissions are set and it listens.
const UNFINISHED: &str = "control.sock.new";
/// The system allows 108 bytes with the terminating zero, and some systems fewer.
const PATH_BYTES_MAX: usize = 100;
/// The backlog of the socket.
const WAITING_MAX: u32 = 64;

/// A folder, under a path short enough for socket addresses.
struct Folder {
    path: PathBuf,
    /// A path through this process's open files is valid while the file is open.
    _open: Option<File>,
}

impl Folder {
    fn new(folder: &Path) -> io::Result<Folder> {
        if folder.join(UNFINISHED).as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Folder { path: folder.to_path_buf(), _open: None });
        }
        let open = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Ok(Folder { path, _open: Some(open) })
    }
}

/// Binds the socket in a folder that the caller owns: an existing socket belongs to a dead owner.
pub fn bind(folder: &Path) -> io::Result<UnixListener> {
    let folder = Folder::new(folder)?;
    let (unfinished, place) = (folder.path.join(UNFINISHED), folder.path.join(NAME));
    for path in [&unfinished, &place] {
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            let what = format!("{} is there and is no socket; move it away", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
    }
    remove_if_there(&unfinished)?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(&unfinished)?;
    // Nobody can connect before it listens, and afterwards only its owner can.
    std::fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
    let listener = socket.listen(WAITING_MAX)?;
    std::fs::rename(&unfinished, &place)?;
    Ok(listener)
}

/// Removes the socket, while the folder is still owned.
pub fn remove(folder: &Path) -> io::Result<()> {
    remove_if_there(&folder.join(NAME))
}

/// Connects to the process that serves the socket; `None` if there is none.
pub async fn connect(folder: &Path) -> io::Result<Option<UnixStream>> {
    let connected = match Folder::new(folder) {
        Ok(folder) => UnixStream::connect(folder.path.join(NAME)).await,
        Err(error) => Err(error),
    };
    match connected {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_nobody(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that there is no owner: no socket, no folder, or an owner that is gone or exits while we connect.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotADirectory, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotADirectory | NotFound)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
