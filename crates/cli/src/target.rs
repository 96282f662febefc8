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
        default_value = "127.0.0.1:7117",
        value_parser = parse_address
    )]
    pub(crate) address: String,
}

/// Host and port; a URL of the server will do.
fn parse_address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(address.to_owned()),
        _ => Err("write host and port, for example 127.0.0.1:7117".to_owned()),
    }
}

/// Which namespace to work in.
#[derive(Args, Debug, Clone)]
pub(crate) struct Namespace {
    /// The namespace to work in
    #[arg(
        id = "namespace",
        long = "namespace",
        short = 'n',
        value_name = "NS",
        env = "LOCKWOOD_NAMESPACE",
        default_value = "default",
        value_parser = parse_namespace
    )]
    pub(crate) name: String,
}

fn parse_namespace(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a namespace needs a name; leave the flag out for the namespace default".to_owned()),
        false => Ok(text.to_owned()),
    }
}
