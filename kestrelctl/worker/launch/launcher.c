/* Starts the programs of tasks, waits for them, and ends what they leave behind.
 *
 *     kestrel-launcher DESCRIPTOR TREE DIRECTORY
 *
 * DESCRIPTOR is one end of a pair of stream sockets whose other end the worker has, TREE says where
 * the processes of a task are (enum tree), DIRECTORY holds the sandboxes. `native_launcher.py` is
 * the other side, `launcher.py` says what both may rely on.
 *
 * The worker sends requests: a length, a kind, and what belongs to it. It is sent answers of one
 * size each. When its end closes, everything that runs is killed and this program ends, whatever
 * the worker was doing. No signal but SIGKILL and SIGSTOP means anything to it.
 *
 * A task begins as a child that shares this memory until it executes its program, beside everything
 * else that happens here: an executable on a file server that does not answer keeps nobody else
 * waiting. So the child has a stack of its own, makes system calls itself (errno is the parent's),
 * and writes to its own `struct starting` alone; and no handler of a signal is ever installed here.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_REQUEST_BYTES = 64 << 20, /* the kernel takes less than this for one execve(2) */
    BUCKETS = 1024,                /* of hash tables: about as many tasks run at once at most */
    MOST_ENDS_AT_ONCE = 20,        /* the ends of so many tasks are told together */
    MOST_BELOW = 100000,           /* processes of one task that are looked for */
    KILL_ROUNDS = 20,              /* so often is looked for what a task starts while it is killed */
    LAST_ROUNDS = 2000,            /* of 5 ms, in which everything is killed when the worker ends */
    OPTIONS_DESCRIPTOR = 3,        /* what a sandbox program reads its options from */
    STATUS_DESCRIPTOR = 4,         /* where it says what it did */
    INIT_DESCRIPTOR = 5,           /* the first process of a namespace, which it executes */
    LEAST_OWN_DESCRIPTOR = 10,     /* those of this program are above what tasks are given */
    STACK_BYTES = 16384,           /* of a child before it executes its program */
};
static const uint64_t NO_NUMBER = UINT64_MAX;
static const double COMPANY_SECONDS = 0.005; /* an answer waits so long for others */
static const double SLOW_SECONDS = 0.1;      /* who has not begun by then may take very long */
static const double ORPHAN_SECONDS = 0.25;   /* so often orphans are looked at while there are any */

/* Where the processes of a task are. */
enum tree {
    GROUP = 0,   /* the process that is started leads the task's group */
    MONITOR = 1, /* it watches over a namespace, and takes it along when it is killed */
    INIT = 2,    /* the same, and the first process of the namespace may outlive it */
};

enum step { NOT_A_STEP, SCRATCH, STREAMS, WORKDIR, PROGRAM };

enum flag { APPENDS = 1, JOINS = 2, WAITS = 4, HAS_STATUS = 8 };

struct __attribute__((packed)) start_request {
    uint64_t number, device, inode;
    uint32_t lane;
    uint8_t flags;
    uint32_t words, variables, options_bytes;
};

struct __attribute__((packed)) answer {
    uint8_t kind, flags;
    uint16_t step;
    int32_t code; /* an errno, or a status of wait(2) */
    uint64_t number;
    int32_t pid, reserved;
    double wall, at, took_seconds, cpu_seconds;
    uint64_t peak_bytes;
};

/* A child that has perhaps not executed its program yet, and what it says if it cannot. */
struct starting {
    struct starting *next;
    char **words, **variables;
    const char *program, *init, *workdir, *input;
    int scratch, options;
    uint8_t flags;
    double wall, since;
    char *request; /* that it is told by, as long as it is needed */
    volatile int unfinished, error, step;
    _Alignas(16) char stack[STACK_BYTES];
};

/* One that waits: the request as it came. */
struct waiting {
    struct waiting *next;
    uint32_t lane;
    uint64_t number;
    size_t size;
    char *request;
};

/* Those whose lanes have the same remainder, in the order in which they came. */
struct waiting_list {
    struct waiting *first, **last;
};

struct task {
    struct task *next; /* of those whose process ids have the same remainder, or of those over */
    uint64_t number;
    pid_t pid; /* what is waited for next: what was started, then perhaps its namespace's init */
    struct starting *starting; /* NULL once it is told that it has started */
    uint32_t lane; /* in which its place is given to the next; 0 for none */
    bool in_grace, monitor_is_gone, left_something, has_failed;
    bool has_own_init; /* init.c is the first process of its namespace */
    int32_t status;
    double since, cpu_seconds;
    long max_rss_kilobytes;
    char *sandbox;
};

struct orphan {
    pid_t pid;
    bool is_known; /* it says which attempt it belongs to */
    uint64_t number;
    double found_at;
};

static struct {
    enum tree tree;
    const char *directory_path;
    int worker, directory, null, children, child_signal, poll;
    long own_peak_kilobytes;
    struct task *tasks[BUCKETS];
    struct task *over; /* to be told */
    size_t task_count, grace_count, starting_count;
    struct starting *unused;
    struct orphan *orphans;
    size_t orphan_count, orphan_room;
    struct waiting_list waiting[BUCKETS];
    char *in, *out;
    size_t in_bytes, in_room, out_bytes, out_room;
    size_t ends_untold;
    bool tell_now, is_watching_room;
    double untold_since, last_start_at;
} self;

/* ---- small things */

static void give_up(const char *what) {
    fprintf(stderr, "kestrel-launcher: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *room_for(void *array, size_t *room, size_t count, size_t size) {
    if (count <= *room) return array;
    size_t more = *room ? *room * 2 : 64;
    while (more < count) more *= 2;
    array = realloc(array, more * size);
    if (!array) give_up("memory");
    *room = more;
    return array;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* The same file by a descriptor that no task is given; -1 with an errno if there is none. */
static int above(int descriptor) {
    if (descriptor < 0) return -1;
    int high = fcntl(descriptor, F_DUPFD_CLOEXEC, LEAST_OWN_DESCRIPTOR), error = errno;
    close(descriptor);
    errno = error;
    return high;
}

static int needed(int descriptor, const char *what) {
    int high = above(descriptor);
    if (high < 0) give_up(what);
    return high;
}

/* Reads a whole small file below /proc. Returns its bytes, or -1. A NUL ends it. */
static ssize_t read_file(const char *path, char **into, size_t *room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    size_t size = 0;
    for (;;) {
        *into = room_for(*into, room, size + 4097, 1);
        ssize_t got = read(file, *into + size, 4096);
        if (got < 0) size = 0;
        if (got <= 0) break;
        size += got;
    }
    close(file);
    (*into)[size] = 0;
    return size;
}

/* ---- answers */

static struct answer *add_answer(char kind, uint64_t number) {
    if (!self.out_bytes) self.untold_since = seconds(CLOCK_MONOTONIC);
    self.out = room_for(self.out, &self.out_room, self.out_bytes + sizeof(struct answer), 1);
    struct answer *made = memset(self.out + self.out_bytes, 0, sizeof(struct answer));
    self.out_bytes += sizeof(struct answer);
    made->kind = kind;
    made->number = number;
    return made;
}

static void watch_for_room(bool watch) {
    if (watch == self.is_watching_room) return;
    struct epoll_event event = {.events = EPOLLIN | (watch ? EPOLLOUT : 0), .data.fd = self.worker};
    epoll_ctl(self.poll, EPOLL_CTL_MOD, self.worker, &event);
    self.is_watching_room = watch;
}

/* Sends what there is room for. What is left waits: this never keeps a task from being started. */
static void tell(void) {
    while (self.out_bytes) {
        ssize_t sent = send(self.worker, self.out, self.out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) break; /* full, or the worker is gone, which reading finds out */
        memmove(self.out, self.out + sent, self.out_bytes - sent);
        self.out_bytes -= sent;
    }
    self.tell_now = false;
    self.ends_untold = 0;
    self.untold_since = seconds(CLOCK_MONOTONIC);
    watch_for_room(self.out_bytes > 0);
}

/* ---- processes below others (proc(5)) */

struct pids {
    pid_t *all;
    size_t count, room;
};

static void add_pid(struct pids *found, pid_t pid) {
    found->all = room_for(found->all, &found->room, found->count + 1, sizeof(pid_t));
    found->all[found->count++] = pid;
}

static void add_listed(struct pids *found, const char *listing) {
    char *end;
    for (long pid; (pid = strtol(listing, &end, 10)) > 0 && end != listing; listing = end)
        add_pid(found, pid);
}

static void add_children(struct pids *found, pid_t pid) {
    static char *listing;
    static size_t room;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (!threads) return;
    for (struct dirent *entry; (entry = readdir(threads));) {
        int thread = atoi(entry->d_name);
        if (thread <= 0) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, thread);
        if (read_file(path, &listing, &room) > 0) add_listed(found, listing);
    }
    closedir(threads);
}

/* Everything below a process, without itself. Those that lost their parent are below it no more. */
static void add_descendants(struct pids *found, pid_t pid) {
    size_t next = found->count;
    add_children(found, pid);
    for (; next < found->count && found->count < MOST_BELOW; next++)
        add_children(found, found->all[next]);
}

/* The numbers of this program's children, each followed by a space. It is exact, because one leaves
 * it only when it is waited for here. */
static const char *own_children(size_t *size) {
    static char *listing;
    static size_t room;
    for (*size = 0;;) {
        listing = room_for(listing, &room, *size + 65537, 1);
        ssize_t got = self.children < 0 ? 0 : pread(self.children, listing + *size, 65536, *size);
        if (got <= 0) break;
        *size += got;
    }
    listing[*size] = 0;
    return listing;
}

static void add_own_children(struct pids *found) {
    size_t size;
    add_listed(found, own_children(&size));
}

static pid_t first_child(pid_t pid) {
    struct pids found = {0};
    add_children(&found, pid);
    pid_t first = found.count ? found.all[0] : 0;
    free(found.all);
    return first;
}

/* ---- tasks */

/* Each task that runs, as `it`. */
#define EACH_TASK(it)                                   \
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) \
        for (struct task *it = self.tasks[bucket]; it; it = it->next)

static struct task *task_of(uint64_t number) {
    EACH_TASK(it) if (it->number == number) return it;
    return NULL;
}

static struct task *task_with(pid_t pid) {
    struct task *it = self.tasks[pid % BUCKETS];
    while (it && it->pid != pid) it = it->next;
    return it;
}

static void put_in(struct task *task) {
    task->next = self.tasks[task->pid % BUCKETS];
    self.tasks[task->pid % BUCKETS] = task;
    self.task_count++;
}

static void take_out_task(struct task *task) {
    struct task **at = &self.tasks[task->pid % BUCKETS];
    while (*at != task) at = &(*at)->next;
    *at = task->next;
    self.task_count--;
}

static void set_grace(struct task *task, bool has_grace) {
    self.grace_count += has_grace - task->in_grace;
    task->in_grace = has_grace;
}

/* ---- what a child does before it is a program: without errno, which is its parent's */

#define OWN_STACK __attribute__((noinline, no_sanitize("address", "undefined")))

OWN_STACK static long call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long kind __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    __asm__ volatile("svc 0"
                     : "+r"(result)
                     : "r"(kind), "r"(second), "r"(third), "r"(fourth)
                     : "memory");
    return result;
#else
#error "no system calls for this kind of processor"
#endif
}

OWN_STACK static long opened(const char *name, int flags) {
    return call(SYS_openat, AT_FDCWD, (long)name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Gives an open file a descriptor that the program keeps. Returns a negative errno if it cannot. */
OWN_STACK static long put(long descriptor, int at) {
    if (descriptor < 0) return descriptor;
    if (descriptor == at) return call(SYS_fcntl, at, F_SETFD, 0, 0);
    return call(SYS_dup3, descriptor, at, 0, 0);
}

/* Begins as in a fresh login: a session of its own, three descriptors, no signal blocked. The files
 * are looked up from the scratch directory, so that nobody can lead them astray. O_NONBLOCK means
 * nothing for a file, and an error where a FIFO would keep the task until somebody reads it. */
OWN_STACK static long begin(struct starting *it) {
    const int writes = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK;
    const int empties = it->flags & APPENDS ? 0 : O_TRUNC;
    const uint64_t none = 0;
    long failed;
    call(SYS_setsid, 0, 0, 0, 0);
    it->step = SCRATCH;
    if ((failed = call(SYS_fchdir, it->scratch, 0, 0, 0)) < 0) return failed;
    it->step = STREAMS;
    /* Whoever waited for a writer of a FIFO would start nothing any more. */
    long reads = O_RDONLY | O_NONBLOCK;
    if ((failed = put(it->input[0] ? opened(it->input, reads) : self.null, 0)) < 0) return failed;
    if ((failed = put(opened("../stdout", writes | empties), 1)) < 0) return failed;
    if ((failed = put(opened("../stderr", writes | empties), 2)) < 0) return failed;
    if (it->flags & JOINS && (failed = put(1, 2)) < 0) return failed;
    if (it->options >= 0 && (failed = put(it->options, OPTIONS_DESCRIPTOR)) < 0) return failed;
    if (it->flags & HAS_STATUS) {
        /* A new one each time: a task may have put something else in the place of the last. */
        call(SYS_unlinkat, AT_FDCWD, (long)"../sandbox-status", 0, 0);
        long status = opened("../sandbox-status", O_WRONLY | O_CREAT | O_EXCL);
        if ((failed = put(status, STATUS_DESCRIPTOR)) < 0) return failed;
    }
    if (it->init[0] && (failed = put(opened(it->init, O_RDONLY), INIT_DESCRIPTOR)) < 0) return failed;
    it->step = WORKDIR;
    if (it->workdir[0] && (failed = call(SYS_chdir, (long)it->workdir, 0, 0, 0)) < 0) return failed;
    it->step = PROGRAM;
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof none);
    return call(SYS_execve, (long)it->program, (long)it->words, (long)it->variables, 0);
}

OWN_STACK static int become(void *starting) {
    struct starting *it = starting;
    it->error = -begin(it);
    call(SYS_exit, 127, 0, 0, 0);
    return 127;
}

/* ---- starting */

static void forget_starting(struct starting *it) {
    if (it->scratch >= 0) close(it->scratch);
    if (it->options >= 0) close(it->options);
    free(it->words);
    free(it->variables);
    free(it->request);
    it->next = self.unused;
    self.unused = it;
}

/* Opens the scratch directory of a sandbox if it is the one that the worker made. */
static int open_scratch(const char *sandbox, uint64_t device, uint64_t inode) {
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    char path[300];
    struct stat state;
    if (snprintf(path, sizeof path, "%s/scratch", sandbox) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int scratch = openat(self.directory, path, flags);
    if (scratch < 0 && errno == ENOENT && !fstat(self.directory, &state) && !state.st_nlink) {
        int made = above(open(self.directory_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (made < 0) return -1; /* somebody removed it, and the worker has not made it again */
        close(self.directory);
        self.directory = made;
        scratch = openat(self.directory, path, flags);
    }
    if (scratch < 0) return -1;
    if (fstat(scratch, &state) || state.st_dev != device || state.st_ino != inode) {
        close(scratch);
        errno = ESTALE;
        return -1;
    }
    return above(scratch);
}

static int options_file(const char *options, size_t size) {
    int file = memfd_create("options", MFD_CLOEXEC);
    if (file < 0) return -1;
    for (size_t written = 0; written < size;) {
        ssize_t more = write(file, options + written, size - written);
        if (more < 0) {
            close(file);
            return -1;
        }
        written += more;
    }
    lseek(file, 0, SEEK_SET);
    return above(file);
}

static void not_started(uint64_t number, int error, int step) {
    struct answer *said = add_answer('n', number);
    said->code = error;
    said->step = step;
    said->wall = seconds(CLOCK_REALTIME);
    self.tell_now = true;
}

/* A request that says what its size does not allow: the other side is not the worker's program. */
__attribute__((noreturn)) static void refuse(void) {
    fprintf(stderr, "kestrel-launcher: a request that cannot be read\n");
    exit(2);
}

static const char *next_text(const char **at, const char *end) {
    const char *text = *at;
    const char *nul = memchr(text, 0, end - text);
    if (!nul) refuse();
    *at = nul + 1;
    return text;
}

static char **next_texts(const char **at, const char *end, uint32_t count) {
    if (count > (size_t)(end - *at)) refuse();
    char **texts = malloc((count + 1) * sizeof(char *));
    if (!texts) give_up("memory");
    for (uint32_t i = 0; i < count; i++) texts[i] = (char *)next_text(at, end);
    texts[count] = NULL;
    return texts;
}

static void head_of(const char *request, size_t size, struct start_request *head) {
    if (size < sizeof *head) refuse();
    memcpy(head, request, sizeof *head);
}

static void fails(uint64_t number, struct starting *it, int error, int step) {
    not_started(number, error, step);
    forget_starting(it);
}

/* Starts what a request asks for, which it frees. */
static void start(char *request, size_t size) {
    struct start_request head;
    head_of(request, size, &head);
    const char *at = request + sizeof head, *end = request + size;
    struct starting *it = self.unused;
    if (it) self.unused = it->next;
    else if (!(it = malloc(sizeof *it))) give_up("memory");
    const char *sandbox = next_text(&at, end);
    it->request = request;
    it->program = next_text(&at, end);
    it->init = next_text(&at, end);
    it->workdir = next_text(&at, end);
    it->input = next_text(&at, end);
    it->words = next_texts(&at, end, head.words);
    it->variables = next_texts(&at, end, head.variables);
    it->flags = head.flags;
    it->options = it->scratch = -1;
    it->error = it->step = 0;
    if ((size_t)(end - at) != head.options_bytes) refuse();
    it->scratch = open_scratch(sandbox, head.device, head.inode);
    if (it->scratch < 0) return fails(head.number, it, errno, SCRATCH);
    if (head.options_bytes) {
        it->options = options_file(at, head.options_bytes);
        if (it->options < 0) return fails(head.number, it, errno, STREAMS);
    }
    it->wall = seconds(CLOCK_REALTIME);
    it->since = seconds(CLOCK_MONOTONIC);
    it->unfinished = 1; /* the kernel makes it 0 when the child executes its program, or ends */
    pid_t pid = clone(become, it->stack + STACK_BYTES, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, it,
                      NULL, NULL, &it->unfinished);
    if (pid < 0) return fails(head.number, it, errno, NOT_A_STEP);
    struct task *task = malloc(sizeof *task);
    if (!task) give_up("memory");
    *task = (struct task){
        .number = head.number,
        .pid = pid,
        .starting = it,
        .lane = head.lane,
        .has_own_init = it->init[0],
        .since = it->since,
        .sandbox = self.tree == INIT ? strdup(sandbox) : NULL,
    };
    put_in(task);
    self.starting_count++;
    self.last_start_at = it->since;
}

/* Tells that a task has started, if it has: its child has executed the program, or has ended. */
static void tell_start(struct task *task) {
    struct starting *it = task->starting;
    if (!it || it->unfinished) return;
    task->starting = NULL;
    self.starting_count--;
    if (it->error) {
        not_started(task->number, it->error, it->step);
    } else {
        struct answer *said = add_answer('s', task->number);
        said->pid = task->pid;
        said->wall = it->wall;
        said->at = it->since;
        said->took_seconds = seconds(CLOCK_MONOTONIC) - it->since;
    }
    if (it->error) {
        task->has_failed = true;
        task->number = NO_NUMBER; /* the worker may try again before the child is waited for */
    }
    forget_starting(it);
}

static void tell_starts(void) {
    if (!self.starting_count) return;
    EACH_TASK(task) if (task->starting) tell_start(task);
}

/* ---- what waits */

static struct waiting *take_out(struct waiting_list *list, struct waiting **at) {
    struct waiting *taken = *at;
    *at = taken->next;
    if (list->last == &taken->next) list->last = at;
    return taken;
}

static void keep_waiting(char *request, size_t size, const struct start_request *head) {
    struct waiting_list *list = &self.waiting[head->lane % BUCKETS];
    struct waiting *made = malloc(sizeof *made);
    if (!made) give_up("memory");
    *made = (struct waiting){
        .lane = head->lane, .number = head->number, .size = size, .request = request};
    *(list->first ? list->last : &list->first) = made;
    list->last = &made->next;
}

static struct waiting *take_number(uint64_t number) {
    for (size_t bucket = 0; bucket < BUCKETS; bucket++)
        for (struct waiting **at = &self.waiting[bucket].first; *at; at = &(*at)->next)
            if ((*at)->number == number) return take_out(&self.waiting[bucket], at);
    return NULL;
}

static void start_taken(struct waiting *taken) {
    start(taken->request, taken->size);
    free(taken);
}

/* Gives a place to the next of a lane, be it that this cannot start. Returns whether there is one. */
static bool start_next(uint32_t lane) {
    struct waiting_list *list = &self.waiting[lane % BUCKETS];
    for (struct waiting **at = &list->first; *at; at = &(*at)->next) {
        if ((*at)->lane != lane) continue;
        struct waiting *taken = take_out(list, at);
        add_answer('b', taken->number)->at = seconds(CLOCK_MONOTONIC);
        start_taken(taken);
        return true;
    }
    return false;
}

/* ---- orphans: processes of a task that lost their parent to this program (a subreaper) */

/* Which attempt a process says it belongs to; false if it says none, or cannot be asked. */
static bool attempt_of(pid_t pid, uint64_t *number) {
    static const char MARK[] = "KESTREL_ATTEMPT_ID=";
    static char *text;
    static size_t room;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    ssize_t size = read_file(path, &text, &room);
    for (ssize_t at = 0; at < size; at += strlen(text + at) + 1) {
        if (strncmp(text + at, MARK, sizeof MARK - 1)) continue;
        const char *digits = text + at + sizeof MARK - 1;
        if (!isdigit((unsigned char)*digits)) return false;
        char *end;
        *number = strtoull(digits, &end, 10);
        return !*end;
    }
    return false;
}

static void tell_orphan(const struct orphan *it, bool is_new) {
    if (!it->is_known) return;
    struct answer *said = add_answer('o', it->number);
    said->pid = it->pid;
    said->flags = is_new;
}

static void forget_orphan(pid_t pid) {
    for (size_t i = 0; i < self.orphan_count; i++)
        if (self.orphans[i].pid == pid) {
            tell_orphan(&self.orphans[i], false);
            self.orphans[i] = self.orphans[--self.orphan_count];
            return;
        }
}

static bool is_orphan(pid_t pid) {
    for (size_t i = 0; i < self.orphan_count; i++)
        if (self.orphans[i].pid == pid) return true;
    return false;
}

static void look_for_orphans(double now) {
    static struct pids found;
    size_t size, count = 0;
    const char *listing = own_children(&size);
    for (size_t i = 0; i < size; i++) count += listing[i] == ' ';
    if (count == self.task_count + self.orphan_count) return;
    found.count = 0;
    add_listed(&found, listing);
    for (size_t i = 0; i < found.count; i++) {
        pid_t pid = found.all[i];
        if (task_with(pid) || is_orphan(pid)) continue;
        self.orphans =
            room_for(self.orphans, &self.orphan_room, self.orphan_count + 1, sizeof(struct orphan));
        struct orphan *made = &self.orphans[self.orphan_count++];
        *made = (struct orphan){.pid = pid, .found_at = now};
        made->is_known = attempt_of(pid, &made->number);
        tell_orphan(made, true);
    }
}

/* Whether an orphan exists that belongs, or may belong, to this attempt. */
static bool may_have_orphan(uint64_t number) {
    for (size_t i = 0; i < self.orphan_count; i++)
        if (!self.orphans[i].is_known || self.orphans[i].number == number) return true;
    return false;
}

/* Kills the orphans whose attempt is over. One that says none belongs to one of those that ran when
 * it was found, so it dies when all of these are over. */
static void kill_finished_orphans(void) {
    if (!self.orphan_count) return;
    double oldest = INFINITY;
    EACH_TASK(task) if (task->since < oldest) oldest = task->since;
    for (size_t i = 0; i < self.orphan_count; i++) {
        const struct orphan *it = &self.orphans[i];
        bool runs = it->is_known ? task_of(it->number) != NULL : oldest <= it->found_at;
        if (!runs) kill(it->pid, SIGKILL);
    }
}

/* ---- signals */

/* Ends a task and whatever it has started, as far as that can be found, at once. */
static void kill_task(struct task *task) {
    set_grace(task, false);
    if (task->starting) kill(task->pid, SIGKILL); /* it may lead no group yet */
    if (task->monitor_is_gone) {
        kill(task->pid, SIGKILL);
    } else if (self.tree == INIT) {
        pid_t init = first_child(task->pid);
        kill(init ? init : -task->pid, SIGKILL);
    } else if (self.tree == MONITOR) {
        kill(-task->pid, SIGKILL);
    } else {
        /* Its group first: within that a signal reaches also what is being forked. */
        struct pids others = {0}, below = {0};
        add_descendants(&others, task->pid);
        kill(-task->pid, SIGKILL);
        for (int round = 0; round < KILL_ROUNDS && others.count; round++) {
            below.count = 0;
            for (size_t i = 0; i < others.count; i++) add_descendants(&below, others.all[i]);
            for (size_t i = 0; i < others.count; i++) kill(others.all[i], SIGKILL);
            struct pids done = others;
            others = below;
            below = done;
        }
        free(others.all);
        free(below.all);
    }
}

/* Signals a task's first group. One that has not begun yet, because its namespace is still being
 * made, is killed. A group has its grace then: all of it may take their time to end. */
static void signal_task(struct task *task, int number) {
    if (self.tree == GROUP) {
        if (kill(-task->pid, number)) kill(task->pid, number); /* it may lead no group yet */
        set_grace(task, true);
        return;
    }
    pid_t init = task->monitor_is_gone ? task->pid : first_child(task->pid);
    if (!init || !first_child(init)) {
        kill_task(task);
        return;
    }
    if (task->has_own_init) {
        kill(init, number); /* it passes that on once it knows that the group has its grace */
        return;
    }
    /* The task's group is also the init's, which takes no notice (pid_namespaces(7)). */
    pid_t group = getpgid(init);
    if (group > 1) kill(-group, number);
}

/* ---- ends */

/* The init of the namespace that a sandbox program made, if that is still to be waited for. */
static pid_t init_left_by(const struct task *task) {
    static const char MARK[] = "\"child-pid\":";
    char path[300], text[4097];
    siginfo_t told = {0};
    if (self.tree != INIT || task->monitor_is_gone || task->has_failed) return 0;
    snprintf(path, sizeof path, "%s/sandbox-status", task->sandbox);
    int file = openat(self.directory, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    const char *said = strstr(text, MARK);
    pid_t init = said ? atoi(said + sizeof MARK - 1) : 0;
    if (init <= 0 || task_with(init)) return 0;
    return waitid(P_PID, init, &told, WEXITED | WNOHANG | WNOWAIT) ? 0 : init;
}

/* Waits for a child that has ended. */
static void take(pid_t pid) {
    struct rusage used;
    int status;
    struct task *task = task_with(pid);
    if (task) kill(-pid, SIGKILL); /* while the number is its own */
    if (wait4(pid, &status, WNOHANG, &used) != pid) return;
    forget_orphan(pid);
    if (!task) return;
    if (!kill(-pid, 0) || errno == EPERM) task->left_something = true;
    task->cpu_seconds += used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                         (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    if (used.ru_maxrss > task->max_rss_kilobytes) task->max_rss_kilobytes = used.ru_maxrss;
    if (!task->monitor_is_gone) task->status = status;
    tell_start(task);
    pid_t init = init_left_by(task);
    take_out_task(task);
    if (init) {
        forget_orphan(init);
        task->pid = init;
        task->monitor_is_gone = true;
        put_in(task);
        return;
    }
    set_grace(task, false);
    task->next = self.over;
    self.over = task;
}

static bool has_ended(pid_t pid) {
    siginfo_t told = {0};
    return !waitid(P_PID, pid, &told, WEXITED | WNOHANG | WNOWAIT) && told.si_pid == pid;
}

/* Whether somebody lives in the group of a leader that has ended. What a leader leaves is handed to
 * this program as it ends; a process of its group may also be below one that has left the group. */
static bool group_lives(pid_t leader, const struct pids *children) {
    struct pids below = {0};
    bool lives = false;
    for (size_t i = 0; i < children->count && !lives; i++) {
        pid_t pid = children->all[i];
        if (task_with(pid) || has_ended(pid)) continue;
        lives = getpgid(pid) == leader;
        below.count = 0;
        if (!lives) add_descendants(&below, pid);
        for (size_t j = 0; j < below.count && !lives; j++)
            lives = getpgid(below.all[j]) == leader;
    }
    free(below.all);
    return lives;
}

/* Waits for the children that have ended, while groups have their grace. The leader of such a group
 * is waited for when nobody else of it lives: until then nobody else can have the group's number,
 * and the task is not over. */
static void take_beside_graces(void) {
    struct pids found = {0}, graces = {0};
    add_own_children(&found);
    EACH_TASK(task) {
        add_pid(&found, task->pid);
        if (task->in_grace) add_pid(&graces, task->pid);
    }
    for (size_t i = 0; i < found.count; i++) {
        struct task *task = task_with(found.all[i]);
        if (!(task && task->in_grace) && has_ended(found.all[i])) take(found.all[i]);
    }
    found.count = 0;
    add_own_children(&found);
    for (size_t i = 0; i < graces.count; i++)
        if (has_ended(graces.all[i]) && !group_lives(graces.all[i], &found)) take(graces.all[i]);
    free(found.all);
    free(graces.all);
}

/* Tells which tasks are over, and starts what waits for their places. */
static void tell_ends(double now) {
    while (self.over) {
        struct task *over = self.over;
        self.over = over->next;
        if (over->has_failed) { /* the worker may try it again: its place is not given away */
            free(over->sandbox);
            free(over);
            continue;
        }
        bool left = over->left_something || may_have_orphan(over->number);
        bool is_followed = over->lane && start_next(over->lane);
        struct answer *said = add_answer('e', over->number);
        said->flags = left;
        said->code = over->status;
        said->at = now;
        said->cpu_seconds = over->cpu_seconds;
        /* A child begins with the peak of its parent, which is this program's. */
        if (over->max_rss_kilobytes > self.own_peak_kilobytes)
            said->peak_bytes = (uint64_t)over->max_rss_kilobytes * 1024;
        self.ends_untold++;
        if (!is_followed) self.tell_now = true;
        free(over->sandbox);
        free(over);
    }
}

static void reap(void) {
    if (self.grace_count) {
        take_beside_graces();
    } else {
        for (siginfo_t told;;) {
            told.si_pid = 0;
            if (waitid(P_ALL, 0, &told, WEXITED | WNOHANG | WNOWAIT) || !told.si_pid) break;
            take(told.si_pid);
        }
    }
    double now = seconds(CLOCK_MONOTONIC);
    look_for_orphans(now);
    tell_ends(now);
    kill_finished_orphans();
}

/* ---- requests */

static void serve(char kind, const char *request, size_t size) {
    uint64_t number;
    uint32_t signal_number = 0;
    if (kind == 's') {
        struct start_request head;
        head_of(request, size, &head);
        char *kept = malloc(size);
        if (!kept) give_up("memory");
        memcpy(kept, request, size);
        if (head.flags & WAITS) keep_waiting(kept, size, &head);
        else start(kept, size);
        return;
    }
    if (size < sizeof number) refuse();
    memcpy(&number, request, sizeof number);
    if (kind == 'p') {
        add_answer('p', number);
        self.tell_now = true;
    } else if (kind == 'g' || kind == 'w') {
        struct waiting *taken = take_number(number);
        if (!taken) return; /* it has started meanwhile, which was told */
        if (kind == 'g') {
            start_taken(taken);
            return;
        }
        add_answer('w', number);
        self.tell_now = true;
        free(taken->request);
        free(taken);
    } else if (kind == 'k' || kind == 't') {
        if (kind == 't') {
            if (size != sizeof number + sizeof signal_number) refuse();
            memcpy(&signal_number, request + sizeof number, sizeof signal_number);
            if (signal_number < 1 || signal_number > 64) refuse();
        }
        struct task *task = task_of(number);
        if (!task) return;
        if (kind == 't') signal_task(task, signal_number);
        else kill_task(task);
        reap(); /* what has ended and had its grace may be over now */
    } else {
        refuse();
    }
}

/* Serves what has come. Returns false when the worker's end is closed. */
static bool hear(void) {
    self.in = room_for(self.in, &self.in_room, self.in_bytes + 65536, 1);
    ssize_t got = recv(self.worker, self.in + self.in_bytes, self.in_room - self.in_bytes, MSG_DONTWAIT);
    if (!got) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    self.in_bytes += got;
    size_t at = 0;
    for (uint32_t size; self.in_bytes - at >= sizeof size; at += sizeof size + size) {
        memcpy(&size, self.in + at, sizeof size);
        if (size < 1 || size > MOST_REQUEST_BYTES) refuse();
        if (self.in_bytes - at - sizeof size < size) break;
        const char *request = self.in + at + sizeof size;
        serve(request[0], request + 1, size - 1);
    }
    memmove(self.in, self.in + at, self.in_bytes - at);
    self.in_bytes -= at;
    return true;
}

/* The worker is gone: nothing of it goes on. */
static void end_everything(void) {
    struct pids found = {0};
    for (int round = 0; round < LAST_ROUNDS; round++) {
        found.count = 0;
        add_own_children(&found);
        EACH_TASK(task) kill(-task->pid, SIGKILL);
        for (size_t i = 0; i < found.count; i++) kill(found.all[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) break;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    free(found.all);
}

static int until(double when, double now) {
    return when <= now ? 0 : (int)((when - now) * 1000) + 1;
}

static void run(void) {
    double look_at = 0;
    for (;;) {
        tell_starts();
        double now = seconds(CLOCK_MONOTONIC);
        bool full = self.ends_untold >= MOST_ENDS_AT_ONCE;
        bool late = self.out_bytes && now >= self.untold_since + COMPANY_SECONDS;
        if (self.out_bytes && !self.is_watching_room && (self.tell_now || full || late)) tell();
        int pause = -1;
        if (self.starting_count) pause = now - self.last_start_at < SLOW_SECONDS ? 1 : 100;
        else if (self.out_bytes && !self.is_watching_room)
            pause = until(self.untold_since + COMPANY_SECONDS, now);
        if (self.orphan_count) {
            if (look_at <= now) look_at = now + ORPHAN_SECONDS;
            int soon = until(look_at, now);
            if (pause < 0 || soon < pause) pause = soon;
        }
        struct epoll_event events[2];
        int count = epoll_wait(self.poll, events, 2, pause);
        bool reaps = self.orphan_count && seconds(CLOCK_MONOTONIC) >= look_at;
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == self.child_signal) {
                struct signalfd_siginfo heard;
                while (read(self.child_signal, &heard, sizeof heard) > 0) continue;
                reaps = true;
                continue;
            }
            if (events[i].events & EPOLLOUT) tell();
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !hear()) return;
        }
        if (reaps) reap();
    }
}

static void watch(int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    if (epoll_ctl(self.poll, EPOLL_CTL_ADD, descriptor, &event)) give_up("epoll");
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: kestrel-launcher DESCRIPTOR TREE DIRECTORY\n");
        return 2;
    }
    sigset_t all, child;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    self.worker = needed(atoi(words[1]), "descriptor");
    self.tree = atoi(words[2]);
    self.directory_path = words[3];
    const int directory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    self.directory = needed(open(words[3], directory), words[3]);
    self.null = needed(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null");
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    self.children = above(open(path, O_RDONLY | O_CLOEXEC)); /* some kernels do not have it */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* tasks of the same user may not trace this program */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    self.child_signal = needed(signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd");
    self.poll = needed(epoll_create1(EPOLL_CLOEXEC), "epoll");
    watch(self.child_signal);
    watch(self.worker);
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    self.own_peak_kilobytes = own.ru_maxrss + 256;
    run();
    end_everything();
    return 0;
}
