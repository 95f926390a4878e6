/* DPDK's copy, for the benches only: compiled by them where libdpdk's headers are. */
#include <stddef.h>

#include <rte_memcpy.h>

struct place {
	size_t dst, src, len;
};

void bench_rte_memcpy(char *dst, const char *src, const struct place *places, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rte_memcpy(dst + places[i].dst, src + places[i].src, places[i].len);
}
