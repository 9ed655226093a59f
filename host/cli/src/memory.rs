//! Returns freed memory to the system.
//!
//! glibc's allocator keeps what was freed between blocks in use, in up to eight arenas a core: after a burst of
//! large requests the process stays as large as the burst made it. Fewer arenas leave fewer pages with little on
//! them, and trimming returns whole free pages of all arenas. `tests/siege` measures both.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use glibc::{limit_arenas, trim_regularly};

/// Does nothing: allocators other than glibc's return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim_regularly() {}

/// Does nothing: the limit on arenas is for glibc's allocator.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_arenas() {}

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

    /// Limit the heap to one arena a core. Must be called before threads are started: arenas that exist already stay.
    #[allow(unsafe_code, reason = "a call of the C library")]
    pub(crate) fn limit_arenas() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let arenas = c_int::try_from(cores).unwrap_or(c_int::MAX);
        // SAFETY: `mallopt` takes two numbers and changes no block. It refuses values that it does not know.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
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
