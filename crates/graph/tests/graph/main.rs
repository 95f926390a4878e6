//! The graph and its worker, by the public interface: in one program, which links once.

mod forms;
mod quiet;
mod visits;
