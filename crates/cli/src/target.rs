//! Which server and which namespace a command is about. Knows nothing of commands.

use clap::Args;

/// Which server to talk to.
#[derive(Args, Debug, Clone)]
pub(crate) struct Server {
    /// Host and port of the server
    #[arg(
        id = "server",
        long = "server",
        value_name = "ADDR",
        env = "LOCKWOOD_SERVER",
        default_value = "127.0.0.1:7117"
    )]
    pub(crate) address: String,
}

/// Which namespace to work in.
#[derive(Args, Debug, Clone)]
pub(crate) struct Namespace {
    /// The namespace the locks are in
    #[arg(
        id = "namespace",
        long = "namespace",
        short = 'n',
        value_name = "NS",
        env = "LOCKWOOD_NAMESPACE",
        default_value = "default"
    )]
    pub(crate) name: String,
}
