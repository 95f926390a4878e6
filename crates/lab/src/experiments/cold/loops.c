/*
 * The node's loops in C: one packet after the other with a distance, and two or four at once, as VPP's sample node does.
 * A packet has a line of words: lines to its head, the port that it came from, the port that it goes to.
 *
 * The functions have the arguments lines, the line of words of each packet, the line of its head (for prefetches), number
 * of packets, distance; 0: no prefetches.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE 64
#define READ 0
#define WRITE 1

typedef uint8_t front __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint32_t word __attribute__((may_alias));

static inline __attribute__((always_inline)) void prefetch(uint8_t *lines, uint32_t words, uint32_t head,
							   int words_for_writing)
{
	if (words_for_writing)
		__builtin_prefetch(lines + (size_t)words * LINE, WRITE);
	else
		__builtin_prefetch(lines + (size_t)words * LINE, READ);
	__builtin_prefetch(lines + (size_t)head * LINE, WRITE);
}

static inline __attribute__((always_inline)) front *head_of(uint8_t *lines, uint32_t first)
{
	uint8_t *begin = lines + (size_t)first * LINE;
	word *words = (word *)begin;

	words[2] = words[1];
	return (front *)(begin + (size_t)words[0] * LINE);
}

static inline __attribute__((always_inline)) front swapped(front from)
{
	const front order = { 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15 };

#ifdef __clang__
	(void)order;
	return __builtin_shufflevector(from, from, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15);
#else
	return __builtin_shuffle(from, order);
#endif
}

static inline __attribute__((always_inline)) void one(uint8_t *lines, const uint32_t *packets, const uint32_t *heads,
						      size_t n, size_t distance)
{
	for (size_t at = 0; at < n; at++) {
		if (distance && at + distance < n)
			prefetch(lines, packets[at + distance], heads[at + distance], 0);
		front *head = head_of(lines, packets[at]);
		*head = swapped(*head);
	}
}

static inline __attribute__((always_inline)) void group(uint8_t *lines, const uint32_t *packets, const uint32_t *heads,
							size_t n, size_t at_once, int prefetches, int words_for_writing)
{
	size_t at = 0;

	for (; at + at_once <= n; at += at_once) {
		front *found[4], fronts[4];

		if (prefetches && at + 2 * at_once <= n)
			for (size_t later = at + at_once; later < at + 2 * at_once; later++)
				prefetch(lines, packets[later], heads[later], words_for_writing);
		for (size_t nth = 0; nth < at_once; nth++) {
			found[nth] = head_of(lines, packets[at + nth]);
			fronts[nth] = swapped(*found[nth]);
		}
		for (size_t nth = 0; nth < at_once; nth++)
			*found[nth] = fronts[nth];
	}
	one(lines, packets + at, heads + at, n - at, 0);
}

void cold_one(uint8_t *lines, const uint32_t *packets, const uint32_t *heads, size_t n, size_t distance)
{
	one(lines, packets, heads, n, distance);
}

void cold_two(uint8_t *lines, const uint32_t *packets, const uint32_t *heads, size_t n, size_t distance)
{
	if (distance)
		group(lines, packets, heads, n, 2, 1, 0);
	else
		group(lines, packets, heads, n, 2, 0, 0);
}

void cold_four(uint8_t *lines, const uint32_t *packets, const uint32_t *heads, size_t n, size_t distance)
{
	if (distance)
		group(lines, packets, heads, n, 4, 1, 1);
	else
		group(lines, packets, heads, n, 4, 0, 0);
}
