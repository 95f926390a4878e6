//! Tests of policies: beside a slow reference, and the text of rules and flows.

mod oracle;
mod policies;
mod text;
