//! Which part of which upload a request's body is.

use proptest::prelude::*;
use underpass_http::upload::{
    ContentRange, Limits, Problem, Token, UpdateRange, UploadFields, UploadId, is_partial_name,
    partial_name,
};

use crate::rig::{with_fields, with_request};

#[test]
fn a_content_range_has_a_first_a_last_and_a_total() {
    let range = |first, len, total| Some(ContentRange { first, len, total });
    let max = u64::MAX;
    for (value, expected) in [
        ("bytes 0-0/1", range(0, 1, 1)),
        ("bytes 5-9/10", range(5, 5, 10)),
        ("Bytes 5-9/11", range(5, 5, 11)),
        ("bytes  5-9/11", range(5, 5, 11)),
        (&format!("bytes 0-{}/{max}", max - 1), range(0, max, max)),
        // 14.4: these are of responses, or mean nothing.
        ("bytes 5-9/*", None),
        ("bytes */10", None),
        ("bytes 5-9/9", None),
        ("bytes 9-5/10", None),
        ("bytes -5/10", None),
        ("bytes 5-/10", None),
        ("bytes +5-9/10", None),
        ("bytes 5 - 9/10", None),
        ("bytes=5-9/10", None),
        ("bytes 5-9", None),
        ("lines 5-9/10", None),
        ("bytes 0-18446744073709551616/18446744073709551617", None),
        ("", None),
    ] {
        assert_eq!(ContentRange::parse(value.as_bytes()), expected, "{value}");
    }
    assert!(ContentRange::parse(b"bytes 5-9/10").unwrap().is_last());
    assert!(!ContentRange::parse(b"bytes 5-9/11").unwrap().is_last());
}

#[test]
fn several_content_ranges_are_none() {
    let of = |fields: &[&str]| with_fields(fields, ContentRange::of);
    assert_eq!(of(&[]), Ok(None));
    assert!(of(&["Content-Range: bytes 0-1/2"]).unwrap().is_some());
    assert!(of(&["Content-Range: bytes 0-1/2", "Content-Range: bytes 0-1/2"]).is_err());
    assert!(of(&["Content-Range: all"]).is_err());
}

#[test]
fn an_update_range_says_where_the_body_begins() {
    use UpdateRange::{Append, Between, From, Last};
    for (value, expected) in [
        ("append", Some(Append)),
        ("Append", Some(Append)),
        ("bytes=5-", Some(From(5))),
        ("bytes=5-9", Some(Between(5, 9))),
        ("bytes=-5", Some(Last(5))),
        ("bytes=9-5", None),
        ("bytes=-", None),
        ("bytes=5", None),
        ("bytes=a-", None),
        ("bytes=5-9,11-12", None),
        ("5-9", None),
        ("", None),
    ] {
        assert_eq!(UpdateRange::parse(value.as_bytes()), expected, "{value}");
    }
    for (range, start) in [
        (Append, Some(10)),
        (From(0), Some(0)),
        (From(10), Some(10)),
        (From(11), None),
        (Between(9, 12), Some(9)),
        (Between(11, 12), None),
        (Last(10), Some(0)),
        (Last(11), None),
    ] {
        assert_eq!(range.start(10), start, "{range:?}");
    }
    assert!(Between(5, 9).fits(5) && !Between(5, 9).fits(6) && !Between(0, u64::MAX).fits(0));
    assert!(Append.fits(6) && From(5).fits(6) && Last(5).fits(6));
}

#[test]
fn the_fields_of_an_upload_count_only_if_they_are_of_their_kind() {
    let of = |fields: &[&str]| with_request("PUT /file HTTP/1.1", fields, UploadFields::of);
    let all = of(&["Upload-Complete: ?1", "Upload-Offset: 5", "Upload-Length: 9;a=b"]);
    assert_eq!(all, UploadFields { complete: Some(true), offset: Some(5), length: Some(9) });
    assert_eq!(of(&["Upload-Complete: ?0"]).complete, Some(false));
    for wrong in [
        &["Upload-Complete: 1", "Upload-Offset: -1", "Upload-Length: 1.0"][..],
        &["Upload-Complete: true", "Upload-Offset: \"1\"", "Upload-Length: ?1"],
        &["Upload-Complete: ?1, ?1", "Upload-Offset: 1, 2", "Upload-Length: 1000000000000000"],
        &["Upload-Complete: ?2", "Upload-Offset:", "Upload-Length: 0x10"],
        &["Upload-Complete: ?1", "Upload-Complete: ?1", "Upload-Offset: 1", "Upload-Offset: 1"],
        &[],
    ] {
        assert_eq!(of(wrong), UploadFields::default(), "{wrong:?}");
    }
}

#[test]
fn what_is_said_of_uploads_is_well_formed() {
    let limits = |max_size, max_age| Limits { max_size, max_age }.to_string();
    assert_eq!(limits(Some(10), Some(60)), "max-size=10, max-age=60");
    // The draft's section 4.1.4: never empty.
    assert_eq!(limits(None, None), "min-size=0");
    assert_eq!(limits(Some(u64::MAX), None), "max-size=999999999999999");
    for problem in [Problem::Offset { expected: 5, provided: u64::MAX }, Problem::Length] {
        let json: serde_json::Value = serde_json::from_str(&problem.to_string()).unwrap();
        assert!(json["type"].as_str().unwrap().starts_with("https://iana.org/"));
        assert!(json["title"].is_string());
    }
    assert_eq!(Problem::Offset { expected: 5, provided: 6 }.status(), 409);
    assert_eq!(Problem::Length.status(), 400);
}

#[test]
fn the_token_of_a_name_and_a_user_is_theirs_alone() {
    let token = |name: &str, user| Token::derived(name.as_bytes(), user).to_string();
    assert_eq!(token("file", None), token("file", None));
    let all = [
        token("file", None),
        token("file", Some("")),
        token("file", Some("me")),
        token("mefile", None),
        token("efile", Some("m")),
        token("File", None),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(all[..index].iter().all(|other| other != one), "{index}");
    }
    // Found again after the next start, and by the next version.
    assert_eq!(token("file", Some("me")), "261d1d699a1ccb8f8cd69a9b110d735c");
}

#[test]
fn only_names_of_parts_are_names_of_parts() {
    let digits = "0123456789abcdef0123456789abcdef";
    assert!(is_partial_name(format!(".file.{digits}.upload").as_bytes()));
    assert!(is_partial_name(format!("..{digits}.upload").as_bytes()));
    for name in [
        format!("file.{digits}.upload"),
        format!(".file{digits}.upload"),
        format!(".file.{digits}.uploads"),
        format!(".file.{digits}"),
        format!(".file.{}.upload", &digits[1..]),
        format!(".file.{}.upload", digits.to_uppercase()),
        format!(".{digits}.upload"),
        ".upload".to_owned(),
        String::new(),
    ] {
        assert!(!is_partial_name(name.as_bytes()), "{name}");
    }
}

#[test]
fn an_address_is_read_as_it_is_written() {
    let digits = "0123456789abcdef0123456789abcdef";
    for text in ["-x", "-0", "-18446744073709551615", "-5-k", "-x-k"] {
        let text = format!("{digits}{text}");
        assert_eq!(UploadId::parse(text.as_bytes()).unwrap().to_string(), text);
    }
    for text in ["", "-", "-y", "-18446744073709551616", "-5-", "-5-k-", "-5-kk", "--5", "-+5"] {
        assert_eq!(UploadId::parse(format!("{digits}{text}").as_bytes()), None, "{text}");
    }
    assert_eq!(UploadId::parse(format!("{}-x", &digits[1..]).as_bytes()), None);
}

proptest! {
    #[test]
    fn every_name_has_room_for_its_part(
        name in prop::collection::vec(1..=255_u8, 1..=255),
        bytes in any::<[u8; 16]>(),
        length in any::<Option<u64>>(),
        keeps in any::<bool>(),
    ) {
        let token = Token::new(bytes);
        let partial = partial_name(&name, token);
        prop_assert!(partial.len() <= 255 && is_partial_name(&partial));
        let id = UploadId { token, length, keeps };
        prop_assert_eq!(UploadId::parse(id.to_string().as_bytes()), Some(id));
    }

    #[test]
    fn text_is_cut_between_characters(name in "[aä€😀]{50,80}") {
        let partial = partial_name(name.as_bytes(), Token::new([0; 16]));
        prop_assert!(str::from_utf8(&partial).is_ok());
    }
}
