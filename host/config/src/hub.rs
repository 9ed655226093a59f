//! Endpoint, token and cache of the Hugging Face hub, from the environment variables that
//! `huggingface_hub` reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_hub::HubConfig;

use super::ConfigError;

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Bytes of the file of a token.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Read the environment.
pub fn hub_config() -> Result<HubConfig, ConfigError> {
    from_variables(&|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some(value)
    })
}

/// Settings of the hub from the environment, with `cache` as the folder of the cache.
pub(crate) fn hub_config_with(cache: &Path) -> Result<HubConfig, ConfigError> {
    let mut config = from_variables(&|name| match name {
        // Any folder will do: the cache is given.
        "HF_HUB_CACHE" => Some(".".to_owned()),
        name => std::env::var(name).ok().filter(|value| !value.is_empty()),
    })?;
    config.cache = cache.to_owned();
    Ok(config)
}

fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<HubConfig, ConfigError> {
    let path = |name: &str| get(name).map(PathBuf::from);
    let home = path("HF_HOME").or_else(|| {
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        Some(caches?.join("huggingface"))
    });
    let inside = |name: &str| home.as_ref().map(|home| home.join(name));
    let cache = path("HF_HUB_CACHE")
        .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| inside("hub"))
        .ok_or_else(|| {
            super::invalid(
                "HF_HUB_CACHE",
                "set it, or HOME: no folder is known for the cache",
            )
        })?;
    let token_file = path("HF_TOKEN_PATH").or_else(|| inside("token"));
    let token = get("HF_TOKEN")
        .or_else(|| mortise_files::read_text(&token_file?, MAX_TOKEN_BYTES).ok())
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty());
    if token
        .as_ref()
        .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(super::invalid(
            "HF_TOKEN",
            "a token has letters, digits and signs only",
        ));
    }
    let flag = |name: &str| {
        get(name).is_some_and(|value| {
            matches!(
                value.to_ascii_lowercase().as_str(),
                "1" | "true" | "yes" | "on"
            )
        })
    };
    Ok(HubConfig {
        endpoint: get("HF_ENDPOINT").unwrap_or_else(|| HubConfig::ENDPOINT.to_owned()),
        token,
        cache,
        offline: flag("HF_HUB_OFFLINE"),
        retry_delay: RETRY_DELAY,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> HubConfig {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        from_variables(&get).expect("a configuration")
    }

    #[test]
    fn the_cache_is_where_other_tools_keep_it() {
        let cache = |variables: &[(&str, &str)]| read(variables).cache;
        assert_eq!(
            cache(&[("HOME", "/h")]),
            PathBuf::from("/h/.cache/huggingface/hub")
        );
        assert_eq!(
            cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]),
            PathBuf::from("/x/huggingface/hub")
        );
        assert_eq!(
            cache(&[("HOME", "/h"), ("HF_HOME", "/f")]),
            PathBuf::from("/f/hub")
        );
        assert_eq!(
            cache(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]),
            PathBuf::from("/c")
        );
        assert!(from_variables(&|_| None).is_err());
    }

    #[test]
    fn a_token_comes_from_the_environment_or_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().to_str().expect("a path in UTF-8");
        std::fs::write(folder.path().join("token"), "hf_file\n").expect("written");
        assert_eq!(read(&[("HF_HOME", home)]).token.as_deref(), Some("hf_file"));
        assert_eq!(
            read(&[("HF_HOME", home), ("HF_TOKEN", "hf_env")])
                .token
                .as_deref(),
            Some("hf_env")
        );
        assert_eq!(read(&[("HF_HOME", "/nowhere")]).token, None);
        let read = from_variables(&|name| {
            (name == "HF_TOKEN")
                .then(|| "a\nb".to_owned())
                .or(Some("/f".to_owned()))
        });
        assert!(read.is_err());
    }
}
