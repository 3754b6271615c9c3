# One binary, one user, one volume; the rest of the file system may be read-only. scripts/image.sh builds and checks it.
#
# The broker listens on all addresses of the container and therefore refuses to start without a key: give
# --jwt-secret-file and --jwt-audience. Anonymous callers are let in from a network only with
# --allow-anonymous-network. The secret must be readable for the user 10001. A named volume at /data belongs to that user
# from its first use on; a directory of the host has to be given to it (chown 10001:10001).

FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin task-broker

FROM debian:12-slim
RUN groupadd --gid 10001 broker \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin broker \
    && install -d -o broker -g broker -m 0700 /data
COPY --from=build /src/target/release/task-broker /usr/local/bin/task-broker
ENV TASK_BROKER_LISTEN=0.0.0.0:8420 \
    TASK_BROKER_STORE=sled:/data \
    TASK_BROKER_LOG_FORMAT=json
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
# Whether it can take and keep a command. Where something restarts what is unhealthy, add --live: a restart heals no disk.
# It finds the broker by the same variables, with TLS too (TASK_BROKER_TLS_CERT); flags of `serve` it does not see.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/usr/local/bin/task-broker", "healthcheck"]
# The exec form: the broker is PID 1 and gets SIGTERM itself.
ENTRYPOINT ["/usr/local/bin/task-broker"]
CMD ["serve"]
