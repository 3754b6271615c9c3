//! `GET /metrics`: all numbers at one moment, in the text format of Prometheus. No token, no ids, no subjects.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use task_broker_core::Status;

use super::App;
use crate::auth::Source;
use crate::broker::BrokerStats;
use crate::histogram::HistogramSnapshot;
use crate::process::ProcessStats;
use crate::stderr;
use crate::store::{EmbeddedStats, FOLLOWER_STAGES, Health};

/// What an answer of this path begins with in memory; it grows where that is not enough.
const USUAL_BYTES: usize = 64 * 1024;

/// How many microseconds a second has.
const MICROS_PER_SECOND: f64 = 1e6;

/// Answers a scrape.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let broker = app.broker.stats().await;
    let scrape = Scrape { app, broker, process: ProcessStats::read() };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let mut text = String::with_capacity(USUAL_BYTES);
    let written = prometheus_text::encode(&mut text, &registry);
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(prometheus_text::CONTENT_TYPE));
    if written.is_err() {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response
}

/// Everything that one answer tells.
#[derive(Debug)]
struct Scrape {
    app: Arc<App>,
    broker: BrokerStats,
    process: ProcessStats,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer(encoder);
        self.calls(&mut writer)?;
        self.load(&mut writer)?;
        self.tasks(&mut writer)?;
        if let Some(store) = &self.broker.store.embedded {
            embedded(store, &mut writer)?;
        }
        self.process(&mut writer)
    }
}

impl Scrape {
    fn calls(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let metrics = &self.app.metrics;
        let calls =
            metrics.calls().map(|(method, outcome, n)| ([("method", method), ("outcome", outcome)], n));
        writer.counters("task_broker_requests", "Calls that were answered, by method and outcome", calls)?;
        let latencies = metrics.latencies().map(|(method, seen)| ([("method", method)], seen));
        let help = "How long a call took from its parsed envelope to its answer; waits include the waiting";
        writer.times("task_broker_request_duration_seconds", help, latencies)?;
        let refusals = metrics.refusals().map(|(status, n)| ([("status", status)], n));
        writer.counters("task_broker_http_refusals", "HTTP answers with an error status, by status", refusals)
    }

    fn load(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let app = &self.app;
        writer.gauge(
            "task_broker_requests_in_progress",
            "Calls that are being worked on",
            app.places.taken(),
        )?;
        writer.gauge("task_broker_waits", "Open store/wait calls", self.broker.waits)?;
        writer.gauge("task_broker_streams", "Open streams", self.broker.streams)?;
        writer.gauge("task_broker_connections", "Open connections", app.connections.open())?;
        let may_serve = !app.is_draining() && app.auth.keyring().is_complete();
        let ready = may_serve && app.broker.health() == Health::Ready;
        writer.gauge("task_broker_ready", "Whether /readyz is green", usize::from(ready))?;
        let (keyring, now) = (app.auth.keyring(), app.clock.now());
        let ages = [("file", Source::File), ("server", Source::Server)]
            .into_iter()
            .filter_map(|(name, source)| Some(([("source", name)], keyring.age(source, now)?.as_secs())));
        let help =
            "How long ago a key set was last known to be the newest, in seconds, by where it comes from";
        writer.gauges("task_broker_key_set_age_seconds", help, ages)
    }

    fn tasks(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let store = &self.broker.store;
        let tasks = Status::ALL.iter().zip(store.tasks);
        let tasks = tasks.map(|(status, count)| ([("status", super::rpc::status_word(*status))], count));
        let help = "Tasks that are kept, by status; expired ones until they are removed";
        writer.gauges("task_broker_tasks", help, tasks)?;
        let help = "Bytes of all tasks, as quotas count them";
        writer.gauge("task_broker_task_bytes", help, store.task_bytes)?;
        let help = "Tasks that have expired and are still to be removed";
        writer.gauge("task_broker_expired_tasks", help, store.expired)
    }

    fn process(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let app = &self.app;
        let help = "How far the broker's clock is ahead of the system's, in seconds";
        writer.seconds("task_broker_clock_ahead_seconds", help, MetricType::Gauge, app.clock.ahead_ms())?;
        let (now, started) = (app.clock.now(), app.started);
        let millis = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let help = "How long the broker has been serving, in seconds";
        let uptime = millis(now.saturating_since(started));
        writer.seconds("task_broker_uptime_seconds", help, MetricType::Gauge, uptime)?;
        let help = "When the broker began to serve, in seconds since 1970";
        let since = millis(started.as_millis());
        writer.seconds("process_start_time_seconds", help, MetricType::Gauge, since)?;
        let process = &self.process;
        if let Some(bytes) = process.resident_bytes {
            writer.gauge("process_resident_memory_bytes", "Memory in use, in bytes", bytes)?;
        }
        if let Some(files) = process.open_files {
            writer.gauge("process_open_fds", "Open files and sockets", files)?;
        }
        if let Some(files) = process.max_files {
            writer.gauge("process_max_fds", "How many files and sockets may be open", files)?;
        }
        if let Some(time) = process.cpu_ms {
            let help = "Time on processors, in seconds";
            writer.seconds("process_cpu_seconds", help, MetricType::Counter, millis(time))?;
        }
        let help = "Lines of the log that were lost because nobody read them, or they could not be written";
        writer.counter("task_broker_log_lines_dropped", help, stderr::lost_lines())?;
        if let Some(traces) = &app.traces {
            let help = "Exports of traces that failed; their spans were dropped";
            writer.counter("task_broker_trace_export_failures", help, traces.failures())?;
        }
        let build = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        writer.gauges("task_broker_build_info", "The version that is running", build)
    }
}

fn embedded(store: &EmbeddedStats, writer: &mut Writer<'_>) -> fmt::Result {
    let help = "How long it took to make a group of commands durable, in seconds";
    writer.histogram("task_broker_store_commit_duration_seconds", help, &store.commits, MICROS_PER_SECOND)?;
    let help = "How many commands shared a commit";
    writer.histogram("task_broker_store_group_commands", help, &store.group_commands, 1.0)?;
    writer.gauge(
        "task_broker_store_queue_commands",
        "Commands that wait for the writer",
        store.queue_commands,
    )?;
    let help = "Payload bytes of commands that wait or are worked on";
    writer.gauge("task_broker_store_queue_bytes", help, store.queue_bytes)?;
    let help = "Bytes written of the journal's current file";
    writer.gauge("task_broker_store_journal_bytes", help, store.journal_bytes)?;
    let help = "Length of the journal's current file, in bytes";
    writer.gauge("task_broker_store_journal_capacity_bytes", help, store.journal_capacity_bytes)?;
    let stages = FOLLOWER_STAGES.map(|stage| ([("stage", stage)], u64::from(stage == store.follower)));
    writer.gauges(
        "task_broker_store_follower",
        "1 for what carries the journal into sled does now",
        stages,
    )?;
    if let Some(bytes) = store.disk_bytes {
        writer.gauge("task_broker_store_disk_bytes", "What the store takes on the disk", bytes)?;
    }
    if let Some(bytes) = store.free_bytes {
        writer.gauge("task_broker_store_free_bytes", "Room that is left for it on the disk", bytes)?;
    }
    Ok(())
}

/// Writes metrics with their help and type.
struct Writer<'a>(DescriptorEncoder<'a>);

/// No exemplars.
type NoExemplar<'a, Value> = Option<&'a Exemplar<NoLabelSet, Value>>;

impl Writer<'_> {
    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_counter(&value, NoExemplar::<u64>::None)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter(&value, NoExemplar::<u64>::None)
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl TryInto<u64>) -> fmt::Result {
        let value = value.try_into().unwrap_or(u64::MAX);
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn seconds(&mut self, name: &str, help: &str, kind: MetricType, millis: i64) -> fmt::Result {
        let seconds = fraction(millis.unsigned_abs()) / 1e3 * if millis < 0 { -1.0 } else { 1.0 };
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        match kind {
            MetricType::Counter => metric.encode_counter(&seconds, NoExemplar::<f64>::None),
            _ => metric.encode_gauge(&seconds),
        }
    }

    /// Histograms of microseconds, shown in seconds.
    fn times<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, HistogramSnapshot)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, seen) in values {
            let (sum, ranges) = (fraction(seen.sum) / MICROS_PER_SECOND, ranges(&seen, MICROS_PER_SECOND));
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                seen.count(),
                &ranges,
                None,
            )?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, seen: &HistogramSnapshot, per_unit: f64) -> fmt::Result {
        let (sum, ranges) = (fraction(seen.sum) / per_unit, ranges(seen, per_unit));
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(sum, seen.count(), &ranges, None)
    }
}

/// Upper ends in another unit with their counts; the encoder shows the largest number as infinity.
fn ranges(seen: &HistogramSnapshot, per_unit: f64) -> Vec<(f64, u64)> {
    let ends = seen.bounds.iter().map(|bound| fraction(*bound) / per_unit).chain([f64::MAX]);
    ends.zip(seen.counts.iter().copied()).collect()
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn fraction(number: u64) -> f64 {
    number as f64
}
