//! The system call `bpf(2)`, as far as XDP needs it, and an assembler for short programs.
//!
//! Attributes are byte arrays with fields at the offsets of `union bpf_attr`
//! (`include/uapi/linux/bpf.h`). Bytes that a command does not know must be 0.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
#[cfg(test)]
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// The attach type `BPF_XDP`.
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

/// The hook at which a program gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpMode {
    /// In the driver, before the kernel has made a packet buffer (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// In the kernel's network stack (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

impl XdpMode {
    /// Returns the name that operators see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }
}

/// The value of an XDP program that lets the kernel have the packet.
pub(crate) const XDP_PASS: i32 = 2;

/// The helper function `bpf_redirect_map`.
pub(crate) const REDIRECT_MAP: i32 = 51;

/// A register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register(pub(crate) u8);

/// One instruction (`struct bpf_insn`), or a half of the one instruction that takes 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Instruction([u8; 8]);

impl Instruction {
    fn new(code: u8, to: Register, from: Register, offset: i16, value: i32) -> Self {
        let registers = if cfg!(target_endian = "little") { to.0 | from.0 << 4 } else { to.0 << 4 | from.0 };
        let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        Instruction([code, registers, a, b, c, d, e, f])
    }

    /// Loads the 32-bit word at `from + offset` (`BPF_LDX | BPF_MEM | BPF_W`).
    pub(crate) fn load32(to: Register, from: Register, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// Loads the 16-bit word at `from + offset` (`BPF_LDX | BPF_MEM | BPF_H`).
    pub(crate) fn load16(to: Register, from: Register, offset: i16) -> Self {
        Self::new(0x69, to, from, offset, 0)
    }

    /// Loads the byte at `from + offset` (`BPF_LDX | BPF_MEM | BPF_B`).
    pub(crate) fn load8(to: Register, from: Register, offset: i16) -> Self {
        Self::new(0x71, to, from, offset, 0)
    }

    /// Copies a register (`BPF_ALU64 | BPF_MOV | BPF_X`).
    pub(crate) fn copy(to: Register, from: Register) -> Self {
        Self::new(0xbf, to, from, 0, 0)
    }

    /// Adds a number to a register (`BPF_ALU64 | BPF_ADD | BPF_K`).
    pub(crate) fn add(to: Register, value: i32) -> Self {
        Self::new(0x07, to, Register(0), 0, value)
    }

    /// Keeps the bits of a mask (`BPF_ALU64 | BPF_AND | BPF_K`).
    pub(crate) fn and(to: Register, mask: i32) -> Self {
        Self::new(0x57, to, Register(0), 0, mask)
    }

    /// Skips `offset` instructions if a register is greater than another (`BPF_JMP | BPF_JGT |
    /// BPF_X`).
    pub(crate) fn skip_if_greater(register: Register, than: Register, offset: i16) -> Self {
        Self::new(0x2d, register, than, offset, 0)
    }

    /// Skips `offset` instructions if the low half of a register is another number (`BPF_JMP32 |
    /// BPF_JNE | BPF_K`).
    pub(crate) fn skip_unless(register: Register, value: i32, offset: i16) -> Self {
        Self::new(0x56, register, Register(0), offset, value)
    }

    /// Skips `offset` instructions (`BPF_JMP | BPF_JA`).
    pub(crate) fn skip(offset: i16) -> Self {
        Self::new(0x05, Register(0), Register(0), offset, 0)
    }

    /// Sets a register to a number (`BPF_ALU64 | BPF_MOV | BPF_K`).
    pub(crate) fn set(to: Register, value: i32) -> Self {
        Self::new(0xb7, to, Register(0), 0, value)
    }

    /// Sets a register to a map (`BPF_LD | BPF_IMM | BPF_DW` with `BPF_PSEUDO_MAP_FD`).
    pub(crate) fn set_map(to: Register, map: BorrowedFd<'_>) -> [Self; 2] {
        let none = Register(0);
        [Self::new(0x18, to, Register(1), 0, map.as_raw_fd()), Self::new(0, none, none, 0, 0)]
    }

    /// Calls a helper function.
    pub(crate) fn call(helper: i32) -> Self {
        Self::new(0x85, Register(0), Register(0), 0, helper)
    }

    /// Ends the program with the value of register 0.
    pub(crate) fn exit() -> Self {
        Self::new(0x95, Register(0), Register(0), 0, 0)
    }
}

/// The attributes of a command.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

impl Attributes {
    fn new() -> Self {
        Attributes([0; 128])
    }

    fn put32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn put_fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        // A borrowed descriptor is never negative.
        self.put32(at, fd.as_raw_fd().cast_unsigned())
    }

    fn put_pointer<T: ?Sized>(mut self, at: usize, pointer: *const T) -> Self {
        let address = pointer.cast::<u8>().expose_provenance() as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    fn put_name(mut self, at: usize, name: &str) -> Self {
        let name = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + name.len()].copy_from_slice(name);
        self
    }

    #[cfg(test)]
    fn get32(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

/// Executes a command.
///
/// # Safety
/// All pointers in the attributes are valid for the command.
unsafe fn bpf(command: libc::c_int, attributes: &mut Attributes) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are as long as stated, and the caller promises that their pointers are
    // valid.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.0.as_mut_ptr(), attributes.0.len()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(libc::c_int::try_from(result).unwrap_or(-1)) }
}

/// Executes a command that returns a descriptor, which is closed on exec.
///
/// # Safety
/// As for [`bpf`]. The command returns a descriptor.
unsafe fn bpf_fd(command: libc::c_int, mut attributes: Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises what both calls need: valid pointers, and a new descriptor as the
    // result.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, &mut attributes)?)) }
}

/// Creates a map from queue to AF_XDP socket, with entries for `queues` queues.
pub(crate) fn create_socket_map(queues: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes::new()
        .put32(0, BPF_MAP_TYPE_XSKMAP)
        .put32(4, 4)
        .put32(8, 4)
        .put32(12, queues)
        .put_name(28, "straightline");
    // SAFETY: the attributes have no pointers.
    unsafe { bpf_fd(BPF_MAP_CREATE, attributes) }
}

/// Enters a socket into the map. The socket is bound already.
pub(crate) fn set_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let mut attributes =
        Attributes::new().put_fd(0, map).put_pointer(8, &raw const queue).put_pointer(16, &raw const value);
    // SAFETY: key and value have four bytes each, as the map was created, and outlive the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Loads an XDP program. `fragments` says that it also gets packets in several buffers.
pub(crate) fn load(program: &[Instruction], fragments: bool) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let attributes = Attributes::new()
        .put32(0, BPF_PROG_TYPE_XDP)
        .put32(4, program.len().try_into().unwrap_or(u32::MAX))
        .put_pointer(8, program.as_ptr())
        .put_pointer(16, license.as_ptr())
        .put32(44, if fragments { BPF_F_XDP_HAS_FRAGS } else { 0 })
        .put_name(48, "straightline")
        .put32(68, BPF_XDP);
    // SAFETY: the program has as many instructions as stated, the license ends with a 0, and both
    // outlive the call.
    unsafe { bpf_fd(BPF_PROG_LOAD, attributes) }
}

/// Attaches a program to an interface. It is detached when the last copy of the returned descriptor
/// is closed, also by the end of the process.
pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    let flags = match mode {
        XdpMode::Generic => 1 << 1,
        XdpMode::Native => 1 << 2,
    };
    let attributes = Attributes::new().put_fd(0, program).put32(4, ifindex).put32(8, BPF_XDP).put32(12, flags);
    // SAFETY: the attributes have no pointers.
    unsafe { bpf_fd(BPF_LINK_CREATE, attributes) }
}

/// Runs a program on a frame that arrived at the queue 0 of the loopback interface. Returns the
/// program's value.
#[cfg(test)]
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let len = frame.len().try_into().unwrap_or(u32::MAX);
    let mut attributes =
        Attributes::new().put_fd(0, program).put32(8, len).put_pointer(16, frame.as_ptr()).put32(32, 1);
    // SAFETY: the frame has as many bytes as stated and outlives the call. There is no output
    // buffer.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes) }?;
    Ok(attributes.get32(4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The instructions of `bpf_redirect_map(map, queue, XDP_PASS)` as the kernel documents them.
    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_have_the_kernels_bytes() {
        assert_eq!(Instruction::load32(Register(2), Register(1), 16).0, [0x61, 0x12, 16, 0, 0, 0, 0, 0]);
        assert_eq!(Instruction::set(Register(3), XDP_PASS).0, [0xb7, 3, 0, 0, 2, 0, 0, 0]);
        assert_eq!(Instruction::call(REDIRECT_MAP).0, [0x85, 0, 0, 0, 51, 0, 0, 0]);
        assert_eq!(Instruction::exit().0, [0x95, 0, 0, 0, 0, 0, 0, 0]);
        let stdin = std::io::stdin();
        assert_eq!(
            Instruction::set_map(Register(1), stdin.as_fd()).map(|half| half.0),
            [[0x18, 0x11, 0, 0, 0, 0, 0, 0], [0; 8]]
        );
    }
}
