//! The system calls of a sandboxed command: those that ordinary programs need. Every other one does not exist for it (`ENOSYS`),
//! so that libraries use what they use on older kernels.
//!
//! The list is of what is allowed, because the kernel gets new system calls every year. Left out are, among others: namespaces and
//! mounts, `ptrace` and the memory of other processes, `bpf`, `perf_event_open`, `io_uring` (it would bypass this filter), keys of
//! the kernel, handles of files (`open_by_handle_at`), modules, clocks, memory that belongs to no process (`memfd_create`).

use super::SandboxBackend;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Cmp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// The surroundings that decide which calls are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterNeeds {
    pub(super) backend: SandboxBackend,
    pub(super) network: bool,
    /// Whether the process owns files of the system.
    pub(super) is_root: bool,
}

/// The filter as a program for the kernel.
pub(super) fn program(needs: FilterNeeds) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // Not EPERM: programs fall back to older calls only if a newer one does not exist, such as from clone3 to clone.
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules(needs)?, absent, SeccompAction::Allow, arch)?.try_into()
}

/// The program as bubblewrap reads it.
pub(super) fn encoded(program: &BpfProgram) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for step in program {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    bytes
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(needs: FilterNeeds) -> Result<SyscallRules, seccompiler::BackendError> {
    let mut rules: SyscallRules = ALWAYS.iter().chain(LEGACY).map(|call| (*call, Vec::new())).collect();
    let has_namespaces = needs.backend == SandboxBackend::Bubblewrap;
    if has_namespaces {
        // In namespaces of its own these reach nothing of others: the rest of the file system is read-only, and shared memory and
        // queues are its own.
        rules
            .extend(FILE_FACTS.iter().chain(FILE_FACTS_LEGACY).chain(SHARED).map(|call| (*call, Vec::new())));
    } else {
        // Landlock does not judge modes, owners, times and attributes. By descriptor they concern files that the command may open.
        if !needs.is_root {
            rules.insert(libc::SYS_fchmod, Vec::new());
        }
        let no_path = SeccompCondition::new(1, Width::Qword, Cmp::Eq, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![no_path])?]);
        // Limits, priorities and processors of other processes of the same user, such as our own.
        for (call, target) in
            [(libc::SYS_prlimit64, 0), (libc::SYS_sched_setaffinity, 0), (libc::SYS_setpriority, 1)]
        {
            let is_itself = |at| SeccompCondition::new(at, Width::Dword, Cmp::Eq, 0);
            let conditions = (0..=target).map(is_itself).collect::<Result<_, _>>()?;
            rules.insert(call, vec![SeccompRule::new(conditions)?]);
        }
    }
    // No namespace may be made: it would come with privileges.
    let no_namespace = SeccompCondition::new(0, Width::Qword, Cmp::MaskedEq(NAMESPACES), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_namespace])?]);
    // Nothing may be typed into a terminal.
    let is_not = |request| SeccompCondition::new(1, Width::Dword, Cmp::Ne, request);
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(vec![is_not(TIOCSTI)?, is_not(TIOCLINUX)?])?]);
    rules.insert(libc::SYS_personality, personalities()?);
    let families = families(needs);
    if !families.is_empty() {
        rules.insert(libc::SYS_socket, sockets(families)?);
    }
    let unix = SeccompCondition::new(0, Width::Dword, Cmp::Eq, AF_UNIX)?;
    rules.insert(libc::SYS_socketpair, vec![SeccompRule::new(vec![unix])?]);
    Ok(rules)
}

/// The kinds of sockets that may be made. A path or an abstract name of a Unix socket leads to other processes unless the command
/// has namespaces and does not share the network.
fn families(needs: FilterNeeds) -> &'static [u64] {
    match (needs.backend, needs.network) {
        (SandboxBackend::Bubblewrap, false) => &[AF_UNIX, AF_INET, AF_INET6],
        (_, true) => &[AF_INET, AF_INET6],
        (SandboxBackend::Landlock, false) => &[],
    }
}

/// Streams and datagrams of these families; never raw sockets.
fn sockets(families: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules = Vec::new();
    for family in families {
        for kind in [SOCK_STREAM, SOCK_DGRAM] {
            rules.push(SeccompRule::new(vec![
                SeccompCondition::new(0, Width::Dword, Cmp::Eq, *family)?,
                SeccompCondition::new(1, Width::Dword, Cmp::MaskedEq(SOCK_KIND), kind)?,
            ])?);
        }
    }
    Ok(rules)
}

/// Asking for the personality, and the usual one. Others weaken the protection of memory.
fn personalities() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let is = |value| SeccompRule::new(vec![SeccompCondition::new(0, Width::Dword, Cmp::Eq, value)?]);
    Ok(vec![is(0)?, is(0xffff_ffff)?])
}

const AF_UNIX: u64 = libc::AF_UNIX as u64;
const AF_INET: u64 = libc::AF_INET as u64;
const AF_INET6: u64 = libc::AF_INET6 as u64;
const SOCK_STREAM: u64 = libc::SOCK_STREAM as u64;
const SOCK_DGRAM: u64 = libc::SOCK_DGRAM as u64;
/// The bits of a socket's type that are its kind.
const SOCK_KIND: u64 = 0xf;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

macro_rules! calls {
    ($($name:ident)+) => { &[$(libc::$name),+] };
}

/// The calls of every architecture.
const ALWAYS: &[i64] = calls! {
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_chdir SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close
    SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait
    SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64
    SYS_fallocate SYS_fchdir SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fstat SYS_fstatfs SYS_fsync
    SYS_ftruncate SYS_futex SYS_futex_waitv SYS_get_mempolicy SYS_get_robust_list SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid
    SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority
    SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_ioprio_get SYS_kill
    SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr
    SYS_llistxattr SYS_lseek SYS_madvise SYS_membarrier SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall
    SYS_mmap SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat
    SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl
    SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead
    SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq
    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_yield SYS_seccomp
    SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setfsgid SYS_setfsuid SYS_setgid
    SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit
    SYS_setsid SYS_setsockopt SYS_setuid SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_splice SYS_statfs SYS_statx SYS_symlinkat
    SYS_sync_file_range SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime
    SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask
    SYS_uname SYS_unlinkat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// Modes, owners, times and attributes of files.
const FILE_FACTS: &[i64] = calls! {
    SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_fremovexattr SYS_fsetxattr SYS_lremovexattr SYS_lsetxattr
    SYS_removexattr SYS_setxattr SYS_utimensat
};

/// Memory and queues that processes share by number or name.
const SHARED: &[i64] = calls! {
    SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_msgctl SYS_msgget SYS_msgrcv
    SYS_msgsnd SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget
};

/// Older forms of the calls above, which only this architecture has.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[i64] = calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_fork SYS_getdents
    SYS_getpgrp SYS_inotify_init SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename
    SYS_rmdir SYS_select SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_vfork
};
#[cfg(target_arch = "x86_64")]
const FILE_FACTS_LEGACY: &[i64] =
    calls! { SYS_chmod SYS_chown SYS_futimesat SYS_lchown SYS_utime SYS_utimes };

#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[i64] = &[];
#[cfg(not(target_arch = "x86_64"))]
const FILE_FACTS_LEGACY: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(backend: SandboxBackend, network: bool, is_root: bool) -> SyscallRules {
        rules(FilterNeeds { backend, network, is_root }).expect("rules")
    }

    #[test]
    fn dangerous_calls_are_in_no_list() {
        let dangerous = calls! {
            SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_unshare SYS_setns SYS_clone3 SYS_ptrace SYS_process_vm_readv
            SYS_process_vm_writev SYS_bpf SYS_perf_event_open SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_keyctl
            SYS_add_key SYS_request_key SYS_open_by_handle_at SYS_name_to_handle_at SYS_init_module SYS_finit_module SYS_kexec_load
            SYS_reboot SYS_swapon SYS_settimeofday SYS_clock_settime SYS_userfaultfd SYS_pidfd_getfd SYS_fanotify_init SYS_acct
            SYS_quotactl SYS_syslog SYS_memfd_create SYS_move_mount SYS_open_tree SYS_fsopen SYS_mount_setattr SYS_kcmp
        };
        for backend in [SandboxBackend::Bubblewrap, SandboxBackend::Landlock] {
            for network in [false, true] {
                let rules = allowed(backend, network, false);
                assert_eq!(dangerous.iter().find(|call| rules.contains_key(call)), None, "{backend:?}");
            }
        }
    }

    #[test]
    fn surroundings_decide_about_sockets_and_modes() {
        let has =
            |backend, network, is_root, call: i64| allowed(backend, network, is_root).contains_key(&call);
        use SandboxBackend::{Bubblewrap, Landlock};
        assert!(
            !has(Landlock, false, false, libc::SYS_socket) && has(Landlock, true, false, libc::SYS_socket)
        );
        assert!(
            has(Bubblewrap, false, false, libc::SYS_fchmodat)
                && !has(Landlock, true, false, libc::SYS_fchmodat)
        );
        assert!(
            has(Landlock, false, false, libc::SYS_fchmod) && !has(Landlock, false, true, libc::SYS_fchmod)
        );
        assert!(
            families(FilterNeeds { backend: Bubblewrap, network: true, is_root: false })
                .iter()
                .all(|family| *family != AF_UNIX)
        );
    }

    #[test]
    fn the_kernel_takes_the_program() {
        let program =
            program(FilterNeeds { backend: SandboxBackend::Landlock, network: true, is_root: false })
                .expect("a program");
        // The kernel's maximum (BPF_MAXINSNS).
        assert!(program.len() < 4_096, "{}", program.len());
        assert_eq!(encoded(&program).len(), program.len() * 8);
    }
}
