//! Returns freed memory to the system.
//!
//! glibc's allocator keeps what was freed between blocks in use, in up to eight arenas a core: after a burst of
//! large requests the process stays as large as the burst made it. Fewer arenas leave fewer pages with little on
//! them, and trimming returns whole free pages of all arenas. `tests/siege` measures both.
//!
//! `malloc_trim` leaves the free end of every arena but the first, which only a `free` next to it gives back, once it is
//! larger than `M_TRIM_THRESHOLD`. Left alone, glibc raises that threshold to twice the largest mapped block that was
//! freed, up to 64 MiB: 20 to 30 MiB of an unloaded model then stayed. A fixed threshold gives all of it back
//! (`tests/http/memory.rs`).

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use glibc::{trim_regularly, tune};

/// Does nothing: allocators other than glibc's return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim_regularly() {}

/// Does nothing: the settings are those of glibc's allocator.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn tune() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;
    use std::time::Duration;

    use mortise_supervise::supervise;

    /// Pause between two passes. Longer than threads of the runtime stay idle (`IDLE_THREAD` in `app.rs`).
    const INTERVAL: Duration = Duration::from_secs(5);

    /// Trim the heap every few seconds for as long as the runtime lives.
    pub(crate) fn trim_regularly() {
        supervise("memory-trim", || async {
            let mut interval = tokio::time::interval(INTERVAL);
            loop {
                interval.tick().await;
                // Each arena is locked while its pages are returned: not on a thread that serves requests.
                if tokio::task::spawn_blocking(trim).await.is_err() {
                    return;
                }
            }
        });
    }

    #[allow(unsafe_code, reason = "a call of the C library")]
    fn trim() {
        // SAFETY: `malloc_trim` takes a number, may be called by any thread at any time, and changes no block that
        // is in use. Its result says whether any page was returned.
        unsafe { libc::malloc_trim(0) };
    }

    /// Free end of an arena, in bytes, from which on a `free` gives it back.
    const TRIM_THRESHOLD: c_int = 1 << 20;
    /// Size of a block, in bytes, from which on it is a mapping of its own: the most that glibc takes, and what it
    /// comes to by itself once such a block was freed. Smaller ones would be mapped, and zeroed, for each prefill.
    const MMAP_THRESHOLD: c_int = 32 << 20;

    /// Limit the heap to one arena a core, and fix the thresholds. Must be called before threads are started: arenas that
    /// exist already stay.
    #[allow(unsafe_code, reason = "a call of the C library")]
    pub(crate) fn tune() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let arenas = c_int::try_from(cores).unwrap_or(c_int::MAX);
        for (setting, value) in [
            (libc::M_ARENA_MAX, arenas),
            (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
            (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
        ] {
            // SAFETY: `mallopt` takes two numbers and changes no block. It refuses values that it does not know.
            unsafe { libc::mallopt(setting, value) };
        }
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn blocks_in_use_keep_what_they_hold() {
            let blocks: Vec<Vec<u8>> = (0..2000).map(|n| vec![(n % 251) as u8; 3000]).collect();
            let kept: Vec<_> = blocks.into_iter().skip(1).step_by(2).collect();
            super::trim();
            let intact = |(at, block): (usize, &Vec<u8>)| {
                block.iter().all(|byte| *byte == ((2 * at + 1) % 251) as u8)
            };
            assert!(kept.iter().enumerate().all(intact));
        }
    }
}
