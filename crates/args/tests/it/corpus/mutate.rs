//! Inputs changed at random from a seed, for every target that a fuzzer has.

use std::path::{Path, PathBuf};

/// How many inputs are tried on each target by default.
const INPUTS: u64 = 3_000;

/// Longer ones only take longer.
const BYTES_MAX: usize = 4_096;

/// The contents of the files of a folder, in order of name; none if there is no folder.
pub fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Tries mutations of the seeds; the input that made it panic is shown by the panic of its own assertion and written
/// beside the build.
pub fn run(target: &str, seeds: &[Vec<u8>], exercise: impl Fn(&[u8])) {
    if let Some(folder) = std::env::var_os("SEEDS") {
        let folder = PathBuf::from(folder).join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, seed) in seeds.iter().enumerate().filter(|(_, seed)| seed.len() <= 4 * BYTES_MAX) {
            std::fs::write(folder.join(format!("seed-{number:03}")), seed).unwrap();
        }
        return;
    }
    let inputs = std::env::var("MUTATIONS").map_or(INPUTS, |count| count.parse().unwrap());
    let seeds: Vec<&Vec<u8>> = seeds.iter().filter(|seed| seed.len() <= BYTES_MAX).collect();
    for number in 0..inputs {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            let other = seeds[random.below(seeds.len())];
            mutate(&mut input, other, &mut random);
        }
        input.truncate(BYTES_MAX);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exercise(&input)));
        assert!(outcome.is_ok(), "{target} {number}: {:?}", String::from_utf8_lossy(&input));
    }
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + random.below(16)).min(input.len());
    match random.below(9) {
        0 => drop(input.drain(at..end)),
        1 => input.truncate(at),
        2 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        3 => {
            let from = random.below(other.len() + 1);
            let to = (from + random.below(64)).min(other.len());
            input.splice(at..end, other[from..to].iter().copied());
        }
        4 if at < input.len() => input[at] = random.next() as u8,
        5 if at < input.len() => input[at] ^= 1 << random.below(8),
        6 => {
            let inner = String::from_utf8_lossy(input.get(1..).unwrap_or_default()).into_owned();
            let quoted = serde_json::Value::String(inner).to_string().into_bytes();
            input.splice(1.min(input.len()).., quoted);
        }
        7 => {
            let other = random.below(input.len() + 1);
            let (low, high) = (at.min(other), at.max(other));
            let piece = input[low..high].to_vec();
            (0..random.below(8)).for_each(|_| drop(input.splice(low..low, piece.iter().copied())));
        }
        _ => {
            let piece = PIECES[random.below(PIECES.len())];
            input.splice(at..end, piece.bytes());
        }
    }
}

/// The building blocks of JSON, arguments and schemas.
const PIECES: [&str; 48] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "null",
    "true",
    "false",
    "0",
    "-",
    "1.5",
    "1e",
    "\n",
    " ",
    "```",
    "```json\n",
    "\"a\"",
    "\"path\"",
    "\"Path\"",
    "\"max_lines\"",
    "\"maxLines\"",
    "\"5\"",
    "\"true\"",
    "_",
    "{\"a\":",
    "[[",
    "]]",
    "\"type\":",
    "\"object\"",
    "\"array\"",
    "\"integer\"",
    "\"properties\":{",
    "\"items\":",
    "\"anyOf\":[",
    "\"oneOf\":[",
    "\"allOf\":[",
    "\"$ref\":\"#\"",
    "\"$ref\":\"#/$defs/a\"",
    "\"$defs\":{\"a\":",
    "\"required\":[",
    "\"additionalProperties\":false",
    "\"pattern\":\"(a+)+\"",
    "\"enum\":[",
];

/// A sequence that looks random and is always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) % end as u64) as usize
    }
}
