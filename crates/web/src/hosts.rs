//! The check of `Host` values. A page of a foreign site can make a browser resolve the site's name
//! to the loopback address (DNS rebinding). The browser then still sends the site's name as `Host`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

use crate::WebError;

/// Names of the loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The names and addresses by which clients may call the server, with any port: a tunnel of SSH
/// changes the port.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Allows the loopback interface, the address that is listened on, and these names.
    ///
    /// # Errors
    /// A value is no name and no address.
    pub(crate) fn new(listen: SocketAddr, allowed: &[String]) -> Result<Self, WebError> {
        let mut hosts: Vec<String> = LOOPBACK.map(str::to_owned).into();
        if !listen.ip().is_unspecified() {
            hosts.push(written(listen.ip()));
        }
        for host in allowed {
            let host = match host.parse::<Ipv6Addr>() {
                Ok(address) => written(address.into()),
                Err(_) => host.to_ascii_lowercase(),
            };
            let authority = host.parse::<Authority>().ok().filter(|authority| authority.host() == host);
            hosts.push(authority.map(|_| host.clone()).ok_or(WebError::Host(host))?);
        }
        Ok(Self(hosts))
    }

    /// Returns whether the request names an allowed host, and no other.
    pub(crate) fn allow(&self, request: &Parts) -> bool {
        let mut headers = request.headers.get_all(HOST).iter();
        let (Some(host), None) = (headers.next(), headers.next()) else { return false };
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let is_known = |authority: &Authority| self.0.iter().any(|host| authority.host().eq_ignore_ascii_case(host));
        // A request to a proxy names the host in its target, too.
        named.as_ref().is_some_and(is_known) && request.uri.authority().is_none_or(is_known)
    }
}

/// Returns an address as it is written in a URI.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn hosts(listen: &str, allowed: &[&str]) -> Hosts {
        let allowed: Vec<_> = allowed.iter().map(|&host| host.to_owned()).collect();
        Hosts::new(listen.parse().expect("an address"), &allowed).expect("they are valid")
    }

    fn allows(hosts: &Hosts, target: &str, headers: &[&str]) -> bool {
        let request = headers.iter().fold(Request::get(target), |request, host| request.header(HOST, *host));
        hosts.allow(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn only_known_names_are_served_with_any_port() {
        let hosts = hosts("192.0.2.1:9797", &["Switch.example", "2001:db8::1", "10.0.0.1"]);
        for known in
            ["localhost", "LOCALHOST:1", "127.0.0.1:9797", "[::1]:80", "192.0.2.1", "switch.EXAMPLE:9", "[2001:db8::1]"]
        {
            assert!(allows(&hosts, "/", &[known]), "{known}");
        }
        for foreign in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.2",
            "127.0.0.1.evil.example",
            "",
            "localhost@evil.example",
            "[::2]",
            "a b",
        ] {
            assert!(!allows(&hosts, "/", &[foreign]), "{foreign}");
        }
    }

    #[test]
    fn one_host_header_must_be_there_and_agree_with_the_target() {
        let hosts = hosts("127.0.0.1:9797", &[]);
        assert!(!allows(&hosts, "/", &[]));
        assert!(!allows(&hosts, "/", &["localhost", "localhost"]));
        assert!(allows(&hosts, "http://localhost:9797/", &["localhost"]));
        assert!(!allows(&hosts, "http://evil.example/", &["localhost"]));
    }

    #[test]
    fn allowed_hosts_are_checked() {
        let listen = "127.0.0.1:9797".parse().expect("an address");
        for wrong in ["", "http://a", "a/b", "a:80", "a b", "user@a"] {
            assert!(Hosts::new(listen, &[wrong.to_owned()]).is_err(), "{wrong:?}");
        }
    }
}
