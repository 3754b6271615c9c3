//! The commands beside `serve`, and what `--help` teaches.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Settings of `task-broker healthcheck`.
#[derive(Clone, Debug, Args)]
pub struct Healthcheck {
    /// Where the broker is: http://HOST:PORT or https://HOST:PORT. Without it, where a broker with the same --listen and
    /// --tls-cert is on this machine.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Where the broker listens; an address that stands for all of them is asked on loopback.
    #[arg(long, env = "TASK_BROKER_LISTEN", default_value = "127.0.0.1:8420", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The broker's certificate, in PEM: with it TLS is spoken, and this very certificate is believed and no other,
    /// whatever names and dates are in it.
    #[arg(long, env = "TASK_BROKER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// File with the root certificates that the broker's certificate is checked against, with its names and dates.
    /// Without it and without --tls-cert: the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Ask only whether the process lives, not whether it can take and keep a command.
    #[arg(long)]
    pub live: bool,
    /// How long the answer may take, in seconds.
    #[arg(long, default_value_t = 3, value_name = "SECONDS")]
    pub timeout_secs: u64,
}

/// Settings of `task-broker completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// A shell that completes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Settings of `task-broker man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// The command that the page is about; without one it is about the program.
    pub command: Option<String>,
}

/// Behind the help of the program.
pub(super) const PROGRAM_EXAMPLES: &str = "\
Examples:
  Try it: on loopback, tasks in ./data, everybody is let in
      task-broker serve
  With tokens
      head -c 48 /dev/urandom | base64 > secret
      task-broker serve --jwt-secret-file secret --jwt-audience task-broker
      task-broker token --secret-file secret --aud task-broker --sub alice
  Is it well?
      task-broker healthcheck && curl -s http://127.0.0.1:8420/metrics

`task-broker serve --help` has all settings; `task-broker man serve | man -l -` shows them as a page.";

/// Behind the help of `serve`.
pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  On loopback, tasks in ./data, without authentication
      task-broker serve
  On the network, with tokens
      task-broker serve --listen 0.0.0.0:8420 --store sled:/var/lib/task-broker \\
          --jwt-secret-file /run/secrets/jwt --jwt-audience task-broker
  The same by variables: each flag has one
      TASK_BROKER_LISTEN=0.0.0.0:8420 TASK_BROKER_STORE=sled:/var/lib/task-broker task-broker serve
  JSON logs with a line for each request, and traces to a collector
      RUST_LOG=debug task-broker serve --log-format json --otlp-endpoint http://127.0.0.1:4318

A call to try when it is up:
  curl -s http://127.0.0.1:8420/rpc -H 'content-type: application/json' \\
      -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"store/info\"}'

GET /livez, /readyz, /metrics and /openapi.yaml need no token. SIGTERM and SIGINT stop it in order.";

/// Behind the help of `healthcheck`.
pub(super) const HEALTHCHECK_EXAMPLES: &str = "\
Examples:
  In a Dockerfile
      HEALTHCHECK CMD [\"/usr/local/bin/task-broker\", \"healthcheck\"]
  Where something restarts what is unhealthy: a restart heals no full disk
      task-broker healthcheck --live
  From another machine, by TLS, with its names and dates
      task-broker healthcheck --url https://broker.example:8420 --ca ca.pem
  On its own machine it finds the broker by the same variables, and believes its certificate alone
      TASK_BROKER_LISTEN=0.0.0.0:8420 TASK_BROKER_TLS_CERT=chain.pem task-broker healthcheck

Exit status: 0 healthy, 1 not, or not known within the time limit.";

/// Behind the help of `completions`.
pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  task-broker completions bash > /usr/share/bash-completion/completions/task-broker
  task-broker completions zsh > /usr/local/share/zsh/site-functions/_task-broker
  task-broker completions fish > ~/.config/fish/completions/task-broker.fish";
