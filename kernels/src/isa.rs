//! Instruction sets of the processor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that products are written for. Of one architecture, later ones include earlier
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// No vectors but those that the compiler finds.
    Portable,
    /// AVX2, fused multiply-adds and half precision.
    Avx2,
    /// And products of bytes.
    AvxVnni,
    /// AVX-512 with VNNI. Quantised products use its 256-bit instructions with 32 registers,
    /// floating-point products the 512-bit ones. Quantised products use its 256-bit instructions,
    /// with 32 registers, those in floating point the 512-bit ones.
    Avx512Vnni,
    /// NEON, which every 64-bit ARM has.
    Neon,
    /// And products of four bytes.
    NeonDotprod,
    /// And products of matrices of bytes.
    NeonI8mm,
}

/// The most that [`isa`] gives.
static LIMIT: AtomicU8 = AtomicU8::new(u8::MAX);

impl Isa {
    /// All, the least first.
    pub const ALL: [Self; 7] = [
        Self::Portable,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512Vnni,
        Self::Neon,
        Self::NeonDotprod,
        Self::NeonI8mm,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Neon => "neon",
            Self::NeonDotprod => "neon-dotprod",
            Self::NeonI8mm => "neon-i8mm",
        }
    }

    /// Whether this processor has it.
    pub fn is_there(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as detected;
            let avx2 = || detected!("avx2") && detected!("fma") && detected!("f16c");
            match self {
                Self::Portable => true,
                Self::Avx2 => avx2(),
                Self::AvxVnni => avx2() && detected!("avxvnni"),
                Self::Avx512Vnni => {
                    avx2()
                        && detected!("avx512f")
                        && detected!("avx512bw")
                        && detected!("avx512vl")
                        && detected!("avx512vnni")
                }
                Self::Neon | Self::NeonDotprod | Self::NeonI8mm => false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as detected;
            let dotprod = || detected!("neon") && detected!("dotprod");
            match self {
                Self::Portable => true,
                Self::Neon => detected!("neon"),
                Self::NeonDotprod => dotprod(),
                Self::NeonI8mm => dotprod() && detected!("i8mm"),
                Self::Avx2 | Self::AvxVnni | Self::Avx512Vnni => false,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            self == Self::Portable
        }
    }
}

/// The best instruction set that this processor has, within the limit.
pub fn isa() -> Isa {
    static BEST: OnceLock<Vec<Isa>> = OnceLock::new();
    let there = BEST.get_or_init(|| Isa::ALL.into_iter().filter(|isa| isa.is_there()).collect());
    let limit = LIMIT.load(Ordering::Relaxed);
    let within = there.iter().rev().find(|isa| **isa as u8 <= limit);
    within.copied().unwrap_or(Isa::Portable)
}

/// Use no better products of matrices than these from now on: to compare them, or with a program that
/// has no better. Other ops go on with AVX2 or NEON where it is there.
pub fn limit(isa: Isa) {
    LIMIT.store(isa as u8, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::{Isa, isa};

    #[test]
    fn the_best_that_is_there_is_used() {
        let there: Vec<Isa> = Isa::ALL.into_iter().filter(|isa| isa.is_there()).collect();
        let names: Vec<&str> = there.iter().map(|isa| isa.name()).collect();
        // `kernels/extra-tests` reads this.
        println!("instruction sets: {}", names.join(" "));
        assert_eq!(there.first(), Some(&Isa::Portable));
        assert_eq!(there.last(), Some(&isa()));
    }
}
