//! The NUMA node of an interface, and memory on that node.

#![expect(unsafe_code, reason = "get_mempolicy and set_mempolicy, which rustix does not have")]

use std::fs;
use std::path::Path;

/// The most nodes that a policy can name here.
const MOST_NODES: usize = libc::c_ulong::BITS as usize;

/// Returns the NUMA node of an interface, as the files below this root describe it. Returns `None`
/// for an interface without a device, and for a machine that does not tell.
#[must_use]
pub fn interface_node(root: &Path, name: &str) -> Option<usize> {
    // -1 stands for no node.
    fs::read_to_string(root.join("sys/class/net").join(name).join("device/numa_node")).ok()?.trim().parse().ok()
}

/// While this value lives, the thread and the kernel on its behalf get new memory from one node, as
/// far as that node has some.
#[derive(Debug)]
pub(crate) struct PreferredNode(());

impl PreferredNode {
    /// Prefers a node. Returns `None` if the kernel refuses, or if the thread has a policy already,
    /// such as that of numactl.
    pub(crate) fn new(node: usize) -> Option<Self> {
        if policy() != Some(libc::MPOL_DEFAULT) {
            return None;
        }
        let mask = (node < MOST_NODES).then(|| libc::c_ulong::from(1_u8) << node)?;
        set_policy(libc::MPOL_PREFERRED, Some(mask)).then_some(PreferredNode(()))
    }
}

impl Drop for PreferredNode {
    fn drop(&mut self) {
        set_policy(libc::MPOL_DEFAULT, None);
    }
}

/// Returns the policy of this thread, if the kernel tells.
fn policy() -> Option<libc::c_int> {
    let mut mode = -1;
    let nothing = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes the mode, and nothing else, since the other pointers are null.
    let done = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nothing, 0_usize, nothing, 0_usize) };
    (done == 0).then_some(mode)
}

fn set_policy(mode: libc::c_int, mask: Option<libc::c_ulong>) -> bool {
    let at = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // The kernel reads one bit fewer than this says.
    let bits = if mask.is_some() { MOST_NODES + 1 } else { 0 };
    // SAFETY: the kernel reads the mask, one word, which lives until the call returns. It changes
    // only where it allocates memory for this thread.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, at, bits) == 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_node_is_preferred_until_the_end() {
        // Node 0 has memory on all but odd machines.
        let Some(preferred) = PreferredNode::new(0) else {
            let _ =
                writeln!(std::io::stdout(), "\nskipped a_node_is_preferred_until_the_end: the kernel refuses policies");
            return;
        };
        assert_eq!(policy(), Some(libc::MPOL_PREFERRED));
        assert!(PreferredNode::new(0).is_none(), "the thread has a policy already");
        drop(preferred);
        assert_eq!(policy(), Some(libc::MPOL_DEFAULT));
        assert!(PreferredNode::new(MOST_NODES).is_none() && PreferredNode::new(usize::MAX).is_none());
    }
}
