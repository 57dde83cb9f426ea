//! The surroundings of a batch's calls, as tools and hooks see them.

use crate::api::observer::Observer;
use crate::api::output::ToolError;
use crate::tools::scope::Overlay;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};

/// The surroundings of a batch's calls; shared by all of them.
#[derive(Debug)]
pub(crate) struct BatchPlace {
    pub(crate) session: Arc<str>,
    pub(crate) batch_key: Arc<str>,
    /// The host's inputs for tools and hooks.
    pub(crate) inputs: Option<Map<String, Value>>,
    /// The tools of the batch alone; set again after a restart, when the batch is resubmitted.
    overlay: OnceLock<Arc<Overlay>>,
    /// The observer of its nested calls.
    observer: OnceLock<Observer>,
    /// The observers of single calls, by their ids.
    call_observers: OnceLock<Vec<(String, Observer)>>,
}

impl BatchPlace {
    pub(crate) fn new(
        session: Arc<str>,
        batch_key: Arc<str>,
        inputs: Option<Map<String, Value>>,
    ) -> BatchPlace {
        BatchPlace {
            session,
            batch_key,
            inputs,
            overlay: OnceLock::new(),
            observer: OnceLock::new(),
            call_observers: OnceLock::new(),
        }
    }

    pub(crate) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.get().map(|overlay| &**overlay)
    }

    pub(crate) fn shared_overlay(&self) -> Option<Arc<Overlay>> {
        self.overlay.get().cloned()
    }

    pub(crate) fn observer(&self) -> Option<&Observer> {
        self.observer.get()
    }

    /// Whether somebody observes any of its calls.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.get().is_some() || self.call_observers.get().is_some()
    }

    /// The observer of what this call makes: that of the call, that of the batch, or both.
    pub(crate) fn observer_of(&self, id: &str) -> Option<Observer> {
        let own = self.call_observers.get().into_iter().flatten().find(|(of, _)| of == id);
        match (own.map(|(_, observer)| observer.clone()), self.observer.get().cloned()) {
            (Some(own), Some(all)) => Some(Observer::both(own, all)),
            (own, all) => own.or(all),
        }
    }

    /// Sets the observers of single calls, unless there are some.
    pub(crate) fn observe_calls(&self, observers: Vec<(String, Observer)>) {
        if !observers.is_empty() {
            // The first ones count.
            let _later = self.call_observers.set(observers);
        }
    }

    /// Sets the observer, unless there is one.
    pub(crate) fn observe(&self, observer: Observer) {
        // The first one counts.
        let _later = self.observer.set(observer);
    }

    /// Sets the overlay, unless there is one.
    pub(crate) fn lend(&self, overlay: Arc<Overlay>) -> bool {
        self.overlay.set(overlay).is_ok()
    }

    pub(crate) fn input(&self, name: &str) -> Option<&Value> {
        self.inputs.as_ref()?.get(name)
    }

    pub(crate) fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        let wrong =
            |error| ToolError::internal(format!("the host's input {name:?} is not as expected: {error}"));
        self.input(name).map(T::deserialize).transpose().map_err(wrong)
    }
}
