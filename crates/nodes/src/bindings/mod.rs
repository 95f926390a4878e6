//! Bindings of IP and MAC addresses in a bridge, and answers to questions for them (RFC 9161).
//!
//! ```text
//!  ports ─▶ (VLAN in) ─▶ Neighbours ─▶ bridge          questions that are answered end here
//!                            │
//!                            └──▶ outbox ─▶ agent ─▶ output of the port that has asked
//! ```
//!
//! - **Learning.** ARP and neighbour discovery are believed from ports with a source check of IP
//!   addresses only, because their claims were compared before. Answers of DHCP are believed from
//!   `trusted` ports. So that nobody gets addresses for others, a question to a server must name the
//!   station that sends it.
//! - **Answers.** A question that would be flooded, for an address that is bound, is answered to the port
//!   that asks. All others go on: unknown addresses, one's own, those of stations behind the same port,
//!   probes for duplicates (RFC 5227, RFC 4862), and questions that come by a tunnel: the far end answers
//!   for its own.
//! - **Questions.** Before a binding goes because it was not heard, its station is asked. The bridge asks
//!   from an address of its own, and takes the answer out.
//!
//! Packets of other kinds pay for a look at their type.

mod node;
mod outbox;
mod table;
#[cfg(test)]
mod tests;

pub use node::{BindingAgent, BindingOutputs, Neighbours};
pub use table::BindingTable;
