//! Signatures of plugin files: ed25519 over the whole file, by a key that the operator trusts.

use std::path::{Path, PathBuf};

use ed25519_compact::{PublicKey, Signature};

use crate::config::PluginConfig;

/// The file that holds the signature of a plugin: `my.wasm.sig` for `my.wasm`.
pub(crate) fn signature_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sig");
    PathBuf::from(name)
}

/// Check the signature of a file that was read as `wasm`. Files without one pass unless signatures
/// are required; a bad one never passes where keys are configured.
pub(crate) fn check(path: &Path, wasm: &[u8], config: &PluginConfig) -> Result<(), String> {
    if config.trusted_keys.is_empty() {
        return Ok(());
    }
    let (file, beside) = (path.display(), signature_of(path));
    let bytes = match mortise_files::read_beginning(&beside, Signature::BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !config.require_signed => {
            return Ok(());
        }
        Err(error) => {
            return Err(format!(
                "plugin `{file}` has no signature that can be read: `{}`: {error}",
                beside.display()
            ));
        }
    };
    let signature = Signature::from_slice(&bytes).map_err(|_| {
        format!(
            "`{}` is no signature: it has {} bytes instead of the 64 of ed25519",
            beside.display(),
            bytes.len()
        )
    })?;
    match is_signed(wasm, &signature, &config.trusted_keys) {
        true => Ok(()),
        false => Err(format!(
            "the signature of plugin `{file}` is by none of plugins.trusted_keys, or the file was \
             changed after it was signed"
        )),
    }
}

/// Check that one of the keys (ed25519) signed a file.
///
/// # Errors
/// When none did, or the signature is none.
pub fn check_signature(wasm: &[u8], signature: &[u8], keys: &[[u8; 32]]) -> Result<(), String> {
    let signature = Signature::from_slice(signature)
        .map_err(|_| "it has no signature of ed25519".to_owned())?;
    match is_signed(wasm, &signature, keys) {
        true => Ok(()),
        false => Err("its signature is by none of the trusted keys".to_owned()),
    }
}

fn is_signed(wasm: &[u8], signature: &Signature, keys: &[[u8; 32]]) -> bool {
    let good = |key: &[u8; 32]| PublicKey::new(*key).verify(wasm, signature).is_ok();
    keys.iter().any(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 3: key, message and signature.
    const KEY: &str = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
    const MESSAGE: [u8; 2] = [0xaf, 0x82];
    const SIGNATURE: &str = "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
                             18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a";

    fn bytes(digits: &str) -> Vec<u8> {
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        pairs.map(|pair| byte(pair).unwrap()).collect()
    }

    fn config(required: bool) -> PluginConfig {
        PluginConfig {
            trusted_keys: vec![[7; 32], bytes(KEY).try_into().unwrap()],
            require_signed: required,
            ..PluginConfig::default()
        }
    }

    #[test]
    fn only_what_a_trusted_key_signed_passes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        let check = |wasm: &[u8], required| check(&path, wasm, &config(required));
        assert_eq!(check(&MESSAGE, false), Ok(()), "unsigned and not required");
        assert!(check(&MESSAGE, true).unwrap_err().contains("no signature"));
        std::fs::write(folder.path().join("a.wasm.sig"), bytes(SIGNATURE)).unwrap();
        assert_eq!(check(&MESSAGE, true), Ok(()));
        for required in [false, true] {
            // One flipped bit (case M2).
            let error = check(&[0xaf, 0x83], required).unwrap_err();
            assert!(
                error.contains("a.wasm") && error.contains("trusted_keys"),
                "{error}"
            );
        }
        std::fs::write(folder.path().join("a.wasm.sig"), "short").unwrap();
        assert!(check(&MESSAGE, false).unwrap_err().contains("5 bytes"));
        let none = PluginConfig::default();
        assert_eq!(
            super::check(&path, &MESSAGE, &none),
            Ok(()),
            "no keys, no checks"
        );
    }
}
