/*
 * Lets User Mode Linux run on processors with AMX. Loaded by LD_PRELOAD.
 *
 * User Mode Linux keeps the extended registers of its processes in buffers of a fixed size, without AMX. The kernel accepts
 * only the whole set of registers: it refuses a shorter buffer with EFAULT (xstateregs_set() in
 * arch/x86/kernel/fpu/regset.c), and the guest panics at its first process. So this library pads written registers with
 * zeros, which mean the initial state. Reads need nothing: the kernel itself truncates them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Larger than the whole state that is defined. */
static unsigned char whole[1 << 16];

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
