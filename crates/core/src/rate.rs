//! Rates: a token bucket that is told the time.

/// A rate of starts: a bucket that holds `count` tokens and fills evenly, once per period.
///
/// So `count` may start at once after a quiet period, and never more than `count` plus one period's refill
/// within any period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of starts.
    pub count: u32,
    /// The period in microseconds; zero is no limit.
    pub period_us: u64,
}

/// The parts of a token in which what is left of a rate is handed over.
pub const MILLIONTHS: u64 = 1_000_000;

/// The rest of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: Rate,
    /// In parts of a token, of which there are `period_us` in one; so every microsecond adds exactly `count`
    /// parts and nothing is ever rounded.
    parts: u128,
    /// The time of the last refill.
    filled_us: u64,
}

impl Bucket {
    /// A full one.
    pub fn full(rate: Rate, now_us: u64) -> Bucket {
        Bucket { rate, parts: rate.parts_max(), filled_us: now_us }
    }

    /// The rate it keeps.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate; the used share of the old one stays used.
    pub fn change(&mut self, rate: Rate, now_us: u64) {
        self.fill(now_us);
        let (old, new) = (self.rate.parts_max(), rate.parts_max());
        self.parts = match old {
            0 => new,
            // Both fit 96 bits; dividing first would round a small bucket to nothing.
            _ => self.parts.checked_mul(new).map_or(self.parts / old * new, |scaled| scaled / old),
        };
        self.rate = rate;
    }

    /// When the next token is available: `now_us` or earlier if there is one already, never for a rate of zero.
    pub fn due_us(&self, now_us: u64) -> u64 {
        let mut then = *self;
        then.fill(now_us);
        let missing = u128::from(self.rate.period_us).saturating_sub(then.parts);
        match (missing, self.rate.count) {
            (0, _) => now_us,
            (_, 0) => u64::MAX,
            (missing, count) => {
                let wait = missing.div_ceil(u128::from(count));
                then.filled_us.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
            }
        }
    }

    /// Takes a token, available or not: the start has happened. A bucket never goes negative.
    pub fn take(&mut self, now_us: u64) {
        self.fill(now_us);
        self.parts = self.parts.saturating_sub(u128::from(self.rate.period_us));
    }

    /// Takes at most so many of the tokens that are available; how many.
    pub fn take_most(&mut self, most: u64, now_us: u64) -> u64 {
        self.fill(now_us);
        let period = u128::from(self.rate.period_us);
        let whole = self.parts.checked_div(period).and_then(|whole| u64::try_from(whole).ok());
        let taken = whole.map_or(most, |whole| whole.min(most));
        self.parts -= u128::from(taken) * period;
        taken
    }

    /// How many tokens are missing until it is full; one of which a part is there is not missing.
    pub fn missing(&mut self, now_us: u64) -> u32 {
        self.fill(now_us);
        let missing = (self.rate.parts_max() - self.parts).checked_div(u128::from(self.rate.period_us));
        u32::try_from(missing.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Gives tokens per period away, with their part of what is left; how much that is, in [millionths](MILLIONTHS) of a token. Rounding
    /// loses, and never makes, parts of a token.
    pub fn give(&mut self, count: u32, now_us: u64) -> u64 {
        self.fill(now_us);
        let (count, all) = (u128::from(count.min(self.rate.count)), u128::from(self.rate.count));
        let kept = self.parts.saturating_mul(all - count).checked_div(all).unwrap_or(0);
        let given = self.parts - kept;
        self.rate.count -= count as u32;
        self.parts = kept.min(self.rate.parts_max());
        let whole = given.saturating_mul(u128::from(MILLIONTHS)).checked_div(u128::from(self.rate.period_us));
        u64::try_from(whole.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Takes tokens per period, with what is left of them.
    pub fn receive(&mut self, count: u32, left: u64, now_us: u64) {
        self.fill(now_us);
        self.rate.count = self.rate.count.saturating_add(count);
        let parts = u128::from(left).saturating_mul(u128::from(self.rate.period_us)) / u128::from(MILLIONTHS);
        self.parts = self.parts.saturating_add(parts).min(self.rate.parts_max());
    }

    fn fill(&mut self, now_us: u64) {
        let passed = u128::from(now_us.saturating_sub(self.filled_us));
        let filled = self.parts.saturating_add(passed.saturating_mul(u128::from(self.rate.count)));
        self.parts = filled.min(self.rate.parts_max());
        self.filled_us = self.filled_us.max(now_us);
    }
}

impl Rate {
    fn parts_max(self) -> u128 {
        u128::from(self.count) * u128::from(self.period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at each of `times` what is available, and returns which were served.
    fn check(count: u32, period_us: u64, times: &[u64]) -> Vec<u64> {
        let mut bucket = Bucket::full(Rate { count, period_us }, 0);
        let mut served = Vec::new();
        for &now in times {
            if bucket.due_us(now) <= now {
                bucket.take(now);
                served.push(now);
            }
        }
        served
    }

    #[test]
    fn a_bucket_serves_its_count_and_then_evenly() {
        assert_eq!(check(2, 100, &[0, 0, 0, 49, 50, 50, 99, 100]), [0, 0, 50, 100]);
        assert_eq!(check(1, 100, &[0, 99, 100, 150, 200]), [0, 100, 200]);
        assert_eq!(check(0, 100, &[0, 1_000_000]), [0u64; 0]);
        assert_eq!(check(3, 0, &[0, 0, 0, 0, 0]), [0; 5]);
        // Three in ten: no third is lost to rounding.
        let times: Vec<u64> = (0..=100).collect();
        assert_eq!(check(3, 10, &times).len(), 3 + 30);
    }

    #[test]
    fn due_is_the_first_moment_at_which_it_serves() {
        let mut bucket = Bucket::full(Rate { count: 3, period_us: 10 }, 5);
        (0..3).for_each(|_| bucket.take(5));
        assert_eq!(bucket.due_us(5), 9);
        assert_eq!((bucket.due_us(8), bucket.due_us(9), bucket.due_us(10)), (9, 9, 10));
        assert_eq!(Bucket::full(Rate { count: 0, period_us: 9 }, 0).due_us(7), u64::MAX);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let mut bucket = Bucket::full(Rate { count: 1, period_us: 10 }, 100);
        bucket.take(100);
        bucket.take(50);
        assert_eq!(bucket.due_us(60), 110);
    }

    #[test]
    fn what_is_handed_over_is_never_more_than_there_was() {
        let rate = |count| Rate { count, period_us: 100 };
        let served = |bucket: &mut Bucket| {
            let mut served = 0;
            while bucket.due_us(0) == 0 {
                bucket.take(0);
                served += 1;
            }
            served
        };
        for (count, used, given) in [(6, 0, 2), (6, 5, 2), (1, 0, 1), (7, 3, 7), (3, 1, 9)] {
            let (mut one, mut other) = (Bucket::full(rate(count), 0), Bucket::full(rate(0), 0));
            (0..used).for_each(|_| one.take(0));
            let left = one.give(given, 0);
            other.receive(given.min(count), left, 0);
            assert_eq!(one.rate().count + other.rate().count, count);
            let (both, before) = (served(&mut one) + served(&mut other), count - used);
            assert!(both <= before && both + 2 > before, "{both} of {before}");
        }
    }

    #[test]
    fn as_many_as_there_are_are_taken_at_once() {
        let mut bucket = Bucket::full(Rate { count: 4, period_us: 100 }, 0);
        assert_eq!((bucket.missing(0), bucket.take_most(3, 0), bucket.missing(0)), (0, 3, 3));
        assert_eq!((bucket.take_most(9, 0), bucket.take_most(9, 0)), (1, 0));
        // A part of the next one is there.
        assert_eq!((bucket.missing(24), bucket.take_most(9, 24)), (3, 0));
        assert_eq!((bucket.missing(25), bucket.take_most(9, 25), bucket.due_us(25)), (3, 1, 50));
        assert_eq!(Bucket::full(Rate { count: 1, period_us: 0 }, 0).take_most(7, 0), 7);
    }

    #[test]
    fn a_change_keeps_the_share_that_is_left() {
        let mut bucket = Bucket::full(Rate { count: 4, period_us: 100 }, 0);
        (0..2).for_each(|_| bucket.take(0));
        bucket.change(Rate { count: 2, period_us: 100 }, 0);
        bucket.take(0);
        assert!(bucket.due_us(0) > 0);
        bucket.change(Rate { count: u32::MAX, period_us: u64::MAX }, 0);
        assert_eq!(bucket.rate().count, u32::MAX);
    }
}
