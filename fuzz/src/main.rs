//! A target under libFuzzer. Its name is in the environment variable `STRAIGHTLINE_FUZZ_TARGET`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use straightline_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("STRAIGHTLINE_FUZZ_TARGET").expect("STRAIGHTLINE_FUZZ_TARGET names a target");
    TARGETS.iter().find(|target| target.name == name).expect("a target has this name")
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
