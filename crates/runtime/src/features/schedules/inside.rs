//! Schedules that a running call makes, edits and removes: each by name, done once.

use super::{NewSchedule, ScheduleEdit, ScheduleError, Schedules};
use crate::api::error::chain;
use crate::api::misuse::StepError;
use crate::api::output::ToolError;
use crate::features::tasks::sentence;
use crate::session::cx::Cx;
use serde_json::{Value, json};

impl Cx {
    /// Makes a schedule in the session, once however often the body runs, and returns its id. Durable when this returns.
    ///
    /// ```
    /// # use windlass::schedules::NewSchedule; use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn remind(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let cron = Some("0 9 * * 1".to_string());
    ///     let new = NewSchedule { cron, tool: "report".into(), args, ..NewSchedule::default() };
    ///     let schedule = cx.schedule("weekly", new).await?;
    ///     Ok(json!({ "schedule": schedule }).into())
    /// }
    /// ```
    pub async fn schedule(&self, name: &str, new: NewSchedule) -> Result<String, StepError> {
        let own = || blake3::hash(self.step_key(name).as_bytes()).to_hex()[..16].to_string();
        let id = new.id.clone().unwrap_or_else(own);
        let asked = json!({
            "id": id, "tool": new.tool, "args": new.args, "cron": new.cron, "at": new.at, "zone": new.zone,
            "title": new.title,
        });
        let owner = new.owner.clone().unwrap_or_else(|| format!("call {}", self.handle()));
        let new = NewSchedule { id: Some(id.clone()), owner: Some(owner), ..new };
        self.step(name, asked, |_| async {
            self.with_schedules(|schedules| async move {
                match schedules.get(&id).await {
                    // A repetition finds it, even if its single time is over by now.
                    Ok(there) => Ok(there.id),
                    Err(ScheduleError::NotFound { .. }) => {
                        schedules.create(new).await.map(|(made, _)| made.id)
                    }
                    Err(error) => Err(error),
                }
            })
            .await
        })
        .await
    }

    /// The schedules of the session as they are now, to read them. A replay reads them again.
    pub fn schedules(&self) -> Result<Schedules, ToolError> {
        let gone = || ToolError::new("The runtime is going away; ask again.").safe_to_retry();
        let hold = self.hold.upgrade().ok_or_else(gone)?;
        Ok(Schedules::recorded(hold.rt.store.clone(), &hold.session.name))
    }

    /// Edits a schedule of the session, once however often the body runs. Durable when this returns.
    pub async fn edit_schedule(&self, name: &str, id: &str, edit: ScheduleEdit) -> Result<(), StepError> {
        let asked = json!({ "id": id, "edit": shown(&edit) });
        let id = id.to_string();
        self.step(name, asked, |_| async {
            self.with_schedules(|schedules| async move { schedules.edit(&id, edit).await.map(drop) }).await
        })
        .await
    }

    /// Removes a schedule of the session, once however often the body runs. `false`: there was none. Calls that it has
    /// started continue.
    pub async fn remove_schedule(&self, name: &str, id: &str) -> Result<bool, StepError> {
        let wanted = id.to_string();
        self.step(name, json!({ "id": id }), |_| async {
            self.with_schedules(|schedules| async move { schedules.remove(&wanted).await }).await
        })
        .await
    }

    /// Does something with the session's schedules in a task of the runtime, like all work for a tool: work that has begun
    /// is finished.
    async fn with_schedules<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Schedules) -> F,
    ) -> Result<T, ToolError>
    where
        F: Future<Output = Result<T, ScheduleError>> + Send + 'static,
    {
        let gone = || ToolError::new("The runtime is going away; ask again.").safe_to_retry();
        let hold = self.hold.upgrade().ok_or_else(gone)?;
        let schedules = Schedules::owned(&hold.rt, &hold.session.name);
        let working = hold.rt.tasks.clone().spawn(work(schedules));
        drop(hold);
        working.await.map_err(|_| gone())?.map_err(refused)
    }
}

/// An edit, as it is compared on replay.
fn shown(edit: &ScheduleEdit) -> Value {
    json!({
        "generation": edit.generation, "cron": edit.cron, "at": edit.at, "zone": edit.zone, "args": edit.args,
        "title": edit.title, "enabled": edit.enabled,
    })
}

fn refused(error: ScheduleError) -> ToolError {
    if let ScheduleError::Session(_) | ScheduleError::Batch(_) = error {
        return ToolError::internal(chain(&error));
    }
    if let ScheduleError::Refused(failure) = &error {
        return ToolError::refused(failure);
    }
    ToolError { did_not_happen: true, ..ToolError::new(sentence(&error.to_string())) }
}
