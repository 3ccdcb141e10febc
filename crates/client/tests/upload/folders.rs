//! Folders are created by MKCOL, if the server supports it.

use underpass_client::HttpClient;
use underpass_client::upload::{MkcolOutcome, make_folder};

use super::rig::{PATIENCE, Scripted};

#[test]
fn each_answer_has_its_meaning() {
    let cases = [
        ("201 Created", Some(MkcolOutcome::New)),
        ("405 Method Not Allowed", Some(MkcolOutcome::Exists)),
        ("501 Not Implemented", Some(MkcolOutcome::Unknown)),
        ("400 Bad Request", Some(MkcolOutcome::Unclear)),
        ("403 Forbidden", None),
        ("409 Conflict", None),
        ("507 Insufficient Storage", None),
    ];
    for (status, expected) in cases {
        let server = Scripted::one(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("MKCOL /new/ HTTP/1.1\r\n"), "{head}");
            conn.answer(status, &[]);
        });
        let agent =
            HttpClient { connect_timeout: PATIENCE, timeout: PATIENCE, ..HttpClient::default() };
        let made = make_folder(&agent, &server.url("/new/"), false, None);
        assert_eq!(made.ok().map(|(made, _)| made), expected, "{status}");
    }
}
