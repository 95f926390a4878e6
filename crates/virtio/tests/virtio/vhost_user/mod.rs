//! The messages of vhost-user, between our halves and with a third party's.

mod backend;
mod both;
mod third_party;
