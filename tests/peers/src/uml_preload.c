/*
 * Mends three faults of User Mode Linux 6.1 from outside. Loaded by LD_PRELOAD. All three are in the guest's kernel, between
 * the host's signals and the guest's interrupts. None of this touches a ring or a kick: a call that the switch does not send
 * stays lost, and so does a packet.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The epoll instance with the sources of all interrupts: consoles, and the calls of virtio devices. */
static int sources = -1;

/*
 * The guest's interrupt handler reads up to 64 events into a static array and handles them one by one. While it handles one, a
 * further SIGIO starts the handler again, and this one overwrites the array. The events are edge-triggered, so the first
 * handler's remaining ones are lost: a line on the console is not read before the next line, a call of the switch not before
 * the next call. With one event at a time, the first handler has nothing to lose. It asks for events until there are none.
 */
int epoll_wait(int epoll, struct epoll_event *events, int max, int timeout)
{
	static int (*real)(int, struct epoll_event *, int, int);

	if (!real)
		real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	sources = epoll;
	return real(epoll, events, max > 1 ? 1 : max, timeout);
}

/*
 * The guest's idle loop disables interrupts and then sleeps. A SIGIO between the two is only noted, and the guest sleeps on,
 * until a timer of up to four seconds. So SIGIO is blocked here until the sleep has begun, and an event from before is
 * announced again.
 */
int sigsuspend(const sigset_t *mask)
{
	static int (*real)(const sigset_t *);
	struct pollfd before = { .fd = sources, .events = POLLIN };
	sigset_t io, old;
	int result;

	if (!real)
		real = (int (*)(const sigset_t *))dlsym(RTLD_NEXT, "sigsuspend");
	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	sigprocmask(SIG_BLOCK, &io, &old);
	if (sources >= 0 && poll(&before, 1, 0) > 0)
		kill(getpid(), SIGIO);
	result = real(mask);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return result;
}

/* Larger than the whole state that is defined. */
static unsigned char whole[1 << 16];

/*
 * User Mode Linux keeps the extended registers of its processes in buffers of a fixed size, without AMX. On processors with
 * AMX, the host's kernel accepts only the whole set of registers: it refuses a shorter buffer with EFAULT (xstateregs_set() in
 * arch/x86/kernel/fpu/regset.c), and the guest panics at its first process. So written registers are padded with zeros, which
 * mean the initial state. Reads need nothing: the kernel itself truncates them.
 */
long ptrace(enum __ptrace_request request, ...)
{
	static long (*real)(enum __ptrace_request, pid_t, void *, void *);
	va_list args;

	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if (!real)
		real = (long (*)(enum __ptrace_request, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE) {
		const struct iovec *set = data;
		struct iovec all = { whole, sizeof(whole) };

		/* The kernel returns the necessary length. */
		if (!real(PTRACE_GETREGSET, pid, addr, &all) && set->iov_len < all.iov_len) {
			memcpy(whole, set->iov_base, set->iov_len);
			memset(whole + set->iov_len, 0, all.iov_len - set->iov_len);
			return real(request, pid, addr, &all);
		}
	}
	return real(request, pid, addr, data);
}
