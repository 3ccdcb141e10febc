//! Single netlink(7) requests to the kernel, for which rustix has no types.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// A socket for requests to one subsystem of the kernel.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket; without a protocol it is for requests about routes and interfaces.
    ///
    /// # Errors
    ///
    /// As socket(2) for `AF_NETLINK`, which seccomp filters may refuse.
    pub fn open(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol).map(Self)
    }

    /// Sends one request of this type (`nlmsg_type`) and returns the body of the answer, at most
    /// `room` bytes of it.
    ///
    /// # Errors
    ///
    /// The error in the kernel's answer; `EBADMSG` for an answer without a complete header, and as
    /// send(2) and recv(2).
    pub fn query(&self, kind: u16, body: &[u8], room: usize) -> Result<Vec<u8>, Errno> {
        let mut request = Vec::with_capacity(HEAD + body.len());
        request.extend((HEAD as u32 + body.len() as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend([0; 8]); // sequence and port, which an answer to one request does not need
        request.extend(body);
        send(&self.0, &request, SendFlags::empty())?;
        let mut answer = vec![0; HEAD + room];
        // The kernel answers within the call that sends the request.
        let (len, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        let body = answer.get(HEAD..).ok_or(Errno::BADMSG)?;
        let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
        if kind == Some(libc::NLMSG_ERROR as u16) {
            let code = leading_u32(body).unwrap_or(0).cast_signed();
            return Err(Errno::from_raw_os_error(code.saturating_neg().max(1)));
        }
        Ok(body.to_vec())
    }
}

/// Returns the number in the first four bytes, in the byte order of this machine.
#[must_use]
pub fn leading_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// `nlmsghdr`.
const HEAD: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_the_answer_is_returned() {
        let netlink = Netlink::open(None).unwrap();
        // No interface has this number (linux/if_link.h).
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        assert_eq!(netlink.query(18, &body, 1 << 10), Err(Errno::NODEV));
    }
}
