//! The choice among the kernels of Fletcher-4 that a processor can run.
//!
//! Invariant: every kernel gives the same sums as the portable one; the choice only changes speed.

use crate::Words;
use crate::fletcher::{fletcher_4_scalar, fletcher_4_scalar_swapped};

/// Signature of a Fletcher-4 kernel: the sums over all whole words of the slice.
type Kernel = fn(&[u8]) -> Words;

/// A kernel by its name, for both byte orders.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    pub name: &'static str,
    pub native: Kernel,
    pub swapped: Kernel,
}

const SCALAR: Kernels = Kernels { name: "scalar4", native: fletcher_4_scalar, swapped: fletcher_4_scalar_swapped };

/// Every kernel this machine can run, slowest first.
pub(crate) fn available() -> Vec<Kernels> {
    #[allow(unused_mut)]
    let mut kernels = vec![SCALAR];
    #[cfg(target_arch = "x86_64")]
    {
        use crate::fletcher_x86 as x86;
        if x86::has_avx2() {
            kernels.push(Kernels { name: "avx2", native: x86::avx2, swapped: x86::avx2_swapped });
        }
        if x86::has_avx512() {
            kernels.push(Kernels { name: "avx512", native: x86::avx512, swapped: x86::avx512_swapped });
        }
    }
    kernels
}

fn best() -> Kernels {
    static BEST: std::sync::OnceLock<Kernels> = std::sync::OnceLock::new();
    *BEST.get_or_init(|| {
        let best = *available().last().expect("the scalar kernel is always there");
        let probe: [u8; 1024] = std::array::from_fn(|at| at as u8);
        debug_assert_eq!((best.native)(&probe), fletcher_4_scalar(&probe), "{} is wrong here", best.name);
        best
    })
}

/// The name of the Fletcher-4 kernel this machine uses.
pub fn fletcher_4_kernel() -> &'static str {
    best().name
}

/// Every Fletcher-4 kernel this machine can run, slowest first: its name and the function. For tests and benchmarks.
pub fn fletcher_4_kernels() -> Vec<(&'static str, fn(&[u8]) -> Words)> {
    available().into_iter().map(|k| (k.name, k.native)).collect()
}

/// Fletcher-4 over little-endian 32-bit words. A length that is no multiple of 4 loses its last bytes, as in ZFS.
pub fn fletcher_4(bytes: &[u8]) -> Words {
    (best().native)(bytes)
}

/// Fletcher-4 over big-endian 32-bit words: the sum a big-endian host writes.
pub fn fletcher_4_swapped(bytes: &[u8]) -> Words {
    (best().swapped)(bytes)
}
