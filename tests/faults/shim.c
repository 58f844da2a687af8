/* Faults inside a broker's process, for tests: loaded with LD_PRELOAD, told what to do by a shared
   file (OTTLA_TEST_FAULTS), whose layout shim.py knows. Nothing is touched while all fields are 0.

   Disks: calls on files whose path begins with `prefix` take longer, or fail without doing
   anything. Clock: only what is read of the wall clock is moved; waits go by the monotonic one.
   Stall: a thread takes Python's global lock and sleeps, as a C call that never lets go of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t wall_offset_ms;
    volatile int32_t write_ms, write_errno;
    volatile int32_t sync_ms, sync_errno;
    volatile int32_t read_errno, stall_ms;
    volatile int64_t hits; /* how many calls were slowed down or failed */
    char prefix[512];
};

static struct control nothing, *control = &nothing;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void sleep_ms(int32_t ms) {
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static int ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return !strncmp(path, control->prefix, strlen(control->prefix));
}

/* Returns -1 with errno if the call has to fail. */
static int suffer(int fd, int32_t ms, int32_t error) {
    if ((!ms && !error) || !ours(fd)) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
    if (ms) sleep_ms(ms);
    if (!error) return 0;
    errno = error;
    return -1;
}

#define WRITE suffer(fd, control->write_ms, control->write_errno)
#define SYNC suffer(fd, control->sync_ms, control->sync_errno)
#define READ suffer(fd, 0, control->read_errno)

ssize_t write(int fd, const void *data, size_t size) {
    return WRITE ? -1 : REAL(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return WRITE ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return WRITE ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return WRITE ? -1 : REAL(writev)(fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return WRITE ? -1 : REAL(pwritev)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return WRITE ? -1 : REAL(pwritev64)(fd, parts, count, at);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return WRITE ? -1 : REAL(pwritev2)(fd, parts, count, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return WRITE ? -1 : REAL(pwritev64v2)(fd, parts, count, at, flags);
}
int fsync(int fd) { return SYNC ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return SYNC ? -1 : REAL(fdatasync)(fd); }
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    return READ ? -1 : REAL(pread)(fd, data, size, at);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    return READ ? -1 : REAL(pread64)(fd, data, size, at);
}
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return READ ? -1 : REAL(preadv2)(fd, parts, count, at, flags);
}
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return READ ? -1 : REAL(preadv64v2)(fd, parts, count, at, flags);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*before)(clockid_t, struct timespec *);
    if (!before) before = REAL(clock_gettime);
    int failed = before(id, now);
    int64_t ms = control->wall_offset_ms;
    if (!failed && ms && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + ms % 1000 * 1000000;
        now->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns / 1000000000);
        now->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}

static void *stalls(void *unused) {
    for (;;) {
        int32_t ms = control->stall_ms;
        if (ms) {
            int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
            void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
            if (ensure && release) {
                int state = ensure();
                sleep_ms(ms);
                release(state);
            }
            control->stall_ms = 0;
        }
        sleep_ms(20);
    }
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("OTTLA_TEST_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED) return;
    control = found;
    pthread_t thread;
    if (!pthread_create(&thread, NULL, stalls, NULL)) pthread_detach(thread);
}
