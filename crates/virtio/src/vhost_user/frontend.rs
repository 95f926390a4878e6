//! The frontend half without I/O: requests, and the expected form of their answers.
//!
//! It refuses requests that would be the frontend's own error, such as a request whose feature was
//! not negotiated. So every error in an answer is the backend's. Tests that send invalid messages
//! build a [`Message`] themselves.

use crate::features::{VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_REPLY_ACK, list, names, protocol_names};

use super::message::{
    ConfigAccess, InflightSpec, LogSpec, Message, RegionSpec, STATE_ERROR, STATE_NOFD, TransferSpec, VERSION,
    VRING_NOFD, VringAddr, VringState, decode_u64,
};
use super::request::{Request, Requirement};

/// A frontend's knowledge of its backend.
#[derive(Debug, Clone, Default)]
pub struct Frontend {
    offered: u64,
    protocol_offered: u64,
    protocol_acked: u64,
}

/// A request to send, and the way in which its answer becomes a `T`.
#[derive(Debug, Clone)]
pub struct Call<T> {
    /// The request.
    pub message: Message,
    /// Reads the answer. With `None` there is no answer, and success is not known.
    read: Option<ReadReply<T>>,
    /// The most file descriptors that come with the answer.
    fds: usize,
}

/// A function that reads the answer (second argument) to a request (first argument); their headers
/// match.
type ReadReply<T> = fn(&Message, &Message) -> Result<T, ReplyError>;

/// The error in an answer whose header is right.
#[derive(Debug)]
enum ReplyError {
    /// The answer reports that the request failed.
    Failed(u64),
    /// The payload does not have this expected form.
    Malformed(&'static str),
}

/// The reason why a request cannot be made, or the error in its answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its one line; the fields are the numbers in that line")]
pub enum FrontendError {
    /// The backend did not offer a feature that the request needs.
    #[error("{request} needs the feature {feature}, which the backend did not offer or we did not acknowledge")]
    NotNegotiated { request: Request, feature: String },
    /// The request is for another kind of device.
    #[error("{request} is for a {device} device")]
    OtherDevice { request: Request, device: &'static str },
    /// The request would acknowledge features that were not offered.
    #[error("{request} acknowledges features that the backend did not offer: {extra}")]
    NotOffered { request: Request, extra: String },
    /// The backend reports a failure.
    #[error("the backend reports that {request} failed (code {code})")]
    Failed { request: &'static str, code: u64 },
    /// The message is not an answer to the request.
    #[error(
        "{request} was answered with request {code}, flags {flags:#x}, {len} bytes and {fds} file descriptors; \
         expected {want}"
    )]
    BadReply { request: &'static str, code: u32, flags: u32, len: usize, fds: usize, want: &'static str },
}

impl Frontend {
    /// Returns the features that the backend offers, as far as they are known.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the protocol features that were acknowledged.
    pub fn acked_protocol_features(&self) -> u64 {
        self.protocol_acked
    }

    /// Returns a request with any payload, to be acknowledged if that was negotiated. Requests that
    /// have an answer of their own must be [`ask`](Self::ask)ed instead, since their answer is no
    /// acknowledgement.
    pub fn call(&self, request: Request, payload: Vec<u8>) -> Result<Call<()>, FrontendError> {
        self.check_requirement(request)?;
        let message = Message::request(request, payload);
        if self.protocol_acked & VHOST_USER_PROTOCOL_F_REPLY_ACK == 0 {
            return Ok(Call { message, read: None, fds: 0 });
        }
        Ok(Call { message: message.with_need_reply(), read: Some(read_ack), fds: 0 })
    }

    /// Returns a request without payload that is answered with a number.
    pub fn ask(&self, request: Request) -> Result<Call<u64>, FrontendError> {
        self.check_requirement(request)?;
        Ok(Call { message: Message::request(request, Vec::new()), read: Some(read_number), fds: 0 })
    }

    /// Records the backend's answer to GET_FEATURES. From then on these features may be set.
    pub fn learn_features(&mut self, offered: u64) {
        self.offered = offered;
    }

    /// Records the backend's answer to GET_PROTOCOL_FEATURES. From then on these features may be
    /// set.
    pub fn learn_protocol_features(&mut self, offered: u64) {
        self.protocol_offered = offered;
    }

    /// SET_FEATURES; bits that were not offered are an error.
    pub fn set_features(&self, features: u64) -> Result<Call<()>, FrontendError> {
        let request = Request::SetFeatures;
        let extra = features & !self.offered;
        if extra != 0 {
            return Err(FrontendError::NotOffered { request, extra: list(names(extra)) });
        }
        self.call(request, number(features))
    }

    /// SET_PROTOCOL_FEATURES; bits that were not offered are an error. From then on the features
    /// count as acknowledged.
    pub fn set_protocol_features(&mut self, features: u64) -> Result<Call<()>, FrontendError> {
        let request = Request::SetProtocolFeatures;
        let extra = features & !self.protocol_offered;
        if extra != 0 {
            return Err(FrontendError::NotOffered { request, extra: list(protocol_names(extra)) });
        }
        let call = self.call(request, number(features))?;
        self.protocol_acked = features;
        Ok(call)
    }

    /// SET_MEM_TABLE; the message carries one file for each region.
    pub fn set_mem_table(&self, regions: &[RegionSpec]) -> Result<Call<()>, FrontendError> {
        self.call(Request::SetMemTable, RegionSpec::encode_table(regions))
    }

    /// SET_VRING_NUM, BASE or ENABLE.
    pub fn set_ring(&self, request: Request, index: u32, num: u32) -> Result<Call<()>, FrontendError> {
        self.call(request, VringState { index, num }.encode())
    }

    /// SET_VRING_ADDR.
    pub fn set_vring_addr(&self, addr: VringAddr) -> Result<Call<()>, FrontendError> {
        self.call(Request::SetVringAddr, addr.encode())
    }

    /// SET_VRING_KICK, CALL or ERR; the message carries its file descriptor, if there is one.
    pub fn set_ring_fd(&self, request: Request, index: u32, has_fd: bool) -> Result<Call<()>, FrontendError> {
        // Cites vhost-user-set-vring-kick-1.
        self.call(request, number(u64::from(index) | if has_fd { 0 } else { VRING_NOFD }))
    }

    /// SET_LOG_BASE; the message carries the log's file. The backend always answers this request.
    pub fn set_log_base(&self, log: LogSpec) -> Result<Call<()>, FrontendError> {
        let request = Request::SetLogBase;
        self.check_requirement(request)?;
        Ok(Call { message: Message::request(request, log.encode()), read: Some(read_ack), fds: 0 })
    }

    /// GET_VRING_BASE.
    pub fn get_vring_base(&self, index: u32) -> Result<Call<u32>, FrontendError> {
        let request = Request::GetVringBase;
        self.check_requirement(request)?;
        // Cites vhost-user-get-vring-base-3.
        let payload = VringState { index, num: 0 }.encode();
        Ok(Call { message: Message::request(request, payload), read: Some(read_base), fds: 0 })
    }

    /// GET_CONFIG.
    pub fn get_config(&self, offset: u32, size: u16) -> Result<Call<Vec<u8>>, FrontendError> {
        let request = Request::GetConfig;
        self.check_requirement(request)?;
        let bytes = vec![0; usize::from(size)];
        let payload = ConfigAccess { offset, size: u32::from(size), flags: 0, bytes }.encode();
        Ok(Call { message: Message::request(request, payload), read: Some(read_config), fds: 0 })
    }

    /// GET_INFLIGHT_FD: an in-flight table for `queues` rings. Its file comes with the answer,
    /// unless the backend returns a size of 0.
    pub fn get_inflight_fd(&self, queues: u16, queue_size: u16) -> Result<Call<InflightSpec>, FrontendError> {
        let request = Request::GetInflightFd;
        self.check_requirement(request)?;
        let payload = InflightSpec { queues, queue_size, ..InflightSpec::default() }.encode();
        Ok(Call { message: Message::request(request, payload), read: Some(read_inflight), fds: 1 })
    }

    /// SET_INFLIGHT_FD; the message carries the table's file.
    pub fn set_inflight_fd(&self, spec: InflightSpec) -> Result<Call<()>, FrontendError> {
        self.call(Request::SetInflightFd, spec.encode())
    }

    /// SET_DEVICE_STATE_FD; the message carries our end of a channel. The answer is true if the
    /// backend's own channel comes back, which must then be used instead.
    pub fn set_device_state_fd(&self, transfer: TransferSpec) -> Result<Call<bool>, FrontendError> {
        let request = Request::SetDeviceStateFd;
        self.check_requirement(request)?;
        Ok(Call { message: Message::request(request, transfer.encode()), read: Some(read_channel), fds: 1 })
    }

    /// CHECK_DEVICE_STATE: succeeds if the transfer was complete.
    pub fn check_device_state(&self) -> Result<Call<()>, FrontendError> {
        let request = Request::CheckDeviceState;
        self.check_requirement(request)?;
        Ok(Call { message: Message::request(request, Vec::new()), read: Some(read_ack), fds: 0 })
    }

    fn check_requirement(&self, request: Request) -> Result<(), FrontendError> {
        // Cites vhost-user-communication-5, vhost-user-multiple-queue-1.
        // Cites vhost-user-set-vring-enable-1.
        let (is_met, feature) = match request.requirement() {
            Requirement::Nothing => return Ok(()),
            Requirement::OtherDevice(device) => {
                return Err(FrontendError::OtherDevice { request, device });
            }
            Requirement::Feature(bit) => (self.offered & bit != 0, list(names(bit))),
            Requirement::ProtocolOffered(bit) | Requirement::Protocol(bit) => {
                (self.protocol_acked & bit != 0, list(protocol_names(bit)))
            }
        };
        if is_met { Ok(()) } else { Err(FrontendError::NotNegotiated { request, feature }) }
    }
}

impl<T> Call<T> {
    /// Returns whether the backend answers the request.
    pub fn is_answered(&self) -> bool {
        self.read.is_some()
    }

    /// Returns the request's name.
    pub fn name(&self) -> &'static str {
        name(self.message.request)
    }

    /// Reads the answer, which came with `fds` file descriptors.
    pub fn answer(&self, reply: &Message, fds: usize) -> Result<T, FrontendError> {
        let code = reply.request;
        let flags = reply.flags;
        let len = reply.payload.len();
        let request = self.message.request;
        let bad = |want| FrontendError::BadReply { request: name(request), code, flags, len, fds, want };
        let Some(read) = self.read else {
            return Err(bad("no answer at all"));
        };
        // Cites vhost-user-communication-3.
        if code != request || !reply.is_reply() || reply.version() != VERSION || fds > self.fds {
            return Err(bad("the same request, the reply flag, version 1 and no file descriptor too many"));
        }
        read(&self.message, reply).map_err(|error| match error {
            ReplyError::Failed(code) => FrontendError::Failed { request: name(request), code },
            ReplyError::Malformed(want) => bad(want),
        })
    }
}

/// Returns the features that a frontend acknowledges: the offered features that it wants, and
/// always protocol features.
pub fn choose(offered: u64, wanted: u64) -> u64 {
    offered & (wanted | VHOST_USER_F_PROTOCOL_FEATURES)
}

fn number(number: u64) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}

fn name(code: u32) -> &'static str {
    Request::from_code(code).map_or("unknown request", Request::name)
}

fn read_number(_: &Message, reply: &Message) -> Result<u64, ReplyError> {
    decode_u64(&reply.payload).ok_or(ReplyError::Malformed("8 bytes"))
}

fn read_ack(request: &Message, reply: &Message) -> Result<(), ReplyError> {
    match read_number(request, reply)? {
        0 => Ok(()),
        code => Err(ReplyError::Failed(code)),
    }
}

fn read_channel(request: &Message, reply: &Message) -> Result<bool, ReplyError> {
    match read_number(request, reply)? {
        // Cites vhost-user-device-state-fd-1.
        number if number & STATE_ERROR != 0 => Err(ReplyError::Failed(number & STATE_ERROR)),
        number => Ok(number & STATE_NOFD == 0),
    }
}

fn read_base(request: &Message, reply: &Message) -> Result<u32, ReplyError> {
    let index = VringState::decode(&request.payload).map(|state| state.index);
    VringState::decode(&reply.payload)
        .filter(|state| Some(state.index) == index)
        .map(|state| state.num)
        .ok_or(ReplyError::Malformed("8 bytes for the same ring"))
}

fn read_config(request: &Message, reply: &Message) -> Result<Vec<u8>, ReplyError> {
    // "GET_CONFIG": an empty payload reports a failure.
    // Cites vhost-user-get-config-2.
    if reply.payload.is_empty() {
        return Err(ReplyError::Failed(0));
    }
    // Cites vhost-user-get-config-1.
    let asked = ConfigAccess::decode(&request.payload).map(|access| (access.offset, access.size));
    ConfigAccess::decode(&reply.payload)
        .filter(|access| Some((access.offset, access.size)) == asked && !access.bytes.is_empty())
        .map(|access| access.bytes)
        .ok_or(ReplyError::Malformed("the bytes that were asked for"))
}

fn read_inflight(request: &Message, reply: &Message) -> Result<InflightSpec, ReplyError> {
    let asked = InflightSpec::decode(&request.payload).map(|spec| (spec.queues, spec.queue_size));
    InflightSpec::decode(&reply.payload)
        .filter(|spec| Some((spec.queues, spec.queue_size)) == asked)
        .ok_or(ReplyError::Malformed("20 or 24 bytes for the same rings"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::*;

    fn reply(request: Request, payload: &[u8]) -> Message {
        Message::reply(request.code(), payload.to_vec())
    }

    fn frontend(features: u64, protocol: u64) -> Frontend {
        let mut frontend = Frontend::default();
        let call = frontend.ask(Request::GetFeatures).unwrap();
        frontend.learn_features(call.answer(&reply(Request::GetFeatures, &number(features)), 0).unwrap());
        if let Ok(call) = frontend.ask(Request::GetProtocolFeatures) {
            let answer = call.answer(&reply(Request::GetProtocolFeatures, &number(protocol)), 0);
            frontend.learn_protocol_features(answer.unwrap());
        }
        frontend
    }

    #[test]
    fn acknowledgements_are_asked_for_once_negotiated() {
        let mut frontend = frontend(VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_REPLY_ACK);
        let before = frontend.set_ring(Request::SetVringNum, 0, 256).unwrap();
        assert!(!before.is_answered() && !before.message.needs_reply());
        assert!(before.answer(&reply(Request::SetVringNum, &number(0)), 0).is_err());
        frontend.set_protocol_features(VHOST_USER_PROTOCOL_F_REPLY_ACK).unwrap();
        let after = frontend.set_ring(Request::SetVringNum, 0, 256).unwrap();
        assert!(after.is_answered() && after.message.needs_reply());
        assert_eq!(after.answer(&reply(Request::SetVringNum, &number(0)), 0), Ok(()));
        let failed = FrontendError::Failed { request: "SET_VRING_NUM", code: 7 };
        assert_eq!(after.answer(&reply(Request::SetVringNum, &number(7)), 0), Err(failed));
    }

    // Cites vhost-user-communication-5, vhost-user-multiple-queue-1.
    #[test]
    fn requests_without_their_feature_are_not_made() {
        let mut old = frontend(VIRTIO_NET_F_CSUM, 0);
        assert!(old.ask(Request::GetProtocolFeatures).is_err());
        assert!(old.set_features(VIRTIO_NET_F_CSUM).is_ok());
        let error = old.set_features(VIRTIO_NET_F_CSUM | VIRTIO_NET_F_MAC).unwrap_err();
        assert_eq!(error.to_string(), "SET_FEATURES acknowledges features that the backend did not offer: mac");
        assert!(old.set_protocol_features(VHOST_USER_PROTOCOL_F_MQ).is_err());
        for request in [Request::GetQueueNum, Request::GetConfig, Request::AddMemReg, Request::GpuSetSocket] {
            assert!(old.call(request, Vec::new()).is_err(), "{request}");
        }
    }

    // Cites vhost-user-communication-3, vhost-user-get-vring-base-3, vhost-user-device-state-fd-1.
    // Cites vhost-user-get-config-1, vhost-user-get-config-2.
    #[test]
    fn replies_must_fit_their_requests() {
        let mut frontend = frontend(VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_CONFIG);
        frontend.set_protocol_features(VHOST_USER_PROTOCOL_F_CONFIG).unwrap();
        let call = frontend.get_vring_base(1).unwrap();
        assert_eq!(call.message.payload, VringState { index: 1, num: 0 }.encode());
        let good = reply(Request::GetVringBase, &VringState { index: 1, num: 9 }.encode());
        assert_eq!(call.answer(&good, 0), Ok(9));
        let other_ring = reply(Request::GetVringBase, &VringState { index: 2, num: 9 }.encode());
        let other_request = reply(Request::GetFeatures, &good.payload);
        let short = reply(Request::GetVringBase, &[0; 7]);
        let no_reply = Message::request(Request::GetVringBase, good.payload.clone());
        let version = Message { flags: 0b110, ..good.clone() };
        for bad in [other_ring, other_request, short, no_reply, version] {
            let answer = call.answer(&bad, 0);
            assert!(matches!(answer, Err(FrontendError::BadReply { .. })), "{bad:?}");
        }
        assert!(call.answer(&good, 1).is_err());

        frontend.learn_protocol_features(VHOST_USER_PROTOCOL_F_DEVICE_STATE);
        frontend.set_protocol_features(VHOST_USER_PROTOCOL_F_DEVICE_STATE).unwrap();
        let call = frontend.set_device_state_fd(TransferSpec { direction: 0, phase: 0 }).unwrap();
        let answer = |value: u64| call.answer(&reply(Request::SetDeviceStateFd, &number(value)), 0);
        assert_eq!((answer(0x100), answer(0)), (Ok(false), Ok(true)));
        for failed in [1, 0x101, 0xff] {
            assert!(matches!(answer(failed), Err(FrontendError::Failed { .. })), "{failed:#x}");
        }
        frontend.learn_protocol_features(VHOST_USER_PROTOCOL_F_CONFIG);
        frontend.set_protocol_features(VHOST_USER_PROTOCOL_F_CONFIG).unwrap();

        let call = frontend.get_config(6, 2).unwrap();
        let access = |offset, bytes: &[u8]| {
            let size = u32::try_from(bytes.len()).unwrap();
            reply(Request::GetConfig, &ConfigAccess { offset, size, flags: 0, bytes: bytes.to_vec() }.encode())
        };
        assert_eq!(call.answer(&access(6, &[1, 2]), 0), Ok(vec![1, 2]));
        assert!(call.answer(&access(6, &[1, 2, 3]), 0).is_err());
        assert!(call.answer(&access(7, &[1, 2]), 0).is_err());
        let failed = call.answer(&reply(Request::GetConfig, &[]), 0);
        assert!(matches!(failed, Err(FrontendError::Failed { .. })));
    }
}
