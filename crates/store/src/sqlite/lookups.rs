//! Finding a batch by its look-up without a random index page in every commit.
//!
//! Look-ups are hashes, so an index in their order grows everywhere: each commit would dirty a page for
//! nearly every batch in it. So the table `batches` is only appended to, the latest look-ups are in memory,
//! and the index, the table `lookups`, is filled in runs: some thousands of look-ups, sorted, a slice with
//! every few commits, so that neighbours share a page. The last slice of a run also writes up to which batch
//! the index is complete. After a crash that mark is old, and all batches after it are read back into memory;
//! writing a slice twice changes nothing.

use super::seal::{batch_seal, expired_seal, open_part};
use super::statements::Statements;
use crate::chain::{int, uint};
use rusqlite::{Connection, Error};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use windlass_core::ids::Lookup;

/// A run has a sixteenth of the index's size, so that about as many of its keys fall on one page however
/// large the index is; but at least and at most this many.
const RUN: (usize, usize) = (4_096, 65_536);
/// How many of a run are written at once, or more if a group brings more.
const SLICE: usize = 128;

/// The latest look-ups, and a filter of the others: shared by the writer and all readers.
#[derive(Default)]
pub(super) struct Lookups(RwLock<LookupState>);

#[derive(Default)]
struct LookupState {
    /// Committed and not in a run yet.
    recent: HashMap<Lookup, u64>,
    /// In the run that is being written.
    run: Arc<HashMap<Lookup, u64>>,
    indexed: LookupFilter,
    /// All batches up to this one are in the index.
    mark: u64,
}

/// The knowledge about a look-up without reading the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupGuess {
    /// No batch has it.
    Absent,
    /// This batch has it.
    Batch(u64),
    /// The index must be read.
    Perhaps,
}

impl Lookups {
    /// Reads all batches once: each must be intact, and the index complete up to its mark. `Err` inside: the
    /// damage.
    pub fn load(conn: &Connection) -> Result<Result<Lookups, String>, Error> {
        let mark = mark(conn)?;
        let mut state = LookupState { mark, ..LookupState::default() };
        let (mut in_table, mut in_index) = (0_u64, 0_u64);
        let mut select = conn.prepare("SELECT no, lookup, session, seal FROM batches")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            let (no, lookup) = (uint(row.get(0)?), Lookup(row.get(1)?));
            let (session, seal) = (uint(row.get(2)?), row.get::<_, i64>(3)?);
            if batch_seal(no, session, lookup) != seal && expired_seal(no, session, lookup) != seal {
                return Ok(Err(format!("batch {no} is not what was written")));
            }
            if no > mark {
                state.recent.insert(lookup, no);
            } else {
                state.indexed.add(lookup);
                in_table = in_table.wrapping_add(sum_part(part(lookup), no));
            }
        }
        let mut select = conn.prepare("SELECT part, no FROM lookups")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            let (part, no) = (row.get(0)?, uint(row.get(1)?));
            if no <= mark {
                in_index = in_index.wrapping_add(sum_part(part, no));
            }
        }
        if in_table != in_index {
            return Ok(Err("the batches and their index differ".to_owned()));
        }
        Ok(Ok(Lookups(RwLock::new(state))))
    }

    /// Looks up a committed batch in memory.
    pub fn find(&self, lookup: Lookup) -> LookupGuess {
        let state = self.read();
        match state.recent.get(&lookup).or_else(|| state.run.get(&lookup)) {
            Some(no) => LookupGuess::Batch(*no),
            None if state.indexed.may_have(lookup) => LookupGuess::Perhaps,
            None => LookupGuess::Absent,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, LookupState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, LookupState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's side.
pub(super) struct Indexer {
    shared: Arc<Lookups>,
    /// Added by the current transaction.
    pending: HashMap<Lookup, u64>,
    /// Removed by the current transaction, by batch.
    removed: HashMap<u64, Lookup>,
    run: Option<LookupRun>,
    /// The number of look-ups of the run to write next.
    due: usize,
    run_min: usize,
}

/// Look-ups to be added to the index, in its order.
struct LookupRun {
    sorted: Vec<(i64, u64)>,
    /// Batches of it that were removed before they were written.
    gone: HashSet<u64>,
    /// The number of them that are written, and the number once the transaction is committed.
    done: usize,
    done_then: usize,
    /// The last batch of it.
    last: u64,
}

impl Indexer {
    pub fn new(shared: Arc<Lookups>) -> Indexer {
        Indexer {
            shared,
            pending: HashMap::new(),
            removed: HashMap::new(),
            run: None,
            due: 0,
            run_min: RUN.0,
        }
    }

    /// Whether a batch has this look-up, including the current transaction.
    pub fn has(&self, lookup: Lookup, sql: &mut Statements<'_>) -> Result<bool, Error> {
        if self.pending.contains_key(&lookup) {
            return Ok(true);
        }
        match self.shared.find(lookup) {
            LookupGuess::Absent => Ok(false),
            LookupGuess::Batch(_) => Ok(true),
            LookupGuess::Perhaps => sql.indexed.exists((part(lookup), lookup.0)),
        }
    }

    /// Adds a batch in the current transaction.
    pub fn add(&mut self, lookup: Lookup, no: u64, sql: &mut Statements<'_>) -> Result<(), Error> {
        let mark = self.run.as_ref().map_or_else(|| self.shared.read().mark, |run| run.last);
        if no <= mark {
            // Its number was reserved long ago, and the mark says or will say that it is in the index.
            point!("index.lookup", sql.insert_lookup.execute((part(lookup), int(no))))?;
        }
        self.pending.insert(lookup, no);
        Ok(())
    }

    /// Removes a batch in the current transaction. The filter continues to report it as possible.
    pub fn remove(&mut self, lookup: Lookup, no: u64, sql: &mut Statements<'_>) -> Result<(), Error> {
        sql.delete_lookup.execute((part(lookup), int(no)))?;
        self.removed.insert(no, lookup);
        Ok(())
    }

    /// Before a transaction: begins a run if there is enough for one. Not later, since it must be known when
    /// a batch is added whether it is after the mark of the run.
    pub fn begin(&mut self) {
        if self.run.is_none() {
            let indexed = self.shared.read().indexed.keys;
            self.run = self.next_run((indexed / 16).clamp(self.run_min, RUN.1));
            self.due = 0;
        }
    }

    /// Before the commit: writes the due part of a run.
    pub fn before_commit(&mut self, sql: &mut Statements<'_>) -> Result<(), Error> {
        // Twice as fast as look-ups come, so that a run ends long before the next is full.
        self.due += 2 * self.pending.len();
        if self.due < SLICE {
            return Ok(());
        }
        self.write_slice(self.due, sql)
    }

    /// The commit succeeded.
    pub fn committed(&mut self) {
        let nothing_new = self.pending.is_empty() && self.removed.is_empty();
        if nothing_new && self.run.as_ref().is_none_or(|run| run.done == run.done_then) {
            return;
        }
        let mut state = self.shared.write();
        let mark = self.run.as_ref().map_or(state.mark, |run| run.last);
        for (lookup, no) in self.pending.drain() {
            if no <= mark {
                state.indexed.add(lookup);
            } else {
                state.recent.insert(lookup, no);
            }
        }
        for (no, lookup) in self.removed.drain() {
            state.recent.remove(&lookup);
            if Arc::make_mut(&mut state.run).remove(&lookup).is_some()
                && let Some(run) = &mut self.run
            {
                run.gone.insert(no);
            }
        }
        let Some(run) = &mut self.run else { return };
        if run.done != run.done_then {
            self.due = 0;
        }
        run.done = run.done_then;
        if run.done == run.sorted.len() {
            let indexed = std::mem::take(&mut state.run);
            for lookup in indexed.keys() {
                state.indexed.add(*lookup);
            }
            state.mark = run.last;
            self.run = None;
            // Waiting readers need not wait until all of it is freed.
            drop(state);
            drop(indexed);
        }
    }

    /// The transaction was rolled back.
    pub fn undone(&mut self) {
        self.pending.clear();
        self.removed.clear();
        if let Some(run) = &mut self.run {
            run.done_then = run.done;
        }
    }

    /// Another connection wrote to the file.
    pub fn reload(&mut self, conn: &Connection) -> Result<(), Error> {
        self.undone();
        self.run = None;
        // Damage in the file is found when it is opened; until then the cached state stays.
        if let Ok(found) = Lookups::load(conn)? {
            *self.shared.write() = found.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Whether look-ups are missing in the index.
    pub fn is_behind(&self) -> bool {
        let state = self.shared.read();
        !state.recent.is_empty() || !state.run.is_empty()
    }

    /// Writes everything missing in the index, or the rest of the run if there is one.
    pub fn write_rest(&mut self, sql: &mut Statements<'_>) -> Result<(), Error> {
        if self.run.is_none() {
            self.run = self.next_run(1);
        }
        self.write_slice(usize::MAX, sql)
    }

    /// The next run, if there is enough for it.
    fn next_run(&self, least: usize) -> Option<LookupRun> {
        if self.shared.read().recent.len() < least {
            return None;
        }
        let mut state = self.shared.write();
        state.run = Arc::new(std::mem::take(&mut state.recent));
        let run = Arc::clone(&state.run);
        drop(state);
        let mut sorted: Vec<_> = run.iter().map(|(lookup, no)| (part(*lookup), *no)).collect();
        sorted.sort_unstable();
        let last = run.values().copied().max().unwrap_or(0);
        Some(LookupRun { sorted, gone: HashSet::new(), done: 0, done_then: 0, last })
    }

    fn write_slice(&mut self, most: usize, sql: &mut Statements<'_>) -> Result<(), Error> {
        let Some(run) = &mut self.run else { return Ok(()) };
        let end = run.done.saturating_add(most).min(run.sorted.len());
        let is_there = |no: &u64| !run.gone.contains(no) && !self.removed.contains_key(no);
        for (part, no) in run.sorted[run.done..end].iter().filter(|(_, no)| is_there(no)) {
            point!("index.lookup", sql.insert_lookup.execute((part, int(*no))))?;
        }
        if end == run.sorted.len() {
            point!("index.mark", sql.update_mark.execute([run.last.to_le_bytes()]))?;
        }
        run.done_then = end;
        Ok(())
    }
}

/// Up to which batch the index is complete.
pub(super) fn mark(conn: &Connection) -> Result<u64, Error> {
    let mut select = conn.prepare_cached("SELECT value FROM meta WHERE key = 'indexed'")?;
    select.query_row((), |row| row.get(0)).map(u64::from_le_bytes)
}

/// The key of a look-up in the index: half of it, since the batch has all of it.
pub(super) fn part(lookup: Lookup) -> i64 {
    halves(lookup).0.cast_signed()
}

fn halves(Lookup(bytes): Lookup) -> (u64, u64) {
    let both = u128::from_le_bytes(bytes);
    (both as u64, (both >> 64) as u64)
}

/// A look-up's part of a sum in which every bit of each counts.
fn sum_part(part: i64, no: u64) -> u64 {
    part.cast_unsigned().wrapping_mul(3).wrapping_add(open_part(no).cast_unsigned())
}

/// Distinguishes most look-ups that are not in the index from those that are, without reading it (a Bloom
/// filter in layers, each twice as large as the last). Look-ups are hashes already.
#[derive(Default)]
struct LookupFilter {
    layers: Vec<Vec<u64>>,
    keys: usize,
    /// How many more keys the last layer takes.
    room: usize,
}

/// The capacity of the first layer.
const LAYER_KEYS: usize = 16_384;
/// Bits per key: one or two of a hundred absent keys are reported as possible.
const KEY_BITS: usize = 10;
const PROBES: u64 = 5;
/// Above this many layers (20 million look-ups, 26 MiB) the last one takes all, and the index is read more often.
const LAYERS_MAX: usize = 11;

impl LookupFilter {
    fn add(&mut self, lookup: Lookup) {
        if self.room == 0 && self.layers.len() < LAYERS_MAX {
            self.room = LAYER_KEYS << self.layers.len();
            self.layers.push(vec![0; self.room * KEY_BITS / 64]);
        }
        self.keys += 1;
        self.room = self.room.saturating_sub(1);
        if let Some(layer) = self.layers.last_mut() {
            for (word, bit) in probes(lookup, layer.len()) {
                layer[word] |= bit;
            }
        }
    }

    fn may_have(&self, lookup: Lookup) -> bool {
        let all = |layer: &Vec<u64>| probes(lookup, layer.len()).all(|(word, bit)| layer[word] & bit != 0);
        self.layers.iter().rev().any(all)
    }
}

/// The bits of a look-up in a layer of so many words.
fn probes(lookup: Lookup, words: usize) -> impl Iterator<Item = (usize, u64)> {
    let (first, step) = halves(lookup);
    let bits = words as u64 * 64;
    (0..PROBES).map(move |probe| {
        let bit = first.wrapping_add(probe.wrapping_mul(step)) % bits;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{file, read};
    use tempfile::TempDir;

    fn lookup(no: u64) -> Lookup {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&blake3::hash(&no.to_le_bytes()).as_bytes()[..16]);
        Lookup(bytes)
    }

    /// A file whose index is filled in runs of at least eight.
    struct Rig {
        folder: TempDir,
        conn: Connection,
    }

    impl Rig {
        fn new() -> Rig {
            let folder = TempDir::new().unwrap();
            file::create(folder.path(), &file::path(folder.path())).unwrap();
            let conn = file::connect(&file::path(folder.path())).unwrap();
            Rig { folder, conn }
        }

        /// The writer of a process that opens the file now.
        fn opened(&self) -> (Indexer, Statements<'_>) {
            let shared = Arc::new(Lookups::load(&self.conn).unwrap().unwrap());
            (Indexer { run_min: 8, ..Indexer::new(shared) }, Statements::new(&self.conn))
        }

        fn check(&self, indexer: &Indexer, sql: &mut Statements<'_>, all: &[u64]) {
            let pool = crate::sqlite::pool::ReaderPool::new(file::path(self.folder.path()), None);
            for no in all {
                assert!(indexer.has(lookup(*no), sql).unwrap(), "batch {no} is missed by the writer");
                let found = read::batch_anywhere(&pool, lookup(*no)).unwrap();
                assert_eq!(found.map(|found| found.no.0), Some(*no), "missed by a reader");
            }
            assert!(!indexer.has(lookup(9_999), sql).unwrap());
            Lookups::load(&self.conn).unwrap().unwrap();
        }

        fn indexed(&self) -> i64 {
            self.conn.query_row("SELECT count(*) FROM lookups", (), |row| row.get(0)).unwrap()
        }
    }

    fn apply(opened: &mut (Indexer, Statements<'_>), batches: &[u64]) {
        let (indexer, sql) = opened;
        sql.begin.execute(()).unwrap();
        indexer.begin();
        for no in batches {
            assert!(!indexer.has(lookup(*no), sql).unwrap());
            let row = (int(*no), 1, lookup(*no).0, batch_seal(*no, 1, lookup(*no)));
            sql.insert_batch.execute(row).unwrap();
            indexer.add(lookup(*no), *no, sql).unwrap();
            assert!(indexer.has(lookup(*no), sql).unwrap(), "one transaction does not add a look-up twice");
        }
    }

    fn commit(opened: &mut (Indexer, Statements<'_>)) {
        let (indexer, sql) = opened;
        indexer.before_commit(sql).unwrap();
        sql.commit.execute(()).unwrap();
        indexer.committed();
    }

    #[test]
    fn every_batch_is_found_whatever_of_a_run_is_written() {
        let rig = Rig::new();
        let mut all = Vec::new();
        // Numbers come late and early; every few commits the process dies and the next opens the file.
        let mut numbers = (1..=1_505_u64).map(|at| if at % 7 == 0 { at - 6 } else { at + 1 });
        let mut opened = rig.opened();
        let mut runs = 0;
        for group in 0.. {
            let batches: Vec<u64> = numbers.by_ref().take(1 + group % 40).collect();
            if batches.is_empty() {
                break;
            }
            apply(&mut opened, &batches);
            if group % 5 == 3 {
                opened.0.before_commit(&mut opened.1).unwrap();
                opened.1.rollback.execute(()).unwrap();
                opened.0.undone();
                apply(&mut opened, &batches);
            }
            commit(&mut opened);
            all.extend(batches);
            runs += u64::from(opened.0.run.is_some());
            if group % 11 == 10 {
                rig.check(&opened.0, &mut opened.1, &all);
                opened = rig.opened();
            }
        }
        rig.check(&opened.0, &mut opened.1, &all);
        assert!(runs > 5 && rig.indexed() > 500, "{runs} commits in a run, {} indexed", rig.indexed());
    }

    #[test]
    fn a_number_that_comes_late_is_in_the_index_at_once() {
        let rig = Rig::new();
        let mut opened = rig.opened();
        apply(&mut opened, &(2..12).collect::<Vec<_>>());
        commit(&mut opened);
        // The run of those has begun and is not written; 1 and 13 come with the same commit.
        apply(&mut opened, &[1, 13]);
        assert!(opened.0.run.is_some());
        commit(&mut opened);
        assert_eq!(rig.indexed(), 1);
        opened.1.begin.execute(()).unwrap();
        opened.0.write_rest(&mut opened.1).unwrap();
        commit(&mut opened);
        assert_eq!(mark(&rig.conn).unwrap(), 11);
        let all: Vec<u64> = (1..12).chain([13]).collect();
        rig.check(&opened.0, &mut opened.1, &all);
        let mut opened = rig.opened();
        rig.check(&opened.0, &mut opened.1, &all);
    }

    #[test]
    fn damage_to_batches_or_index_is_noticed() {
        for hurt in [
            "UPDATE batches SET session = 2 WHERE no = 3",
            "UPDATE batches SET lookup = zeroblob(16) WHERE no = 30",
            "UPDATE batches SET no = 99 WHERE no = 30",
            "UPDATE batches SET seal = seal + 1 WHERE no = 3",
            "DELETE FROM batches WHERE no = 3",
            "DELETE FROM lookups WHERE no = 3",
            "UPDATE lookups SET part = part + 1 WHERE no = 3",
            "UPDATE lookups SET no = 20 WHERE no = 3",
            "UPDATE meta SET value = x'1d00000000000000' WHERE key = 'indexed'",
        ] {
            let rig = Rig::new();
            let mut opened = rig.opened();
            apply(&mut opened, &(1..20).collect::<Vec<_>>());
            commit(&mut opened);
            apply(&mut opened, &[]);
            opened.0.write_rest(&mut opened.1).unwrap();
            commit(&mut opened);
            apply(&mut opened, &(28..31).collect::<Vec<_>>());
            commit(&mut opened);
            assert_eq!(rig.indexed(), 19);
            rig.conn.execute(hurt, ()).unwrap();
            assert!(Lookups::load(&rig.conn).unwrap().is_err(), "{hurt}");
        }
    }

    #[test]
    fn the_filter_forgets_nothing_and_is_seldom_wrong() {
        let mut filter = LookupFilter::default();
        let keys = LAYER_KEYS as u64 * 4;
        (0..keys).for_each(|no| filter.add(lookup(no)));
        assert_eq!(filter.layers.len(), 3);
        assert!((0..keys).all(|no| filter.may_have(lookup(no))));
        let wrong = (keys..2 * keys).filter(|no| filter.may_have(lookup(*no))).count();
        assert!(wrong < keys as usize / 20, "{wrong} of {keys}");
    }

    #[test]
    fn what_is_removed_before_its_turn_never_comes_into_the_index() {
        let rig = Rig::new();
        let mut writer = rig.opened();
        let batches: Vec<u64> = (1..=40).collect();
        apply(&mut writer, &batches);
        commit(&mut writer);
        let (indexer, sql) = &mut writer;
        // A run is under way: of those in it, in the index, and still in memory some go.
        for (step, gone) in [[3, 4], [20, 21], [39, 40]].into_iter().enumerate() {
            sql.begin.execute(()).unwrap();
            indexer.begin();
            for no in gone {
                indexer.remove(lookup(no), no, sql).unwrap();
                sql.delete_batch.execute([int(no)]).unwrap();
            }
            if step == 1 {
                // Undone, they are as they were; then they go after all.
                sql.rollback.execute(()).unwrap();
                indexer.undone();
                assert!(indexer.has(lookup(20), sql).unwrap());
                sql.begin.execute(()).unwrap();
                for no in gone {
                    indexer.remove(lookup(no), no, sql).unwrap();
                    sql.delete_batch.execute([int(no)]).unwrap();
                }
            }
            indexer.write_slice(8, sql).unwrap();
            sql.commit.execute(()).unwrap();
            indexer.committed();
        }
        while indexer.is_behind() {
            sql.begin.execute(()).unwrap();
            indexer.write_rest(sql).unwrap();
            sql.commit.execute(()).unwrap();
            indexer.committed();
        }
        let gone = [3, 4, 20, 21, 39, 40];
        let left: Vec<u64> = batches.into_iter().filter(|no| !gone.contains(no)).collect();
        rig.check(indexer, sql, &left);
        assert_eq!(rig.indexed(), left.len() as i64);
        for no in gone {
            assert!(!indexer.has(lookup(no), sql).unwrap(), "{no}");
        }
    }
}
