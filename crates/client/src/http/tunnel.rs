//! A tunnel through a proxy (RFC 9110 9.3.6).

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use url::Url;

use super::client::HttpClient;
use super::connect::address;
use super::connection::Connection;
use super::credentials::in_url;
use crate::error::{ClientError, ConnectionError, NetworkAction, ProxyError, TimeoutError};

impl Connection<'_> {
    /// Requests a tunnel to the server of a URL from the connected proxy, within the time `left`.
    /// No byte after the proxy's response is read.
    pub(super) fn open_tunnel(
        &mut self,
        client: &HttpClient<'_>,
        proxy: &Url,
        url: &Url,
        left: Duration,
    ) -> Result<(), ClientError> {
        let until = Instant::now() + left;
        self.incoming().set_deadline(Some(until));
        let outcome = self.ask_for_tunnel(client, proxy, url);
        self.incoming().set_deadline(client.deadline);
        let is_late = client.deadline.is_some_and(|deadline| deadline <= until);
        outcome.map_err(|error| match error {
            // Nothing but this deadline limits the time yet.
            ClientError::TimedOut(limit) if limit == TimeoutError::Stalled || !is_late => {
                self.failed(NetworkAction::Connecting, Errno::TIMEDOUT.into())
            }
            ClientError::Connection(ConnectionError::Closed { .. }) => {
                let ended = "it closed the connection without a response";
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, ended);
                self.failed(NetworkAction::Connecting, ended)
            }
            ClientError::InvalidResponse(problem) => {
                ProxyError::InvalidResponse { by: self.address().into(), problem }.into()
            }
            error => error,
        })
    }

    fn ask_for_tunnel(
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
        let response = self.answer("CONNECT", &mut |_| {})?;
        if response.is_success() {
            return Ok(());
        }
        let status = response.status;
        let detail = self.detail(&response);
        let (address, to) = (address(proxy).into(), to.into());
        Err(ProxyError::Refused { address, to, status, detail }.into())
    }
}
