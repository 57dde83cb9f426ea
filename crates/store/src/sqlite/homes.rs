//! The step to format 7: every record moves to its home.
//!
//! Before, records about a session were records of the whole store, by its name: its principal, its settings and limits, its
//! children, the mark of its removal, the metadata of its blobs. They become records of the session. This is the only place that
//! knows how older versions wrote them.

use super::remove;
use super::seal::{Sealed, record_seal};
use crate::chain::{START, int, uint};
use crate::record::gone_key;
use crate::{Shelf, Space, StoreSpace, gone_value};
use rusqlite::{Connection, Error, OptionalExtension};
use windlass_core::handle::Secret;
use windlass_core::ids::SessionNo;

/// The number of the space in which the metadata of blobs was.
const OLDER_ARTIFACT: i64 = 10;

/// Prefixes of the keys under which older versions wrote about sessions, each followed by the session's name.
const PRINCIPAL: &str = "session/";
const LIMITS: &str = "limits/";
const REMOVING: &str = "removing/";
/// Followed by the parent's name, a slash and the child's name.
const CHILDREN: &str = "children/";
/// Keys that are derived from others, and not needed any more.
const DERIVED: [&str; 3] = ["of/", "scheduled/", "adopted"];

/// The keys of the records of a session into which they are moved.
const ABOUT_SETTING: &str = "setting";
const ABOUT_BOUNDS: &str = "bounds";
const BEGUN: &str = "begun";

/// Moves all records, in the current transaction.
pub(super) fn move_records(conn: &Connection, secret: &Secret) -> Result<(), Error> {
    let homes = Homes { conn, secret };
    homes.finish_removals()?;
    homes.move_about()?;
    homes.move_children()?;
    homes.move_blobs(OLDER_ARTIFACT, Space::Blob)?;
    homes.move_blobs(Space::Loose.number(), Space::Loose)?;
    for derived in DERIVED {
        for record in homes.settings(derived)? {
            homes.remove(&record)?;
        }
    }
    Ok(())
}

struct Homes<'c> {
    conn: &'c Connection,
    secret: &'c Secret,
}

/// A record of the whole store, as an older version wrote it.
struct OlderRecord {
    generation: i64,
    key: String,
    value: Vec<u8>,
    /// Whether its seal is right. Damage is moved as damage, not made good.
    is_intact: bool,
}

impl Homes<'_> {
    /// Sessions that were being removed have a record of that. Where only the mark was left, the removal ends here.
    fn finish_removals(&self) -> Result<(), Error> {
        for record in self.settings(REMOVING)? {
            let name = record.key[REMOVING.len()..].to_owned();
            let name = name.as_str();
            let number = self.number_in(&record.value, "$.session")?;
            match self.session(name)?.filter(|no| Some(no.0) == number) {
                Some(session) => {
                    let emptied = OlderRecord { value: Vec::new(), ..record };
                    self.put(Space::Removing.of(session), BEGUN, &emptied)?;
                    self.remove(&emptied)?;
                }
                None => {
                    let principal = self.principal(name)?;
                    let value = gone_value(self.secret, name, principal.as_deref()).to_vec();
                    let gone = OlderRecord { value, ..record };
                    self.put(Shelf::gone(), &gone_key(self.secret, name), &gone)?;
                    for key in [PRINCIPAL, LIMITS].map(|prefix| format!("{prefix}{name}")) {
                        self.remove_setting(&key)?;
                    }
                    self.remove(&gone)?;
                }
            }
        }
        Ok(())
    }

    /// Principals go to the rows of their sessions; settings and limits to records of the session.
    fn move_about(&self) -> Result<(), Error> {
        for record in self.settings(PRINCIPAL)? {
            let principal = self.text_in(&record.value, "$.principal")?;
            let session = self.ensure(&record.key[PRINCIPAL.len()..], principal.as_deref())?;
            self.put(Space::About.of(session), ABOUT_SETTING, &record)?;
            self.remove(&record)?;
        }
        for record in self.settings(LIMITS)? {
            let session = self.ensure(&record.key[LIMITS.len()..], None)?;
            // Keys of other records, which are moved as well.
            let value = self.without(&record.value, "$.child.settings")?;
            let record = OlderRecord { value, ..record };
            self.put(Space::About.of(session), ABOUT_BOUNDS, &record)?;
            self.remove(&record)?;
        }
        Ok(())
    }

    /// Children are listed with their parent.
    fn move_children(&self) -> Result<(), Error> {
        for record in self.settings(CHILDREN)? {
            if let Some((parent, child)) = record.key[CHILDREN.len()..].split_once('/') {
                let principal = match self.session(child)? {
                    Some(child) => self.principal_of(child)?,
                    None => None,
                };
                let parent = self.ensure(parent, principal.as_deref())?;
                self.put(Space::Child.of(parent), child, &record)?;
            }
            self.remove(&record)?;
        }
        Ok(())
    }

    /// Metadata of blobs says whose they are.
    fn move_blobs(&self, space: i64, to: Space) -> Result<(), Error> {
        for record in self.records(space, "")? {
            if let Some(session) = self.number_in(&record.value, "$.session")? {
                let value = self.without(&record.value, "$.session")?;
                let (key, record) = (record.key.clone(), OlderRecord { value, ..record });
                self.put(to.of(SessionNo(session)), &key, &record)?;
                self.remove(&record)?;
            } else {
                self.remove(&record)?;
            }
        }
        Ok(())
    }

    /// The number of the session of this name, which is opened if it is not there: older versions set what a session should be before
    /// it was opened.
    fn ensure(&self, name: &str, principal: Option<&str>) -> Result<SessionNo, Error> {
        if let Some(session) = self.session(name)? {
            let sql = "UPDATE sessions SET principal = coalesce(principal, ?2) WHERE no = ?1";
            self.conn.prepare_cached(sql)?.execute((int(session.0), principal))?;
            return Ok(session);
        }
        let last: Option<i64> = self.conn.query_row("SELECT max(no) FROM sessions", (), |row| row.get(0))?;
        let removed = remove::numbers(self.conn)?.unwrap_or_default()[0];
        let no = last.map_or(0, uint).max(removed) + 1;
        let seal = Sealed { no, fence: 1, head: 0, last_row: None, chain: START, open: 0 }.seal();
        let sql = "INSERT INTO sessions (no, name, principal, fence, head, chain, open, seal)
                   VALUES (?1, ?2, ?3, 1, 0, ?4, 0, ?5)";
        self.conn.prepare_cached(sql)?.execute((int(no), name, principal, START, seal))?;
        Ok(SessionNo(no))
    }

    fn session(&self, name: &str) -> Result<Option<SessionNo>, Error> {
        let mut select = self.conn.prepare_cached("SELECT no FROM sessions WHERE name = ?1")?;
        select.query_row([name], |row| Ok(SessionNo(uint(row.get(0)?)))).optional()
    }

    fn principal_of(&self, session: SessionNo) -> Result<Option<String>, Error> {
        let mut select = self.conn.prepare_cached("SELECT principal FROM sessions WHERE no = ?1")?;
        select.query_row([int(session.0)], |row| row.get(0))
    }

    /// The principal of a session as older versions stored it.
    fn principal(&self, name: &str) -> Result<Option<String>, Error> {
        let sql = "SELECT value FROM records WHERE space = ?1 AND owner = 0 AND key = ?2";
        let place = (StoreSpace::Setting.shelf().number(), format!("{PRINCIPAL}{name}"));
        let value =
            self.conn.prepare_cached(sql)?.query_row(place, |row| row.get::<_, Vec<u8>>(0)).optional()?;
        value.map_or(Ok(None), |value| self.text_in(&value, "$.principal"))
    }

    /// The settings whose keys begin so.
    fn settings(&self, prefix: &str) -> Result<Vec<OlderRecord>, Error> {
        self.records(StoreSpace::Setting.shelf().number(), prefix)
    }

    fn records(&self, space: i64, prefix: &str) -> Result<Vec<OlderRecord>, Error> {
        let sql = "SELECT generation, key, value, seal FROM records
                   WHERE space = ?1 AND owner = 0 AND substr(key, 1, length(?2)) = ?2 ORDER BY key";
        let read = |row: &rusqlite::Row<'_>| {
            let (generation, key, value): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let seal = super::seal::numbered_record_seal(uint(generation), space, SessionNo(0), &key, &value);
            let is_intact = seal == row.get::<_, i64>(3)?;
            Ok(OlderRecord { generation, key, value, is_intact })
        };
        self.conn.prepare_cached(sql)?.query_map((space, prefix), read)?.collect()
    }

    fn put(&self, shelf: Shelf, key: &str, record: &OlderRecord) -> Result<(), Error> {
        let sql = "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'records'), 0),
                              coalesce((SELECT max(generation) FROM records), 0))";
        let last: i64 = self.conn.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
        let seal = record_seal(uint(last) + 1, shelf, key, &record.value);
        let seal = if record.is_intact { seal } else { !seal };
        let sql = "INSERT OR REPLACE INTO records (generation, space, owner, key, value, seal)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let kept = (last + 1, shelf.number(), int(shelf.home().0), key, &record.value, seal);
        self.conn.prepare_cached(sql)?.execute(kept)?;
        Ok(())
    }

    fn remove(&self, record: &OlderRecord) -> Result<(), Error> {
        let mut delete = self.conn.prepare_cached("DELETE FROM records WHERE generation = ?1")?;
        delete.execute([record.generation])?;
        Ok(())
    }

    fn remove_setting(&self, key: &str) -> Result<(), Error> {
        let sql = "DELETE FROM records WHERE space = ?1 AND owner = 0 AND key = ?2";
        self.conn.prepare_cached(sql)?.execute((StoreSpace::Setting.shelf().number(), key))?;
        Ok(())
    }

    /// A number in a JSON text; `None` if there is none, or the text is no JSON.
    fn number_in(&self, value: &[u8], path: &str) -> Result<Option<u64>, Error> {
        let found: Option<i64> = self.extract(value, path)?;
        Ok(found.map(uint))
    }

    fn text_in(&self, value: &[u8], path: &str) -> Result<Option<String>, Error> {
        self.extract(value, path)
    }

    fn extract<T: rusqlite::types::FromSql>(&self, value: &[u8], path: &str) -> Result<Option<T>, Error> {
        let sql = "SELECT CASE WHEN json_valid(?1) THEN json_extract(?1, ?2) END";
        let text = String::from_utf8_lossy(value);
        self.conn.prepare_cached(sql)?.query_row((text, path), |row| row.get(0))
    }

    /// A JSON text without one of its members; other bytes as they are.
    fn without(&self, value: &[u8], path: &str) -> Result<Vec<u8>, Error> {
        let sql = "SELECT CASE WHEN json_valid(?1) THEN json_remove(?1, ?2) END";
        let text = String::from_utf8_lossy(value);
        let left: Option<String> =
            self.conn.prepare_cached(sql)?.query_row((text, path), |row| row.get(0))?;
        Ok(left.map_or_else(|| value.to_vec(), String::into_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::records;
    use super::super::{Options, SqliteStore, file, schema};
    use super::*;
    use crate::{Posted, RecordPage, Store};

    /// A file of an older format, to which records of the whole store are added.
    struct Older(Connection);

    impl Older {
        fn put(&self, space: i64, key: &str, value: &str) {
            let sql = "SELECT coalesce(max(generation), 0) + 1 FROM records";
            let generation: i64 = self.0.query_row(sql, (), |row| row.get(0)).unwrap();
            let bytes = value.as_bytes();
            let seal =
                super::super::seal::numbered_record_seal(uint(generation), space, SessionNo(0), key, bytes);
            let sql = "INSERT INTO records (generation, space, owner, key, value, seal) VALUES (?1, ?2, 0, ?3, ?4, ?5)";
            self.0.execute(sql, (generation, space, key, bytes, seal)).unwrap();
        }

        fn open(&self, no: u64, name: &str) {
            let seal = Sealed { no, fence: 1, head: 0, last_row: None, chain: START, open: 0 }.seal();
            let sql = "INSERT INTO sessions (no, name, fence, head, chain, open, seal) VALUES (?1, ?2, 1, 0, ?3, 0, ?4)";
            self.0.execute(sql, (int(no), name, START, seal)).unwrap();
        }
    }

    const SETTING: i64 = 3;
    const HERS: &str = r#"{"principal":"alice","title":"Hers"}"#;

    fn fill(older: &Older) {
        for (no, name) in [(1, "used"), (2, "child"), (3, "cut-off"), (4, "nobodys")] {
            older.open(no, name);
        }
        for name in ["used", "child", "claimed", "cut-off", "tidied"] {
            older.put(SETTING, &format!("session/{name}"), HERS);
            older.put(SETTING, &format!("of/alice/{name}"), "");
        }
        let child = r#"{"child":{"parent":"used","depth":1,"settings":["session/child"]}}"#;
        older.put(SETTING, "limits/used", r#"{"calls_running_max":2}"#);
        older.put(SETTING, "limits/child", child);
        older.put(SETTING, "children/used/child", "");
        older.put(SETTING, "children/unheard/of", "");
        older.put(SETTING, "removing/cut-off", r#"{"session":3,"settings":["session/cut-off"]}"#);
        older.put(SETTING, "removing/tidied", r#"{"session":77,"settings":["session/tidied"]}"#);
        older.put(SETTING, "scheduled/used", "");
        older.put(SETTING, "adopted", "4");
        let blob = "0000000000000005";
        older.put(OLDER_ARTIFACT, blob, r#"{"session":1,"digest":"d","media_types":["text/plain"]}"#);
        older.put(Space::Loose.number(), blob, r#"{"session":1,"batch":9,"since_us":7}"#);
        older.put(2, "token", "kept as it is");
    }

    fn migrated() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let path = file::path(folder.path());
        std::fs::File::create_new(&path).unwrap();
        schema::make_as(4, &path, [7; 32]).unwrap();
        fill(&Older(file::connect(&path).unwrap()));
        let store = SqliteStore::open(Options::new(folder.path())).unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn records_of_older_versions_move_to_their_sessions() {
        let (_folder, store) = migrated();
        let principal = async |name: &str| store.session(name).await.unwrap().map(|row| row.principal);
        for name in ["used", "child", "claimed", "cut-off"] {
            assert_eq!(principal(name).await, Some(Some("alice".to_owned())), "{name}");
        }
        assert_eq!((principal("nobodys").await, principal("tidied").await), (Some(None), None));
        let no = async |name: &str| store.session(name).await.unwrap().unwrap().no;
        let value = async |shelf: Shelf, key: &str| {
            store.record(shelf, key).await.unwrap().map(|record| String::from_utf8(record.value).unwrap())
        };
        let used = no("used").await;
        assert_eq!(value(Space::About.of(used), "setting").await.as_deref(), Some(HERS));
        assert_eq!(
            value(Space::About.of(used), "bounds").await.as_deref(),
            Some(r#"{"calls_running_max":2}"#)
        );
        let child = r#"{"child":{"parent":"used","depth":1}}"#;
        assert_eq!(value(Space::About.of(no("child").await), "bounds").await.as_deref(), Some(child));
        assert_eq!(value(Space::Child.of(used), "child").await.as_deref(), Some(""));
        assert_eq!(value(Space::Child.of(no("unheard").await), "of").await.as_deref(), Some(""));
        let removing = store.sessions_with(Space::Removing, None, 9).await.unwrap();
        assert_eq!(removing.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["cut-off"]);
        let gone = store.gone("tidied").await.unwrap();
        assert_eq!(gone, Some(gone_value(store.secret(), "tidied", Some("alice")).to_vec()));
        let blob = windlass_core::ids::BlobNo(5);
        assert_eq!(store.blob_session(blob).await.unwrap(), Some(used));
        let known = r#"{"digest":"d","media_types":["text/plain"]}"#;
        assert_eq!(value(Space::Blob.of(used), &crate::blob_key(blob)).await.as_deref(), Some(known));
        let loose = r#"{"batch":9,"since_us":7}"#;
        assert_eq!(value(Space::Loose.of(used), &crate::blob_key(blob)).await.as_deref(), Some(loose));
        assert_eq!(value(StoreSpace::Token.shelf(), "token").await.as_deref(), Some("kept as it is"));
        let settings = RecordPage { shelf: StoreSpace::Setting.shelf(), prefix: "", after: None, limit: 99 };
        assert_eq!(store.records(settings).await.unwrap(), []);
        let message = crate::Inbound { session: used, key: "m".to_owned(), body: vec![1] };
        assert_eq!(store.post(message).await.unwrap(), Posted::New);
    }

    #[tokio::test]
    async fn damage_is_not_made_good_by_moving_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = file::path(folder.path());
        std::fs::File::create_new(&path).unwrap();
        schema::make_as(4, &path, [7; 32]).unwrap();
        let older = Older(file::connect(&path).unwrap());
        fill(&older);
        older.0.execute("UPDATE records SET value = x'7b7d' WHERE key = 'limits/used'", ()).unwrap();
        drop(older);
        let store = SqliteStore::open(Options::new(folder.path())).unwrap();
        let used = store.session("used").await.unwrap().unwrap().no;
        let read = store.record(Space::About.of(used), ABOUT_BOUNDS).await;
        assert!(matches!(read, Err(crate::StoreError::Damaged { .. })), "{read:?}");
        assert!(records::one(&store.reads.pool, Space::About.of(used), ABOUT_SETTING).unwrap().is_some());
    }

    /// A copy of the file as it was is kept until a store was closed in good order.
    #[tokio::test]
    async fn the_older_file_is_kept_until_the_first_clean_stop() {
        let (folder, store) = migrated();
        let copy = folder.path().join("windlass.db.format-4");
        let older = file::connect(&copy).unwrap();
        assert_eq!(schema::format(&older).unwrap(), 4);
        assert_eq!(schema::definitions_problem(&older).unwrap(), None);
        let count: i64 = older.query_row("SELECT count(*) FROM records", (), |row| row.get(0)).unwrap();
        assert!(count > 15, "{count}");
        drop(older);
        drop(store);
        assert!(!copy.exists());
    }
}
