//! `Expect: 100-continue` (RFC 9110 10.1.1), and servers that ignore it.

use super::rig::{Sample, Scripted, field, payload, script};

const LEN: usize = 1 << 20;

#[test]
fn without_100_continue_the_body_is_sent_after_a_timeout() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        assert_eq!(field(&conn.head(), "expect"), Some("100-continue"));
        conn.accept(&expected);
    });
    assert_eq!(sample.put(&server.url("/file")).done().status, 201);
}

#[test]
fn a_late_100_continue_is_no_final_response() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        // The client's wait has timed out by now.
        assert!(conn.take(LEN / 2) == expected[..LEN / 2]);
        conn.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
        assert!(conn.take(LEN - LEN / 2) == expected[LEN / 2..]);
        conn.say("HTTP/1.1 102 Processing\r\n\r\n");
        conn.answer("201 Created", &[]);
    });
    assert_eq!(sample.put(&server.url("/file")).done().status, 201);
}

#[test]
fn interim_responses_and_100_continue_may_arrive_together() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        conn.accept(&expected);
    });
    assert_eq!(sample.put(&server.url("/file")).done().status, 201);
}

#[test]
fn after_an_early_refusal_no_byte_of_the_body_is_sent() {
    let cases = [
        ("401 Unauthorized", 401),
        ("403 Forbidden", 403),
        ("404 Not Found", 404),
        ("405 Method Not Allowed", 405),
        ("409 Conflict", 409),
        ("411 Length Required", 411),
        ("412 Precondition Failed", 412),
        ("413 Content Too Large", 413),
        ("507 Insufficient Storage", 507),
    ];
    let sample = Sample::of(LEN);
    for (status, number) in cases {
        let server = Scripted::one(move |mut conn| {
            conn.head();
            conn.refuse(status, "because of this\nand that\n");
            assert!(conn.rest().0.is_empty(), "sent in vain");
        });
        let failed = sample.put(&server.url("/file")).failed();
        assert_eq!(payload(&failed.report), 0);
        assert_eq!(failed.error.status(), Some(number));
        assert!(failed.error.to_string().ends_with(": because of this"), "{}", failed.error);
    }
}

#[test]
fn a_failed_expectation_is_retried_without_expect() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            assert_eq!(field(&conn.head(), "expect"), Some("100-continue"));
            conn.answer("417 Expectation Failed", &[]);
        }),
        script(move |mut conn| {
            assert_eq!(field(&conn.head(), "expect"), None);
            conn.accept(&expected);
        }),
    ]);
    assert_eq!(sample.put(&server.url("/file")).done().status, 201);
}

#[test]
fn redirects_before_the_body_are_followed_with_it() {
    let sample = Sample::of(LEN);
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let expected = sample.bytes.clone();
        let server = Scripted::new(vec![
            script(move |mut conn| {
                let head = conn.head();
                assert_eq!(field(&head, "authorization"), Some("Basic dTpw"));
                conn.answer(status, &["Location: /there/file"]);
            }),
            script(move |mut conn| {
                let head = conn.head();
                assert!(head.starts_with("PUT /there/file HTTP/1.1"), "{head}");
                assert_eq!(field(&head, "authorization"), Some("Basic dTpw"));
                conn.say_continue();
                conn.accept(&expected);
            }),
        ]);
        let outcome = sample.put_with(&server.url("/file"), |it| it.user = Some(("u", "p")));
        assert_eq!(outcome.done().url.path(), "/there/file");
    }
}

#[test]
fn another_server_does_not_receive_the_password() {
    let sample = Sample::of(100);
    let expected = sample.bytes.clone();
    let second = Scripted::one(move |mut conn| {
        let head = conn.head();
        assert_eq!(field(&head, "authorization"), None);
        conn.accept(&expected);
    });
    let to = format!("Location: {}", second.url("/file"));
    let first = Scripted::one(move |mut conn| {
        conn.head();
        conn.take(100);
        conn.answer("307 Temporary Redirect", &[&to]);
    });
    sample.put_with(&first.url("/file"), |it| it.user = Some(("u", "p"))).done();
}

#[test]
fn endless_redirects_are_given_up() {
    let sample = Sample::of(10);
    let server = Scripted::new(
        (0..12)
            .map(|_| {
                script(|mut conn| {
                    if !conn.head().is_empty() {
                        conn.take(10);
                        conn.answer(
                            "307 Temporary Redirect",
                            &["Location: /", "Connection: close"],
                        );
                    }
                })
            })
            .collect(),
    );
    let error = sample.put(&server.url("/")).failed().error;
    assert!(error.to_string().contains("redirects"), "{error}");
    server.abandon();
}
