//! The copies, and the header that puts each into DPDK's vhost library.

/// A copy in the place of `rte_memcpy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DpdkCopy {
    /// `rte_memcpy` in SSE, as Debian ships it.
    Sse,
    /// `rte_memcpy` in AVX2.
    Avx2,
    /// `rte_memcpy` in AVX-512.
    Avx512,
    /// `memcpy` of the C library.
    Glibc,
    /// A loop over bytes.
    Loop,
}

impl DpdkCopy {
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] = [Self::Glibc, Self::Sse, Self::Avx2, Self::Avx512, Self::Loop];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Glibc => "glibc",
            Self::Loop => "loop",
        }
    }

    /// Returns whether this machine's processor has the instructions.
    pub(super) fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512vl")
            }
            _ => cfg!(target_arch = "x86_64"),
        }
    }

    /// Returns the header that the compiler includes before each file of the library.
    ///
    /// `rte_memcpy` chooses its instructions by the compiler's target. A function that is always
    /// inlined needs the target of its caller, so a whole file has the target. Compilers turn a loop
    /// that copies into a call of `memcpy`, unless they are told not to. For processors before AVX2,
    /// which Debian's flags name, they split a store of 32 bytes into two.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::Sse => "",
            Self::Avx2 => "#pragma GCC target(\"avx2,tune=haswell\")\n",
            Self::Avx512 => "#define RTE_MEMCPY_AVX512\n#pragma GCC target(\"avx512f,avx512bw,avx512vl\")\n",
            Self::Glibc => "#include <rte_memcpy.h>\n#define rte_memcpy(to, from, length) memcpy(to, from, length)\n",
            Self::Loop => {
                "#include <rte_memcpy.h>\n\
                 #pragma GCC optimize(\"no-tree-loop-distribute-patterns\")\n\
                 static inline void *copy_by_loop(void *to, const void *from, size_t length)\n\
                 {\n\
                 \tuint8_t *destination = to;\n\
                 \tconst uint8_t *source = from;\n\
                 \tfor (size_t at = 0; at < length; ++at)\n\
                 \t\tdestination[at] = source[at];\n\
                 \treturn to;\n\
                 }\n\
                 #define rte_memcpy(to, from, length) copy_by_loop(to, from, length)\n"
            }
        }
    }
}
