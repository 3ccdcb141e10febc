//! A tunnel through a proxy (RFC 9110 9.3.6).

use url::Url;

use super::client::HttpClient;
use super::connect::address;
use super::connection::Connection;
use super::credentials::in_url;
use crate::error::ClientError;

impl Connection<'_> {
    /// Asks the connected proxy for a tunnel to the server of a URL. Not a byte after the proxy's
    /// answer has been read.
    pub(super) fn open_tunnel(
        &mut self,
        client: &HttpClient<'_>,
        proxy: &Url,
        url: &Url,
    ) -> Result<(), ClientError> {
        let to = address(url);
        let mut head =
            format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {}\r\n", client.user_agent);
        if let Some(value) = in_url(proxy) {
            head += &format!("Proxy-Authorization: {value}\r\n");
        }
        self.send((head + "\r\n").as_bytes())?;
        let response = loop {
            let response = self.response("CONNECT")?;
            if !(100..200).contains(&response.status) || response.status == 101 {
                break response;
            }
        };
        if response.is_success() {
            return Ok(());
        }
        let status = response.status;
        let detail = self.detail(&response);
        let (address, to) = (address(proxy).into(), to.into());
        Err(ClientError::Proxy { address, to, status, detail })
    }
}
