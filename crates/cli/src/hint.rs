//! What to do about a failure, in a few words.

use std::io;

use rustix::io::Errno;
use underpass_engine::{Error, Integrity};
use underpass_server::client::ClientError;
use underpass_server::client::download::DownloadError;
use underpass_server::client::tree::TreeError;
use underpass_server::client::upload::{UploadError, UploadFailed};
use underpass_server::tls::HandshakeError;

pub(crate) fn network_hint(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ADDRINUSE => {
            "another program listens there: choose another port or path, or stop it"
        }
        Errno::ADDRNOTAVAIL => "this machine does not have that address",
        Errno::AFNOSUPPORT => "this machine has no such addresses: leave it out",
        Errno::CONNREFUSED => "nobody listens there: start the other side first",
        Errno::ACCESS => "ports below 1024 need a privilege: choose a higher one",
        Errno::INVAL => "nobody listens on it: pass a socket unit with ListenStream=",
        Errno::NOTSOCK => "something else has that name: choose another path",
        _ => return None,
    })
}

pub(crate) fn path_hint(action: &str, errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOENT if action == "serving" => "name a folder or a file that exists",
        Errno::ACCESS if action == "serving" => "its owner has to let this user read it",
        Errno::ISDIR if action == "reading folder" => "-r copies folders, with everything in them",
        Errno::ISDIR if action == "replacing" => "a folder is in the way",
        Errno::NOTDIR if action == "replacing by a folder" => "something else is in the way",
        Errno::LOOP if action == "following" => "the link leads back to a folder that it is in",
        Errno::PERM if action == "writing" || action == "replacing" || action == "creating" => {
            "it may be immutable: lsattr tells"
        }
        Errno::TXTBSY => "it is running: leave out --in-place, or add --force",
        Errno::EXIST => "it exists already: --force replaces it",
        Errno::ISDIR if action == "reading" => {
            "pack a folder with tar: tar -c FOLDER | underpass send - ..."
        }
        Errno::NOSPC => "the disk is full: free some space or choose another folder",
        Errno::DQUOT => "the quota is used up",
        Errno::ROFS => "the file system is mounted read-only: choose another folder",
        _ => return None,
    })
}

pub(crate) fn tree_hint(error: &TreeError) -> Option<&'static str> {
    match error {
        TreeError::Io { action, source, .. } => path_hint(action, Errno::from_io_error(source)?),
        TreeError::Client(error @ (ClientError::Proxy { .. } | ClientError::Tls { .. })) => {
            client_hint(error)
        }
        TreeError::Client(error @ ClientError::Encoded { .. }) => client_hint(error),
        TreeError::Client(error @ ClientError::Network { source, .. })
            if source.kind() == io::ErrorKind::ConnectionRefused =>
        {
            client_hint(error)
        }
        error if error.is_temporary() => Some("the same command goes on where it was"),
        _ => None,
    }
}

pub(crate) fn download_hint(error: &DownloadError) -> Option<&'static str> {
    Some(match error {
        DownloadError::Busy => "wait for it, or name another file by -o",
        DownloadError::Changed => "fetch it once nobody writes to it",
        DownloadError::Client(error) => return client_hint(error),
        DownloadError::Digest(_) => "it was damaged, or is another file",
        DownloadError::Engine(error) => return transfer_hint(error),
        DownloadError::Exists => "--force replaces it",
        DownloadError::Local { action, source } => {
            return path_hint(action, Errno::from_io_error(source)?);
        }
        DownloadError::NoDigest => "leave out --verify, or give the digest by --digest",
        DownloadError::NoRoom { .. } => "free some space or choose another folder",
        DownloadError::Stranger { .. } => "remove it, or name another file by -o",
        _ => return None,
    })
}

fn client_hint(error: &ClientError) -> Option<&'static str> {
    Some(match error {
        ClientError::Network { source, .. } => return network_hint(Errno::from_io_error(source)?),
        ClientError::Status { status: 401, .. } => {
            "say who asks by --user NAME:PASSWORD, --bearer TOKEN or ~/.netrc"
        }
        ClientError::Proxy { status: 407, .. } | ClientError::Status { status: 407, .. } => {
            "say who asks the proxy by --proxy http://NAME:PASSWORD@HOST"
        }
        ClientError::Encoded { .. } => "--header 'Accept-Encoding: *' saves it as it is sent",
        ClientError::Stalled => "--timeout gives it longer",
        ClientError::Tls { error, .. } => return tls_hint(error),
        _ => return None,
    })
}

/// For what does not say itself what can be done.
pub(crate) fn tls_hint(error: &HandshakeError) -> Option<&'static str> {
    match error {
        error if error.is_no_tls() => Some("is that the port for it?"),
        HandshakeError::NotPinned { .. } => {
            Some("it has a new key, or somebody else is there: ask whoever runs it")
        }
        _ => None,
    }
}

pub(crate) fn transfer_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Declined { .. } => "leave out --mechanism to use what the kernel offers",
        Error::IntegrityDeclined { .. } => "leave out --mechanism to fall back to detect",
        Error::SourceChanged { level: Integrity::Lease, .. } => {
            "the peer was too slow for the writer: send again, or use --integrity snapshot"
        }
        Error::SourceChanged { .. } => "try again once nobody writes, or use --integrity fast",
        Error::SourceEnded { .. } => "somebody made it shorter meanwhile, or the peer gave up",
        Error::Io { source, .. } => match Errno::from_io_error(source)? {
            Errno::NOSPC => "the disk is full: free some space or choose another folder",
            Errno::CONNABORTED => "the connection was cut: no close_notify said that this is all",
            Errno::CONNRESET | Errno::PIPE => "the other side gave up; its own message says why",
            _ => return None,
        },
        _ => return None,
    })
}

pub(crate) fn upload_hint(failed: &UploadFailed) -> Option<&'static str> {
    if failed.is_kept {
        return Some("the same command goes on from there");
    }
    match &failed.error {
        UploadError::Precondition { .. } => return Some("it is not the version of --if-match"),
        UploadError::PartlyThere => {
            return Some("compare it with the file, then remove it or leave out -n");
        }
        _ => {}
    }
    if let UploadError::Source(error) | UploadError::Broken(error) = &failed.error {
        return transfer_hint(error);
    }
    if let UploadError::Client(
        error @ (ClientError::Network { .. } | ClientError::Proxy { .. } | ClientError::Tls { .. }),
    ) = &failed.error
    {
        return client_hint(error);
    }
    Some(match failed.error.status()? {
        401 => "say who asks: --user NAME:PASSWORD or --bearer TOKEN",
        403 => "whoever runs the server has to allow it: underpass serve --allow-upload",
        404 => "the server takes no uploads there",
        405 => "the server takes no uploads there; underpass serve does with --allow-upload",
        409 => {
            "there is no such folder: put -r makes folders, underpass serve --create-parents too"
        }
        411 => "the server has to know the length: save it to a file first",
        412 => "it is not the version of --if-match",
        413 => "it is larger than the server allows",
        507 => "the disk of the server is full",
        _ => return None,
    })
}
