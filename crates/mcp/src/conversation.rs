//! The answer to one request, message by message.

use serde_json::Value;
use std::pin::Pin;
use std::task::{Context, Waker};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Progress that waits to be sent; more would be old by the time it is.
const MESSAGES_MAX: usize = 4;

/// The messages that answer one request: progress, then the answer. Whoever takes them to the end (`None` behind the answer)
/// has delivered it; whoever drops this before has not.
pub struct Conversation {
    messages: mpsc::Receiver<OutgoingMessage>,
    fate: Option<mpsc::Sender<Fate>>,
    is_answered: bool,
    work: Option<ConversationWork>,
}

/// The work that makes the messages. Whoever takes them polls it, which saves a quick call two changes of threads; once nobody takes
/// them any more it goes on by itself, so that a client that leaves leaves nothing half done.
struct ConversationWork(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl ConversationWork {
    /// Polls it; it is gone once it is over.
    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            self.0 = None;
        }
    }
}

impl Drop for ConversationWork {
    fn drop(&mut self) {
        // Without a runtime nothing is left to go on with.
        if let (Some(work), Ok(threads)) = (self.0.take(), Handle::try_current()) {
            threads.spawn(work);
        }
    }
}

/// A message on its way to the client.
pub(crate) enum OutgoingMessage {
    /// One before the answer.
    Progress(Value),
    Answer(Value),
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The answer was written to its end.
    Delivered,
    /// The client closed the connection.
    Left,
    /// The client cancelled the request.
    Cancelled,
}

/// The side of a conversation that speaks.
pub(crate) struct ConversationVoice(mpsc::Sender<OutgoingMessage>);

/// The side of a conversation that hears how it ends.
pub(crate) struct FateListener(mpsc::Receiver<Fate>);

/// Cancels a request from outside its conversation.
#[derive(Clone)]
pub(crate) struct Canceller(mpsc::WeakSender<Fate>);

impl Canceller {
    pub(crate) fn cancel(&self) {
        if let Some(fate) = self.0.upgrade() {
            // Full: it is over already.
            let _ = fate.try_send(Fate::Cancelled);
        }
    }
}

impl Conversation {
    /// The sides of a new conversation.
    pub(crate) fn begin() -> (Conversation, ConversationVoice, FateListener) {
        let (spoken, messages) = mpsc::channel(MESSAGES_MAX);
        let (fate, fates) = mpsc::channel(1);
        let heard = Conversation { messages, fate: Some(fate), is_answered: false, work: None };
        (heard, ConversationVoice(spoken), FateListener(fates))
    }

    /// With the work that makes its messages.
    pub(crate) fn made_by(self, work: impl Future<Output = ()> + Send + 'static) -> Conversation {
        Conversation { work: Some(ConversationWork(Some(Box::pin(work)))), ..self }
    }

    pub(crate) fn canceller(&self) -> Option<Canceller> {
        self.fate.as_ref().map(|fate| Canceller(fate.downgrade()))
    }

    /// The next message; `None` once the answer was taken, or if there will be none because the request was cancelled.
    pub async fn next(&mut self) -> Option<Value> {
        if self.is_answered {
            self.delivered();
            return None;
        }
        let taken = std::future::poll_fn(|cx| {
            if let Some(work) = &mut self.work {
                work.poll(cx);
            }
            self.messages.poll_recv(cx)
        });
        match taken.await? {
            OutgoingMessage::Progress(message) => Some(message),
            OutgoingMessage::Answer(message) => {
                self.is_answered = true;
                Some(message)
            }
        }
    }
}

impl Conversation {
    /// Whether the answer was taken: then there is no further message.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Notes that the answer, which was taken, has reached the client.
    pub fn delivered(&mut self) {
        if let Some(fate) = self.fate.take() {
            // Full: the client cancelled it before.
            let _ = fate.try_send(Fate::Delivered);
        }
        // What is left to be done waits for nobody here: if it is not over at once, it goes on by itself.
        if let Some(mut work) = self.work.take() {
            work.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl ConversationVoice {
    /// Sends progress, unless the client is too slow to take it.
    pub(crate) fn progress(&self, message: Value) {
        let _ = self.0.try_send(OutgoingMessage::Progress(message));
    }

    /// Sends a message before the answer, as soon as the client takes it; `false` if it is gone.
    pub(crate) async fn tell(&self, message: Value) -> bool {
        self.0.send(OutgoingMessage::Progress(message)).await.is_ok()
    }

    /// Sends the answer, and waits until it is delivered or the client has gone.
    pub(crate) async fn answer(self, message: Value, listener: &mut FateListener) -> Fate {
        // Nobody takes it: the listener hears that, too.
        let _ = self.0.send(OutgoingMessage::Answer(message)).await;
        listener.fate().await
    }
}

impl FateListener {
    /// Waits for the end of the conversation.
    pub(crate) async fn fate(&mut self) -> Fate {
        self.0.recv().await.unwrap_or(Fate::Left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn an_answer_is_delivered_once_it_was_taken_to_the_end() {
        let (mut heard, voice, mut listener) = Conversation::begin();
        voice.progress(json!(1));
        let speaking = tokio::spawn(async move { voice.answer(json!("answer"), &mut listener).await });
        assert_eq!(heard.next().await, Some(json!(1)));
        assert_eq!(heard.next().await, Some(json!("answer")));
        assert!(!speaking.is_finished(), "whoever has the answer may still fail to send it");
        assert_eq!(heard.next().await, None);
        assert_eq!(speaking.await.expect("no panic"), Fate::Delivered);
    }

    #[tokio::test]
    async fn who_leaves_or_cancels_before_has_no_answer() {
        let (mut heard, voice, mut listener) = Conversation::begin();
        let speaking = tokio::spawn(async move { voice.answer(json!("answer"), &mut listener).await });
        assert!(heard.next().await.is_some());
        drop(heard);
        assert_eq!(speaking.await.expect("no panic"), Fate::Left);
        let (heard, _voice, mut listener) = Conversation::begin();
        heard.canceller().expect("it goes on").cancel();
        assert_eq!(listener.fate().await, Fate::Cancelled);
    }
}
