//! A redirect may lead to another server, which the user has not named.

use std::net::TcpListener;

use underpass_client::upload::{Condition, ConditionError, UploadError, make_folder};
use underpass_client::{Credentials, HttpClient};

use super::rig::{Conn, Outcome, Sample, Scripted, field, script};

const LEN: usize = 100;

/// Uploads with a user name and a password.
fn put(sample: &Sample, server: &Scripted, condition: Condition<'static>) -> Outcome {
    let journal = sample.journal();
    sample.put_with(&server.url("/file"), |options| {
        options.user = Some(("me", "SECRET"));
        options.condition = condition;
        options.journal = Some(journal);
        options.retries = 0;
    })
}

/// Expects a request, with or without the password.
#[track_caller]
fn expect(conn: &mut Conn, line: &str, is_trusted: bool) -> String {
    let head = conn.head();
    assert!(head.starts_with(line), "{head}");
    assert_eq!(field(&head, "authorization").is_some(), is_trusted, "{head}");
    head
}

/// Expects a PUT request, and redirects it.
fn redirect(conn: &mut Conn, len: usize, is_trusted: bool, to: &str) {
    expect(conn, "PUT ", is_trusted);
    conn.take(len);
    conn.answer("307 Temporary Redirect", &[&format!("Location: {to}")]);
}

/// Expects no further request from the client.
#[track_caller]
fn expect_no_more(mut conn: Conn) {
    let (rest, _) = conn.rest();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn another_server_never_gets_the_password() {
    // After a page, the client checks whether the file was stored.
    let other = Scripted::one(|mut conn| {
        expect(&mut conn, "PUT /other ", false);
        conn.take(LEN);
        conn.answer("200 OK", &["Content-Type: text/html"]);
        expect(&mut conn, "HEAD /other ", false);
        conn.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n"));
    });
    let url = other.url("/other");
    let first = Scripted::one(move |mut conn| redirect(&mut conn, LEN, true, url.as_str()));
    put(&Sample::of(LEN), &first, Condition::None).done();
    // A condition is checked on the target of the redirect.
    for condition in [Condition::Absent, Condition::Version("*")] {
        let other = Scripted::one(move |mut conn| {
            expect(&mut conn, "HEAD /other ", false);
            match condition {
                Condition::Absent => conn.answer("404 Not Found", &[]),
                _ => conn.answer("200 OK", &["Content-Type: image/png"]),
            }
            expect(&mut conn, "PUT /other ", false);
            conn.take(LEN);
            conn.answer("201 Created", &[]);
        });
        let url = other.url("/other");
        let first = Scripted::one(move |mut conn| {
            expect(&mut conn, "HEAD /file ", true);
            match condition {
                Condition::Absent => conn.answer("404 Not Found", &[]),
                _ => conn.answer("200 OK", &["Content-Type: image/png"]),
            }
            redirect(&mut conn, LEN, true, url.as_str());
        });
        put(&Sample::of(LEN), &first, condition).done();
    }
}

#[test]
fn another_server_cannot_name_a_url_of_the_first_for_the_upload() {
    const LEN: usize = 2 << 20;
    for is_refused in [true, false] {
        let (address, addresses) = std::sync::mpsc::channel::<String>();
        let other = Scripted::one(move |mut conn| {
            let head = expect(&mut conn, "PUT /other ", false);
            assert_eq!(field(&head, "upload-complete"), None, "{head}");
            let location = addresses.recv().unwrap();
            conn.say(&format!("HTTP/1.1 104 x\r\nLocation: http://{location}/precious\r\n\r\n"));
            if is_refused {
                conn.answer("400 Bad Request", &["Connection: close"])
            } else {
                conn.say_continue();
                conn.take(LEN / 2);
                conn.reset();
            }
        });
        let url = other.url("/other");
        let first = Scripted::one(move |mut conn| {
            expect(&mut conn, "OPTIONS /file ", true);
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            redirect(&mut conn, 0, true, url.as_str());
            expect_no_more(conn);
        });
        address.send(first.address.clone()).unwrap();
        let failed = put(&Sample::of(LEN), &first, Condition::None).failed();
        assert!(!failed.is_kept, "{failed}");
    }
}

#[test]
fn another_server_cannot_lead_back_with_the_password() {
    let (address, addresses) = std::sync::mpsc::channel::<String>();
    let other = Scripted::one(move |mut conn| {
        let back = format!("http://{}/precious", addresses.recv().unwrap());
        redirect(&mut conn, LEN, false, &back);
    });
    let url = other.url("/other");
    let first = Scripted::new(vec![
        script(move |mut conn| redirect(&mut conn, LEN, true, url.as_str())),
        script(|mut conn| {
            expect(&mut conn, "PUT /precious ", false);
            conn.take(LEN);
            conn.answer("401 Unauthorized", &[]);
            expect_no_more(conn);
        }),
    ]);
    address.send(first.address.clone()).unwrap();
    assert_eq!(put(&Sample::of(LEN), &first, Condition::None).refused().0, 401);
}

/// An obsolete upload is removed where it is, and nowhere else.
#[test]
fn a_request_to_delete_follows_no_redirect() {
    const LEN: usize = 2 << 20;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let to = format!("Location: http://{}/precious", other.local_addr().unwrap());
    for status in ["303 See Other", "307 Temporary Redirect"] {
        let to = to.clone();
        let first = Scripted::new(vec![
            script(|mut conn| {
                expect(&mut conn, "OPTIONS /file ", true);
                conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
                expect(&mut conn, "PUT /file ", true);
                conn.say("HTTP/1.1 104 x\r\nLocation: /file?upload=7\r\n\r\n");
                conn.answer("400 Bad Request", &["Connection: close"]);
            }),
            script(move |mut conn| {
                expect(&mut conn, "DELETE /file?upload=7 ", true);
                conn.answer(status, &[&to]);
                expect_no_more(conn);
            }),
        ]);
        let failed = put(&Sample::of(LEN), &first, Condition::None).failed();
        assert!(!failed.is_kept, "{failed}");
    }
    assert!(other.accept().is_err());
}

#[test]
fn no_folder_is_made_where_a_result_is_described() {
    let server = Scripted::one(|mut conn| {
        expect(&mut conn, "MKCOL /new/ ", false);
        conn.answer("303 See Other", &["Location: /result"]);
        expect_no_more(conn);
    });
    assert!(make_folder(&HttpClient::default(), &server.url("/new/"), false, None).is_err());
}

#[test]
fn another_server_cannot_make_the_client_create_folders_with_the_password() {
    let (address, addresses) = std::sync::mpsc::channel::<String>();
    let other = Scripted::one(move |mut conn| {
        expect(&mut conn, "MKCOL /other/ ", false);
        let back = format!("Location: http://{}/precious/", addresses.recv().unwrap());
        conn.answer("307 Temporary Redirect", &[&back]);
    });
    let url = other.url("/other/");
    let first = Scripted::new(vec![
        script(move |mut conn| {
            expect(&mut conn, "MKCOL /new/ ", true);
            conn.answer("307 Temporary Redirect", &[&format!("Location: {url}")]);
        }),
        script(|mut conn| {
            expect(&mut conn, "MKCOL /precious/ ", false);
            conn.answer("401 Unauthorized", &[]);
        }),
    ]);
    address.send(first.address.clone()).unwrap();
    let credentials = Credentials::Bearer("SECRET".to_owned());
    let client = HttpClient { credentials, ..HttpClient::default() };
    assert!(make_folder(&client, &first.url("/new/"), false, None).is_err());
}

#[test]
fn after_a_failure_the_first_server_is_tried_again() {
    let busy = |conn: &mut Conn| {
        expect(conn, "PUT /other ", false);
        conn.take(LEN);
        conn.answer("503 Service Unavailable", &["Retry-After: 0"]);
    };
    let other = Scripted::one(move |mut conn| busy(&mut conn));
    let url = other.url("/other");
    let first = Scripted::new(vec![
        script(move |mut conn| redirect(&mut conn, LEN, true, url.as_str())),
        script(|mut conn| {
            expect(&mut conn, "PUT /file ", true);
            conn.take(LEN);
            conn.answer("201 Created", &[]);
        }),
    ]);
    let done = Sample::of(LEN).put_with(&first.url("/file"), |options| {
        options.user = Some(("me", "SECRET"));
        options.retries = 1;
    });
    assert_eq!(done.done().url.path(), "/file");
}

#[test]
fn a_part_of_a_redirected_attempt_is_not_treated_as_the_file() {
    let target = |conn: &mut Conn, status: &str| {
        expect(conn, "HEAD /other ", false);
        conn.answer(status, &["Content-Type: image/png", "Connection: close"]);
    };
    let other = Scripted::new(vec![
        script(move |mut conn| target(&mut conn, "404 Not Found")),
        script(|mut conn| {
            expect(&mut conn, "PUT /other ", false);
            conn.take(LEN / 2);
            conn.reset();
        }),
        script(move |mut conn| target(&mut conn, "200 OK")),
        script(move |mut conn| target(&mut conn, "200 OK")),
    ]);
    let url = other.url("/other");
    let asked = move |mut conn: Conn| {
        expect(&mut conn, "HEAD /file ", true);
        conn.answer("404 Not Found", &[]);
        redirect(&mut conn, LEN, true, url.as_str());
    };
    let first = Scripted::new(vec![script(asked.clone()), script(asked)]);
    let put = Sample::of(LEN).put_with(&first.url("/file"), |options| {
        options.user = Some(("me", "SECRET"));
        options.condition = Condition::Absent;
        options.retries = 1;
    });
    let error = put.failed().error;
    assert!(matches!(error, UploadError::Condition(ConditionError::PartlyThere)), "{error}");
}
