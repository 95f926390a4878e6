//! Tokens that prove an instruction set.

#![expect(unsafe_code, reason = "constructors that trust their caller")]

/// Token that proves that this machine has AVX2 and that the operating system saves its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2(());

impl Avx2 {
    /// Returns the token if the machine has AVX2. The standard library caches the answer of the
    /// CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        std::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the token without detection.
    ///
    /// # Safety
    /// The machine must have AVX2.
    #[must_use]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// Token that proves that this machine has AVX2 and AVX-512 with F, BW, VNNI and VBMI2, and that the
/// operating system saves their registers.
///
/// VBMI2 is not used. It tells processors that run at full speed with registers of 64 bytes from
/// those that slow down, and their neighbours with them (Intel's before Ice Lake, 2019).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512(());

impl Avx512 {
    /// Returns the token if the machine has these sets. The standard library caches the answer of
    /// the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        let has_all = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vnni")
            && std::is_x86_feature_detected!("avx512vbmi2")
            && std::is_x86_feature_detected!("avx2");
        has_all.then_some(Self(()))
    }

    /// Returns the token without detection.
    ///
    /// # Safety
    /// The machine must have AVX2 and AVX-512 with F, BW and VNNI.
    #[must_use]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}
