/* DPDK's copy, for the benches only: compiled by them where libdpdk's headers are. */
#include <stddef.h>

#include <rte_memcpy.h>

void bench_rte_memcpy(void *dst, const void *src, size_t len)
{
	rte_memcpy(dst, src, len);
}
