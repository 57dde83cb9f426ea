//! Secrets inside a call: handed to the tool by name, and sealed where a step returns one.

use crate::api::misuse::StepError;
use crate::api::secret::{SecretError, SecretValue};
use crate::session::cx::Cx;
use crate::session::vault::SecretScrubber;
use windlass_core::outcome::JsonText;

impl Cx {
    /// The value of a secret that the tool's [declaration](windlass_core::tool::ToolSpec::secrets) lists: the session's own, else that
    /// of a session around it, else the data folder's. It is never recorded: results, logs and everything else that leaves the call
    /// hold `[secret NAME]` instead.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// # async fn deploy_with(token: &str) -> Result<u64, ToolError> { Ok(token.len() as u64) }
    /// async fn deploy(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let token = cx.secret("deploy_token").await?;
    ///     Ok(json!({ "release": deploy_with(token.expose()).await? }).into())
    /// }
    /// ```
    pub async fn secret(&self, name: &str) -> Result<SecretValue, SecretError> {
        if !self.kinds.as_ref().is_some_and(|kinds| kinds.uses_secret(name)) {
            return Err(SecretError::Undeclared { name: name.to_string() });
        }
        let lane = self.artifacts.lane();
        let vault = lane.vault();
        if let Some(hold) = self.hold.upgrade().filter(|hold| hold.rt.may_meet_others()) {
            // Another worker may have stored it for the folder.
            vault.all().read(lane.store(), hold.rt.may_meet_others()).await?;
        }
        let value = vault.value(name)?;
        self.book().guard(vault);
        Ok(value)
    }

    /// Replaces the values of secrets, for tools that shorten text themselves: what is cut off inside a secret is not recognised
    /// afterwards.
    pub fn scrubber(&self) -> SecretScrubber {
        SecretScrubber::new(self.secrets())
    }

    /// The result of a step as it is recorded: sealed if it holds a secret.
    pub(super) fn sealed(&self, name: &str, text: JsonText) -> Result<JsonText, StepError> {
        let vault = self.artifacts.lane().vault();
        if !vault.guards() {
            return Ok(text);
        }
        let sealed = vault.sealed_step(self.call, name, &text).map_err(failed)?;
        Ok(sealed.map_or(text, Into::into))
    }

    /// The recorded result of a step as its body returned it.
    pub(super) fn unsealed(&self, name: &str, text: JsonText) -> Result<JsonText, StepError> {
        let vault = self.artifacts.lane().vault();
        if !vault.guards() {
            return Ok(text);
        }
        let opened = vault.opened_step(self.call, name, &text).map_err(failed)?;
        Ok(opened.map_or(text, Into::into))
    }
}

fn failed(error: SecretError) -> StepError {
    StepError::Failed(error.into_tool_error())
}
