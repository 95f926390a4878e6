//! Each structure against the linear list.

mod oracle;
mod table;
