//! Which server and which namespace a command is about. Knows nothing of commands.

use clap::Args;
use std::net::{SocketAddr, ToSocketAddrs};

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

/// Host and port; a URL of the server will do. The nodes of a cluster have commas between them.
fn parse_address(text: &str) -> Result<String, String> {
    let nodes: Vec<String> =
        text.split(',').map(|node| parse_node_address(node.trim())).collect::<Result<_, _>>()?;
    Ok(nodes.join(","))
}

fn parse_node_address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    if let Some((scheme, rest)) = address.split_once("://") {
        return Err(format!("the server speaks plain HTTP, not {scheme}: write {rest} or http://{rest}"));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(address.to_owned()),
        _ => Err("write host and port, for example 127.0.0.1:7117 or localhost:7117".to_owned()),
    }
}

/// An address to listen on: an IP address or a name of this machine, and a port.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let rule = "write address and port, for example 127.0.0.1:7117 or localhost:7117";
    let well_formed = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok());
    if !well_formed {
        return Err(rule.to_owned());
    }
    let found: Vec<SocketAddr> =
        text.to_socket_addrs().map_err(|error| format!("{error}; {rule}"))?.collect();
    // Clients that are given 127.0.0.1, which every example is, must find the server.
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("the name has no address; {rule}"))
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

pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a namespace needs a name; leave the flag out for the namespace default".to_owned()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_host_and_port() {
        let check = |text: &str, address: &str| assert_eq!(parse_address(text), Ok(address.to_owned()));
        check("localhost:7117", "localhost:7117");
        check("http://127.0.0.1:7117/", "127.0.0.1:7117");
        check("a:1, http://b:2", "a:1,b:2");
        for text in ["", "localhost", ":7117", "a:x", "a:1,"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
        let refused = parse_address("https://db:7117").unwrap_err();
        assert_eq!(refused, "the server speaks plain HTTP, not https: write db:7117 or http://db:7117");
    }

    #[test]
    fn a_listener_can_be_named_localhost() {
        assert_eq!(parse_listen("127.0.0.1:0"), Ok("127.0.0.1:0".parse().unwrap()));
        assert!(parse_listen("localhost:7117").unwrap().ip().is_loopback());
        for text in ["", "localhost", "http://localhost:7117", ":7117"] {
            assert!(parse_listen(text).unwrap_err().contains("127.0.0.1:7117"), "{text}");
        }
    }
}
