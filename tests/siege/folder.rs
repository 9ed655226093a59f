//! Attacks of who may write to the plugin folder, and of who reads the log.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use crate::ground::Ground;

/// Files that are no plugins, under names of plugins; SIGHUP meanwhile.
pub(crate) fn odd_files(ground: &Ground, seed: u64) {
    let name = format!("odd-{}.wasm", seed % 8);
    let path = ground.plugins().join(&name);
    let _ = fs::remove_file(&path);
    let _ = fs::remove_dir(&path);
    match seed / 8 % 8 {
        0 => drop(Command::new("mkfifo").arg(&path).status()),
        1 => drop(fs::create_dir(&path)),
        2 => drop(std::os::unix::fs::symlink("/dev/zero", &path)),
        3 => drop(fs::write(&path, b"\0asm\x0d\0\x01\0 and no more")),
        4 => drop(fs::write(&path, vec![b'x'; 1 << 20])),
        // A plugin that is cut off, and a component of nothing but a section of 4 MiB that nobody reads.
        5 => {
            let whole = fs::read(PARSER).unwrap_or_default();
            let cut = seed as usize / 64 % whole.len().max(1);
            drop(fs::write(&path, whole.get(..cut).unwrap_or_default()));
        }
        6 => {
            let mut padded = b"\0asm\x0d\0\x01\0\0\x82\x80\x80\x02\x01x".to_vec();
            padded.resize(padded.len() + (4 << 20), 0);
            drop(fs::write(&path, padded));
        }
        _ => {
            let name = OsStr::from_bytes(b"odd-\xff\xfe.wasm");
            drop(fs::write(ground.plugins().join(name), b"x"));
        }
    }
    ground.hang_up();
    std::thread::sleep(Duration::from_millis(300));
}

/// The default parser.
const PARSER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../bundle/prebuilt/output-parser.wasm"
);

/// A good plugin that comes and goes.
pub(crate) fn swap(ground: &Ground) {
    let path = ground.plugins().join("swapped.wasm");
    let _ = fs::copy(PARSER, &path);
    std::thread::sleep(Duration::from_millis(900));
    let _ = fs::remove_file(&path);
}

/// A reader of the log that stops for a while, beside callers who make it long.
pub(crate) fn stalled_log(ground: &Ground) {
    ground.stall_log(true);
    for n in 0..100 {
        let line = format!("GET /nowhere/{n}%0a%1b HTTP/1.1\r\nhost: localhost\r\n\r\n");
        crate::wire::send_and_leave(ground, line.as_bytes());
    }
    ground.stall_log(false);
}
