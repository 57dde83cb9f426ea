//! The rules of a sandbox: what a command may reach, and how much it may use.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The rules of a sandbox. The default is `strict`: no network, no file but those of the system and the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxProfile {
    /// Whether it may use the network of this machine: the internet, and everything else that the machine reaches.
    pub network: bool,
    /// Files and folders that it may read and execute, beside those of the system.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may change, beside the folder of its session.
    pub write: Vec<PathBuf>,
    /// The maximum of processor time of each of its processes, in milliseconds.
    pub cpu_ms: u64,
    /// The maximum of memory of all its processes together.
    pub memory_bytes: u64,
    /// The maximum number of its processes and threads.
    pub processes: u64,
    /// The maximum size of a file that it writes.
    pub file_bytes: u64,
}

impl Default for SandboxProfile {
    fn default() -> SandboxProfile {
        SandboxProfile {
            network: false,
            read: Vec::new(),
            write: Vec::new(),
            cpu_ms: 600_000,
            memory_bytes: 2 << 30,
            processes: 512,
            file_bytes: 1 << 30,
        }
    }
}

/// The rules as they hold for one call: recorded with it before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSandbox {
    /// The enforcing part of the system.
    pub backend: super::SandboxBackend,
    /// The rules.
    #[serde(flatten)]
    pub profile: SandboxProfile,
    /// Whether the session's folder may be read only.
    #[serde(default)]
    pub read_only: bool,
}

/// Folders of the system that every sandboxed command may read and execute.
pub(super) const SYSTEM_FOLDERS: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Files and folders of `/etc` that programs need to start, to find names and to check certificates. The rest of `/etc` may hold
/// secrets of this machine.
pub(super) const SYSTEM_SETTINGS: [&str; 29] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Files of `/proc` that say nothing of other processes.
pub(super) const SYSTEM_FACTS: [&str; 9] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
];

/// Devices that are harmless to everybody.
pub(super) const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
