//! Arguments of the commands that ask the admin side of a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::admin_tls::AdminTls;
use crate::caller::server_url;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List all models with their states
    List {
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print everything that is known of a model, as JSON
    Show {
        /// The model's public name
        model: String,
        #[command(flatten)]
        server: AdminServer,
    },
    /// Load a model, and wait until it serves
    Load {
        /// The model's public name
        model: String,
        /// A setting of this load only; VALUE is JSON, or else text: --set max_context=8192
        #[arg(long = "set", value_name = "KEY=VALUE")]
        settings: Vec<String>,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the server pull a model from the hub, and wait until it is there
    Pull {
        /// org/name[:quant][@revision]; the model gets this name
        model: String,
        /// Print the number of the pull, and do not wait
        #[arg(long)]
        detach: bool,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Send a GGUF file or the files of a folder to the server, or go on with what was cut
    Upload {
        /// The file, or the folder
        file: PathBuf,
        /// The model's name [default: that of the file or folder]
        #[arg(long)]
        name: Option<String>,
        /// The file's SHA-256 digest, or that of the list which `sha256sum *` writes in the folder; the server checks it
        #[arg(long, value_name = "DIGEST")]
        sha256: Option<String>,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a model that was pulled or uploaded and is not loaded, with its files
    Rm {
        /// The model's public name
        model: String,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Look for models again in the folders of [discovery], and list what has changed
    Rescan {
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the queues of loaded models by tenant, with places, shares and waits
    Queues {
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Unload a model, and wait until its memory is free
    Unload {
        /// The model's public name
        model: String,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LorasCommand {
    /// List all adapters with their states
    List {
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print everything that is known of an adapter, as JSON
    Show {
        /// The public name of its model
        model: String,
        /// The adapter's name
        adapter: String,
        #[command(flatten)]
        server: AdminServer,
    },
    /// Load an adapter of a loaded model, and wait until requests can use it
    Load {
        /// The public name of the model
        model: String,
        /// The adapter's name
        adapter: String,
        /// A PEFT folder or a GGUF file, as the server finds it; may be left out where the server knows it
        #[arg(long)]
        path: Option<PathBuf>,
        /// The factor of what the adapter adds [default: 1]
        #[arg(long)]
        scale: Option<f32>,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Unload an adapter, and wait until no request uses it
    Unload {
        /// The public name of its model
        model: String,
        /// The adapter's name
        adapter: String,
        #[command(flatten)]
        server: AdminServer,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A running server that files are compared with.
#[derive(Debug, Args)]
pub(crate) struct Against {
    /// Also say what a reload would change on the server with this admin side, as http://127.0.0.1:9000
    #[arg(long, value_name = "URL", value_parser = server_url)]
    pub(crate) against: Option<String>,
    /// With --against: the environment variable that holds its key [default: the key of the files]
    #[arg(long, value_name = "VARIABLE", requires = "against")]
    pub(crate) admin_key_env: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: AdminTls,
}

/// The admin side of a running server.
#[derive(Debug, Args)]
pub(crate) struct AdminServer {
    /// The server's configuration file, which has the address and the key [default: MORTISE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The address of the admin side instead, as http://127.0.0.1:9000
    #[arg(long, value_name = "URL", value_parser = server_url, requires = "admin_key_env")]
    pub(crate) admin_url: Option<String>,
    /// With --admin-url: the environment variable that holds the key
    #[arg(long, value_name = "VARIABLE", requires = "admin_url")]
    pub(crate) admin_key_env: Option<String>,
    #[command(flatten)]
    pub(crate) tls: AdminTls,
}
