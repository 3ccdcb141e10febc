//! Units, steps and variants as texts.

use underpass_engine::Mechanism;

use crate::record::{Contender, Step, Unit, Variant, at_steps, chosen};

const SENDFILE: Contender = Contender::Only(Mechanism::Sendfile);

#[test]
fn each_variant_is_measured_once_even_if_named_twice() {
    let all = [Contender::Auto, SENDFILE, Contender::Only(Mechanism::ReadWrite)];
    let steps = [Step::Bytes(4 << 10), Step::Whole];
    let names = |choices: &[Option<Contender>]| -> Vec<_> {
        at_steps(&chosen(choices, &all), &steps).iter().map(ToString::to_string).collect()
    };
    let every = ["auto", "sendfile 4K", "sendfile whole", "read_write 4K", "read_write whole"];
    assert_eq!(names(&[None]), every);
    assert_eq!(names(&[Some(Contender::Auto), None]), every);
    assert_eq!(names(&[Some(Contender::Auto)]), ["auto"]);
    let reflink = Contender::Only(Mechanism::Reflink);
    assert_eq!(at_steps(&[reflink], &steps), [Variant::plain(reflink)]);
}

#[test]
fn a_variant_becomes_the_arguments_of_the_commands() {
    let variant = Variant::new(SENDFILE, Step::Whole);
    assert_eq!(variant.arguments(7), ["--mechanism", "sendfile", "--step", "7"]);
    assert!(Variant::plain(Contender::Auto).arguments(7).is_empty());
}

#[test]
fn steps_are_read_as_they_are_written_and_other_words_are_refused() {
    for step in [Step::Default, Step::Whole, Step::Bytes(65_536), Step::Bytes(1000)] {
        assert_eq!(step.to_string().parse(), Ok(step));
    }
    assert_eq!("1.5M".parse(), Ok(Step::Bytes(3 << 19)));
    for text in ["", "0", "-1", "hole", "1.5X"] {
        assert!(text.parse::<Step>().is_err(), "{text}");
    }
}

#[test]
fn values_have_three_digits_and_the_part_of_a_unit_that_suits_them() {
    for (unit, value, text) in [
        (Unit::Seconds, 0.001_234, "1.23 ms"),
        (Unit::Seconds, 0.999_99, "1.00 s"),
        (Unit::Seconds, 0.0, "0 s"),
        (Unit::Seconds, 1e-12, "0.00 ns"),
        (Unit::Count, 262_144.0, "262,144"),
        (Unit::Count, 0.25, "0.25"),
        (Unit::Count, 0.001_23, "0.0012"),
        (Unit::Count, 1234.5, "1,235"),
        (Unit::Bytes, 1536.0, "1.50 KiB"),
        (Unit::Times, 0.25, "0.25x"),
        (Unit::Times, 0.002, "<0.01x"),
        (Unit::Times, 0.0, "0.00x"),
        (Unit::Seconds, 1e300, "1.0e300"),
        (Unit::Count, -3.0, "-3.00"),
    ] {
        assert_eq!(unit.show(value), text);
    }
}

#[test]
fn ticks_are_short() {
    for (unit, value, text) in [
        (Unit::Seconds, 0.000_2, "200 µs"),
        (Unit::Seconds, 0.0, "0"),
        (Unit::Count, 20_000.0, "20k"),
        (Unit::Count, 0.5, "0.5"),
        (Unit::Count, 0.001, "0.001"),
        (Unit::Bytes, 1_073_741_824.0, "1 GiB"),
        (Unit::Times, 1.5, "1.5x"),
    ] {
        assert_eq!(unit.tick(value), text);
    }
}
