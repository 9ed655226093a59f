//! Processor time, for the examples that measure.

/// Seconds that all threads have computed so far.
pub(crate) fn processor_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanoseconds: u64 = threads
        .map(|thread| {
            let path = thread.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(path).expect("statistics of the scheduler");
            let first = text.split_whitespace().next();
            first
                .and_then(|word| word.parse::<u64>().ok())
                .expect("nanoseconds")
        })
        .sum();
    nanoseconds as f64 / 1e9
}
