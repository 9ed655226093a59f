//! Files of the pages, embedded as they stand in the repository.

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Bytes of a digest that make a tag.
const TAG_BYTES: usize = 12;

/// A file of a folder: its name, its media type, its bytes.
macro_rules! file {
    ($name:literal, $media:expr) => {
        file!("assets", $name, $media)
    };
    ($folder:literal, $name:literal, $media:expr) => {
        (
            $name,
            $media,
            include_bytes!(concat!("../", $folder, "/", $name)).as_slice(),
        )
    };
}

/// Name, media type and bytes of a file.
pub(crate) type AssetFile = (&'static str, &'static str, &'static [u8]);

/// Files of the playground.
pub(crate) const PLAYGROUND: &[AssetFile] = &[
    file!("index.html", HTML),
    file!("style.css", CSS),
    file!("parts.css", CSS),
    file!("icon.svg", SVG),
    file!("icons.svg", SVG),
    file!("main.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("attachments.js", SCRIPT),
    file!("chats.js", SCRIPT),
    file!("columns.js", SCRIPT),
    file!("documents.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("inspect.js", SCRIPT),
    file!("markdown.js", SCRIPT),
    file!("messages.js", SCRIPT),
    file!("responses.js", SCRIPT),
    file!("settings.js", SCRIPT),
    file!("sources.js", SCRIPT),
    file!("tokens.js", SCRIPT),
    file!("turns.js", SCRIPT),
];

/// Files of the page of the admin side: those of its own folder, and some that the playground has too.
pub(crate) const ADMIN: &[AssetFile] = &[
    file!("style.css", CSS),
    file!("icon.svg", SVG),
    file!("icons.svg", SVG),
    file!("dom.js", SCRIPT),
    file!("admin", "index.html", HTML),
    file!("admin", "admin.css", CSS),
    file!("admin", "aliases.js", SCRIPT),
    file!("admin", "api.js", SCRIPT),
    file!("admin", "audit.js", SCRIPT),
    file!("admin", "bindings.js", SCRIPT),
    file!("admin", "charts.js", SCRIPT),
    file!("admin", "collections.js", SCRIPT),
    file!("admin", "keys.js", SCRIPT),
    file!("admin", "live.js", SCRIPT),
    file!("admin", "loras.js", SCRIPT),
    file!("admin", "main.js", SCRIPT),
    file!("admin", "models.js", SCRIPT),
    file!("admin", "overview.js", SCRIPT),
    file!("admin", "parts.js", SCRIPT),
    file!("admin", "persist.js", SCRIPT),
    file!("admin", "plugin-files.js", SCRIPT),
    file!("admin", "plugins.js", SCRIPT),
    file!("admin", "pulls.js", SCRIPT),
    file!("admin", "quotas.js", SCRIPT),
    file!("admin", "requests.js", SCRIPT),
];

/// One file.
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) bytes: Bytes,
    /// The value of its header `ETag`, which changes with its bytes.
    pub(crate) tag: HeaderValue,
}

/// All files of a page.
pub(crate) struct Assets(Vec<Asset>);

impl Assets {
    /// These files.
    pub(crate) fn of(files: &[AssetFile]) -> Self {
        let assets = files.iter().map(|&(name, media, bytes)| Asset {
            name,
            media,
            bytes: Bytes::from_static(bytes),
            tag: tag_of(bytes),
        });
        Self(assets.collect())
    }

    /// The file of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Asset> {
        self.0.iter().find(|asset| asset.name == name)
    }
}

fn tag_of(bytes: &[u8]) -> HeaderValue {
    let mut tag = String::from("\"");
    for byte in Sha256::digest(bytes).iter().take(TAG_BYTES) {
        // Writing to a text does not fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Bytes of the whole page at most.
    const PAGE_BYTES: usize = 300 * 1024;

    fn text(bytes: &'static [u8]) -> &'static str {
        std::str::from_utf8(bytes).expect("UTF-8")
    }

    fn names_in(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(folder).expect("the folder");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.into_string().expect("UTF-8"))
            .collect()
    }

    #[test]
    fn the_folders_are_embedded_whole() {
        let names = |files: &[AssetFile]| -> BTreeSet<String> {
            files.iter().map(|(name, ..)| (*name).to_owned()).collect()
        };
        assert_eq!(names_in("assets"), names(PLAYGROUND));
        let shared: BTreeSet<String> = names(ADMIN)
            .intersection(&names(PLAYGROUND))
            .filter(|name| !names_in("admin").contains(*name))
            .cloned()
            .collect();
        let own: BTreeSet<String> = names(ADMIN).difference(&shared).cloned().collect();
        assert_eq!(names_in("admin"), own);
        for files in [PLAYGROUND, ADMIN] {
            let bytes: usize = files.iter().map(|(.., bytes)| bytes.len()).sum();
            assert!(bytes < PAGE_BYTES, "{bytes}");
        }
    }

    /// Ways by which a text becomes markup or code; the page has none, so no text of a model can.
    #[test]
    fn no_script_makes_markup_or_code_of_text() {
        const WAYS: &[&str] = &[
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
            "setHTMLUnsafe",
            "createContextualFragment",
            "javascript:",
        ];
        for (name, media, bytes) in PLAYGROUND.iter().chain(ADMIN) {
            let text = text(bytes);
            for way in WAYS {
                assert!(!text.contains(way), "{name}: {way}");
            }
            if *media == HTML {
                assert!(
                    !text.contains("<style") && !text.contains(" style="),
                    "{name}"
                );
                let handler = |word: &&str| word.starts_with("on") && word.contains("=\"");
                assert_eq!(text.split_whitespace().find(handler), None, "{name}");
            }
        }
    }

    #[test]
    fn scripts_import_what_is_embedded() {
        let of = |files: &'static [AssetFile]| files.iter().map(move |file| (files, file));
        for (files, (name, media, bytes)) in of(PLAYGROUND).chain(of(ADMIN)) {
            if *media != SCRIPT {
                continue;
            }
            for import in text(bytes).split("from \"").skip(1) {
                let import = import.split('"').next().expect("a name");
                let file = import.strip_prefix("./").expect("a file beside this one");
                assert!(
                    files.iter().any(|(known, ..)| *known == file),
                    "{name}: {file}"
                );
            }
        }
    }

    #[test]
    fn tags_change_with_bytes() {
        assert_eq!(tag_of(b"a"), tag_of(b"a"));
        assert_ne!(tag_of(b"a"), tag_of(b"b"));
        assert_eq!(tag_of(b"a").len(), 2 * TAG_BYTES + 2);
    }
}
