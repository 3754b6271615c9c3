# One binary, one user, one volume.
#
# The broker listens on all addresses of the container and therefore refuses to start without a key: give
# --jwt-secret-file and --jwt-audience. Anonymous callers are let in from a network only with
# --allow-anonymous-network. The secret must be readable for the user 10001, and what is mounted as /data must belong to
# it.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin task-broker

FROM debian:bookworm-slim
RUN groupadd --gid 10001 broker \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin broker \
    && install -d -o broker -g broker -m 0700 /data
COPY --from=build /src/target/release/task-broker /usr/local/bin/task-broker
ENV TASK_BROKER_LISTEN=0.0.0.0:8420 \
    TASK_BROKER_STORE=sled:/data
USER 10001:10001
VOLUME /data
EXPOSE 8420
# The exec form: the broker is PID 1 and gets SIGTERM itself.
ENTRYPOINT ["/usr/local/bin/task-broker"]
CMD ["serve"]
