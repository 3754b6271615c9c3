//! The commands beside `serve`, and what `--help` teaches.

use clap::{Args, ValueEnum};

/// Settings of `task-broker healthcheck`.
#[derive(Clone, Debug, Args)]
pub struct Healthcheck {
    /// Where the broker listens, without TLS: http://HOST:PORT. This command speaks http only.
    #[arg(long, default_value = "http://127.0.0.1:8420", value_name = "URL")]
    pub url: String,
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
  A broker with --tls-cert speaks nothing but TLS, and this command does not: ask it by
      curl -sf --cacert ca.pem https://broker.example:8420/readyz

Exit status: 0 healthy, 1 not, or not known within the time limit.";

/// Behind the help of `completions`.
pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  task-broker completions bash > /usr/share/bash-completion/completions/task-broker
  task-broker completions zsh > /usr/local/share/zsh/site-functions/_task-broker
  task-broker completions fish > ~/.config/fish/completions/task-broker.fish";
