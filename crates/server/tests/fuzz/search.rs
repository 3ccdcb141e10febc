//! Tries inputs at random: seeds, changed in ways in which requests go wrong.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tries the seeds and the inputs in `fuzz/corpus`, and then random changes of them, for as long as
/// the environment says.
pub(crate) fn search(target: &str, seeds: &[&[u8]], check: fn(&[u8])) {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(0.5_f64, |text| text.parse().unwrap());
    let words = words(include_str!("http.dict"));
    let mut dice = Dice(RandomState::new().hash_one(seconds.to_bits()) | 1);
    let mut seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    for file in corpus.read_dir().unwrap() {
        seeds.push(std::fs::read(file.unwrap().path()).unwrap());
    }
    seeds.iter().for_each(|seed| try_one(seed, check));
    let mut tried = 0_u64;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        let mut bytes = seeds[dice.below(seeds.len())].to_vec();
        for _ in 0..=dice.below(12) {
            change(&mut bytes, &words, &mut dice);
            try_one(&bytes, check);
            tried += 1;
        }
    }
    assert!(tried > 0 || seconds < 0.1, "nothing was tried");
}

/// Shows the input if it is the last one.
fn try_one(bytes: &[u8], check: fn(&[u8])) {
    struct Shown<'a>(&'a [u8]);
    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input was b\"{}\"", self.0.escape_ascii());
            }
        }
    }
    let _shown = Shown(bytes);
    check(bytes);
}

/// Changes bytes in one of the ways in which requests go wrong.
fn change(bytes: &mut Vec<u8>, words: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + dice.below(16)).min(bytes.len());
    match dice.below(7) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.insert(at, dice.next() as u8),
        2 if at < bytes.len() => bytes[at] = dice.next() as u8,
        3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 => bytes.truncate(at.max(1)),
        _ => {
            let word = words[dice.below(words.len())].iter().copied();
            // As often in place of something as between.
            let end = if dice.below(2) == 0 { at } else { end };
            bytes.splice(at..end, word);
        }
    }
}

/// The words of a dictionary in libFuzzer's form: `"a\x0d"`, one a line, comments after `#`.
fn words(text: &str) -> Vec<Vec<u8>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let words = lines.map(|line| {
        let (mut word, mut rest) = (Vec::new(), line.as_bytes());
        while let [first, tail @ ..] = rest {
            let byte;
            (byte, rest) = match (first, tail) {
                (b'\\', [b'x', high, low, tail @ ..]) => {
                    let digits = [*high, *low];
                    let digits = std::str::from_utf8(&digits).unwrap();
                    (u8::from_str_radix(digits, 16).unwrap(), tail)
                }
                (b'\\', [escaped, tail @ ..]) => (*escaped, tail),
                _ => (*first, tail),
            };
            word.push(byte);
        }
        word
    });
    words.collect()
}

/// Numbers at random (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }
}

#[test]
fn the_fuzzing_dictionary_is_parsed() {
    assert_eq!(words("# a\n\"\\x0d\\\"b\"\n"), [b"\r\"b".to_vec()]);
    assert!(words(include_str!("http.dict")).len() > 20);
}

/// The targets of libFuzzer are compiled only by `scripts/fuzz`.
#[test]
fn each_target_of_the_fuzzer_drives_what_a_test_tries() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let manifest = read("fuzz/Cargo.toml");
    let tests = ["server", "client"].map(|name| read(&format!("crates/{name}/tests/fuzz/main.rs")));
    let targets: Vec<_> = root.join("fuzz/targets").read_dir().unwrap().collect();
    assert_eq!(targets.len(), manifest.matches("[[bin]]").count());
    for target in targets {
        let path = target.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name}");
        assert!(text.contains(&format!("|data: &[u8]| {name}::check(data)")), "{name}");
        let call = format!("search(\"{name}\", {name}::SEEDS, {name}::check)");
        assert!(tests.iter().any(|text| text.contains(&call)), "{name} is not tried");
    }
}
