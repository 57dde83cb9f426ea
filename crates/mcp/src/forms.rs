//! Forms that were sent to clients of the older era as requests of ours, and wait for their responses.

use crate::message::RpcError;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The open forms, by the ids of their requests.
#[derive(Default)]
pub(crate) struct OpenForms(Mutex<HashMap<String, AwaitedForm>>);

struct AwaitedForm {
    principal: Arc<str>,
    answer: oneshot::Sender<Value>,
}

/// A form that was sent. Dropping it forgets it.
pub(crate) struct SentForm {
    forms: Arc<OpenForms>,
    pub(crate) id: String,
    answer: oneshot::Receiver<Value>,
}

impl OpenForms {
    /// A new form for this principal.
    pub(crate) fn open(self: &Arc<Self>, principal: &Arc<str>) -> Result<SentForm, RpcError> {
        // Nobody guesses the id of another client's form.
        let id = windlass::batch::fresh_key().map_err(|error| RpcError::internal(&error))?;
        let (sender, answer) = oneshot::channel();
        self.lock().insert(id.clone(), AwaitedForm { principal: principal.clone(), answer: sender });
        Ok(SentForm { forms: self.clone(), id, answer })
    }

    /// Takes a response of a client. One that nobody waits for is dropped.
    pub(crate) fn take(&self, principal: &str, id: &Value, result: Option<Value>) {
        let Some(id) = id.as_str() else { return };
        let mut forms = self.lock();
        if forms.get(id).is_some_and(|form| *form.principal == *principal)
            && let Some(form) = forms.remove(id)
        {
            // A client that could not show it has not answered.
            let _ = form.answer.send(result.unwrap_or_else(|| json!({"action": "cancel"})));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AwaitedForm>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentForm {
    /// Waits for the response.
    pub(crate) async fn answer(mut self) -> Value {
        (&mut self.answer).await.unwrap_or_else(|_| json!({"action": "cancel"}))
    }
}

impl Drop for SentForm {
    fn drop(&mut self) {
        self.forms.lock().remove(&self.id);
    }
}
