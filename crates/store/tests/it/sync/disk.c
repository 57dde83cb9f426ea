/* A disk on which one sync of a write-ahead log fails, and what it was to make durable is lost. It acts as Linux does: the
 * failed pages count as clean afterwards, so reads still show them and a later sync succeeds without them; each
 * descriptor that is open then reports the error once. Loaded into a process with LD_PRELOAD; told by its environment:
 *   WINDLASS_SYNC_LOG    the log; syncs of other files are left alone
 *   WINDLASS_SYNC_DISK   a file that receives what of the log is on the disk: what a power cut would leave
 *   WINDLASS_SYNC_NTH    the sync of the log that fails, from 1
 *   WINDLASS_SYNC_HIT    a file that is made when it fails; it says how many bytes were lost
 *   WINDLASS_SYNC_INDEX  if set: the index of the log (`-shm`), whose header is lost in the same moment
 *   WINDLASS_SYNC_HOME   if set: the database, which must not be written while something of the log is lost
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* More than the log of the test ever has, and more descriptors than its process. */
enum { LOG_BYTES_MAX = 4 << 20, FILES_MAX = 1024 };
/* What became of a byte of the log. */
enum { ON_DISK = 0, UNSYNCED = 1, LOST = 2 };
/* Both copies of the header of the index. */
enum { INDEX_HEADER_BYTES = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *path, *hit, *index_path, *home;
static int disk = -1;
static long nth, syncs;
static struct stat log_file;
static char state[LOG_BYTES_MAX];
static size_t used; /* Nothing was ever written behind this. */
static char owes_error[FILES_MAX];

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_close)(int);

static void give_up(const char *what) {
    fprintf(stderr, "the failing disk: %s (%s)\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_close = dlsym(RTLD_NEXT, "close");
    path = getenv("WINDLASS_SYNC_LOG");
    hit = getenv("WINDLASS_SYNC_HIT");
    index_path = getenv("WINDLASS_SYNC_INDEX");
    home = getenv("WINDLASS_SYNC_HOME");
    nth = atol(getenv("WINDLASS_SYNC_NTH"));
    disk = open(getenv("WINDLASS_SYNC_DISK"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (disk < 0) give_up("no file for what is on the disk");
}

/* Whether a descriptor is the log, also while that is moved away. One that was removed and made anew has nothing on the disk
 * yet. */
static int is_log(int fd) {
    struct stat there, this;
    if (!stat(path, &there) && there.st_ino != log_file.st_ino) {
        log_file = there;
        memset(state, ON_DISK, used);
        if (real_ftruncate(disk, 0)) give_up("a new log");
    }
    return !fstat(fd, &this) && this.st_ino == log_file.st_ino && this.st_dev == log_file.st_dev;
}

static void note_write(ssize_t len, off_t at) {
    if (len <= 0) return;
    if (at + len > LOG_BYTES_MAX) give_up("the log is too long for it");
    memset(state + at, UNSYNCED, len);
    if (used < (size_t)(at + len)) used = at + len;
}

/* Everything that was written since the last sync reaches the disk. */
static void keep(int fd) {
    static char bytes[LOG_BYTES_MAX];
    for (size_t at = 0, end; at < used; at = end) {
        for (end = at; end < used && state[end] == state[at]; end++) {}
        if (state[at] != UNSYNCED) continue;
        ssize_t len = end - at;
        if (pread(fd, bytes, len, at) != len || real_pwrite(disk, bytes, len, at) != len) give_up("keeping");
        memset(state + at, ON_DISK, len);
    }
}

/* Everything that was written since the last sync is lost unless it is written again. */
static void lose(void) {
    long lost = 0;
    for (size_t at = 0; at < used; at++) {
        if (state[at] != UNSYNCED) continue;
        state[at] = LOST;
        lost++;
    }
    int fd = open(hit, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "%ld", lost) < 0) give_up("saying that it failed");
    real_close(fd);
    if (!index_path || lost == 0) return;
    char nothing[INDEX_HEADER_BYTES] = {0};
    fd = open(index_path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return; /* It is moved away. */
    if (fd < 0 || real_pwrite(fd, nothing, sizeof nothing, 0) < 0) give_up("losing the index");
    /* Not closed: that would give up the locks that the process has on the index. */
}

static int sync_log(int fd, int (*real)(int)) {
    pthread_mutex_lock(&lock);
    int done = 0, error = 0;
    if (!is_log(fd)) {
        pthread_mutex_unlock(&lock);
        return real(fd);
    }
    if (++syncs == nth) {
        lose();
        for (int other = 0; other < FILES_MAX; other++) owes_error[other] = is_log(other);
        error = EIO;
    } else {
        done = real(fd);
        error = done ? errno : 0;
        if (!done) keep(fd);
        if (owes_error[fd]) error = EIO;
    }
    owes_error[fd] = 0;
    pthread_mutex_unlock(&lock);
    if (!error) return 0;
    errno = error;
    return -1;
}

#define SYNC(name) \
    int name(int fd) { \
        static int (*real)(int); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        return sync_log(fd, real); \
    }
SYNC(fsync)
SYNC(fdatasync)

ssize_t write(int fd, const void *data, size_t len) {
    pthread_mutex_lock(&lock);
    off_t at = is_log(fd) ? lseek(fd, 0, SEEK_CUR) : -1;
    ssize_t done = real_write(fd, data, len);
    if (at >= 0) note_write(done, at);
    pthread_mutex_unlock(&lock);
    return done;
}

/* Pages are brought home from a log that is on the disk: otherwise a power cut leaves half of them, and no log to mend it. */
static void check_home(int fd) {
    struct stat there, this;
    if (home && memchr(state, LOST, used) && !stat(home, &there) && !fstat(fd, &this) && there.st_ino == this.st_ino)
        give_up("a page was brought home from a log that is not on the disk");
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t len, off_t at) { \
        pthread_mutex_lock(&lock); \
        ssize_t done = real_pwrite(fd, data, len, at); \
        if (is_log(fd)) note_write(done, at); \
        else check_home(fd); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name) \
    int name(int fd, off_t len) { \
        pthread_mutex_lock(&lock); \
        int done = real_ftruncate(fd, len); \
        if (!done && is_log(fd)) { \
            if ((size_t)len < used) memset(state + len, ON_DISK, used - len); \
            if (real_ftruncate(disk, len)) give_up("cutting off"); \
        } \
        pthread_mutex_unlock(&lock); \
        return done; \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int close(int fd) {
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < FILES_MAX) owes_error[fd] = 0;
    pthread_mutex_unlock(&lock);
    return real_close(fd);
}
