use underpass_protocol::response::conditional::{
    PreconditionResult, Validators, evaluate, range_applies,
};

use crate::rig::{NOVEMBER, at, with_fields, with_request};

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// The current version: tag `"a,b"`, changed in November 1994.
fn current() -> Validators<'static> {
    Validators { etag: "\"a,b\"", modified: Some(at(NOVEMBER)), changed: None }
}

#[test]
fn preconditions_are_evaluated_in_the_order_of_the_standard() {
    use PreconditionResult::{Fails, Holds, NotModified};
    for (fields, expected) in [
        (vec![], Holds),
        (vec!["If-Match: \"a,b\"".to_owned()], Holds),
        (vec!["If-Match: *".to_owned()], Holds),
        (vec!["If-Match: \"x\", \"a,b\"".to_owned()], Holds),
        (vec!["If-Match: \"x\"".to_owned(), "If-Match: \"a,b\"".to_owned()], Holds),
        (vec!["If-Match: \"x\"".to_owned()], Fails),
        (vec!["If-Match: W/\"a,b\"".to_owned()], Fails),
        (vec!["If-Match: a,b".to_owned()], Fails),
        (vec!["If-Match:".to_owned()], Fails),
        // Step 1 keeps step 2 from being asked.
        (vec!["If-Match: \"a,b\"".to_owned(), format!("If-Unmodified-Since: {BEFORE}")], Holds),
        (vec![format!("If-Unmodified-Since: {BEFORE}")], Fails),
        (vec![format!("If-Unmodified-Since: {SAME}")], Holds),
        (vec![format!("If-Unmodified-Since: {AFTER}")], Holds),
        (vec!["If-Unmodified-Since: yesterday".to_owned()], Holds),
        (vec!["If-None-Match: \"a,b\"".to_owned()], NotModified),
        (vec!["If-None-Match: W/\"a,b\"".to_owned()], NotModified),
        (vec!["If-None-Match: \"x\" ,W/\"y\",, \"a,b\"".to_owned()], NotModified),
        (vec!["If-None-Match: *".to_owned()], NotModified),
        (vec!["If-None-Match: \"a\"".to_owned()], Holds),
        (vec!["If-None-Match: a,b".to_owned()], Holds),
        (vec!["If-None-Match: \"a,b".to_owned()], Holds),
        (vec!["If-None-Match: \"x\" \"a,b\"".to_owned()], Holds),
        (vec!["If-None-Match: w/\"a,b\"".to_owned()], Holds),
        // `*` stands alone (13.1.1, 13.1.2), also on another line (5.3).
        (vec!["If-None-Match: \"x\", *".to_owned()], Holds),
        (vec!["If-None-Match: *, \"x\"".to_owned()], Holds),
        (vec!["If-None-Match: \"x\"".to_owned(), "If-None-Match: *".to_owned()], Holds),
        (vec!["If-None-Match: *".to_owned(), "If-None-Match: *".to_owned()], Holds),
        (vec!["If-Match: \"x\", *".to_owned()], Fails),
        (vec!["If-Match: *".to_owned(), "If-Match: \"x\"".to_owned()], Fails),
        // Step 3 keeps step 4 from being asked.
        (vec!["If-None-Match: \"x\"".to_owned(), format!("If-Modified-Since: {SAME}")], Holds),
        (vec![format!("If-Modified-Since: {BEFORE}")], Holds),
        (vec![format!("If-Modified-Since: {SAME}")], NotModified),
        (vec![format!("If-Modified-Since: {AFTER}")], NotModified),
        (vec!["If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT".to_owned()], NotModified),
        (vec!["If-Modified-Since: Sun Nov  6 08:49:37 1994".to_owned()], NotModified),
        (vec!["If-Modified-Since: 784111777".to_owned()], Holds),
        (vec![format!("If-Modified-Since: {SAME}"), format!("If-Modified-Since: {SAME}")], Holds),
        // Step 1 and 2 come before 3 and 4.
        (vec!["If-Match: \"x\"".to_owned(), "If-None-Match: \"a,b\"".to_owned()], Fails),
        (vec!["If-Match: *".to_owned(), "If-None-Match: *".to_owned()], NotModified),
    ] {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let found = with_fields(&fields, |request| evaluate(request, Some(current())));
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn a_file_that_came_after_the_date_is_modified_however_old_it_is() {
    let current = Validators { changed: Some(at(NOVEMBER + 100)), ..current() };
    for (date, expected) in [
        (BEFORE, PreconditionResult::Holds),
        (SAME, PreconditionResult::NotModified), // what the server itself has said
        (AFTER, PreconditionResult::Holds),
        ("Sun, 06 Nov 1994 08:51:16 GMT", PreconditionResult::Holds),
        ("Sun, 06 Nov 1994 08:51:17 GMT", PreconditionResult::NotModified),
    ] {
        let field = format!("If-Modified-Since: {date}");
        let found = with_fields(&[&field], |request| evaluate(request, Some(current)));
        assert_eq!(found, expected, "{date}");
    }
}

#[test]
fn a_fraction_of_a_second_does_not_count() {
    let modified = at(NOVEMBER) + std::time::Duration::from_millis(999);
    let field = format!("If-Modified-Since: {SAME}");
    let found = with_fields(&[&field], |request| {
        evaluate(request, Some(Validators { modified: Some(modified), ..current() }))
    });
    assert_eq!(found, PreconditionResult::NotModified);
}

#[test]
fn writing_requests_fail_where_reading_ones_are_not_modified() {
    let found = |field: &str, current| {
        with_request("PUT / HTTP/1.1", &[field], |request| evaluate(request, current))
    };
    for (field, with_file, without) in [
        ("If-None-Match: *", PreconditionResult::Fails, PreconditionResult::Holds),
        ("If-None-Match: \"a,b\"", PreconditionResult::Fails, PreconditionResult::Holds),
        // What cannot be read may mean this very version.
        ("If-None-Match: \"x\", *", PreconditionResult::Fails, PreconditionResult::Holds),
        ("If-None-Match: a,b", PreconditionResult::Fails, PreconditionResult::Holds),
        ("If-None-Match: \"x\" \"y\"", PreconditionResult::Fails, PreconditionResult::Holds),
        ("If-None-Match: \"x\", , \"y\"", PreconditionResult::Holds, PreconditionResult::Holds),
        ("If-None-Match:", PreconditionResult::Holds, PreconditionResult::Holds),
        ("If-Match: *", PreconditionResult::Holds, PreconditionResult::Fails),
        ("If-Match: \"a,b\"", PreconditionResult::Holds, PreconditionResult::Fails),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:38 GMT",
            PreconditionResult::Holds,
            PreconditionResult::Holds,
        ),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT",
            PreconditionResult::Fails,
            PreconditionResult::Holds,
        ),
    ] {
        assert_eq!(found(field, Some(current())), with_file, "{field}");
        assert_eq!(found(field, None), without, "{field}, no file");
    }
}

#[test]
fn a_range_counts_only_for_the_current_version() {
    for (fields, now, expected) in [
        (&[][..], NOVEMBER, true),
        (&["If-Range: \"a,b\""], NOVEMBER, true),
        (&["If-Range: W/\"a,b\""], NOVEMBER, false),
        (&["If-Range: \"x\""], NOVEMBER, false),
        (&["If-Range: \"x\", \"a,b\""], NOVEMBER, false),
        (&["If-Range: \"a,b\"", "If-Range: \"a,b\""], NOVEMBER, false),
        (&["If-Range: *"], NOVEMBER, false),
        (&["If-Range:"], NOVEMBER, false),
        (&["If-Range: yesterday"], NOVEMBER + 9, false),
        (&["If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], NOVEMBER + 1, true),
        (&["If-Range: Sun Nov  6 08:49:37 1994"], NOVEMBER + 1, true),
        (&["If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], NOVEMBER, false), // not yet a second old
        (&["If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], NOVEMBER - 1, false), // in the future
        (&["If-Range: Sun, 06 Nov 1994 08:49:36 GMT"], NOVEMBER + 1, false),
        (&["If-Range: Sun, 06 Nov 1994 08:49:38 GMT"], NOVEMBER + 9, false), // exactly, not since
    ] {
        let found = with_fields(fields, |request| range_applies(request, current(), at(now)));
        assert_eq!(found, expected, "{fields:?} {now}");
    }
}

#[test]
fn a_weak_tag_of_ours_would_never_resume() {
    let weak = Validators { etag: "W/\"a\"", ..current() };
    for field in ["If-Range: W/\"a\"", "If-Range: \"a\""] {
        assert!(!with_fields(&[field], |request| range_applies(request, weak, at(NOVEMBER + 9))));
    }
    let found = with_fields(&["If-Match: \"a\""], |request| evaluate(request, Some(weak)));
    assert_eq!(found, PreconditionResult::Fails);
}

#[test]
fn dates_are_ignored_if_the_modification_time_is_unknown() {
    let unknown = Validators { etag: "\"a\"", modified: None, changed: None };
    for (name, expected) in [
        ("If-Modified-Since", PreconditionResult::Holds),
        ("If-Unmodified-Since", PreconditionResult::Holds),
    ] {
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            with_fields(&[&format!("{name}: {date}")], |request| {
                assert_eq!(evaluate(request, Some(unknown)), expected, "{name}: {date}");
            });
        }
    }
    with_fields(&["If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], |request| {
        assert!(!range_applies(request, unknown, at(NOVEMBER + 100)));
    });
}
