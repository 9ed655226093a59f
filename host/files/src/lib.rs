//! Files that others name, opened by type: regular files only, and without waiting. To open a FIFO in the usual way is
//! to wait for its other end, and a device may have no end.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Open a regular file, or a link to one.
///
/// # Errors
/// When it cannot be opened, or is anything else.
pub fn open(path: &Path) -> io::Result<File> {
    // Looked at before it is opened, since opening a device may do something; and afterwards, since it may have been
    // replaced in between. Then opening without blocking is what does not wait.
    check_type(&std::fs::metadata(path)?)?;
    // A flag of `open` is far below the sign.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    check_type(&file.metadata()?)?;
    Ok(file)
}

/// All of a regular file, or its first `most` bytes and one more.
///
/// # Errors
/// As [`open`], and when it cannot be read.
pub fn read_beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut beginning = open(path)?.take(most.saturating_add(1));
    beginning.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All of a regular file of at most `most` bytes.
///
/// # Errors
/// As [`read_beginning`], and when it has more.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = read_beginning(path, most)?;
    if bytes.len() as u64 > most {
        let kind = io::ErrorKind::FileTooLarge;
        return Err(io::Error::new(kind, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// All of a regular file of at most `most` bytes, as text.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Refuse what is not a regular file, by its name.
///
/// # Errors
/// When it is anything else.
pub fn check_type(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is {}, not a regular file",
        name_of(kind)
    )))
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("make a folder");
        let at = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").arg(at("fifo")).status();
        assert!(made.expect("run mkfifo").success());
        let _socket = UnixListener::bind(at("socket")).expect("bind");
        std::os::unix::fs::symlink(at("fifo"), at("link")).expect("link");
        for (path, named) in [
            (at("fifo"), "a FIFO"),
            (at("link"), "a FIFO"),
            (at("socket"), "a socket"),
            (PathBuf::from("/dev/zero"), "a device"),
            (folder.path().to_owned(), "a folder"),
        ] {
            for error in [
                open(&path).map(drop),
                read_beginning(&path, 10).map(drop),
                read(&path, 10).map(drop),
                read_text(&path, 10).map(drop),
            ] {
                let error = error.expect_err("refused").to_string();
                let expected = format!("it is {named}, not a regular file");
                assert_eq!(error, expected, "{}", path.display());
            }
        }
        std::fs::write(at("file"), "text").expect("write");
        std::os::unix::fs::symlink(at("file"), at("to-file")).expect("link");
        assert_eq!(read_text(&at("to-file"), 4).expect("read"), "text");
    }

    #[test]
    fn reading_is_bounded() {
        let folder = tempfile::tempdir().expect("make a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, [7; 100]).expect("write");
        assert_eq!(read_beginning(&file, 10).expect("read").len(), 11);
        assert_eq!(read_beginning(&file, 1000).expect("read").len(), 100);
        assert_eq!(read(&file, 100).expect("read").len(), 100);
        let error = read(&file, 99).expect_err("refused").to_string();
        assert_eq!(error, "more than 99 bytes");
        std::fs::write(&file, [0xff]).expect("write");
        let error = read_text(&file, 10).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
