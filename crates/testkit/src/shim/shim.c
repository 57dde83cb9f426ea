/* Makes the n-th file operation below a folder fail. Loaded into a process with LD_PRELOAD; told what to do by its
 * environment:
 *   WINDLASS_SHIM_FOLDER  only files below it count
 *   WINDLASS_SHIM_NTH     which operation, from 1
 *   WINDLASS_SHIM_KIND    eio | eio_forever | enospc_forever | torn | die | none
 *   WINDLASS_SHIM_REPORT  where to note what was hit
 * "torn" writes half of what was asked and refuses the next write; on an operation that does not write it is an EIO.
 * "forever" makes that operation and every later one of the same name fail. "die" ends the process there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES_MAX = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char below[FILES_MAX];
static const char *folder, *kind, *report;
static long nth, count;
static const char *failing; /* the operation that fails for ever */
static int torn_fd = -1;    /* the file whose next write is refused */

__attribute__((constructor)) static void start(void) {
    folder = getenv("WINDLASS_SHIM_FOLDER");
    kind = getenv("WINDLASS_SHIM_KIND");
    report = getenv("WINDLASS_SHIM_REPORT");
    const char *text = getenv("WINDLASS_SHIM_NTH");
    nth = text ? atol(text) : 0;
}

static int counts(int fd) { return folder && fd >= 0 && fd < FILES_MAX && below[fd]; }

static int is_below(const char *path) {
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

/* Straight to the kernel: a report must not count as an operation. */
static void note(const char *op, const char *path) {
    if (!report) return;
    int fd = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return;
    char line[512];
    int len = snprintf(line, sizeof line, "%ld %s %s %s\n", count, op, kind, path);
    if (len > (int)sizeof line) len = sizeof line;
    if (syscall(SYS_write, fd, line, len) < 0) { /* nothing can be done about it */ }
    syscall(SYS_close, fd);
}

/* 0: go on. 1: write half. Otherwise the error. */
static int decide(const char *op, int fd, const char *path) {
    int error = 0;
    pthread_mutex_lock(&lock);
    count++;
    int forever = kind && strstr(kind, "_forever") != NULL;
    if (torn_fd >= 0 && fd == torn_fd && strcmp(op, "write") == 0) {
        torn_fd = -1;
        error = ENOSPC;
    } else if (failing && strcmp(failing, op) == 0) {
        error = strncmp(kind, "enospc", 6) == 0 ? ENOSPC : EIO;
    } else if (kind && count == nth && strcmp(kind, "none") != 0) {
        note(op, path);
        if (strcmp(kind, "die") == 0) _exit(77);
        if (forever) failing = op;
        if (strcmp(kind, "torn") == 0 && strcmp(op, "write") == 0) {
            torn_fd = fd;
            error = 1;
        } else {
            error = strncmp(kind, "enospc", 6) == 0 ? ENOSPC : EIO;
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

#define FAIL_OR_GO_ON(op, fd) \
    if (counts(fd)) { \
        int error = decide(op, fd, ""); \
        if (error) { errno = error; return -1; } \
    }

ssize_t write(int fd, const void *data, size_t len) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "write");
    if (counts(fd)) {
        int error = decide("write", fd, "");
        if (error == 1) return next(fd, data, len / 2);
        if (error) { errno = error; return -1; }
    }
    return next(fd, data, len);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t len, off_t at) { \
        static ssize_t (*next)(int, const void *, size_t, off_t); \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        if (counts(fd)) { \
            int error = decide("write", fd, ""); \
            if (error == 1) return next(fd, data, len / 2, at); \
            if (error) { errno = error; return -1; } \
        } \
        return next(fd, data, len, at); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define SYNC(name) \
    int name(int fd) { \
        static int (*next)(int); \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        FAIL_OR_GO_ON("fsync", fd) \
        return next(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name) \
    int name(int fd, off_t len) { \
        static int (*next)(int, off_t); \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        FAIL_OR_GO_ON("ftruncate", fd) \
        return next(fd, len); \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

static int opened(int fd, int counted) {
    if (fd >= 0 && fd < FILES_MAX) below[fd] = counted;
    return fd;
}

#define OPEN(name, params, args, path) \
    int name params { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, int); \
        va_end(rest); \
        static int (*next) params; \
        if (!next) next = (int (*) params)dlsym(RTLD_NEXT, #name); \
        int counted = is_below(path); \
        if (counted) { \
            int error = decide("open", -1, path); \
            if (error) { errno = error; return -1; } \
        } \
        return opened(next args, counted); \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), path)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), path)
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), path)
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), path)

#define RENAME(name, op) \
    int name(const char *from, const char *to) { \
        static int (*next)(const char *, const char *); \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        if (is_below(to)) { \
            int error = decide(op, -1, to); \
            if (error) { errno = error; return -1; } \
        } \
        return next(from, to); \
    }
RENAME(rename, "rename")

int close(int fd) {
    static int (*next)(int);
    if (!next) next = dlsym(RTLD_NEXT, "close");
    if (fd >= 0 && fd < FILES_MAX) below[fd] = 0;
    return next(fd);
}
