/* Shuts down the ext4 file system mounted at the given folder, without flushing its log: what a power cut leaves.
 * Only for file systems on a loop device, so that a mistake cannot reach a real disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define NO_LOG_FLUSH 2
#define LOOP_MAJOR 7

int main(int count, char **args) {
    struct stat place, root;
    if (count != 2) return fprintf(stderr, "cut FOLDER\n"), 2;
    int fd = open(args[1], O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fstat(fd, &place) || stat("/", &root)) return fprintf(stderr, "%s\n", strerror(errno)), 1;
    if (place.st_dev == root.st_dev || major(place.st_dev) != LOOP_MAJOR)
        return fprintf(stderr, "%s is not on a loop device\n", args[1]), 3;
    uint32_t flags = NO_LOG_FLUSH;
    if (ioctl(fd, EXT4_IOC_SHUTDOWN, &flags)) return fprintf(stderr, "%s\n", strerror(errno)), 1;
    return 0;
}
