//! Secrets of sessions and of the whole data folder: stored encrypted, listed by name, never given back.

use crate::api::error::{Lost, SessionError};
use crate::api::secret::{SecretError, SecretValue, check_secret_name, check_secret_value};
use crate::session::inner::{Inner, Runtime};
use crate::session::owner::Session;
use crate::session::vault::{HomeSecrets, SecretHome, recorded_names};
use crate::tools::request::check_session_name;
use std::sync::Arc;
use windlass_store::{RecordChange, Row, Space, StoreSpace};

/// A stored secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
pub struct SecretEntry {
    /// Its name.
    pub name: String,
}

/// The secrets of one session. See [`Runtime::secrets`].
pub struct SessionSecrets {
    rt: Arc<Inner>,
    session: String,
}

/// The secrets of the whole data folder. See [`Runtime::folder_secrets`].
pub struct FolderSecrets {
    rt: Arc<Inner>,
}

impl Runtime {
    /// The secrets of the session of this name. Its tools use them by name; the first one that is stored opens the session.
    ///
    /// ```
    /// # use windlass::secrets::{SecretKey, SecretKeySource}; use windlass::store::memory::MemoryStore; use windlass::{Config, Runtime};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let secret_key = SecretKeySource::Key(SecretKey::random()?);
    /// # let runtime = Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new()?) });
    /// let secrets = runtime.secrets("demo");
    /// secrets.set("deploy_token", "0f9a-22c1-77").await?;
    /// assert_eq!(secrets.list().await?[0].name, "deploy_token");
    /// assert!(secrets.remove("deploy_token").await?);
    /// # Ok(()) }
    /// ```
    pub fn secrets(&self, session: &str) -> SessionSecrets {
        SessionSecrets { rt: self.0.clone(), session: session.to_string() }
    }

    /// The secrets that tools of all sessions use, unless a session has one of the same name.
    pub fn folder_secrets(&self) -> FolderSecrets {
        FolderSecrets { rt: self.0.clone() }
    }
}

impl SessionSecrets {
    /// Stores a secret, or replaces its value. Durable when this returns; calls that start from now on use it.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), SecretError> {
        check_secret_name(name)?;
        check_secret_value(value, &self.rt.limits)?;
        let (session, home) = self.home().await?;
        let _alone = home.writing.lock().await;
        let (value, sealed) = begin(&self.rt, &home, name, value).await?;
        let row = Row::Put { space: Space::Secret, key: name.to_string(), value: sealed.into() };
        session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
        self.rt.secrets.put(&home, name, Some(value));
        Ok(())
    }

    /// Removes a secret. `false`: there was none.
    pub async fn remove(&self, name: &str) -> Result<bool, SecretError> {
        check_secret_name(name)?;
        check_session_name(&self.session)?;
        if self.rt.store.session(&self.session).await?.is_none() {
            return Ok(false);
        }
        let (session, home) = self.home().await?;
        let _alone = home.writing.lock().await;
        if !home.names().iter().any(|known| known == name) {
            return Ok(false);
        }
        let row = Row::Remove { space: Space::Secret, key: name.to_string() };
        session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
        self.rt.secrets.put(&home, name, None);
        Ok(true)
    }

    /// The names of the session's own secrets, in order.
    pub async fn list(&self) -> Result<Vec<SecretEntry>, SecretError> {
        check_session_name(&self.session)?;
        let Some(row) = self.rt.store.session(&self.session).await? else { return Ok(Vec::new()) };
        list(&self.rt, SecretHome::Session(row.no)).await
    }

    async fn home(&self) -> Result<(Arc<Session>, Arc<HomeSecrets>), SecretError> {
        let session = self.rt.session(&self.session).await?;
        session.check_stays().map_err(SessionError::from)?;
        let home = session.lane.vault().own().cloned();
        // Every session that was taken has them.
        let home = home.ok_or(SecretError::NoKey)?;
        Ok((session, home))
    }
}

impl FolderSecrets {
    /// Stores a secret, or replaces its value. Durable when this returns; calls that start from now on use it.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), SecretError> {
        check_secret_name(name)?;
        check_secret_value(value, &self.rt.limits)?;
        self.read().await?;
        let home = self.rt.secrets.folder().clone();
        let _alone = home.writing.lock().await;
        let (value, sealed) = begin(&self.rt, &home, name, value).await?;
        self.commit(RecordChange::put(StoreSpace::FolderSecret, name, sealed)).await?;
        self.rt.secrets.put(&home, name, Some(value));
        Ok(())
    }

    /// Removes a secret. `false`: there was none.
    pub async fn remove(&self, name: &str) -> Result<bool, SecretError> {
        check_secret_name(name)?;
        self.read().await?;
        let home = self.rt.secrets.folder().clone();
        let _alone = home.writing.lock().await;
        if !home.names().iter().any(|known| known == name) {
            return Ok(false);
        }
        self.commit(RecordChange::remove(StoreSpace::FolderSecret, name)).await?;
        self.rt.secrets.put(&home, name, None);
        Ok(true)
    }

    /// The value of a secret, for the host itself: a connection that all sessions share is opened with it.
    pub async fn value(&self, name: &str) -> Result<SecretValue, SecretError> {
        check_secret_name(name)?;
        self.read().await?;
        self.rt.secrets.folder_value(name)
    }

    /// The names of the folder's secrets, in order.
    pub async fn list(&self) -> Result<Vec<SecretEntry>, SecretError> {
        list(&self.rt, SecretHome::Folder).await
    }

    async fn read(&self) -> Result<(), SecretError> {
        Ok(self.rt.secrets.read(&*self.rt.store, self.rt.may_meet_others()).await?)
    }

    async fn commit(&self, change: RecordChange) -> Result<(), SecretError> {
        let receipts = self.rt.store.commit(vec![change.into()]).await?;
        let refused = receipts.into_iter().try_for_each(|receipt| receipt.map(drop));
        Ok(refused.map_err(|refused| SessionError::from(Lost::Refused(refused)))?)
    }
}

/// Checks that there is room and a key; from now on the value is recognised wherever it appears.
async fn begin(
    rt: &Inner,
    home: &HomeSecrets,
    name: &str,
    value: &str,
) -> Result<(SecretValue, Vec<u8>), SecretError> {
    let max = rt.limits.secrets_max;
    if home.count_without(name) >= max {
        return Err(SecretError::Full { max });
    }
    let key = rt.secrets.key_or_new()?;
    let sealed = home.sealed(&key, name, value)?;
    rt.secrets.mark_used(&*rt.store).await?;
    let value = SecretValue::new(value.to_string());
    rt.secrets.expect(home, name, &value);
    Ok((value, sealed))
}

async fn list(rt: &Inner, home: SecretHome) -> Result<Vec<SecretEntry>, SecretError> {
    let names = recorded_names(&*rt.store, home).await?;
    Ok(names.into_iter().map(|name| SecretEntry { name }).collect())
}
