//! Headers, by their properties and beside other implementations: in one program, which links once.

mod claims;
mod common;
mod membership;
mod oracle;
mod properties;
mod tunnels;
