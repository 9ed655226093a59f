//! Trust in the files of the compile cache: who owns them and who may write to them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Permission bits by which others than the owner may write.
#[cfg(unix)]
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Largest file that is read: several times the code of the largest component that compiles.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Make the folder if need be, and check it. The path comes back with the links above the folder resolved,
/// so that one which is changed later leads nowhere else.
///
/// # Errors
/// The reason for which the folder is not used, with what to do.
pub(crate) fn prepare_folder(dir: &Path) -> Result<PathBuf, String> {
    make_folder(dir).map_err(|error| format!("cannot make the folder: {error}"))?;
    let name = dir.file_name();
    let resolved = match (dir.parent(), name) {
        (Some(parent), Some(name)) => {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            fs::canonicalize(parent).map(|parent| parent.join(name))
        }
        // `/`, `.` and `..` are no links.
        _ => fs::canonicalize(dir),
    };
    let resolved = resolved.map_err(|error| format!("cannot be resolved: {error}"))?;
    check_folder(&resolved)?;
    Ok(resolved)
}

/// Check a folder that was prepared: it may have changed since.
pub(crate) fn check_folder(dir: &Path) -> Result<(), String> {
    let metadata = fs::symlink_metadata(dir).map_err(|error| error.to_string())?;
    if metadata.is_symlink() {
        return Err("it is a symbolic link; name the folder itself".to_owned());
    }
    if !metadata.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    check_owner(dir, &metadata)
}

/// Read a file of the folder; `None` if there is none.
pub(crate) fn read(dir: &Path, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let named = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    check_folder(dir)?;
    // Anything but a file, such as a pipe, could keep the reader waiting.
    if !named.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let opened = file.metadata().map_err(|error| error.to_string())?;
    if !is_same(&named, &opened) {
        return Err("it was replaced while it was opened".to_owned());
    }
    check_owner(dir, &opened)?;
    if opened.len() > MAX_FILE_BYTES {
        return Err(format!("it has {} bytes, more than any", opened.len()));
    }
    let mut content = Vec::new();
    let read = file.take(MAX_FILE_BYTES).read_to_end(&mut content);
    read.map_err(|error| error.to_string())?;
    Ok(Some(content))
}

/// Create a file that was not there, for the owner alone. A link in its place is not followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Left behind by a process of the same number that was killed.
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

#[cfg(unix)]
fn make_folder(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)
}

#[cfg(not(unix))]
fn make_folder(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

#[cfg(unix)]
fn check_owner(dir: &Path, metadata: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    // The mode first: nothing is written to a folder that others can write to.
    check_mode(metadata.mode())?;
    check_user(metadata.uid(), user_of_process(dir)?)
}

#[cfg(not(unix))]
fn check_owner(_: &Path, _: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

#[cfg(unix)]
fn check_mode(mode: u32) -> Result<(), String> {
    match mode & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(format!(
            "others may write to it (mode {:o}); chmod it to 700",
            mode & 0o777
        )),
    }
}

#[cfg(unix)]
fn check_user(owner: u32, user: u32) -> Result<(), String> {
    match owner == user {
        true => Ok(()),
        false => Err(format!(
            "it belongs to user {owner}, and the server runs as user {user}; give the server a folder of its own"
        )),
    }
}

/// The user that files of this process belong to, as a file in the folder shows it: the standard library has
/// no other way to ask.
#[cfg(unix)]
fn user_of_process(dir: &Path) -> Result<u32, String> {
    use std::os::unix::fs::MetadataExt;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static USER: OnceLock<u32> = OnceLock::new();
    if let Some(user) = USER.get() {
        return Ok(*user);
    }
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let count = PROBES.fetch_add(1, Ordering::Relaxed);
    let probe = dir.join(format!(".owner-{}-{count}", std::process::id()));
    let user = create(&probe).and_then(|file| file.metadata());
    let _ = fs::remove_file(&probe);
    let user = user
        .map_err(|error| format!("cannot write to it: {error}"))?
        .uid();
    Ok(*USER.get_or_init(|| user))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_its_user_alone_can_write_is_trusted() {
        assert_eq!(check_mode(0o40700), Ok(()));
        assert_eq!(check_mode(0o100_644), Ok(()));
        assert_eq!(check_user(1000, 1000), Ok(()));
        for mode in [0o40720, 0o40702, 0o40777, 0o41777, 0o100_664, 0o100_646] {
            let reason = check_mode(mode).unwrap_err();
            assert!(reason.contains("others may write"), "{reason}");
        }
        // Not even root's, or another's to root: whoever wrote it ran as somebody else.
        for (owner, user) in [(0, 1000), (1000, 0), (1000, 1001)] {
            let reason = check_user(owner, user).unwrap_err();
            assert!(reason.contains("belongs to user"), "{reason}");
        }
    }

    #[test]
    fn a_folder_is_made_for_its_user_alone_and_must_stay_so() {
        let folder = tempfile::tempdir().unwrap();
        let dir = prepare_folder(&folder.path().join("a").join("b")).unwrap();
        let mode = fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for mode in [0o770, 0o702, 0o777] {
            chmod(&dir, mode);
            assert!(prepare_folder(&dir).unwrap_err().contains("chmod"));
            assert!(check_folder(&dir).is_err());
        }
        chmod(&dir, 0o755);
        assert!(check_folder(&dir).is_ok());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(prepare_folder(&file).is_err());
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = prepare_folder(&folder.path().join("cache")).unwrap();
        let link = folder.path().join("link");
        symlink(&dir, &link).unwrap();
        assert!(prepare_folder(&link).unwrap_err().contains("symbolic link"));
        // A link above the folder is resolved once.
        let above = folder.path().join("above");
        symlink(folder.path(), &above).unwrap();
        assert_eq!(prepare_folder(&above.join("cache")), Ok(dir.clone()));
        let (secret, file) = (folder.path().join("secret"), dir.join("x.cwasm"));
        fs::write(&secret, "content").unwrap();
        symlink(&secret, &file).unwrap();
        assert!(read(&dir, &file).unwrap_err().contains("regular file"));
        // Nor is one written through.
        create(&file).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "content");
        assert_eq!(read(&dir, &file), Ok(Some(Vec::new())));
    }

    #[test]
    fn files_that_others_can_write_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = prepare_folder(&folder.path().join("cache")).unwrap();
        let file = dir.join("x.cwasm");
        assert_eq!(read(&dir, &file), Ok(None));
        fs::write(&file, "code").unwrap();
        chmod(&file, 0o644);
        assert_eq!(read(&dir, &file), Ok(Some(b"code".to_vec())));
        for mode in [0o664, 0o646] {
            chmod(&file, mode);
            assert!(read(&dir, &file).unwrap_err().contains("others may write"));
        }
        chmod(&file, 0o600);
        chmod(&dir, 0o777);
        assert!(
            read(&dir, &file).is_err(),
            "nor from a folder that is not safe"
        );
        // Another owner's: only root can give files away.
        chmod(&dir, 0o700);
        if std::os::unix::fs::chown(&file, Some(54_321), None).is_ok() {
            assert!(read(&dir, &file).unwrap_err().contains("belongs to user"));
        }
    }
}
