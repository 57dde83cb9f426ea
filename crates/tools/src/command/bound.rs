//! The content of a command that an approval covers: its declaration, and the bytes of its program and of the files that its words
//! name.
//!
//! The program is executed from the descriptor that its bytes were read from, so replacing the file afterwards has no effect. A shell
//! reads its script while it runs, so it gets a sealed copy, which nobody can write to. Other interpreters look for modules beside
//! their script, which a copy does not have, and get the file itself. Files that later words name are opened by the program
//! under their names: their bytes are compared at each start.

use super::template::FilledWord;
use crate::sandbox::is_executable;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use windlass::ToolError;
use windlass::error::FailureClass;
use windlass::sessions::SessionFiles;
use windlass::tool::BoundContent;

/// A file that is larger cannot be part of an approved command: it is read at each start.
const BOUND_FILE_BYTES_MAX: u64 = 512 << 20;
/// Of a script so much is copied; a larger one is no script that a person wrote.
const SCRIPT_BYTES_MAX: u64 = 16 << 20;
/// The kernel reads no more of the first line of a script.
const FIRST_LINE_BYTES_MAX: usize = 256;

/// The words of a command, and where its files are looked for.
pub(crate) struct BoundCommand {
    /// The rest of the declaration as one text.
    pub(crate) declared: String,
    pub(crate) words: Vec<FilledWord>,
    pub(crate) files: CommandFiles,
}

/// The place where the files of a command are looked for.
pub(crate) enum CommandFiles {
    /// On this machine: an operator chose them.
    Host {
        /// The folder in which it runs.
        cwd: PathBuf,
        /// The folders in which its program is looked for.
        path: OsString,
    },
    /// In the folder of its session: a model chose them.
    Session {
        files: SessionFiles,
        /// The folder in which it runs, below that one.
        cwd: PathBuf,
    },
}

/// The program of an approved command, opened.
pub(crate) struct ApprovedProgram {
    file: File,
    /// Whether an interpreter runs it.
    pub(crate) is_script: bool,
}

impl ApprovedProgram {
    /// A path at which other processes of this user open it, while this process holds it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl BoundCommand {
    /// Reads its files, apart from the runtime's threads.
    pub(crate) async fn read(self) -> Result<BoundContent, ToolError> {
        let read = tokio::task::spawn_blocking(move || self.content()).await;
        read.unwrap_or_else(|error| Err(io::Error::other(error).into())).map_err(|UnreadFile(detail)| {
            let message = "A file of this command cannot be read, so nobody can approve it; nothing happened. Only an operator can \\
                change that.";
            let class = FailureClass::Unavailable;
            ToolError { class, detail: Some(detail), did_not_happen: true, ..ToolError::new(message) }
        })
    }

    fn content(self) -> Result<BoundContent, UnreadFile> {
        let mut content =
            BoundContent { fixed: self.declared.clone().into_bytes(), ..BoundContent::default() };
        let (program, rest) = match self.words.split_first() {
            Some((program, rest)) => (program, rest),
            None => return Ok(content),
        };
        // A program that is not there is not started; once it is there, it is another one than was approved.
        if let Some(file) = self.files.program(&program.text)? {
            let read = read_program(file, &program.text);
            let (hash, approved) = read.map_err(|error| UnreadFile::new(&program.text, &error))?;
            part(&mut content, program).extend(hash);
            content.held = Some(Arc::new(approved));
        }
        for word in rest {
            for name in named(&word.text) {
                let unread = |error: io::Error| UnreadFile::new(name.as_ref(), &error);
                let Some(file) = self.files.open(name.as_ref()).map_err(unread)? else { continue };
                let hash = hash(file, &mut io::sink()).map_err(unread)?;
                let part = part(&mut content, word);
                part.extend(word.text.as_encoded_bytes());
                part.extend(hash);
            }
        }
        Ok(content)
    }
}

impl CommandFiles {
    /// The regular file of this name, if there is one.
    fn open(&self, name: &OsStr) -> io::Result<Option<File>> {
        let (files, cwd) = match self {
            CommandFiles::Host { cwd, .. } => return open_file(&cwd.join(name)),
            CommandFiles::Session { files, cwd } => (files, cwd),
        };
        // Programs of the system are the operator's, and all else is refused by the sandbox.
        let parts: Option<Vec<&str>> = cwd
            .components()
            .chain(Path::new(name).components())
            .filter(|part| *part != Component::CurDir)
            .map(|part| part.as_os_str().to_str().filter(|_| matches!(part, Component::Normal(_))))
            .collect();
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return Ok(None) };
        Ok(files.open(&parts.join("/")).ok().map(|(file, _)| file))
    }

    /// The file of the program, found as the system finds it.
    fn program(&self, name: &OsStr) -> Result<Option<File>, UnreadFile> {
        if name.as_encoded_bytes().contains(&b'/') {
            return self.open(name).map_err(|error| UnreadFile::new(name, &error));
        }
        let CommandFiles::Host { path, .. } = self else { return Ok(None) };
        let places = std::env::split_paths(path).filter(|place| place.is_absolute());
        let found = places.map(|place| place.join(name)).find(|file| is_executable(file));
        let Some(found) = found else { return Ok(None) };
        open_file(&found).map_err(|error| UnreadFile::new(found.as_os_str(), &error))
    }
}

/// The files that a word may name: the whole word, and what follows `=` in it.
fn named(word: &OsStr) -> impl Iterator<Item = &str> {
    let word = word.to_str();
    let value = word.and_then(|word| word.split_once('=')).map(|(_, value)| value);
    word.into_iter().chain(value).filter(|name| !name.is_empty())
}

/// The part of the content that a word belongs to.
fn part<'c>(content: &'c mut BoundContent, word: &FilledWord) -> &'c mut Vec<u8> {
    if word.is_fixed { &mut content.fixed } else { &mut content.of_args }
}

/// A file that cannot be read, for operators.
struct UnreadFile(String);

impl UnreadFile {
    fn new(name: &OsStr, error: &io::Error) -> UnreadFile {
        UnreadFile(format!("{name:?} cannot be read: {error}"))
    }
}

impl From<io::Error> for UnreadFile {
    fn from(error: io::Error) -> UnreadFile {
        UnreadFile(error.to_string())
    }
}

/// The file at a path, if there is a regular one.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    // A pipe would block, and a name that is too long names nothing.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(_) if !path.is_file() => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// The hash of a program, and the descriptor from which it is executed.
fn read_program(file: File, name: &OsStr) -> io::Result<([u8; 32], ApprovedProgram)> {
    let mode = file.metadata()?.permissions().mode();
    let mut first = Vec::new();
    (&file).take(FIRST_LINE_BYTES_MAX as u64).read_to_end(&mut first)?;
    io::Seek::rewind(&mut &file)?;
    if !is_shell_script(&first) {
        let hash = hash(file.try_clone()?, &mut io::sink())?;
        return Ok((hash, ApprovedProgram { file, is_script: first.starts_with(b"#!") }));
    }
    if file.metadata()?.len() > SCRIPT_BYTES_MAX {
        return Err(too_large(SCRIPT_BYTES_MAX));
    }
    let name = Path::new(name).file_name().unwrap_or_default();
    let mut copy = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    let hash = hash(file, &mut copy)?;
    fchmod(&copy, Mode::from_raw_mode(mode & 0o777))?;
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok((hash, ApprovedProgram { file: copy, is_script: true }))
}

/// Reads a file to its end, and writes it somewhere else.
fn hash(file: File, copy: &mut impl Write) -> io::Result<[u8; 32]> {
    let (mut hasher, mut piece, mut read) = (blake3::Hasher::new(), vec![0; 64 << 10], 0);
    let mut file = file.take(BOUND_FILE_BYTES_MAX + 1);
    loop {
        let len = match file.read(&mut piece) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        read += len as u64;
        if read > BOUND_FILE_BYTES_MAX {
            return Err(too_large(BOUND_FILE_BYTES_MAX));
        }
        hasher.update(&piece[..len]);
        copy.write_all(&piece[..len])?;
    }
}

fn too_large(max: u64) -> io::Error {
    io::Error::other(format!("it has more than {max} bytes, the most that an approval can cover"))
}

/// Whether a file with this beginning is run by a shell.
fn is_shell_script(first: &[u8]) -> bool {
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_prefix(b"#!") else { return false };
    let line = String::from_utf8_lossy(line);
    let named = |word: &str| Path::new(word).file_name().and_then(OsStr::to_str).map(str::to_string);
    let mut words = line.split_ascii_whitespace().skip_while(|word| {
        // `env` starts what its first word names that is no option and no variable.
        named(word).as_deref() == Some("env") || word.starts_with('-') || word.contains('=')
    });
    words.next().and_then(named).is_some_and(|name| SHELLS.contains(&name.as_str()))
}

const SHELLS: [&str; 8] = ["ash", "bash", "busybox", "dash", "ksh", "mksh", "sh", "zsh"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_shells_are_known_by_their_first_line() {
        for (first, expected) in [
            ("#!/bin/sh\necho", true),
            ("#!/bin/sh", true),
            ("#! /usr/bin/bash -e\n", true),
            ("#!/usr/bin/env bash\n", true),
            ("#!/usr/bin/env -S LANG=C bash -e\n", true),
            ("#!/usr/bin/env python3\n", false),
            ("#!/usr/bin/python3 sh\n", false),
            ("#!/opt/shell\n", false),
            ("#!", false),
            ("\x7fELF", false),
            ("", false),
        ] {
            assert_eq!(is_shell_script(first.as_bytes()), expected, "{first:?}");
        }
    }
}
