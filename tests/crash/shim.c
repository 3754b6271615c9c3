/* See shim.rs. Settings come from the environment:
 *   SHIM_SYNC   lie: syncs do nothing; delay: they begin later; fail: they fail with EIO from number SHIM_FROM on; once: only that one fails
 *   SHIM_FILE   only files with this in their path
 *   SHIM_CLOCK  a file with the number of seconds by which the wall clock is off */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long seen;

static int is_meant(int fd) {
    const char *part = getenv("SHIM_FILE");
    char link[64], name[4096];
    if (!part || !*part) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return strstr(name, part) != NULL;
}

/* 0: go on; 1: say that all is well; -1: fail */
static int verdict(int fd) {
    const char *how = getenv("SHIM_SYNC");
    if (!how || !is_meant(fd)) return 0;
    if (strcmp(how, "lie") == 0) return 1;
    if (strcmp(how, "delay") == 0) {
        struct timespec later = {0, 1500000};
        nanosleep(&later, 0);
        return 0;
    }
    const char *from = getenv("SHIM_FROM");
    unsigned long number = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST), first = from ? strtoul(from, 0, 10) : 1;
    return (strcmp(how, "once") == 0 ? number == first : number >= first) ? -1 : 0;
}

/* So that a test knows whether a sync has failed, and whose. */
static void tell(int fd, long call) {
    char link[64], name[4096], thread[17] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    name[length < 0 ? 0 : length] = 0;
    prctl(PR_GET_NAME, thread);
    dprintf(2, "shim: %s of %s fails in %s\n", call == SYS_fsync ? "fsync" : "fdatasync", name, thread);
}

static int instead(int fd, long call) {
    switch (verdict(fd)) {
    case 0: return (int)syscall(call, fd);
    case 1: return 0;
    default:
        tell(fd, call);
        errno = EIO;
        return -1;
    }
}

int fdatasync(int fd) { return instead(fd, SYS_fdatasync); }
int fsync(int fd) { return instead(fd, SYS_fsync); }

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    const char *path = getenv("SHIM_CLOCK");
    if (result == 0 && path && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        char text[32] = {0};
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            if (read(fd, text, sizeof text - 1) > 0) time->tv_sec += strtol(text, 0, 10);
            close(fd);
        }
    }
    return result;
}
