//! Files with credentials for registries, from the environment variables that container tools read.

use std::path::PathBuf;

/// Files in the form of Docker's `config.json`, the first that counts first. They need not exist.
pub fn registry_credentials() -> Vec<PathBuf> {
    from_variables(&|name| {
        let value = std::env::var_os(name)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    })
}

fn from_variables(get: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let docker = get("DOCKER_CONFIG").or_else(|| Some(get("HOME")?.join(".docker")));
    let podman = get("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json"));
    let kept = get("XDG_CONFIG_HOME").or_else(|| Some(get("HOME")?.join(".config")));
    let files = [
        get("REGISTRY_AUTH_FILE"),
        podman,
        kept.map(|folder| folder.join("containers/auth.json")),
        docker.map(|folder| folder.join("config.json")),
    ];
    files.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_podman_and_docker() {
        let files = |set: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            };
            let files = from_variables(&get).into_iter();
            files
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            files(&[("HOME", "/h")]),
            ["/h/.config/containers/auth.json", "/h/.docker/config.json"]
        );
        assert_eq!(
            files(&[
                ("HOME", "/h"),
                ("DOCKER_CONFIG", "/d"),
                ("REGISTRY_AUTH_FILE", "/a")
            ]),
            ["/a", "/h/.config/containers/auth.json", "/d/config.json"]
        );
        assert!(files(&[]).is_empty());
    }
}
