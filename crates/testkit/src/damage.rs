//! Damage: one bit of a store's files is flipped, or a file is cut. Every question about the store is then answered
//! as before, or with an error; never with something else.

use crate::chance::Chance;
use crate::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};
use crate::scenario::{self, BatchReplyKind, CallReply, ClientRounds, RunCounts, ScenarioBatch};
use anyhow::{Context, bail, ensure};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BlobNo, Lookup, SessionNo};
use windlass_store::sqlite::Options;
use windlass_store::{Inbound, RecordChange, RecordPage, SqliteStore, Store, StoreSpace};

const FILE: &str = "windlass.db";
const LOG: &str = "windlass.db-wal";
const PAGE_BYTES: u64 = 4_096;

/// Where a bit is flipped: a table or index by name, the file's own beginning, or the log.
pub const PLACES: [&str; 17] = [
    "journal",
    "sessions",
    "sqlite_autoindex_sessions_1",
    "batches",
    "lookups",
    "open_batches",
    "chunks",
    "inbound",
    "sqlite_autoindex_inbound_1",
    "inbound_waiting",
    "records",
    "sqlite_autoindex_records_1",
    "meta",
    "sqlite_schema",
    "log",
    "cut file",
    "cut file beside its log",
];

/// A store to be damaged: as it was closed, and as it was while it was open.
pub struct Specimen {
    closed: TempDir,
    killed: TempDir,
    /// Pages by what they belong to.
    pages: BTreeMap<String, Vec<u64>>,
    sessions: BTreeMap<String, SessionNo>,
    work: Vec<ClientRounds>,
    expected: BTreeMap<String, String>,
    /// The answers of the calls that had ended.
    ended: BTreeMap<String, CallReply>,
}

/// How a flip was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// The store does not open.
    Refused,
    /// So many questions are answered with an error, in so many sessions.
    Noticed { questions: u64, sessions: usize },
    /// Everything is as it was.
    Harmless,
}

impl Specimen {
    /// Makes one: work that ended, a call that was left open, messages that wait and one that was adopted.
    pub async fn make() -> anyhow::Result<Specimen> {
        let (closed, killed) = (TempDir::new()?, TempDir::new()?);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(closed.path()))?);
        let (mut work, runs) = (scenario::work(), RunCounts::default());
        let owner = scenario::runtime(store.clone(), &runs)?;
        scenario::run(&owner, work.clone(), |_| {}).await;
        drop(owner);
        let left_open = scenario::open_work("d");
        // The intent is written, the end is not.
        let plan = FaultPlan::Nth(Method::Commit, 2, Fault::FailBefore);
        let faulty = FaultStore::new(store.clone(), plan, FaultReach::Store);
        let owner = scenario::runtime(Arc::new(faulty.clone()), &runs)?;
        scenario::run(&owner, left_open.clone(), |_| {}).await;
        faulty.close();
        drop((owner, faulty));
        work.extend(left_open);
        let a = store.session("a").await?.context("there is no session a")?;
        for (key, body) in [("m1", "first"), ("m2", "second")] {
            store.post(Inbound { session: a.no, key: key.to_owned(), body: body.into() }).await?;
        }
        let put = |key: &str, value: &[u8]| RecordChange::put(StoreSpace::Setting, key, value).into();
        let records = vec![put("small", b"value"), put("large", &[7; 10_000]), put("other", b"")];
        ensure!(store.commit(records).await?.iter().all(Result::is_ok), "the records were refused");
        // The last transaction of a log cannot be vouched for: let it be one that nobody asks about.
        let last = RecordChange::put(StoreSpace::Worker, "last", b"last".as_slice());
        ensure!(
            store.commit(vec![last.into()]).await?.iter().all(Result::is_ok),
            "the last record was refused"
        );
        copy(closed.path(), killed.path())?;
        let mut sessions = BTreeMap::new();
        for session in store.sessions(None, 100).await? {
            sessions.insert(session.name, session.no);
        }
        let ended = scenario::recorded(&store).await?;
        let ended = ended.into_iter().filter(|(_, seen)| seen.ended).map(|(name, seen)| (name, seen.answer));
        let mut specimen = Specimen {
            closed,
            killed,
            pages: BTreeMap::new(),
            sessions,
            work,
            ended: ended.collect(),
            expected: BTreeMap::new(),
        };
        for (question, answer) in specimen.ask(&store).await {
            specimen.expected.insert(question, answer.context("the specimen itself is damaged")?);
        }
        while Arc::strong_count(&store) > 1 {
            tokio::task::yield_now().await;
        }
        drop(store);
        specimen.pages = pages(&specimen.closed.path().join(FILE))?;
        Ok(specimen)
    }

    /// Damages a copy at a place and asks everything.
    pub async fn damage(&self, place: &str, chance: &mut Chance) -> anyhow::Result<Met> {
        let copied = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new())?;
        let beside = ["log", "cut file beside its log"].contains(&place);
        copy(if beside { self.killed.path() } else { self.closed.path() }, copied.path())?;
        let what = self.hurt(copied.path(), place, chance)?;
        let met = self.meet(copied.path()).await;
        met.with_context(|| format!("{place}: {what}"))
    }

    fn hurt(&self, folder: &Path, place: &str, chance: &mut Chance) -> anyhow::Result<String> {
        let file = folder.join(if place == "log" { LOG } else { FILE });
        let mut bytes = std::fs::read(&file)?;
        let len = bytes.len() as u64;
        let at = match place {
            "cut file" | "cut file beside its log" => {
                let keep = chance.below(len);
                bytes.truncate(keep as usize);
                std::fs::write(&file, bytes)?;
                return Ok(format!("cut to {keep} of {len} bytes"));
            }
            "log" => chance.below(len),
            _ => {
                let pages = self.pages.get(place).with_context(|| format!("no page belongs to {place}"))?;
                let page = pages[chance.below(pages.len() as u64) as usize];
                let start = (page - 1) * PAGE_BYTES;
                start + used(&bytes[start as usize..][..PAGE_BYTES as usize], page == 1, chance)
            }
        };
        let bit = chance.below(8);
        bytes[at as usize] ^= 1 << bit;
        std::fs::write(&file, bytes)?;
        Ok(format!("bit {bit} of byte {at} (page {}, {} in it)", at / PAGE_BYTES + 1, at % PAGE_BYTES))
    }

    /// Asks a store everything and submits everything again.
    async fn meet(&self, folder: &Path) -> anyhow::Result<Met> {
        let store: Arc<dyn Store> = match SqliteStore::open(Options::new(folder)) {
            Ok(store) => Arc::new(store),
            Err(_) => return Ok(Met::Refused),
        };
        let (mut questions, mut sessions) = (0, BTreeSet::new());
        for (question, answer) in self.ask(&store).await {
            match answer {
                Ok(answer) if self.expected[&question] == answer => {}
                Ok(answer) => bail!("{question}: it was {}, and is {answer}", self.expected[&question]),
                Err(_) => {
                    questions += 1;
                    sessions.extend(question.split(' ').nth(1).map(str::to_owned));
                }
            }
        }
        let runs = RunCounts::default();
        let owner = scenario::runtime(store.clone(), &runs)?;
        let resumed = owner.resume().await;
        questions += u64::from(resumed.is_err());
        for batch in self.work.iter().flatten().flatten() {
            questions += self.submit(&owner, batch, &mut sessions).await?;
        }
        for name in runs.all().keys() {
            ensure!(!self.ended.contains_key(name), "{name} was recorded as ended and ran again");
        }
        Ok(if questions == 0 { Met::Harmless } else { Met::Noticed { questions, sessions: sessions.len() } })
    }

    async fn submit(
        &self,
        owner: &windlass::Runtime,
        batch: &ScenarioBatch,
        sessions: &mut BTreeSet<String>,
    ) -> anyhow::Result<u64> {
        let told = scenario::submit(owner.clone(), batch.clone()).await;
        match told.reply {
            BatchReplyKind::Answered(answers) => {
                for answer in answers {
                    let name = format!("{}/{}/{}", batch.session, batch.key, answer.id);
                    let expected = self.ended.get(&name);
                    ensure!(expected.is_none_or(|expected| *expected == answer), "{name} is now {answer:?}");
                }
                Ok(0)
            }
            BatchReplyKind::Failed { .. } => {
                sessions.insert(batch.session.clone());
                Ok(1)
            }
            BatchReplyKind::Hung => bail!("{} was never answered", batch.key),
        }
    }

    /// Every question: its name begins with what it is about and in which session.
    async fn ask(&self, store: &Arc<dyn Store>) -> Vec<(String, anyhow::Result<String>)> {
        let mut asked = Vec::new();
        for (name, no) in &self.sessions {
            let row = store.session(name).await;
            asked.push((format!("session {name}"), text(row)));
            asked.push((format!("number {name}"), text(store.session_by_no(*no).await)));
            asked.push((format!("open {name}"), text(store.open_batches(Some(*no)).await)));
            asked.push((format!("history {name}"), text(store.history(*no, None, 1_000).await)));
            asked.push((format!("messages {name}"), text(store.inbound(*no, 100).await)));
        }
        let batches: BTreeSet<(&str, &str)> = self
            .work
            .iter()
            .flatten()
            .flatten()
            .map(|batch| (batch.session.as_str(), batch.key.as_str()))
            .collect();
        for (session, key) in batches {
            let row = store.batch(Lookup::of(self.sessions[session], key)).await;
            // The row is only a pointer: what it points to is checked by whoever follows it.
            if let Ok(Some(row)) = &row {
                let own = store.journal(row.no).await.map(|mut rows| {
                    rows.retain(|row| row.session == self.sessions[session]);
                    rows
                });
                let answer = match own {
                    Ok(rows) if rows.is_empty() => Err(anyhow::anyhow!("it has no rows")),
                    own => text(own),
                };
                asked.push((format!("journal {session} {key}"), answer));
            } else {
                asked.push((format!("journal {session} {key}"), Err(anyhow::anyhow!("{row:?}"))));
            }
        }
        for key in ["small", "large", "other", "never"] {
            let record = text(store.record(StoreSpace::Setting.shelf(), key).await);
            asked.push((format!("record {key}"), record));
        }
        let page = RecordPage { shelf: StoreSpace::Setting.shelf(), prefix: "", after: None, limit: 10 };
        asked.push(("records all".to_owned(), text(store.records(page).await)));
        for blob in 1..=self.blobs() {
            let bytes = store.blob(BlobNo(blob), 0, u64::MAX).await;
            let digest = bytes.map(|bytes| bytes.map(|bytes| blake3::hash(&bytes)));
            asked.push((format!("blob {blob}"), text(digest)));
        }
        asked
    }

    /// How many blobs the work keeps.
    fn blobs(&self) -> u64 {
        let calls = self.work.iter().flatten().flatten().flat_map(|batch| &batch.calls);
        calls.filter(|call| ["long", "stream", "kept"].contains(&call.tool)).count() as u64
    }
}

/// A byte of a page that says something: of its header, of the list of its cells, or of a cell. Damage in what lies
/// between them is harmless, and most of a small table's page is that.
fn used(page: &[u8], first: bool, chance: &mut Chance) -> u64 {
    let header = if first { 100 } else { 0 };
    let number = |at: usize| u64::from(page[at]) << 8 | u64::from(page[at + 1]);
    let header_bytes = match page[header] {
        2 | 5 => 12,
        10 | 13 => 8,
        // The rest of a long row has no header.
        _ => return chance.below(PAGE_BYTES),
    };
    let listed = header as u64 + header_bytes + 2 * number(header + 3);
    let cells = number(header + 5).min(PAGE_BYTES);
    let at = chance.below(listed + PAGE_BYTES - cells);
    if at < listed { at } else { cells + at - listed }
}

fn text<T: std::fmt::Debug>(answer: Result<T, windlass_store::StoreError>) -> anyhow::Result<String> {
    Ok(format!("{:?}", answer?))
}

/// Which pages belong to what.
fn pages(file: &Path) -> anyhow::Result<BTreeMap<String, Vec<u64>>> {
    let conn = Connection::open(file)?;
    let mut pages: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut select = conn.prepare("SELECT name, pageno FROM dbstat ORDER BY pageno")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        pages.entry(row.get(0)?).or_default().push(row.get::<_, i64>(1)?.cast_unsigned());
    }
    Ok(pages)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for name in [FILE, LOG] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name))?;
        }
    }
    Ok(())
}
