//! Numbers that look random and are the same for the same seed, on every machine.

/// A sequence of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// The sequence of this number.
    pub fn new(number: u64) -> Seed {
        Seed(number)
    }

    /// A sequence of its own for the `number`th of something.
    pub fn branch(&self, number: u64) -> Seed {
        let mut seed = Seed(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Seed(seed.number())
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` up to and with `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.number() % (most - least + 1)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    /// One of these; each as often as it is listed.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.number() % choices.len() as u64) as usize]
    }
}
