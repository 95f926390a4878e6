/* Written by cbindgen from crates/simd-c/src/lib.rs, and compared with it by a test. */

#ifndef STRAIGHTLINE_SIMD_H
#define STRAIGHTLINE_SIMD_H

#include <stddef.h>
#include <stdint.h>

// A running Internet checksum (RFC 1071): of no bytes where all its fields are zero. Chunks of any lengths may be added
// one after the other.
struct sl_sum {
  // Not to be looked at.
  uint64_t acc;
  // Whether the bytes so far are an odd number.
  uint8_t odd;
};

// The kernels of one instruction set. It is never freed.
struct sl_kernels {
  // Its name, such as "avx2".
  const char *name;
  // Copies `len` bytes. The ranges may overlap and be written by others meanwhile; then it is not said which
  // bytes arrive.
  void (*copy)(void *dst, const void *src, size_t len);
  // Adds `len` bytes, which nobody else writes, to a sum.
  void (*sum)(const void *src, size_t len, struct sl_sum *sum);
  // Copies as `copy` does, and adds the bytes that it stores to a sum, which lies in neither range.
  void (*copy_sum)(void *dst, const void *src, size_t len, struct sl_sum *sum);
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The kernels of the set of this name ("scalar", "sse2", "avx2", "avx512", "neon"), or of the best one for "auto" and for NULL.
// NULL where this machine does not have it, and for any other name.
//
// # Safety
// `name` is NULL or a string that ends with zero.
const struct sl_kernels *sl_kernels(const char *name);

// The sum folded to 16 bits, in the host's order.
//
// # Safety
// `sum` is a sum.
uint16_t sl_sum_fold(const struct sl_sum *sum);

// The checksum that a header carries, in the host's order: the complement of the folded sum.
//
// # Safety
// `sum` is a sum.
uint16_t sl_sum_finish(const struct sl_sum *sum);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STRAIGHTLINE_SIMD_H */
