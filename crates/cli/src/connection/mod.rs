//! Connections of the program: streams, TLS and HTTP requests.

mod congestion;
mod http_client;
mod meet;
mod store;
mod stream_tls;
mod tls_trust;

pub(crate) use congestion::{check as check_congestion, choose as choose_congestion};
pub(crate) use http_client::HttpClientArgs;
pub(crate) use meet::meet;
pub(crate) use store::StoreArgs;
pub(crate) use stream_tls::{StreamTls, StreamTlsArgs};
