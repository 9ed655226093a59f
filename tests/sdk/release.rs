//! `packaging/release`: all files of a release of a tag, made of the program that cargo built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::packages::ending;
use crate::run;
use crate::support::{binary, example, have};

const TAG: &str = "v0.1.0";

/// A clone of the repository, with the present tree as its last commit.
struct Clone {
    work: tempfile::TempDir,
}

impl Clone {
    fn new() -> Self {
        let work = tempfile::tempdir().expect("make a folder");
        let (root, clone) = (example::root(), Self { work });
        run(Command::new("git")
            .args(["clone", "--quiet", "--shared", "--no-tags"])
            .arg(&root)
            .arg(clone.folder()));
        // Changes that are not committed yet are tested as well.
        let list = |arguments: &[&str]| {
            let text = run(Command::new("git").arg("-C").arg(&root).args(arguments));
            text.lines().map(PathBuf::from).collect::<Vec<_>>()
        };
        let changed = list(&["diff", "--name-only", "HEAD"]);
        let new = list(&["ls-files", "--others", "--exclude-standard"]);
        for path in changed.into_iter().chain(new) {
            let (from, to) = (root.join(&path), clone.folder().join(&path));
            if from.is_file() {
                fs::create_dir_all(to.parent().expect("a folder")).expect("make a folder");
                fs::copy(from, to).expect("copy a file");
            } else {
                let _ = fs::remove_file(to);
            }
        }
        clone.git(&["add", "--all"]);
        clone.git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "as it is",
        ]);
        clone
    }

    fn folder(&self) -> PathBuf {
        self.work.path().join("clone")
    }

    fn git(&self, arguments: &[&str]) {
        run(Command::new("git")
            .arg("-C")
            .arg(self.folder())
            .args([
                "-c",
                "user.name=test",
                "-c",
                "user.email=test@mortise.invalid",
            ])
            .args(arguments));
    }

    fn release(&self, tag: &str, out: &Path) -> Output {
        Command::new(self.folder().join("packaging/release"))
            .arg(tag)
            .arg("--binary")
            .arg(binary())
            .arg("--out")
            .arg(out)
            .arg("--quick")
            .output()
            .expect("run the script")
    }

    /// The script refuses, and says this.
    fn refuses(&self, tag: &str, out: &Path, told: &str) {
        let output = self.release(tag, out);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{tag} is released");
        assert!(errors.contains(told), "{errors}");
    }
}

fn names(archive: &Path) -> Vec<String> {
    let listed = run(Command::new("tar").arg("--list").arg("--file").arg(archive));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn a_release_is_made_from_a_tag_and_from_nothing_else() {
    if !have(&["git", "dpkg-deb", "strip", "objdump", "zstd", "python3"]) {
        return;
    }
    let clone = Clone::new();
    let out = clone.work.path().join("dist");
    clone.refuses("0.1.0", &out, "name a tag first");
    clone.refuses("v9.9.9", &out, "v9.9.9 is not v0.1.0, which Cargo.toml has");
    clone.refuses(TAG, &out, "there is no tag v0.1.0");
    clone.git(&["tag", TAG]);
    fs::write(clone.folder().join("notes.txt"), "mine").expect("write");
    clone.refuses(TAG, &out, "the tree has changes");
    clone.git(&["add", "notes.txt"]);
    clone.git(&["commit", "--quiet", "--message", "later"]);
    clone.refuses(TAG, &out, "is not the commit that is checked out");
    clone.git(&["checkout", "--quiet", TAG]);
    fs::create_dir(&out).expect("make a folder");
    fs::write(out.join("old"), "").expect("write");
    clone.refuses(TAG, &out, "holds something");
    fs::remove_file(out.join("old")).expect("remove");

    let made = clone.release(TAG, &out);
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    for end in [
        "mortise",
        "-linux-x86_64.tar.gz",
        ".deb",
        "_x86_64.whl",
        ".cdx.json",
        "mortise-plugin-sdk-0.1.0.crate",
        "mortise_plugin-0.1.0-py3-none-any.whl",
        "mortise-plugin-0.1.0.tgz",
        "mortise-plugin-c-0.1.0.tar.gz",
    ] {
        // Those of another architecture have its name.
        let end = end.replace("x86_64", std::env::consts::ARCH);
        assert!(ending(&out, &end).is_file(), "{end}");
    }
    let chart = names(&out.join("mortise-0.1.0.tgz"));
    assert!(
        chart.contains(&"mortise/Chart.yaml".to_owned()),
        "{chart:?}"
    );
    let context = names(&ending(
        &out,
        &format!("-container-{}.tar.gz", std::env::consts::ARCH),
    ));
    for name in ["Containerfile", "mortise", "state/"] {
        assert!(context.contains(&name.to_owned()), "{name}: {context:?}");
    }
    // Every file has its checksum.
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&out));
    let sums = fs::read_to_string(out.join("SHA256SUMS")).expect("the sums");
    let files = fs::read_dir(&out).expect("a folder").count();
    assert_eq!(sums.lines().count() + 1, files, "{sums}");
}
