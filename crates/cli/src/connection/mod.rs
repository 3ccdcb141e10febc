//! Connections of the program: addresses, streams, TLS and HTTP requests.

mod address;
mod congestion;
mod http_client;
mod store;
mod stream_tls;
mod tcp;
mod tls_trust;
mod unix_marks;
pub(crate) mod unix_reset;

pub(crate) use address::{Stream, StreamAddress, meet};
pub(crate) use congestion::{check as check_congestion, choose as choose_congestion};
pub(crate) use http_client::HttpClientArgs;
pub(crate) use store::StoreArgs;
pub(crate) use stream_tls::{StreamTls, StreamTlsArgs, end as end_stream};
