/* DPDK's copy, for the benchmarks only. They compile it if the headers of libdpdk are installed. */
#include <stddef.h>

#include <rte_memcpy.h>

struct job {
	size_t dst, src, len;
};

void bench_rte_memcpy(char *dst, const char *src, const struct job *jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rte_memcpy(dst + jobs[i].dst, src + jobs[i].src, jobs[i].len);
}
