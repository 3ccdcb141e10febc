//! Which part of an upload the body of a request carries.

use std::net::SocketAddr;
use std::sync::Arc;

use proptest::prelude::*;
use underpass_protocol::digest::{Algorithm, Digest};
use underpass_protocol::request::ClientNet;
use underpass_protocol::upload::{
    ContentRange, Owner, Problem, Token, UpdateRange, UploadFields, UploadId, UploadLimits,
    is_partial_name, owner_tag, partial_name, without_tokens,
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
fn fields_about_uploads_are_well_formed() {
    let limits = |max_size, max_age| UploadLimits { max_size, max_age }.to_string();
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

fn client(last: u8) -> ClientNet {
    ClientNet::of(Some(([192, 0, 2, last], 1).into()))
}

#[test]
fn the_part_of_a_name_belongs_to_one_owner() {
    let user = |name: &str| Owner::new(Some(&Arc::from(name)), ClientNet::of(None));
    let address = |text: &str| {
        Owner::new(None, ClientNet::of(Some(SocketAddr::new(text.parse().unwrap(), 1))))
    };
    let all = [
        Owner::new(None, ClientNet::of(None)),
        user(""),
        user("me"),
        user("m"),
        address("192.0.2.1"),
        address("192.0.2.2"),
        address("2001:db8::1"),
        address("2001:db8:0:1::1"),
    ];
    for (index, one) in all.iter().enumerate() {
        for other in &all[..index] {
            assert_ne!(one.tag(), other.tag(), "{one:?} {other:?}");
            assert_ne!(one.part_of_name(b"file"), other.part_of_name(b"file"));
        }
        assert_eq!(one.part_of_name(b"file"), one.part_of_name(b"file"));
        assert_ne!(one.part_of_name(b"file"), one.part_of_name(b"File"));
    }
    assert_ne!(user("me").part_of_name(b"file"), user("m").part_of_name(b"efile"));
    // One client has all addresses of a network of IPv6, and one of IPv4 in two spellings.
    assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
    assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    // A user is the same from everywhere.
    let me = Arc::from("me");
    assert_eq!(Owner::new(Some(&me), client(1)), user("me"));
    // Found again after the next start, and by the next version.
    let id = user("me").part_of_name(b"file").to_string();
    assert_eq!(id, "dee7cae34d171bf4108d649ffe3c04f6");
}

#[test]
fn the_part_of_a_token_belongs_to_one_user_and_one_name() {
    let user = |name: &str| Owner::new(Some(&Arc::from(name)), ClientNet::of(None));
    let (me, you) = (user("me"), user("you"));
    let token = me.token([7; 12]);
    let id = me.part_of_token(token, b"file");
    assert_ne!(id, you.part_of_token(token, b"file"));
    assert_ne!(id, me.part_of_token(token, b"other"));
    assert_ne!(id, me.part_of_token(me.token([8; 12]), b"file"));
    assert_eq!(owner_tag(&partial_name(b"file", id)), Some(me.tag()));
    assert_ne!(id.to_string(), token.to_string());
    // A client without a user name may have another address.
    let one = Owner::new(None, client(1));
    let other = Owner::new(None, client(2));
    let token = one.token([7; 12]);
    assert_eq!(one.part_of_token(token, b"file"), other.part_of_token(token, b"file"));
    assert_eq!(one.part_of_token(token, b"file"), me.part_of_token(token, b"file"));
    assert_eq!(id.to_string(), "dee7cae3dd8c6ab5e89123deb8adc6d9");
}

#[test]
fn a_complete_part_belongs_to_one_session_and_the_same_owner() {
    let me = Owner::new(None, ClientNet::of(None));
    let id = me.part_of_name(b"file");
    let ids = [id, id.complete_in(b"boot 1\n"), id.complete_in(b"boot 2\n")];
    for (index, one) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(one));
        assert_eq!(owner_tag(&partial_name(b"file", *one)), Some(me.tag()));
    }
    assert_eq!(ids[1], id.complete_in(b"boot 1\n"));
}

#[test]
fn logged_targets_have_no_upload_token() {
    for (line, shown) in [
        ("/file", "/file"),
        ("/upload=x", "/upload=x"),
        ("/file?download", "/file?download"),
        ("/file?upload=0123-x", "/file?upload=*"),
        ("/file?a=b&upload=0123-x&c=d&upload=4", "/file?a=b&upload=*&c=d&upload=*"),
        ("PATCH /file?upload=0123-x HTTP/1.1", "PATCH /file?upload=* HTTP/1.1"),
        ("/file?upload=", "/file?upload=*"),
        ("/file?noupload=1", "/file?noupload=1"),
    ] {
        assert_eq!(without_tokens(line.as_bytes()), shown.as_bytes(), "{line}");
    }
}

#[test]
fn only_names_of_parts_are_recognized_as_such() {
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
    for text in [
        "-x",
        "-0",
        "-18446744073709551615",
        "-5-k",
        "-x-k",
        "-5-m00000000000000ff",
        "-x-k-mffffffffffffffff",
        &format!("-5-d{}", "0f".repeat(32)),
        &format!("-5-k-m00000000000000ff-d{}", "0f".repeat(64)),
    ] {
        let text = format!("{digits}{text}");
        assert_eq!(UploadId::parse(text.as_bytes()).unwrap().to_string(), text);
    }
    for text in [
        "",
        "-",
        "-y",
        "-18446744073709551616",
        "-5-",
        "-5-k-",
        "-5-kk",
        "--5",
        "-+5",
        "-5-m",
        "-5-mff",
        "-5-m00000000000000FF",
        "-5-m+0000000000000ff",
        "-5-m00000000000000ff-k",
        "-5-d",
        "-5-d0f",
        &format!("-5-d{}", "0F".repeat(32)),
        &format!("-5-d{}-k", "0f".repeat(32)),
    ] {
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
        replaces in any::<Option<u64>>(),
    ) {
        let token = Token::new(bytes);
        let partial = partial_name(&name, Owner::new(None, ClientNet::of(None)).part_of_token(token, &name));
        prop_assert!(partial.len() <= 143 && is_partial_name(&partial));
        let digest = replaces.and_then(|_| Digest::new(Algorithm::Sha256, [bytes, bytes].concat()));
        let id = UploadId { token, length, keeps, replaces, digest };
        prop_assert_eq!(UploadId::parse(id.to_string().as_bytes()), Some(id));
    }

    #[test]
    fn text_is_cut_between_characters(name in "[aä€😀]{50,80}") {
        let partial = partial_name(name.as_bytes(), Owner::new(None, ClientNet::of(None)).part_of_name(name.as_bytes()));
        prop_assert!(str::from_utf8(&partial).is_ok());
    }
}
