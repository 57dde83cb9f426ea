//! Questions of one kind that wait at the same time share statements.

use super::{alone, open, outside};
use windlass_store::{Answer, RecordChange, StoreError, StoreSpace, StoredRecord};

/// As many records are asked for at once.
const RECORDS: usize = 300;
/// Those of them for which nobody waits in the end.
const LEFT: usize = 100;
/// The statements that they may take: a few that found nobody else waiting, and those of the rest.
const STATEMENTS_MAX: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_that_wait_share_statements_and_not_their_errors() {
    let Some(cluster) = alone(|_| Ok("log_statement = 'all'\n".to_owned())) else { return };
    let url = cluster.database();
    let (store, outside) = (open(&url).await, outside(&url).await);
    let key = |number: usize| format!("r{number}");
    let puts = (0..RECORDS).map(|number| RecordChange::put(StoreSpace::Setting, key(number), [1]).into());
    assert!(store.commit(puts.collect()).await.unwrap().iter().all(Result::is_ok));
    let damaged = RECORDS / 2;
    let damage = format!("UPDATE windlass.records SET value = 'x' WHERE key = '{}'", key(damaged));
    outside.batch_execute(&damage).await.unwrap();

    let statements = || cluster.log().matches("FROM windlass.records t").count();
    outside.batch_execute("BEGIN; LOCK TABLE windlass.records IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let before = statements();
    let asked: Vec<Answer<Option<StoredRecord>>> =
        (0..RECORDS).map(|number| store.record(StoreSpace::Setting.shelf(), &key(number))).collect();
    let mut asked: Vec<_> = asked.into_iter().enumerate().collect();
    // Whoever does not wait any more keeps nobody waiting.
    drop(asked.drain(..LEFT));
    outside.batch_execute("ROLLBACK").await.unwrap();
    for (number, answer) in asked {
        match answer.await {
            Ok(found) => assert_eq!((number != damaged).then(|| key(number)), found.map(|found| found.key)),
            Err(StoreError::Damaged { what, .. }) => assert_eq!(number, damaged, "{what}"),
            Err(error) => panic!("{number}: {error}"),
        }
    }
    let shared = statements() - before;
    assert!(shared <= STATEMENTS_MAX, "{RECORDS} questions took {shared} statements");
}
