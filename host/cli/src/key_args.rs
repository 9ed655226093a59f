//! Arguments of `mortise keys …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::admin_tls::AdminTls;
use crate::caller::server_url;

/// Actions on issued keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Issue a key, and print its secret, which is not told again
    Create {
        /// Its id, by which logs name the caller
        id: String,
        #[command(flatten)]
        terms: Box<KeyTermArgs>,
        #[command(flatten)]
        place: KeyTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the keys
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: KeyTarget,
    },
    /// Give a key another secret, and print it
    Rotate {
        /// Its id
        id: String,
        /// Seconds for which the old secret holds beside the new one
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        overlap: u32,
        #[command(flatten)]
        place: KeyTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Refuse a key from now on, for good
    Revoke {
        /// Its id
        id: String,
        #[command(flatten)]
        place: KeyTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the hash of a password for `[[auth.users]]`; the password is read from standard input
    Password {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Terms of a key.
#[derive(Debug, Args)]
pub(crate) struct KeyTermArgs {
    /// The account that usage is kept by
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Seconds from now after which it is refused
    #[arg(long, value_name = "SECONDS")]
    pub(crate) expires_in: Option<u32>,
    /// A scope or limit; VALUE is JSON, or else text: --set 'models=["chat-*"]' --set requests_per_minute=60
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// Keys of a running server, over its admin side, or of a store that no server has open.
#[derive(Debug, Args)]
pub(crate) struct KeyTarget {
    /// The server's configuration file, which has the address and the key of the admin side [default: MORTISE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The address of the admin side instead, as http://127.0.0.1:9000
    #[arg(
        long,
        value_name = "URL",
        value_parser = server_url,
        requires = "admin_key_env",
        conflicts_with = "store"
    )]
    pub(crate) admin_url: Option<String>,
    /// With --admin-url: the environment variable that holds the key
    #[arg(long, value_name = "VARIABLE", requires = "admin_url")]
    pub(crate) admin_key_env: Option<String>,
    #[command(flatten)]
    pub(crate) tls: AdminTls,
    /// The store itself, while no server runs
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) store: Option<PathBuf>,
    /// With --store: the file of the server's audit log (`audit.file`), which records the change; a log in the store
    /// does so anyway
    #[arg(long, value_name = "FILE", requires = "store")]
    pub(crate) audit: Option<PathBuf>,
}
