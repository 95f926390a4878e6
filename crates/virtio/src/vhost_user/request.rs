//! The requests of a frontend: their codes, their names, and what must be negotiated for each.

use std::fmt;

use crate::features::{
    VHOST_F_LOG_ALL, VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_BACKEND_REQ, VHOST_USER_PROTOCOL_F_CONFIG,
    VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS, VHOST_USER_PROTOCOL_F_CROSS_ENDIAN,
    VHOST_USER_PROTOCOL_F_CRYPTO_SESSION, VHOST_USER_PROTOCOL_F_DEVICE_STATE,
    VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS, VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD, VHOST_USER_PROTOCOL_F_LOG_SHMFD,
    VHOST_USER_PROTOCOL_F_MQ, VHOST_USER_PROTOCOL_F_NET_MTU, VHOST_USER_PROTOCOL_F_PAGEFAULT,
    VHOST_USER_PROTOCOL_F_RARP, VHOST_USER_PROTOCOL_F_RESET_DEVICE, VHOST_USER_PROTOCOL_F_SHARED_OBJECT,
    VHOST_USER_PROTOCOL_F_SHMEM, VHOST_USER_PROTOCOL_F_STATUS, VIRTIO_F_ACCESS_PLATFORM,
};

/// The negotiation that must come before a request is legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing: the request is always legal.
    Nothing,
    /// This feature was offered (GET_FEATURES).
    Feature(u64),
    /// This protocol feature was offered (GET_PROTOCOL_FEATURES). The specification asks only for
    /// the offer with GET_QUEUE_NUM, SEND_RARP and NET_SET_MTU.
    ProtocolOffered(u64),
    /// This protocol feature was acknowledged.
    Protocol(u64),
    /// The request is for another kind of device.
    OtherDevice(&'static str),
}

macro_rules! requests {
    ($($code:literal $variant:ident $name:literal $requirement:expr, $reply:literal;)+) => {
        /// Requests of a frontend ("Front-end message types").
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Request {
            $(#[doc = concat!("`VHOST_USER_", $name, "`")] $variant = $code,)+
        }

        impl Request {
            /// Every request, in the order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the request of this code.
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Returns the code on the wire.
            pub fn code(self) -> u32 {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// Returns the specification's name without its prefix, such as `SET_MEM_TABLE`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the negotiation that must come before the request.
            pub fn requirement(self) -> Requirement {
                match self {
                    $(Self::$variant => $requirement,)+
                }
            }

            /// Returns whether the answer has a payload of its own. A plain acknowledgement is then
            /// no answer.
            pub fn has_own_reply(self) -> bool {
                match self {
                    $(Self::$variant => $reply,)+
                }
            }
        }
    };
}

// Cites vhost-user-communication-1, vhost-user-communication-5, vhost-user-protocol-features-1.
// Cites vhost-user-multiple-queue-1, vhost-user-set-vring-enable-1.
requests! {
    1 GetFeatures "GET_FEATURES" Requirement::Nothing, true;
    2 SetFeatures "SET_FEATURES" Requirement::Nothing, false;
    3 SetOwner "SET_OWNER" Requirement::Nothing, false;
    4 ResetOwner "RESET_OWNER" Requirement::Nothing, false;
    5 SetMemTable "SET_MEM_TABLE" Requirement::Nothing, false;
    6 SetLogBase "SET_LOG_BASE" Requirement::Protocol(VHOST_USER_PROTOCOL_F_LOG_SHMFD), true;
    7 SetLogFd "SET_LOG_FD" Requirement::Feature(VHOST_F_LOG_ALL), false;
    8 SetVringNum "SET_VRING_NUM" Requirement::Nothing, false;
    9 SetVringAddr "SET_VRING_ADDR" Requirement::Nothing, false;
    10 SetVringBase "SET_VRING_BASE" Requirement::Nothing, false;
    11 GetVringBase "GET_VRING_BASE" Requirement::Nothing, true;
    12 SetVringKick "SET_VRING_KICK" Requirement::Nothing, false;
    13 SetVringCall "SET_VRING_CALL" Requirement::Nothing, false;
    14 SetVringErr "SET_VRING_ERR" Requirement::Nothing, false;
    15 GetProtocolFeatures "GET_PROTOCOL_FEATURES" Requirement::Feature(VHOST_USER_F_PROTOCOL_FEATURES), true;
    16 SetProtocolFeatures "SET_PROTOCOL_FEATURES" Requirement::Feature(VHOST_USER_F_PROTOCOL_FEATURES), false;
    17 GetQueueNum "GET_QUEUE_NUM" Requirement::ProtocolOffered(VHOST_USER_PROTOCOL_F_MQ), true;
    18 SetVringEnable "SET_VRING_ENABLE" Requirement::Feature(VHOST_USER_F_PROTOCOL_FEATURES), false;
    19 SendRarp "SEND_RARP" Requirement::ProtocolOffered(VHOST_USER_PROTOCOL_F_RARP), false;
    20 NetSetMtu "NET_SET_MTU" Requirement::ProtocolOffered(VHOST_USER_PROTOCOL_F_NET_MTU), false;
    21 SetBackendReqFd "SET_BACKEND_REQ_FD" Requirement::Protocol(VHOST_USER_PROTOCOL_F_BACKEND_REQ), false;
    22 IotlbMsg "IOTLB_MSG" Requirement::Feature(VIRTIO_F_ACCESS_PLATFORM), true;
    23 SetVringEndian "SET_VRING_ENDIAN" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CROSS_ENDIAN), false;
    24 GetConfig "GET_CONFIG" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CONFIG), true;
    25 SetConfig "SET_CONFIG" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CONFIG), false;
    26 CreateCryptoSession "CREATE_CRYPTO_SESSION" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CRYPTO_SESSION), true;
    27 CloseCryptoSession "CLOSE_CRYPTO_SESSION" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CRYPTO_SESSION), false;
    28 PostcopyAdvise "POSTCOPY_ADVISE" Requirement::Protocol(VHOST_USER_PROTOCOL_F_PAGEFAULT), true;
    29 PostcopyListen "POSTCOPY_LISTEN" Requirement::Protocol(VHOST_USER_PROTOCOL_F_PAGEFAULT), false;
    30 PostcopyEnd "POSTCOPY_END" Requirement::Protocol(VHOST_USER_PROTOCOL_F_PAGEFAULT), true;
    31 GetInflightFd "GET_INFLIGHT_FD" Requirement::Protocol(VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD), true;
    32 SetInflightFd "SET_INFLIGHT_FD" Requirement::Protocol(VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD), false;
    33 GpuSetSocket "GPU_SET_SOCKET" Requirement::OtherDevice("GPU"), false;
    34 ResetDevice "RESET_DEVICE" Requirement::Protocol(VHOST_USER_PROTOCOL_F_RESET_DEVICE), false;
    35 VringKick "VRING_KICK" Requirement::Protocol(VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS), false;
    36 GetMaxMemSlots "GET_MAX_MEM_SLOTS" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS), true;
    37 AddMemReg "ADD_MEM_REG" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS), false;
    38 RemMemReg "REM_MEM_REG" Requirement::Protocol(VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS), false;
    39 SetStatus "SET_STATUS" Requirement::Protocol(VHOST_USER_PROTOCOL_F_STATUS), false;
    40 GetStatus "GET_STATUS" Requirement::Protocol(VHOST_USER_PROTOCOL_F_STATUS), true;
    41 GetSharedObject "GET_SHARED_OBJECT" Requirement::Protocol(VHOST_USER_PROTOCOL_F_SHARED_OBJECT), true;
    42 SetDeviceStateFd "SET_DEVICE_STATE_FD" Requirement::Protocol(VHOST_USER_PROTOCOL_F_DEVICE_STATE), true;
    43 CheckDeviceState "CHECK_DEVICE_STATE" Requirement::Protocol(VHOST_USER_PROTOCOL_F_DEVICE_STATE), true;
    44 GetShmemConfig "GET_SHMEM_CONFIG" Requirement::Protocol(VHOST_USER_PROTOCOL_F_SHMEM), true;
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_specification_s_and_lead_back() {
        assert_eq!(Request::ALL.len(), 44);
        for (code, request) in (1..).zip(Request::ALL) {
            assert_eq!(request.code(), code);
            assert_eq!(Request::from_code(code), Some(*request));
        }
        assert_eq!(Request::from_code(0), None);
        assert_eq!(Request::from_code(45), None);
        assert_eq!(Request::SetMemTable.code(), 5);
        assert_eq!(Request::RemMemReg.to_string(), "REM_MEM_REG");
        assert_eq!(Request::CheckDeviceState.code(), 43);
    }
}
