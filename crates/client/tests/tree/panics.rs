//! Threads that panic while a folder is fetched from its listings.

use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use underpass_client::tree::{TreeError, TreeEvent, TreeGauge, TreeOptions, fetch};

use crate::hostile::{agent, response, serve};

#[test]
fn a_thread_that_panics_ends_the_others_and_nothing_is_removed() {
    const ENTRIES: &str = r#"[{"name":"missing","type":"file"},{"name":"sub","type":"directory"}]"#;
    for connections in [1, 4] {
        let url = serve(|target| match target {
            "/x/" | "/x/sub/" => response("application/json", ENTRIES.as_bytes()),
            _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        });
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("x");
        fs::create_dir_all(target.join("sub")).unwrap();
        fs::write(target.join("sub/earlier"), "earlier").unwrap();
        let (send, receive) = channel();
        let at = target.clone();
        thread::spawn(move || {
            let mirroring = TreeOptions { archive: false, deletes: true, ..TreeOptions::default() };
            let options = TreeOptions { connections, retries: 0, ..mirroring };
            let report = |event: &TreeEvent<'_>| {
                assert!(!matches!(event, TreeEvent::LeftOut { .. }), "on purpose");
            };
            send.send(fetch(&agent(), &options, &url, &at, &TreeGauge::default(), &report))
                .unwrap();
        });
        let failed = receive.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
        assert!(matches!(failed.error, TreeError::Panicked), "{connections}: {failed}");
        assert!(target.join("sub/earlier").exists(), "{connections}");
    }
}
