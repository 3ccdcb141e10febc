//! The requests of instant-acme, sent by our own HTTP client.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use underpass_client::{ClientError, Request, TlsSetup, Url};
use underpass_engine::wait::lock;

/// A client for one certificate authority. Clones share the delay that it requested.
#[derive(Clone)]
pub(crate) struct Http {
    client: Arc<underpass_client::HttpClient<'static>>,
    /// The total time that an exchange may take.
    max_time: Duration,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Http {
    /// Creates a client that trusts servers as `tls` says.
    pub(crate) fn new(tls: TlsSetup) -> Self {
        let client = underpass_client::HttpClient { tls, ..Default::default() };
        Self { client: Arc::new(client), max_time: MAX_TIME, retry_after: Arc::default() }
    }

    /// Returns a client whose exchanges have a deadline: a certificate authority that sends a byte
    /// now and then would occupy the only thread for days.
    fn begin(&self) -> underpass_client::HttpClient<'static> {
        let deadline = Instant::now().checked_add(self.max_time);
        underpass_client::HttpClient { deadline, ..(*self.client).clone() }
    }

    /// Takes the delay that the last response requested (`Retry-After`).
    pub(crate) fn take_retry_after(&self) -> Option<Duration> {
        lock(&self.retry_after).take()
    }

    /// Returns the body of a document.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub(crate) fn get(&self, url: &Url) -> Result<Vec<u8>, ClientError> {
        let request = Request { method: "GET", fields: &[] };
        let mut answer = self.begin().execute(None, &request, url)?;
        let framing = answer.response.framing;
        let body = answer.connection.incoming().memory(framing, MAX_BODY);
        body.map_err(|error| ClientError::receiving(url.as_str(), error))
    }

    fn exchange(&self, parts: &Parts, body: &[u8]) -> Result<BytesResponse, Error> {
        let other = |error: ClientError| Error::Other(Box::new(error));
        let url = Url::parse(&parts.uri.to_string()).map_err(|_| Error::Str("no URL"))?;
        let media_type = parts.headers.get(http::header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let fields: Vec<_> = media_type.map(|value| ("Content-Type", value)).into_iter().collect();
        let request = Request { method: parts.method.as_str(), fields: &fields };
        let client = self.begin();
        let (mut connection, response) = match body {
            [] => {
                let answer = client.execute(None, &request, &url).map_err(other)?;
                (answer.connection, answer.response)
            }
            body => client.send(None, &request, &url, body).map_err(other)?,
        };
        let wait = response.retry_after(SystemTime::now());
        *lock(&self.retry_after) = wait;
        let is_problem = response.fields.text("content-type").is_some_and(|it| it.contains("json"));
        if response.status >= 400 && !is_problem {
            return Err(other(connection.refusal(&response)));
        }
        let mut builder = http::Response::builder().status(
            StatusCode::from_u16(response.status).map_err(|error| Error::Http(error.into()))?,
        );
        for name in PASSED_ON {
            if let Some(value) = response.fields.get(name) {
                builder = builder.header(HeaderName::from_static(name), value);
            }
        }
        let body = connection.incoming().memory(response.framing, MAX_BODY);
        let body = body.map_err(|error| other(ClientError::receiving(url.as_str(), error)))?;
        let (parts, ()) = builder.body(())?.into_parts();
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
    }
}

impl HttpClient for Http {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // The body is in memory, so this is ready at once.
            let Ok(body) = body.collect().await;
            http.exchange(&parts, &body.to_bytes())
        })
    }
}

/// Runs a future of instant-acme. Its requests block until they are done and need no waker.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The response fields that instant-acme reads.
const PASSED_ON: [&str; 3] = ["location", "replay-nonce", "retry-after"];

/// The longest exchange, from name resolution to the end of the response.
const MAX_TIME: Duration = Duration::from_secs(120);

/// The longest accepted response, in bytes; a certificate chain has some thousands.
const MAX_BODY: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_response_byte_by_byte_times_out() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: ",
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/dir", listener.local_addr().unwrap());
            let authority = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                // Until the client has disconnected.
                while stream.write_all(b"x").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let http =
                Http { max_time: Duration::from_millis(300), ..Http::new(TlsSetup::default()) };
            let error = http.get(&Url::parse(&url).unwrap()).unwrap_err();
            assert!(matches!(error, ClientError::TimedOut(_)), "{error}");
            authority.join().unwrap();
        }
    }
}
