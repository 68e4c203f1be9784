// SPDX-License-Identifier: GPL-2.0

//! The service that answers requests over the socket.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{anyhow, Context as _};
use mflow_hike::Facts;
use tokio::sync::watch;
use tokio::task;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::configuration::objects::{differences, Kind, Objects};
use crate::configuration::{Configuration, Problem};
use crate::devices::Devices;
use crate::manager::{DeviceStatus, Manager};
use crate::metrics::Counted;
use crate::proto::Numbered as _;
use crate::results;
use crate::sessions::Sessions;
use crate::{metrics, say, v1};

type Answer<T> = Result<Response<T>, Status>;
type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The state that is shown to clients that watch.
#[derive(Clone, Debug)]
struct State {
    revision: u64,
    objects: Arc<Objects>,
}

/// The senders of all that others follow.
#[derive(Debug)]
struct Followed {
    state: watch::Sender<State>,
    sessions: Sessions,
}

impl Followed {
    /// Tells those who follow what there is now. The sessions of test packets are those of the configuration when this returns.
    fn tell(&self, manager: &Manager) {
        self.sessions.set(&manager.configuration().sessions);
        self.state.send_replace(state(manager));
    }
}

/// The service. Transactions take turns; reading waits for them.
#[derive(Clone, Debug)]
pub struct Service {
    manager: Arc<Mutex<Manager>>,
    followed: Arc<Followed>,
}

impl Service {
    /// Serves what a manager has, and runs the sessions of test packets that are configured. It has to be called within a runtime.
    pub fn new(manager: Manager) -> Self {
        let followed = Followed {
            state: watch::Sender::new(state(&manager)),
            sessions: Sessions::default(),
        };
        followed.tell(&manager);
        Self {
            manager: Arc::new(Mutex::new(manager)),
            followed: Arc::new(followed),
        }
    }

    /// Runs what waits for the kernel where it holds up nobody else.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Manager) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let manager = Arc::clone(&self.manager);
        let work = move || {
            // A transaction that has panicked is one that was killed: what it has left is settled by the next.
            let mut manager = manager.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut manager)
        };
        let done = task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    }

    async fn transaction(
        &self,
        revision: Option<u64>,
        wanted: impl FnOnce(&Manager) -> Result<Configuration, Status> + Send + 'static,
    ) -> Answer<v1::ApplyResponse> {
        let devices = devices().await?;
        let followed = Arc::clone(&self.followed);
        let done = self.with(move |manager| {
            if let Some(revision) = revision.filter(|one| *one != manager.revision()) {
                return Err(Status::aborted(format!(
                    "revision {revision} has passed, there is {}; read again what there is",
                    manager.revision()
                )));
            }
            let wanted = wanted(manager)?;
            let applied = manager
                .apply(wanted, &devices)
                .map_err(|error| refused(&error))?;
            applied.warnings.iter().for_each(say);
            followed.tell(manager);
            Ok(v1::ApplyResponse {
                revision: manager.revision(),
                changes: applied.changes.into_iter().map(Into::into).collect(),
                warnings: applied.warnings,
            })
        });
        done.await.map(Response::new)
    }

    /// Does what is configured for devices that have come, or applies a file as long as nothing is configured. Returns what should be
    /// told.
    pub async fn devices_changed(&self, devices: Devices, file: PathBuf) -> Vec<String> {
        let followed = Arc::clone(&self.followed);
        let done = self.with(move |manager| {
            let before = manager.revision();
            let said = match before {
                0 => manager.apply_file(&file, &devices),
                _ => manager.devices_changed(&devices),
            };
            if manager.revision() != before {
                followed.tell(manager);
            }
            Ok(said.unwrap_or_else(|error| vec![format!("{error:#}")]))
        });
        done.await
            .unwrap_or_else(|status| vec![status.message().to_owned()])
    }

    /// Makes tables say what this host is now. Returns what keeps them from it.
    pub async fn follow(&self) -> Option<String> {
        let done = self.with(|manager| Ok(manager.follow())).await;
        match done {
            Ok(done) => done.err().map(|error| format!("{error:#}")),
            Err(status) => Some(status.message().to_owned()),
        }
    }

    /// Tells the programs of the host's routing, which has changed. Returns what should be told.
    pub async fn routing_changed(&self, facts: Facts) -> Option<String> {
        let done = self.with(move |manager| {
            let done = manager.routing_changed(facts);
            Ok(done.err().map(|error| format!("{error:#}")))
        });
        done.await
            .unwrap_or_else(|status| Some(status.message().to_owned()))
    }

    async fn counts(&self, names: Vec<String>) -> Result<Vec<v1::Result>, Status> {
        self.with(move |manager| counts(manager, &names).map_err(|error| refused(&error)))
            .await
    }
}

#[tonic::async_trait]
impl v1::manager_server::Manager for Service {
    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        let got = self.with(|manager| {
            let configuration = &manager.configuration();
            Ok(v1::GetResponse {
                revision: manager.revision(),
                configuration: Some(configuration.into()),
            })
        });
        got.await.map(Response::new)
    }

    type ListStream = ReplyStream<v1::ListResponse>;

    async fn list(&self, request: Request<v1::ListRequest>) -> Answer<Self::ListStream> {
        let kind = Kind::or_none(request.into_inner().kind);
        let kind = kind.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let objects = self
            .with(move |manager| Ok(manager.configuration().messages(kind)))
            .await?;
        let objects = objects.into_iter().map(Some);
        let objects = objects.map(|object| Ok(v1::ListResponse { object }));
        Ok(Response::new(Box::pin(tokio_stream::iter(objects))))
    }

    type WatchStream = ReplyStream<v1::WatchResponse>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let mut known: Option<State> = None;
        let states = WatchStream::new(self.followed.state.subscribe());
        let changes = states.filter_map(move |state| {
            let nothing = Objects::new();
            let before = known.as_ref().map_or(&nothing, |known| &known.objects);
            let changes = differences(before, &state.objects);
            let is_news = known
                .as_ref()
                .is_none_or(|known| known.revision != state.revision);
            let revision = state.revision;
            known = Some(state);
            is_news.then(|| {
                Ok(v1::WatchResponse {
                    revision,
                    changes: changes.into_iter().map(Into::into).collect(),
                })
            })
        });
        Ok(Response::new(Box::pin(changes)))
    }

    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Answer<v1::ApplyResponse> {
        let request = request.into_inner();
        let wanted = configuration(request.configuration)?;
        self.transaction(request.revision, |_| Ok(wanted)).await
    }

    async fn change(&self, request: Request<v1::ChangeRequest>) -> Answer<v1::ApplyResponse> {
        let request = request.into_inner();
        let wanted = move |manager: &Manager| {
            if !manager.is_known() {
                return Err(Status::failed_precondition(format!(
                    "what revision {} is cannot be said, so no part of it can be changed; apply a whole configuration",
                    manager.revision()
                )));
            }
            let changed = || {
                let mut configuration = manager.configuration();
                for operation in request.operations {
                    configuration.change(operation)?;
                }
                configuration.checked()
            };
            changed().map_err(|error: Problem| bad(&error))
        };
        self.transaction(request.revision, wanted).await
    }

    async fn diff(&self, request: Request<v1::DiffRequest>) -> Answer<v1::DiffResponse> {
        let wanted = request.into_inner().configuration;
        let wanted = wanted.map(|one| configuration(Some(one))).transpose()?;
        let devices = devices().await?;
        let found = self.with(move |manager| {
            let wanted = wanted.unwrap_or_else(|| manager.configuration());
            let actual = manager.actual(&devices).map_err(|error| refused(&error))?;
            let differences = differences(&actual, &wanted.objects());
            Ok(v1::DiffResponse {
                revision: manager.revision(),
                differences: differences.into_iter().map(Into::into).collect(),
            })
        });
        found.await.map(Response::new)
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let devices = devices().await?;
        let status = self.with(move |manager| {
            let status = manager.status(&devices).map_err(|error| refused(&error))?;
            Ok(v1::StatusResponse {
                revision: manager.revision(),
                devices: status.into_iter().map(Into::into).collect(),
            })
        });
        status.await.map(Response::new)
    }

    async fn results(&self, request: Request<v1::ResultsRequest>) -> Answer<v1::ResultsResponse> {
        let results = self.counts(request.into_inner().monitors).await?;
        Ok(Response::new(v1::ResultsResponse { results }))
    }

    async fn counters(&self, _: Request<v1::CountersRequest>) -> Answer<v1::CountersResponse> {
        let counters = self.with(|manager| {
            let Some(generation) = manager.generation() else {
                return Ok(Vec::new());
            };
            let reasons = generation.reasons().map_err(|error| refused(&error))?;
            let counters = reasons.into_iter().map(|(reason, packets)| v1::Counter {
                reason: reason.name.to_owned(),
                fate: v1::Fate::from(reason.fate).into(),
                meaning: reason.meaning.to_owned(),
                packets,
            });
            Ok(counters.collect())
        });
        let counters = counters.await?;
        Ok(Response::new(v1::CountersResponse { counters }))
    }

    async fn rules(&self, _: Request<v1::RulesRequest>) -> Answer<v1::RulesResponse> {
        let rules = self.with(|manager| {
            let counts = rule_counts(manager).map_err(|error| refused(&error))?;
            let configuration = manager.configuration();
            let rules = configuration.rules.iter().zip(counts);
            let rules = rules.map(|(rule, packets)| v1::RuleCount {
                rule: Some(rule.into()),
                packets,
            });
            Ok(rules.collect())
        });
        let rules = rules.await?;
        Ok(Response::new(v1::RulesResponse { rules }))
    }

    async fn local_sids(&self, _: Request<v1::LocalSidsRequest>) -> Answer<v1::LocalSidsResponse> {
        let sids = self.with(|manager| sids(manager).map_err(|error| refused(&error)));
        let sids = sids.await?;
        Ok(Response::new(v1::LocalSidsResponse { sids }))
    }

    async fn sessions(
        &self,
        request: Request<v1::SessionsRequest>,
    ) -> Answer<v1::SessionsResponse> {
        let results = self
            .followed
            .sessions
            .results(&request.into_inner().sessions);
        let sessions = results.map_err(|error| refused(&error))?;
        Ok(Response::new(v1::SessionsResponse { sessions }))
    }

    async fn metrics(&self, _: Request<v1::MetricsRequest>) -> Answer<v1::MetricsResponse> {
        let sessions = self.followed.sessions.results(&[]);
        let sessions = sessions.map_err(|error| refused(&error))?;
        let text = self.with(move |manager| {
            let reasons = match manager.generation() {
                Some(generation) => generation.reasons(),
                None => Ok(Vec::new()),
            };
            let text = reasons.and_then(|reasons| {
                let rules = rule_counts(manager)?;
                let rules: Vec<_> = manager
                    .configuration()
                    .rules
                    .iter()
                    .map(|rule| rule.action)
                    .zip(rules)
                    .collect();
                metrics::text(&Counted {
                    revision: manager.revision(),
                    reasons: &reasons,
                    rules: &rules,
                    monitors: &counts(manager, &[])?,
                    sids: &sids(manager)?,
                    sessions: &sessions,
                })
            });
            text.map_err(|error| refused(&error))
        });
        let text = text.await?;
        Ok(Response::new(v1::MetricsResponse { text }))
    }
}

impl From<DeviceStatus> for v1::DeviceStatus {
    fn from(status: DeviceStatus) -> Self {
        let mode = status.mode.map_or(v1::XdpMode::Unspecified, Into::into);
        Self {
            name: status.name,
            attached: status.attached,
            mode: mode.into(),
        }
    }
}

fn state(manager: &Manager) -> State {
    State {
        revision: manager.revision(),
        objects: Arc::new(manager.configuration().objects()),
    }
}

fn counts(manager: &Manager, names: &[String]) -> anyhow::Result<Vec<v1::Result>> {
    match manager.generation() {
        Some(generation) => results::counts(generation, &manager.configuration(), names),
        None => match names.first() {
            Some(name) => Err(anyhow!("there is no monitor {name}")),
            None => Ok(Vec::new()),
        },
    }
}

fn sids(manager: &Manager) -> anyhow::Result<Vec<v1::LocalSid>> {
    match manager.generation() {
        Some(generation) => {
            results::sids(generation, &manager.configuration(), &manager.sid_numbers())
        }
        None => Ok(Vec::new()),
    }
}

/// Returns how many packets each rule has decided on.
fn rule_counts(manager: &Manager) -> anyhow::Result<Vec<u64>> {
    match manager.generation() {
        Some(generation) => generation.rule_hits(manager.configuration().rules.len()),
        None => Ok(Vec::new()),
    }
}

fn configuration(message: Option<v1::Configuration>) -> Result<Configuration, Status> {
    let message = message.context("a configuration has to be there, even if it is empty");
    let message = message.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let configuration = Configuration::try_from(message).and_then(Configuration::checked);
    configuration.map_err(|error| bad(&error))
}

async fn devices() -> Result<Devices, Status> {
    Devices::read().await.map_err(|error| refused(&error))
}

/// Returns the status for a configuration that cannot be.
fn bad(problem: &Problem) -> Status {
    Status::invalid_argument(problem.to_string())
}

/// Returns the status for something that this host cannot do now; of the kernel verifier's output it has the first line.
fn refused(error: &anyhow::Error) -> Status {
    let text = format!("{error:#}");
    Status::failed_precondition(text.lines().next().unwrap_or_default())
}
