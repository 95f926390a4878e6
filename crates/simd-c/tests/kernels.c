/* Calls every set that this machine has from C: every length up to 2000, consecutive odd chunks, edges. */
#include <stdio.h>
#include <string.h>

#include "straightline_simd.h"

#define MAX 2000

static uint16_t plain_sum(const uint8_t *bytes, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static int check(const struct sl_kernels *kernels, const char *name)
{
	static uint8_t from[MAX + 64], to[MAX + 64];

	if (strcmp(kernels->name, name) != 0) {
		printf("%s: the table has the name %s\n", name, kernels->name);
		return 1;
	}
	for (size_t len = 0; len <= MAX; len++) {
		const size_t at = len * 7 % 61;
		struct sl_sum sum = {0}, fused = {0};

		for (size_t i = 0; i < sizeof from; i++)
			from[i] = (uint8_t)(i * i * 31 + (i >> 3) + len);
		const uint16_t expected = plain_sum(from + at, len);
		/* Two chunks. The first has an odd length in half of the cases. */
		kernels->sum(from + at, len / 3, &sum);
		kernels->sum(from + at + len / 3, len - len / 3, &sum);
		memset(to, 0xa5, sizeof to);
		kernels->copy_sum(to + 1, from + at, len, &fused);
		if (memcmp(to + 1, from + at, len) != 0 || to[0] != 0xa5 || to[len + 1] != 0xa5) {
			printf("%s: copy_sum of %zu bytes\n", name, len);
			return 1;
		}
		if (sl_sum_fold(&sum) != expected || sl_sum_fold(&fused) != expected ||
		    sl_sum_fold(&sum) + sl_sum_finish(&sum) != 0xffff) {
			printf("%s: sums of %zu bytes: %x and %x, expected %x\n", name, len, sl_sum_fold(&sum),
			       sl_sum_fold(&fused), expected);
			return 1;
		}
		memset(to, 0xa5, sizeof to);
		kernels->copy(to + 3, from + at, len);
		if (memcmp(to + 3, from + at, len) != 0 || to[2] != 0xa5 || to[len + 3] != 0xa5) {
			printf("%s: copy of %zu bytes\n", name, len);
			return 1;
		}
	}
	return 0;
}

int main(void)
{
	static const char *const names[] = {"scalar", "sse2", "avx2", "avx512", "avx512-copies"};
	struct sl_sum sum = {0};
	int found = 0;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const struct sl_kernels *kernels = sl_kernels(names[i]);

		if (!kernels)
			continue;
		if (check(kernels, names[i]))
			return 1;
		printf("%s\n", names[i]);
		found++;
	}
	if (!found || !sl_kernels(NULL) || sl_kernels("auto") != sl_kernels(NULL)) {
		printf("no kernels\n");
		return 1;
	}
	if (sl_kernels("mmx") || sl_kernels("libc") || sl_kernels("") || sl_kernels("\xff")) {
		printf("kernels for a name that does not exist\n");
		return 1;
	}
	sl_kernels("auto")->sum(NULL, 0, &sum);
	sl_kernels("auto")->copy(NULL, NULL, 0);
	return sl_sum_fold(&sum) != 0;
}
