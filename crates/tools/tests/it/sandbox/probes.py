# Probes of the sandbox: a line with three # and a name begins one. A probe that gets through to its end has reached what it must not.
### read_shadow
open('/etc/shadow').read()
### read_outside
open(P['outside']).read()
### read_token
open(P['data'] + '/token').read()
### read_database
open(P['data'] + '/windlass.db', 'rb').read()
### list_data_folder
assert 'token' in os.listdir(P['data'])
### read_another_session
open(P['other'] + '/secret').read()
### list_outside
os.listdir(P['outside_dir'])
### read_through_link
os.symlink(P['outside'], 'link'); open('link').read()
### read_through_link_to_folder
os.symlink(P['outside_dir'], 'dir'); open('dir/secret').read()
### read_by_dots
open('../../../outside/secret').read()
### read_by_proc_self_root
open('/proc/self/root' + P['outside']).read()
### read_by_proc_of_victim
open('/proc/%d/root%s' % (P['victim'], P['outside'])).read()
### read_by_proc_cwd_of_victim
open('/proc/%d/cwd/secret' % P['victim']).read()
### link_from_outside
os.link(P['outside'], 'hard'); open('hard').read()
### read_hostname_file
open('/etc/hostname').read()
### list_boot
os.listdir('/boot')
### list_opt
os.listdir('/opt')
### list_home_of_root
os.listdir('/root')
### list_sys
os.listdir('/sys/kernel')
### read_kernel_symbols
assert open('/proc/kallsyms').read(10)
### read_kernel_memory
open('/proc/kcore', 'rb').read(4)
### read_shared_memory_of_host
open('/dev/shm/' + P['shm']).read()
### read_disk
d = [n for n in os.listdir('/dev') if n.startswith(('vda', 'sda', 'nvme', 'loop'))][0]; open('/dev/' + d, 'rb').read(1)
### open_by_handle
h = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); m = ctypes.c_int(); sc(303, AT, P['outside'].encode(), h, ctypes.byref(m), 0); fd = sc(304, os.open('.', 0), h, 0); os.read(fd, 1)
### write_outside
open(P['outside'], 'a').write('x')
### create_outside
open(P['outside_dir'] + '/new', 'w').write('x')
### write_data_folder
open(P['data'] + '/new', 'w').write('x')
### change_configuration
open(P['data'] + '/windlass.toml', 'a').write('x')
### write_usr
f = '/usr/windlass-probe-%d' % os.getpid(); open(f, 'w').close(); os.unlink(f)
### write_etc
f = '/etc/windlass-probe-%d' % os.getpid(); open(f, 'w').close(); os.unlink(f)
### write_root
f = '/windlass-probe-%d' % os.getpid(); open(f, 'w').close(); os.unlink(f)
### write_sysctl
f = open('/proc/sys/kernel/core_pattern', 'r+'); v = f.read(); f.seek(0); f.write(v); f.close()
### chmod_outside
os.chmod(P['outside'], 0o777)
### chmod_opened_system_file
fd = os.open('/usr/bin/env', 0); os.fchmod(fd, os.fstat(fd).st_mode & 0o7777)
### chown_outside
os.chown(P['outside'], os.getuid(), os.getgid())
### touch_outside
os.utime(P['outside'])
### attribute_outside
os.setxattr(P['outside'], 'user.probe', b'x')
### truncate_outside
os.truncate(P['outside'], 0)
### rename_outside
os.rename(P['outside'], P['outside'] + '2'); os.rename(P['outside'] + '2', P['outside'])
### remove_outside
os.unlink(P['outside'])
### make_folder_outside
os.mkdir(P['outside_dir'] + '/folder')
### write_through_link_to_folder
os.symlink(P['outside_dir'], 'dir2'); open('dir2/new2', 'w').write('x')
### move_out
open('mine', 'w').write('x'); os.rename('mine', P['outside_dir'] + '/mine')
### make_device
os.mknod('disk', stat.S_IFCHR | 0o600, os.makedev(1, 5)); os.open('disk', os.O_RDONLY)
### trace_victim
sc(101, 16, P['victim'], 0, 0); sc(101, 17, P['victim'], 0, 0)
### trace_seize
sc(101, 0x4206, P['victim'], 0, 0)
### read_memory_of_victim
class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
b = ctypes.create_string_buffer(8); a = int(open('/proc/%d/maps' % P['victim']).read().split('-')[0], 16); sc(310, P['victim'], ctypes.byref(V(ctypes.addressof(b), 8)), 1, ctypes.byref(V(a, 8)), 1, 0)
### open_memory_of_victim
open('/proc/%d/mem' % P['victim'], 'rb')
### read_environment_of_victim
assert b'PROBE_SECRET' in open('/proc/%d/environ' % P['victim'], 'rb').read()
### read_environment_of_owner
open('/proc/%d/environ' % P['owner'], 'rb').read()
### read_command_line_of_victim
open('/proc/%d/cmdline' % P['victim'], 'rb').read()
### list_processes
assert str(P['victim']) in os.listdir('/proc')
### signal_victim
os.kill(P['victim'], 0)
### signal_owner
os.kill(P['owner'], 0)
### signal_thread
sc(234, P['victim'], P['victim'], 0)
### signal_queue
i = ctypes.create_string_buffer(struct.pack('iii', 0, 0, -1) + bytes(116)); sc(129, P['victim'], 0, i)
### signal_by_descriptor
sc(424, sc(434, P['victim'], 0), 0, 0, 0)
### take_descriptor
sc(438, sc(434, P['victim'], 0), 0, 0)
### limit_victim
r = ctypes.create_string_buffer(struct.pack('QQ', 4096, 4096)); sc(302, P['victim'], 7, r, 0)
### renice_victim
sc(141, 0, P['victim'], 5)
### pin_victim
os.sched_setaffinity(P['victim'], os.sched_getaffinity(0))
### io_priority_of_victim
sc(251, 1, P['victim'], (2 << 13) | 4)
### compare_with_victim
sc(312, P['victim'], P['victim'], 1, 0, 0)
### count_events
a = ctypes.create_string_buffer(struct.pack('IIQ', 1, 128, 0) + bytes(112)); sc(298, a, P['victim'], -1, -1, 0)
### mount
os.mkdir('m'); sc(165, b'none', b'm', b'tmpfs', 0, 0); sc(166, b'm', 0)
### new_mount_api
sc(430, b'tmpfs', 0)
### open_tree
sc(428, AT, b'/', 1)
### unmount
try: sc(166, b'/proc/nonesuch', 0)
except OSError as e: assert e.errno == errno.ENOENT
### change_root
sc(161, b'.')
### pivot_root
try: sc(155, b'.', b'.')
except OSError as e: assert e.errno in (errno.EINVAL, errno.EBUSY)
### user_namespace
sc(272, 0x10000000)
### network_namespace
sc(272, 0x40000000)
### mount_namespace
sc(272, 0x00020000)
### clone_into_namespace
p = sc(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if p == 0: os._exit(0)
os.waitpid(p, 0)
### clone3_into_namespace
a = ctypes.create_string_buffer(struct.pack('11Q', 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)); p = sc(435, a, 88)
if p == 0: os._exit(0)
os.waitpid(p, 0)
### enter_namespace
sc(308, os.open('/proc/%d/ns/net' % P['victim'], 0), 0)
### no_new_privileges
assert sc(157, 39, 0, 0, 0, 0) == 0
### capabilities
h = ctypes.create_string_buffer(struct.pack('Ii', 0x20080522, 0)); d = ctypes.create_string_buffer(24); sc(125, h, d); assert any(d.raw)
### add_key
sc(248, b'user', b'probe', b'x', 1, -2)
### read_keyring
sc(250, 0, -3, 1)
### bpf
a = ctypes.create_string_buffer(struct.pack('IIIII', 2, 4, 4, 1, 0) + bytes(100)); sc(321, 0, a, 120)
### io_uring
a = ctypes.create_string_buffer(120); sc(425, 4, a)
### user_faults
sc(323, 1)
### host_name
n = socket.gethostname().encode(); sc(170, n, len(n))
### clock
b = ctypes.create_string_buffer(16); sc(228, 0, b); sc(227, 0, b)
### kernel_log
sc(103, 10, 0, 0)
### file_events
sc(300, 0, 0)
### nameless_memory
sc(319, b'x', 0)
### personality
sc(135, 0x0040000)
### load_module
try: sc(313, os.open('/dev/null', 0), b'', 0)
except OSError as e: assert e.errno in (errno.ENOEXEC, errno.EINVAL)
### accounting
try: sc(163, b'/nonesuch')
except OSError as e: assert e.errno == errno.ENOENT
### swap
try: sc(168, b'/nonesuch')
except OSError as e: assert e.errno == errno.ENOENT
### connect
socket.create_connection(('127.0.0.1', P['port']), 2)
### connect_ipv6
socket.create_connection(('::1', P['port6']), 2)
### connect_own_address
socket.create_connection((P['address'], P['port']), 2)
### datagram
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.sendto(b'x', ('127.0.0.1', P['udp'])); s.recv(1)
### unix_abstract
s = socket.socket(socket.AF_UNIX); s.connect('\0' + P['abstract'])
### unix_path
s = socket.socket(socket.AF_UNIX); s.connect(P['socket'])
### unix_datagram
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', '\0' + P['abstract_udp'])
### raw_socket
socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
### packet_socket
socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
### netlink
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
### virtual_machine_socket
socket.socket(40, socket.SOCK_STREAM)
### kernel_crypto_socket
socket.socket(38, socket.SOCK_SEQPACKET)
### fork_bomb
for _ in range(400):
    if os.fork() == 0: time.sleep(60); os._exit(0)
time.sleep(1)
### thread_bomb
import threading
threading.stack_size(65536)
for _ in range(400): threading.Thread(target=time.sleep, args=(1.5,), daemon=True).start()
time.sleep(1)
### memory_bomb
b = bytearray(400 << 20)
for i in range(0, len(b), 4096): b[i] = 1
time.sleep(1)
### shared_memory_bomb
import mmap
b = mmap.mmap(-1, 400 << 20)
for i in range(0, len(b), 4096): b[i] = 1
time.sleep(1)
### memory_bomb_of_many
for _ in range(4):
    if os.fork() == 0:
        b = bytearray(100 << 20)
        for i in range(0, len(b), 4096): b[i] = 1
        time.sleep(60)
time.sleep(2)
### large_file
f = open('large', 'wb'); f.truncate(100 << 20)
### processor_time
while time.process_time() < 2.5: pass
### type_into_terminal
import fcntl, pty
m, s = os.openpty()
if os.fork() == 0:
    os.setsid(); fcntl.ioctl(s, 0x540e, 0)
    try: fcntl.ioctl(s, 0x5412, b'x'); os._exit(0)
    except OSError: os._exit(1)
assert os.wait()[1] == 0
### inherited_file
assert any(ino(fd) == P['leak'] for fd in range(3, 256))
### environment_of_server
assert 'CARGO_PKG_NAME' in os.environ
### outlive
p = os.fork()
if p == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1.5); open(P['outside_dir'] + '/outlived', 'w').write('x')
    os._exit(0)
os.waitpid(p, 0); time.sleep(2.2); assert os.path.exists(P['outside_dir'] + '/outlived')
