//! Replies, with the headers that each of them has.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use hyper::{Response, StatusCode};

/// A reply. Its body is shared with the replies of the same poll.
pub(crate) type Reply = Response<Full<Bytes>>;

/// The headers of all replies. The page may load from this server only, and no other page may
/// embed it or read its replies.
const STRICT: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    // Counters of a second ago are wrong, and a page of another version may not understand them.
    ("cache-control", "no-store"),
];

/// The media type of JSON.
const JSON: &str = "application/json";

/// Returns a reply with a body of this media type.
pub(crate) fn content(media_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    // Metrics have two formats.
    headers.insert(VARY, HeaderValue::from_static("accept"));
    for (name, value) in STRICT {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    reply
}

/// Returns an answer of the switch.
pub(crate) fn json(body: Bytes) -> Reply {
    content(JSON, body)
}

/// Returns an error in the form of the switch's API: `{"error":"..."}`.
pub(crate) fn error(status: StatusCode, message: &str) -> Reply {
    let mut reply = content(JSON, serde_json::json!({"error": message}).to_string());
    *reply.status_mut() = status;
    reply
}

/// Returns the refusal of a method.
pub(crate) fn not_allowed() -> Reply {
    let mut reply = error(StatusCode::METHOD_NOT_ALLOWED, "this server only answers GET and HEAD");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    reply
}
