/* The first process of a task's process namespace (pid_namespaces(7)): starts the task, and gives
 * what belongs to its group time to end when it is asked to.
 *
 *     kestrel-init PROGRAM WORDS...
 *
 * It is executed by its descriptor, because it lies in no file that the task can see. To
 * STATUS_DESCRIPTOR it writes, a line each, `began`; `failed ERRNO PROGRAM` if that cannot be
 * executed; `exited CODE` or `killed SIGNAL` when it has ended. `InitReport` reads that.
 *
 * When the task ends, this program does, too, and the kernel kills everybody else; unless it has
 * been signalled from outside. It passes that signal on to the task's group, which is its own, and
 * waits for all of the group. It passes it on, rather than hear it beside the others, because a
 * task that dies of the signal at once may be reaped before. Nobody inside can signal, trace or end
 * it.
 *
 * It stands on no library: none may be there in the task's files, and it costs each task the time
 * to be loaded.
 */
#include <asm/unistd.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

enum {
    OPTIONS_DESCRIPTOR = 3,
    STATUS_DESCRIPTOR = 4,
    INIT_DESCRIPTOR = 5,
    NOT_EXECUTED = 127,
    NO_HANG = 1,               /* wait4(2) */
    PARTS_OF_LISTING = 32768,  /* bytes of a directory that are read at once */
    LOOK_NANOSECONDS = 20000000, /* so often the group is looked at while it has its grace */
};

/* ---- system calls */

static long call(long number, long a, long b, long c, long d, long e) {
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long kind __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    __asm__ volatile("svc 0"
                     : "+r"(result)
                     : "r"(kind), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
                     : "memory");
    return result;
#else
#error "no system calls for this kind of processor"
#endif
}

/* Where the kernel begins: at the words, with a stack that no function has used. */
#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29, #0\n\tmov x30, #0\n\tmov x0, sp\n\tbl run\n");
#endif

/* The kernel's own shapes, which the C library's headers do not have. */
struct told { /* siginfo_t(2) as far as it is read */
    int signal, error, code, padding, sender;
    char rest[128 - 5 * sizeof(int)];
};
struct moment { long seconds, nanoseconds; };
struct entry { /* getdents64(2) */
    uint64_t inode, offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* ---- text */

static size_t length(const char *text) {
    size_t size = 0;
    while (text[size]) size++;
    return size;
}

static void write_text(const char *text) {
    call(__NR_write, STATUS_DESCRIPTOR, (long)text, (long)length(text), 0, 0);
}

/* Says what happened, a number, and a program if there is one. */
static void say(const char *what, unsigned number, const char *program) {
    char digits[12], *at = digits + sizeof digits;
    *--at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    write_text(what);
    write_text(at);
    if (*program) write_text(" ");
    write_text(program);
    write_text("\n");
}

static long number_at(const char **at) {
    long number = 0;
    while (**at == ' ') (*at)++;
    while (**at >= '0' && **at <= '9') number = number * 10 + *(*at)++ - '0';
    return number;
}

/* ---- the group */

/* Whether a process lives and belongs to the group (proc_pid_stat(5): `1 (name) S 0 GROUP ...`). */
static int is_living_member(const char *process, long group) {
    char path[40] = "/proc/", text[512];
    size_t at = length(path);
    if (length(process) > 12) return 0;
    while (*process) path[at++] = *process++;
    for (const char *end = "/stat"; *end;) path[at++] = *end++;
    path[at] = 0;
    long file = call(__NR_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    if (file < 0) return 0;
    long size = call(__NR_read, file, (long)text, sizeof text - 1, 0, 0);
    call(__NR_close, file, 0, 0, 0, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    const char *after = text;
    for (const char *each = text; *each; each++)
        if (*each == ')') after = each + 1; /* a name may hold anything */
    if (*after != ' ') return 0;
    char state = after[1];
    if (state == 'Z' || state == 'X' || !state) return 0;
    after += 2;
    number_at(&after); /* its parent */
    return number_at(&after) == group;
}

/* Whether anybody else of this program's group lives. */
static int group_lives(void) {
    static _Alignas(8) char listing[PARTS_OF_LISTING];
    long group = call(__NR_getpgid, 0, 0, 0, 0, 0);
    long own = call(__NR_getpid, 0, 0, 0, 0, 0);
    long directory = call(__NR_openat, AT_FDCWD, (long)"/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    int lives = 0;
    for (long size; directory >= 0 && !lives;) {
        size = call(__NR_getdents64, directory, (long)listing, sizeof listing, 0, 0);
        if (size <= 0) break;
        for (long at = 0; at < size && !lives;) {
            const struct entry *each = (const struct entry *)(listing + at);
            const char *name = each->name;
            at += each->size;
            if (*name < '1' || *name > '9' || number_at(&name) == own) continue;
            lives = is_living_member(each->name, group);
        }
    }
    if (directory >= 0) call(__NR_close, directory, 0, 0, 0, 0);
    return lives;
}

/* ---- the task */

static uint64_t bit(int signal) { return 1ULL << (signal - 1); }

__attribute__((noreturn)) static void leave(int code) {
    for (;;) call(__NR_exit_group, code, 0, 0, 0, 0);
}

/* Becomes the task, which begins as after a login: no signal is blocked. */
__attribute__((noreturn)) static void become(char **words, char **variables) {
    const uint64_t none = 0;
    call(__NR_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof none, 0);
    long failed = call(__NR_execve, (long)words[0], (long)words, (long)variables, 0, 0);
    say("failed ", (int)-failed, words[0]);
    leave(NOT_EXECUTED);
}

/* Waits for children that have ended. Returns whether the task is one of them. */
static int reap(long task, int *status) {
    int is_over = 0;
    for (;;) {
        int each = 0;
        long pid = call(__NR_wait4, -1, (long)&each, NO_HANG, 0, 0);
        if (pid <= 0) return is_over;
        if (pid != task) continue;
        *status = each;
        is_over = 1;
    }
}

/* How the task has ended is told at once: this program may be killed before its group ends. */
static void tell_end(int status) {
    int signal = status & 0x7f;
    if (signal) say("killed ", signal, "");
    else say("exited ", status >> 8 & 0xff, "");
}

/* What somebody outside has sent, who has no number here. */
static int asks_to_end(const struct told *told) {
    return told->code == SI_USER && !told->sender && told->signal != SIGCHLD &&
           told->signal != SIGCONT && told->signal != SIGWINCH;
}

/* As the kernel leaves it: the count of words, the words, 0, the variables, 0. */
__attribute__((noreturn, used)) void run(long *start) {
    char **words = (char **)(start + 2), **variables = words + start[0];
    const uint64_t all = ~0ULL;
    if (start[0] < 2) leave(2);
    call(__NR_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0);
    call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0); /* a task of the same user may not trace it */
    call(__NR_setsid, 0, 0, 0, 0, 0); /* what made the namespace is in another group from here on */
    call(__NR_close, OPTIONS_DESCRIPTOR, 0, 0, 0, 0);
    call(__NR_close, INIT_DESCRIPTOR, 0, 0, 0, 0);
    call(__NR_fcntl, STATUS_DESCRIPTOR, F_SETFD, FD_CLOEXEC, 0, 0);
    write_text("began\n");
    long task = call(__NR_clone, SIGCHLD, 0, 0, 0, 0);
    if (!task) become(words, variables);
    if (task < 0) {
        say("failed ", (int)-task, words[0]);
        leave(NOT_EXECUTED);
    }
    const struct moment soon = {0, LOOK_NANOSECONDS};
    const uint64_t heard = all & ~(bit(SIGKILL) | bit(SIGSTOP));
    int status = 0, is_over = 0, is_asked = 0;
    while (!is_over || (is_asked && group_lives())) {
        struct told told;
        long signal = call(__NR_rt_sigtimedwait, (long)&heard, (long)&told,
                           is_over ? (long)&soon : 0, sizeof heard, 0);
        if (signal == SIGCHLD && reap(task, &status)) {
            is_over = 1;
            tell_end(status);
        } else if (signal > 0 && asks_to_end(&told)) {
            is_asked = 1;
            call(__NR_kill, 0, signal, 0, 0, 0); /* its own is ignored: somebody inside sent it */
        }
    }
    int signal = status & 0x7f;
    leave(signal ? 128 + signal : status >> 8 & 0xff);
}
