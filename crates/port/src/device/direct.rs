//! The opener that works in this process: for programs that keep their privileges, and inside the
//! helper process.

use super::{DeviceRequest, OpenCause, OpenError, OpenedDevice, Opener};
use crate::tap;

/// Opens interfaces in this process, with its privileges.
#[derive(Debug, Default)]
pub struct Direct;

impl Opener for Direct {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        if let Err(why) = check_interface_name(request.interface()) {
            return Err(OpenError::new(OpenCause::Unsupported, format!("{:?}: {why}", request.interface())));
        }
        match request {
            DeviceRequest::Tap(request) => tap::open(request),
            DeviceRequest::AfPacket(_) | DeviceRequest::AfXdp(_) => {
                Err(OpenError::new(OpenCause::Unsupported, "this kind of port does not exist yet"))
            }
        }
    }

    fn close(&self, request: &DeviceRequest) {
        match request {
            DeviceRequest::Tap(_) | DeviceRequest::AfPacket(_) | DeviceRequest::AfXdp(_) => {}
        }
    }
}

/// Bytes of the longest interface name (IFNAMSIZ counts the closing zero).
const MOST_NAME: usize = 15;

/// Checks that the kernel accepts the name for an interface (`dev_valid_name`).
///
/// # Errors
/// The reason why it does not, in words.
pub fn check_interface_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_ascii_whitespace();
    match name {
        "" | "." | ".." => Err("no interface can have this name".to_owned()),
        _ if name.len() > MOST_NAME => Err(format!("the name has {} bytes; the kernel allows {MOST_NAME}", name.len())),
        _ if name.contains(bad) => Err("an interface name has no slash, colon or white space".to_owned()),
        _ => Ok(()),
    }
}
