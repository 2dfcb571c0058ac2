//! The choice among the kernels that a processor can run.

use std::sync::OnceLock;

use crate::kernel::{Kernels, SCALAR};

/// Every set of kernels this machine can run, slowest first.
pub(crate) fn available() -> &'static [Kernels] {
    static AVAILABLE: OnceLock<Vec<Kernels>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        #[allow(unused_mut)]
        let mut kernels = vec![SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            use crate::{kernel_avx2 as avx2, kernel_avx512 as avx512};
            if avx2::is_there() {
                kernels.push(Kernels { name: "avx2", horner: avx2::horner, recover: avx2::recover });
            }
            if avx512::is_there() {
                kernels.push(Kernels { name: "avx512-gfni", horner: avx512::horner, recover: avx512::recover });
            }
        }
        kernels
    })
}

/// The kernels to use when nobody asks for others.
pub(crate) fn best() -> Kernels {
    *available().last().expect("the scalar kernels are always there")
}

/// The set of this name; panics if this machine cannot run it.
pub(crate) fn named(name: &str) -> Kernels {
    *available().iter().find(|kernels| kernels.name == name).expect("a kernel this machine has")
}

/// The name of the kernels this machine uses.
pub fn kernel_name() -> &'static str {
    best().name
}

/// The names of all kernels this machine can run, slowest first. For tests and benchmarks.
pub fn kernel_names() -> Vec<&'static str> {
    available().iter().map(|kernels| kernels.name).collect()
}
