//! Virtio-net over vhost-user: guest memory, virtqueues, the virtio-net header, and the protocol by
//! which a VMM sets up all of them.
//!
//! The crate has both halves: device and driver, backend and frontend. The device half serves
//! guests. The driver half is the guest's side; the embedded guest and the tests use it. All access
//! to guest memory goes through [`memory`].
//!
//! | module | holds |
//! |---|---|
//! | [`memory`] | mapping of guest memory, address translation, the dirty log, SIGBUS |
//! | [`ring`] | split and packed rings, both halves; in-flight tables; recovery after a crash |
//! | [`net_header`] | the header before each packet, and its checks |
//! | [`net_control`] | the commands of the control queue |
//! | [`vhost_user`] | the vhost-user protocol, both halves |
//! | [`features`] | feature bits and their names |
//! | [`fail`] | places in the code where a test can crash the process |
//!
//! The crate does not know ports, graph nodes or threads: a port drives it, one turn at a time. It
//! is no general virtio library either: it supports virtio 1.x network devices only.
//!
//! A device and a driver over the same memory exchange one buffer:
//!
//! ```
//! use std::os::fd::AsFd;
//! use std::sync::Arc;
//!
//! use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
//! use straightline_virtio::memory::{GuestMemory, Region};
//! use straightline_virtio::ring::{Device, First, Geometry, RingOptions, SplitDevice, SplitDriver};
//!
//! // 64 KiB of guest memory at guest address 0; the frontend maps it at 0x10_0000.
//! let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
//! ftruncate(&file, 0x1_0000)?;
//! let region = Region::map(file.as_fd(), 0, 0x1_0000, 0, 0x10_0000)?;
//! let memory = GuestMemory::new(vec![Arc::new(region)]).expect("one region overlaps none");
//!
//! // A ring of 8 entries. Ring addresses are the frontend's, buffer addresses the guest's.
//! let geometry = Geometry { size: 8, desc: 0x10_0000, avail: 0x10_1000, used: 0x10_2000 };
//! let mut driver = SplitDriver::new(&memory, geometry, RingOptions::default())?;
//! let mut device = SplitDevice::new(&memory, geometry, 0, RingOptions::default())?;
//!
//! // The driver offers 100 bytes at guest address 0x8000 for the device to read.
//! let head = driver.add(&[(0x8000, 100, false)]).expect("8 descriptors are free");
//! driver.publish();
//!
//! let mut found = [First::default()];
//! assert_eq!(device.find(&mut found)?, 1);
//! assert_eq!(found[0].desc.len, 100);
//! device.take(&found[0]);
//! device.give_back(1);
//!
//! // The driver gets the chain back; the device wrote no bytes into it.
//! assert_eq!(driver.used(), Some(Ok((head, 0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod fail;
pub mod features;
pub mod memory;
pub mod net_control;
pub mod net_header;
pub mod ring;
pub mod vhost_user;
