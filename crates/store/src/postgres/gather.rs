//! Questions of one kind that wait at the same time are asked in one statement.
//!
//! A question that comes while few of its kind are under way is asked at once, alone. The others wait for the next statement, which
//! asks all that wait by then: so one question costs what it cost alone, and a thousand cost a few statements. A statement is sent
//! after all its questions were asked, so its answers see every commit that had returned.

use super::readers::{ReadFailure, ReaderConnections, ReaderLink};
use crate::{Answer, StoreError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The statements of one kind that are under way at once.
const STATEMENTS_MAX: usize = 4;

/// The questions of one kind that may wait; more are refused.
const QUESTIONS_MAX: usize = 4_096;

/// A kind of question of which many are asked in one statement.
pub(super) trait GatheredRead: Send + Sync + 'static {
    /// The subject of a question.
    type Key: Clone + Send + Sync + 'static;
    /// The answer to a question.
    type Found: Send + Unpin + 'static;
    /// The operation, for errors.
    const DOING: &'static str;
    /// The most questions of a statement.
    const KEYS_MAX: usize = 256;

    /// The answers, in the order of the keys.
    fn read(client: ReaderLink, keys: Arc<[Self::Key]>) -> impl Future<Output = Read<Self::Found>> + Send;
}

/// The answers of a statement. One of them may be an error, which the others do not share.
pub(super) type Read<T> = Result<Vec<Result<T, StoreError>>, ReadFailure>;

/// The questions of one kind.
pub(super) struct GatheredReads<R: GatheredRead>(Arc<Mutex<WaitingQuestions<R>>>);

struct WaitingQuestions<R: GatheredRead> {
    waiting: VecDeque<GatheredQuestion<R>>,
    /// The number of statements under way.
    statements: usize,
}

struct GatheredQuestion<R: GatheredRead> {
    key: R::Key,
    reply: oneshot::Sender<Result<R::Found, StoreError>>,
}

impl<R: GatheredRead> Default for GatheredReads<R> {
    fn default() -> GatheredReads<R> {
        GatheredReads(Arc::new(Mutex::new(WaitingQuestions { waiting: VecDeque::new(), statements: 0 })))
    }
}

impl<R: GatheredRead> GatheredReads<R> {
    /// Asks one of them.
    pub fn ask(&self, readers: &ReaderConnections, key: R::Key) -> Answer<R::Found> {
        let (reply, answer) = oneshot::channel();
        {
            let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if questions.waiting.len() >= QUESTIONS_MAX {
                let because = format!("{QUESTIONS_MAX} queries wait for the database").into();
                return Answer::ready(Err(StoreError::Stalled { because }));
            }
            questions.waiting.push_back(GatheredQuestion { key, reply });
            if questions.statements >= STATEMENTS_MAX {
                return Answer::reply(answer);
            }
            questions.statements += 1;
        }
        readers.spawn(answer_all(Arc::clone(&self.0), readers.clone()));
        Answer::reply(answer)
    }
}

/// Asks statement after statement while questions wait.
async fn answer_all<R: GatheredRead>(shared: Arc<Mutex<WaitingQuestions<R>>>, readers: ReaderConnections) {
    while let Some(questions) = next(&shared) {
        let (keys, mut replies): (Vec<_>, Vec<_>) =
            questions.into_iter().map(|question| (question.key, question.reply)).unzip();
        let answers = tokio::select! {
            biased;
            // A statement waits for its server however long that is away, but not for callers that are gone.
            () = all_gone(&mut replies) => continue,
            answers = answers::<R>(&readers, keys.into()) => answers,
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // If the caller is gone, nobody needs the answer.
            drop(reply.send(answer));
        }
    }
}

/// The questions of the next statement; `None`: there are none, and the caller is counted no more.
fn next<R: GatheredRead>(shared: &Mutex<WaitingQuestions<R>>) -> Option<Vec<GatheredQuestion<R>>> {
    let mut questions = shared.lock().unwrap_or_else(PoisonError::into_inner);
    questions.waiting.retain(|question| !question.reply.is_closed());
    let count = questions.waiting.len().min(R::KEYS_MAX);
    if count == 0 {
        questions.statements -= 1;
        return None;
    }
    Some(questions.waiting.drain(..count).collect())
}

/// Waits until nobody waits for an answer any more.
async fn all_gone<T>(replies: &mut [oneshot::Sender<T>]) {
    for reply in replies {
        reply.closed().await;
    }
}

/// The answers to the questions of a statement. If it failed, each is asked alone: the others may not share the reason.
async fn answers<R: GatheredRead>(
    readers: &ReaderConnections,
    keys: Arc<[R::Key]>,
) -> Vec<Result<R::Found, StoreError>> {
    match ask::<R>(readers, Arc::clone(&keys)).await {
        Ok(answers) => answers,
        Err(error) if keys.len() == 1 => vec![Err(error)],
        Err(_) => {
            let mut answers = Vec::with_capacity(keys.len());
            for key in keys.iter() {
                let answer = ask::<R>(readers, Arc::new([key.clone()])).await;
                answers.push(answer.and_then(|mut one| one.pop().unwrap_or(Err(StoreError::Closed))));
            }
            answers
        }
    }
}

fn ask<R: GatheredRead>(
    readers: &ReaderConnections,
    keys: Arc<[R::Key]>,
) -> Answer<Vec<Result<R::Found, StoreError>>> {
    readers.ask(R::DOING, move |client| R::read(client, Arc::clone(&keys)))
}
