//! The command line of `mortise plugin sign`, `push`, `pull` and `search`.

use std::path::PathBuf;

use clap::Args;
use mortise_registry::{Origin, Reference, RegistryConfig};

#[derive(Debug, Args)]
pub struct PluginSignArgs {
    /// A .wasm file; its signature is written beside it, as FILE.sig
    pub file: PathBuf,
    /// The ed25519 private key, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
}

/// Ways to the place that plugins are pushed to and pulled from.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// An OCI image layout in place of the registry, for machines without a network
    #[arg(long, value_name = "DIR")]
    pub layout: Option<PathBuf>,
    #[command(flatten)]
    pub wire: WireArgs,
}

/// Ways to speak to a registry.
#[derive(Debug, Args)]
pub struct WireArgs {
    /// Speak HTTP without TLS; registries of this machine are spoken to so anyway
    #[arg(long)]
    pub plain_http: bool,
    /// An origin at a private address that the registry may name as its token service or storage; may be repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub origins: Vec<Origin>,
}

impl WireArgs {
    pub(crate) fn config(&self, credentials: &[PathBuf]) -> RegistryConfig {
        RegistryConfig {
            plain_http: self.plain_http,
            origins: self.origins.clone(),
            credentials: credentials.to_vec(),
        }
    }
}

#[derive(Debug, Args)]
pub struct PluginPushArgs {
    /// A .wasm file; FILE.sig, where it is there, goes with it
    pub file: PathBuf,
    /// Reference to push it to, such as registry.example/team/my-policy:1.0
    pub reference: Reference,
    /// Sign it as cosign does, with this private key of P-256, and push the signature too
    #[arg(long, value_name = "PEM")]
    pub cosign_key: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub struct PluginPullArgs {
    /// The plugin, such as registry.example/team/my-policy:1.0; without it all that the lock file of the folder names
    pub reference: Option<Reference>,
    /// The folder that plugins are put into, and that has the lock file
    #[arg(long, value_name = "DIR", default_value = "plugins")]
    pub plugins: PathBuf,
    /// Name of the file; without it the last part of the reference with .wasm
    #[arg(long, value_name = "NAME.wasm", requires = "reference")]
    pub file: Option<String>,
    /// Take what the tag stands for now, and lock that
    #[arg(long)]
    pub update: bool,
    /// Take only what this ed25519 key signed (64 hexadecimal digits); may be repeated
    #[arg(long = "trusted-key", value_name = "HEX")]
    pub trusted_keys: Vec<String>,
    /// Take only what this public key of P-256 signed by cosign; may be repeated
    #[arg(long = "cosign-key", value_name = "PEM")]
    pub cosign_keys: Vec<PathBuf>,
    /// A registry that is asked in place of the one of the reference; it cannot change what is locked
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "layout")]
    pub mirror: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub struct PluginSearchArgs {
    /// The registry, such as registry.example
    #[arg(value_name = "HOST[:PORT]")]
    pub registry: String,
    /// A part of the name; without it all plugins are listed
    #[arg(default_value = "")]
    pub term: String,
    #[command(flatten)]
    pub wire: WireArgs,
}

pub(crate) const PLUGIN_SIGN_HELP: &str = "\
Example:
  openssl genpkey -algorithm ed25519 -out key.pem
  mortise plugin sign my_policy.wasm --key key.pem
It prints the public key as `plugins.trusted_keys` and --trusted-key take it.";

pub(crate) const PLUGIN_PUSH_HELP: &str = "\
The plugin is checked first, as `mortise plugin verify` does. Credentials are those of
`docker login` and `podman login`.

Example:
  mortise plugin push my_policy.wasm registry.example/team/my-policy:1.0";

pub(crate) const PLUGIN_PULL_HELP: &str = "\
The lock file, mortise-plugins.lock in the folder, pins what was pulled by its digest: the
same command gives the same file later, whatever the tag stands for then, until --update.

Examples:
  mortise plugin pull registry.example/team/my-policy:1.0 --plugins plugins
  mortise plugin pull --plugins plugins            # what the lock file names
  mortise plugin pull --plugins plugins --mirror mirror.internal:5000";
