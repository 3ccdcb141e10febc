/* Loaded into the server by LD_PRELOAD. On SIGUSR2 it tries, from inside, what a server that was
 * talked into something would try, and writes a line for each attempt: its name, and the number of
 * the error or 0 where it succeeded. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int report = -1;
static char outside[4096], inside[4096];

static void tell(const char *name, long result) {
    char line[128];
    int error = result == -1 ? errno : 0;
    int length = snprintf(line, sizeof line, "%s %d\n", name, error);
    if (write(report, line, length) != length) abort();
}

static void *nothing(void *unused) { return unused; }

/* What a socket may do. */
static void attempt_by_sockets(void) {
    int pair[2];
    tell("socket_pair", socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    struct iovec byte = {"", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1};
    /* TCP connects by this, for which Landlock does not ask. */
    tell("fast_open", sendto(pair[0], "", 1, MSG_FASTOPEN, NULL, 0));
    tell("fast_open_message", sendmsg(pair[0], &message, MSG_FASTOPEN));
    tell("message", sendto(pair[0], "", 1, MSG_NOSIGNAL, NULL, 0));
    /* The owner of a descriptor gets a signal of any number when it is ready. */
    tell("owner_of_signals", fcntl(pair[0], F_SETOWN, getppid()));
    tell("no_owner_of_signals", fcntl(pair[0], F_SETOWN, 0));
    struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    tell("owner_by_kind", fcntl(pair[0], F_SETOWN_EX, &owner));
    tell("number_of_signals", fcntl(pair[0], F_SETSIG, SIGKILL));
    tell("tcp_socket", socket(AF_INET, SOCK_STREAM, 0));
    /* Landlock restricts TCP alone, and this reaches every TCP server. */
    tell("mptcp_socket", socket(AF_INET, SOCK_STREAM, 262));
    tell("raw_socket", socket(AF_INET6, SOCK_RAW, 58));
    tell("packet_socket", socket(AF_PACKET, SOCK_RAW, 0));
    tell("unix_stream", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    tell("unix_datagram", socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

/* What may be set without opening a file for writing. */
static void attempt_by_modes(void) {
    int file = open(inside, O_RDONLY);
    tell("mode_outside", chmod(outside, 0646));
    tell("mode_inside", fchmod(file, 0666));
    tell("set_user_id", fchmod(file, 04755));
    tell("time_inside", futimens(file, NULL));
}

static void attempt(int signal) {
    (void)signal;
    char *const words[] = {"/bin/true", NULL};
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {&byte, 1};
    tell("execve", execve(words[0], words, NULL));
    tell("fork", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    tell("clone3", syscall(SYS_clone3, NULL, 0));
    tell("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
    tell("process_vm_readv", process_vm_readv(getppid(), &local, 1, &remote, 1, 0));
    tell("kill", kill(getppid(), 0));
    tell("signal_another", syscall(SYS_tgkill, getppid(), getppid(), 0));
    tell("limit_another", syscall(SYS_prlimit64, getppid(), 0, NULL, NULL));
    tell("limit_itself", syscall(SYS_prlimit64, 0, 0, NULL, NULL));
    tell("mount", mount("none", "/", "tmpfs", MS_BIND, NULL));
    tell("unshare", unshare(CLONE_NEWUSER));
    tell("setuid", syscall(SYS_setuid, 0));
    tell("chown", chown(inside, 1, 1));
    tell("bpf", syscall(SYS_bpf, 0, NULL, 0));
    tell("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
    tell("keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    tell("memfd_create", syscall(SYS_memfd_create, "x", 0));
    tell("executable_memory", (long)mmap(NULL, 4096, PROT_READ | PROT_EXEC,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    attempt_by_sockets();
    attempt_by_modes();
    tell("terminal_input", syscall(SYS_ioctl, 0, 0x5412, &byte));
    tell("read_outside", open(outside, O_RDONLY));
    tell("write_outside", open(outside, O_WRONLY));
    tell("write_inside", open(inside, O_WRONLY));
    tell("read_inside", open(inside, O_RDONLY));
    pthread_t thread;
    errno = pthread_create(&thread, NULL, nothing, NULL);
    tell("thread", errno ? -1 : pthread_join(thread, NULL));
    tell("end", 0);
}

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("ATTEMPTS_REPORT");
    /* Programs that the environment reaches otherwise are not meant. */
    if (!path) return;
    report = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    strncpy(outside, getenv("ATTEMPTS_OUTSIDE"), sizeof outside - 1);
    strncpy(inside, getenv("ATTEMPTS_INSIDE"), sizeof inside - 1);
    struct sigaction action = {.sa_handler = attempt};
    sigaction(SIGUSR2, &action, NULL);
}
