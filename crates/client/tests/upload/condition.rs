//! `If-None-Match: *` and `If-Match`, on servers that ignore them.

use underpass_client::upload::{Condition, ConditionError, UnconfirmedUpload, UploadError};

use super::rig::{Conn, Outcome, Sample, Scripted, field, script};

const LEN: usize = 100;

fn put_new(sample: &Sample, server: &Scripted) -> Outcome {
    sample.put_with(&server.url("/file"), |options| options.condition = Condition::Absent)
}

/// Expects a HEAD request and sends its response.
fn answer_head(conn: &mut Conn, status: &str, fields: &[&str]) {
    let head = conn.head();
    assert!(head.starts_with("HEAD /file "), "{head}");
    conn.answer(status, fields);
}

/// Expects the PUT request with this field, and sends its response.
fn taken(conn: &mut Conn, name: &str, value: &str, status: &str) {
    let head = conn.head();
    assert!(head.starts_with("PUT /file "), "{head}");
    assert_eq!(field(&head, name), Some(value));
    conn.take(LEN);
    conn.answer(status, &[]);
}

#[test]
fn existing_targets_get_no_put_request() {
    for status in ["200 OK", "204 No Content"] {
        let server = Scripted::one(move |mut conn| {
            answer_head(&mut conn, status, &[]);
            let (rest, _) = conn.rest();
            assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        });
        let done = put_new(&Sample::of(LEN), &server).done();
        assert!(done.was_there && !done.may_have_replaced);
        assert_eq!(done.report.bytes(), 0);
    }
}

#[test]
fn a_login_page_is_not_the_target() {
    let server = Scripted::one(|mut conn| {
        answer_head(&mut conn, "302 Found", &["Location: /login?to=file"]);
        assert!(conn.head().starts_with("HEAD /login?to=file "));
        conn.answer("200 OK", &["Content-Type: text/html; charset=utf-8"]);
        let (rest, _) = conn.rest();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    });
    let failed = put_new(&Sample::of(LEN), &server).failed();
    assert!(
        matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::Page { .. })),
        "{failed}"
    );
    assert!(failed.to_string().contains("/login"), "{failed}");
    // A file that was stored elsewhere exists, even if it is a page itself.
    for (place, media_type) in [("/store/file", "text/html"), ("/store/1234", "image/png")] {
        let server = Scripted::one(move |mut conn| {
            answer_head(&mut conn, "307 Temporary Redirect", &[&format!("Location: {place}")]);
            assert!(conn.head().starts_with(&format!("HEAD {place} ")));
            conn.answer("200 OK", &[&format!("Content-Type: {media_type}")]);
        });
        assert!(put_new(&Sample::of(LEN), &server).done().was_there, "{place}");
    }
}

#[test]
fn after_an_unclear_redirect_nothing_is_sent() {
    for status in ["200 OK", "403 Forbidden", "404 Not Found", "405 Method Not Allowed", "410 Gone"]
    {
        for condition in [Condition::Absent, Condition::Version("\"old\"")] {
            let server = Scripted::one(move |mut conn| {
                answer_head(&mut conn, "302 Found", &["Location: /login"]);
                assert!(conn.head().starts_with("HEAD /login "));
                conn.answer(status, &[]);
                let (rest, _) = conn.rest();
                assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
            });
            let put = Sample::of(LEN)
                .put_with(&server.url("/file"), |options| options.condition = condition);
            let failed = put.failed();
            assert!(
                matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::Page { .. })),
                "{status}: {failed}"
            );
        }
    }
    // A redirect loop, and a redirect without a target.
    for location in [&["Location: /file"][..], &[]] {
        let server = Scripted::one(move |mut conn| {
            loop {
                let head = conn.head();
                if head.is_empty() {
                    break;
                }
                assert!(head.starts_with("HEAD /file "), "{head}");
                conn.answer("302 Found", location);
            }
        });
        let error = put_new(&Sample::of(LEN), &server).failed().error;
        assert!(matches!(error, UploadError::Client(_)), "{error}");
    }
}

#[test]
fn a_page_under_every_name_is_not_the_target() {
    for condition in [Condition::Absent, Condition::Version("*")] {
        let server = Scripted::one(|mut conn| {
            assert!(conn.head().starts_with("HEAD /file "));
            conn.say("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n");
            conn.say("Transfer-Encoding: chunked\r\n\r\n");
            let (rest, _) = conn.rest();
            assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        });
        let put =
            Sample::of(LEN).put_with(&server.url("/file"), |options| options.condition = condition);
        let failed = put.failed();
        assert!(
            matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::Page { .. })),
            "{failed}"
        );
    }
}

#[test]
fn a_page_that_answers_everything_has_not_stored_the_file() {
    let page = "200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked";
    for (name, head, is_stored) in [
        ("file", "404 Not Found\r\nContent-Length: 0", false),
        ("file", "200 OK\r\nContent-Length: 5000", false),
        ("file", "200 OK\r\nContent-Length: 100", true),
        ("file", "405 Method Not Allowed\r\nContent-Length: 0", true),
        ("file", page, false),
        ("file.html", page, true),
        ("file", "200 OK\r\nTransfer-Encoding: chunked", true),
    ] {
        let server = Scripted::one(move |mut conn| {
            assert!(conn.head().starts_with(&format!("PUT /{name} ")));
            conn.take(LEN);
            conn.answer("200 OK", &["Content-Type: text/HTML; charset=utf-8"]);
            assert!(conn.head().starts_with(&format!("HEAD /{name} ")));
            conn.say(&format!("HTTP/1.1 {head}\r\n\r\n"));
        });
        let outcome = Sample::of(LEN).put(&server.url(&format!("/{name}")));
        if is_stored {
            assert_eq!(outcome.done().status, 200)
        } else {
            let error = outcome.failed().error;
            assert!(
                matches!(error, UploadError::Unconfirmed(UnconfirmedUpload::NotStored)),
                "{head}: {error}"
            );
        }
    }
}

#[test]
fn missing_files_are_sent_with_if_none_match() {
    // A client with write access may lack read access.
    for (head, status, may_have_replaced) in [
        ("404 Not Found", "201 Created", false),
        ("410 Gone", "201 Created", false),
        ("404 Not Found", "204 No Content", true),
        ("403 Forbidden", "201 Created", false),
        ("405 Method Not Allowed", "200 OK", true),
        ("501 Not Implemented", "201 Created", false),
    ] {
        let server = Scripted::one(move |mut conn| {
            answer_head(&mut conn, head, &[]);
            taken(&mut conn, "if-none-match", "*", status);
        });
        let done = put_new(&Sample::of(LEN), &server).done();
        assert_eq!(
            (done.was_there, done.may_have_replaced),
            (false, may_have_replaced),
            "{head} {status}"
        );
    }
}

#[test]
fn a_412_counts_even_if_head_was_refused() {
    let server = Scripted::one(|mut conn| {
        answer_head(&mut conn, "403 Forbidden", &[]);
        taken(&mut conn, "if-none-match", "*", "412 Precondition Failed");
    });
    assert!(put_new(&Sample::of(LEN), &server).done().was_there);
}

#[test]
fn a_server_that_requires_a_password_gets_no_body_without_one() {
    let server = Scripted::one(|mut conn| {
        answer_head(&mut conn, "401 Unauthorized", &[]);
        assert!(conn.rest().0.is_empty());
    });
    assert_eq!(put_new(&Sample::of(LEN), &server).refused().0, 401);
}

#[test]
fn a_busy_server_is_tried_again() {
    let server = Scripted::new(vec![
        script(|mut conn| {
            answer_head(&mut conn, "503 Service Unavailable", &["Connection: close"])
        }),
        script(|mut conn| {
            answer_head(&mut conn, "404 Not Found", &[]);
            taken(&mut conn, "if-none-match", "*", "201 Created");
        }),
    ]);
    assert_eq!(put_new(&Sample::of(LEN), &server).done().status, 201);
}

#[test]
fn a_part_of_an_interrupted_attempt_is_not_treated_as_the_file() {
    let server = Scripted::new(vec![
        script(|mut conn| {
            answer_head(&mut conn, "404 Not Found", &[]);
            conn.head();
            conn.take(LEN / 2);
            conn.reset();
        }),
        script(|mut conn| {
            answer_head(&mut conn, "200 OK", &[]);
            answer_head(&mut conn, "200 OK", &[]);
        }),
    ]);
    let error = put_new(&Sample::of(LEN), &server).failed().error;
    assert!(matches!(error, UploadError::Condition(ConditionError::PartlyThere)), "{error}");
}

#[test]
fn only_the_version_that_was_named_is_replaced() {
    let put = |server: &Scripted, tag: &'static str| {
        Sample::of(LEN)
            .put_with(&server.url("/file"), |options| options.condition = Condition::Version(tag))
    };
    for (status, fields, found) in [
        ("200 OK", &["ETag: \"new\""][..], Some("\"new\"")),
        ("200 OK", &["ETag: W/\"old\""], Some("W/\"old\"")),
        ("404 Not Found", &[], None),
    ] {
        let server = Scripted::one(move |mut conn| {
            answer_head(&mut conn, status, fields);
            assert!(conn.rest().0.is_empty());
        });
        match put(&server, "\"old\"").failed().error {
            UploadError::Condition(ConditionError::Precondition { found: tag }) => {
                assert_eq!(tag.as_deref(), found)
            }
            error => panic!("{error}"),
        }
    }
    for (head, fields, tag, status, may_have_replaced) in [
        ("200 OK", &["ETag: \"old\""][..], "\"old\"", "204 No Content", false),
        ("200 OK", &["ETag: \"old\""], "\"old\"", "201 Created", false),
        ("200 OK", &["ETag: \"x\""], "*", "204 No Content", false),
        ("200 OK", &[], "*", "204 No Content", false),
        ("405 Method Not Allowed", &[], "\"old\"", "201 Created", true),
    ] {
        let server = Scripted::one(move |mut conn| {
            answer_head(&mut conn, head, fields);
            taken(&mut conn, "if-match", tag, status);
        });
        assert_eq!(
            put(&server, tag).done().may_have_replaced,
            may_have_replaced,
            "{head} {status}"
        );
    }
}

#[test]
fn a_target_without_an_entity_tag_is_no_version() {
    let server = Scripted::one(|mut conn| {
        answer_head(&mut conn, "200 OK", &[]);
        assert!(conn.rest().0.is_empty());
    });
    let put = Sample::of(LEN).put_with(&server.url("/file"), |options| {
        options.condition = Condition::Version("\"old\"");
    });
    let error = put.failed().error;
    assert!(matches!(error, UploadError::Condition(ConditionError::NoTag)), "{error}");
}
