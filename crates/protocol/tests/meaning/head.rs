use proptest::prelude::*;
use underpass_protocol::response::head::{
    BadField, ConnectionField, ResponseHead, custom_fields, path_field, push_decimal, reason,
};

/// A head as text.
fn head(
    status: u16,
    connection: ConnectionField,
    is_http10: bool,
    custom: &str,
    fields: &str,
) -> String {
    let mut out = b"before ".to_vec();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (custom, fields) = (custom.as_bytes(), fields.as_bytes());
    ResponseHead { status, date, connection, is_http10, custom, fields }.write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_head_is_appended_to_what_is_there() {
    assert_eq!(
        head(200, ConnectionField::KeepAlive, false, "Server: a\r\n", "ETag: \"b\"\r\n"),
        "before HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Server: a\r\nETag: \"b\"\r\n\r\n"
    );
    assert_eq!(
        head(299, ConnectionField::Close, false, "", ""),
        "before HTTP/1.1 299 \r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn keep_alive_is_sent_where_it_is_not_the_default() {
    assert!(
        head(200, ConnectionField::KeepAlive, true, "", "")
            .contains("\r\nConnection: keep-alive\r\n")
    );
    assert!(!head(200, ConnectionField::KeepAlive, false, "", "").contains("Connection"));
    assert!(head(200, ConnectionField::Close, true, "", "").contains("\r\nConnection: close\r\n"));
}

#[test]
fn every_status_that_is_answered_has_a_phrase() {
    for status in [200, 206, 301, 304, 308, 400, 401, 403, 404, 405, 408, 412, 413, 414, 416] {
        assert_ne!(reason(status), "", "{status}");
    }
    for status in [431, 500, 501, 503, 505, 507] {
        assert_ne!(reason(status), "", "{status}");
    }
}

#[test]
fn fields_of_the_operator_cannot_break_a_response() {
    let field = |name: &str, value: &str| custom_fields(&[(name.to_owned(), value.to_owned())]);
    let text = |name, value| String::from_utf8(field(name, value).unwrap()).unwrap();
    let usual = "Server: underpass\r\nX-Content-Type-Options: nosniff\r\n";
    assert_eq!(custom_fields(&[]).unwrap(), usual.as_bytes());
    assert_eq!(text("server", " mine "), "X-Content-Type-Options: nosniff\r\nserver: mine\r\n");
    assert_eq!(text("Cache-Control", "no-cache"), format!("{usual}Cache-Control: no-cache\r\n"));
    for name in ["", "a b", "a:", "\u{e4}", "a\r\n"] {
        assert_eq!(field(name, "v"), Err(BadField::Name(name.to_owned())));
    }
    for value in ["a\r\nb: c", "a\nb", "a\0b", "a\rb"] {
        assert_eq!(field("X", value), Err(BadField::Value("X".to_owned())));
    }
    for name in ["content-length", "Transfer-Encoding", "Connection", "Date", "ETag"] {
        assert_eq!(field(name, "v"), Err(BadField::Reserved(name.to_owned())));
    }
}

#[test]
fn fields_of_some_files_may_be_their_type_and_nothing_else_that_the_server_decides() {
    assert_eq!(path_field("content-type", " application/x-thing; a=b "), Ok(()));
    assert_eq!(path_field("X-A", ""), Ok(()));
    let bad = BadField::MediaType("html".to_owned());
    assert_eq!(path_field("Content-Type", "html"), Err(bad));
    for name in ["Content-Length", "transfer-encoding", "Connection", "ETag", "Upgrade"] {
        assert_eq!(path_field(name, "1"), Err(BadField::Reserved(name.to_owned())));
    }
    assert_eq!(path_field("a b", "1"), Err(BadField::Name("a b".to_owned())));
    assert_eq!(path_field("a", "1\r\n"), Err(BadField::Value("a".to_owned())));
}

proptest! {
    #[test]
    fn numbers_are_written_in_decimal(number: u64) {
        let mut out = Vec::new();
        push_decimal(&mut out, number);
        prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
    }
}
