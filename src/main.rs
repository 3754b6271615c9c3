//! The command line: parse, bind, signals, call the library.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use rustix::fs::Mode;
use rustix::process::{Resource, Signal, getrlimit, setrlimit, umask};
use task_broker::auth::{MintClaims, SecretFile, mint};
use task_broker::clock::Clock;
use task_broker::config::{
    Check, Cli, Command, Compact, Completions, Export, Import, Man, Serve, Shell, StoreUrl, Token,
    without_passwords,
};
use task_broker::stderr::{LastLines, Line};
use task_broker::store::sled::{CheckOptions, SledOptions};
use task_broker::tools::{self, ToolError, Verdict};
use task_broker::{RunError, healthcheck, open_store, run, telemetry};
use tokio::net::TcpSocket;
use tokio::signal::unix::{SignalKind, signal};

/// The system's allocator takes a noticeable part of a request's time and gives memory back late after a sweep.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Every so many steps a thread of the runtime looks at what other threads have woken, which is above all what the
/// writer has made durable. By itself it would do that every 200 us while requests keep coming, for one of them: under a
/// flood of requests that are going to be refused, commands that were let in and carried out would wait to be told.
const COMMITS_FIRST: u32 = 2;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let _last_lines = LastLines;
    if let Err(error) = let_large_files_fail() {
        complain(&error);
        return ExitCode::FAILURE;
    }
    // What the database makes by itself is nobody else's business either.
    umask(Mode::RWXG | Mode::RWXO);
    // What a command could not do is 1, what a check could not look at is 2.
    let command = Cli::try_parse().unwrap_or_else(|error| without_passwords(error).exit()).command;
    let (done, failure) = match command {
        Command::Serve(settings) => (serve(&settings).map(|()| ExitCode::SUCCESS), 1),
        Command::Token(token) => (print_token(&token).map(|()| ExitCode::SUCCESS), 1),
        Command::Healthcheck(check) => {
            (healthcheck::ask(&check).map(|()| ExitCode::SUCCESS).map_err(AnyError::from), 1)
        }
        Command::Completions(completions) => (print_completions(completions).map(|()| ExitCode::SUCCESS), 1),
        Command::Man(man) => (print_man(&man).map(|()| ExitCode::SUCCESS), 1),
        Command::Check(check) => (check_store(check), 2),
        Command::Compact(compact) => (compact_store(&compact), 1),
        Command::Export(export) => (export_tasks(&export), 1),
        Command::Import(import) => (import_tasks(&import), 1),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            complain(&*error);
            ExitCode::from(failure)
        }
    }
}

/// Who writes beyond the limit on the size of files (`ulimit -f`) is ended by a signal, without a word, unless it has a
/// handler: then the write fails as on a full disk, and can be told and handled. Tokio's handlers stay for the life of the
/// process, whatever becomes of the runtime that asked for them.
fn let_large_files_fail() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

fn options(store: &StoreUrl) -> Result<SledOptions, AnyError> {
    telemetry::start_quietly()?;
    Ok(store.directory().map(SledOptions::new).ok_or(ToolError::NoFiles)?)
}

fn check_store(check: Check) -> Result<ExitCode, AnyError> {
    let SledOptions { path, cache_bytes, .. } = options(&check.store)?;
    let scratch = check.scratch.unwrap_or_else(std::env::temp_dir);
    let options = CheckOptions { path, scratch, cache_bytes };
    match tools::check(&options, &mut std::io::stdout())? {
        Verdict::Sound => Ok(ExitCode::SUCCESS),
        Verdict::Damaged => Ok(ExitCode::FAILURE),
    }
}

fn compact_store(compact: &Compact) -> Result<ExitCode, AnyError> {
    tools::compact(&options(&compact.store)?, &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn export_tasks(export: &Export) -> Result<ExitCode, AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Standard output may be where the export goes.
    let told = &mut std::io::stderr();
    match (&export.store, &export.url) {
        (Some(store), _) => {
            let options = options(store)?;
            runtime.block_on(tools::export_store(&options, &export.out, told))?;
        }
        (None, Some(url)) => {
            let token = export.token_file.as_deref().map(read_token).transpose()?;
            let remote = tools::Remote { url, roots: export.ca.as_deref(), token: token.as_deref() };
            runtime.block_on(tools::export_broker(remote, &export.out, told))?;
        }
        (None, None) => return Err("give --store or --url".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The token in a file; white space around it is not part of it.
fn read_token(path: &Path) -> Result<String, AnyError> {
    let token = std::fs::read_to_string(path);
    let token = token.map_err(|error| format!("--token-file {}: {error}", path.display()))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(format!("--token-file {}: it is empty", path.display()).into());
    }
    Ok(token.to_owned())
}

fn import_tasks(import: &Import) -> Result<ExitCode, AnyError> {
    let options = options(&import.store)?;
    tools::import(&options, &import.from, &Clock::system(), &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// The last word of a command line program, behind all lines of the log; there is nobody to tell when it cannot be
/// written.
fn complain(error: &(dyn std::error::Error + Send + Sync)) {
    drop(Line.write_all(format!("task-broker: {error}\n").as_bytes()));
}

fn serve(serve: &Serve) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .global_queue_interval(COMMITS_FIRST)
        .build()?;
    let done = runtime.block_on(async {
        // Before anything else: as PID 1 a process without handlers ignores these signals.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        telemetry::start(serve.log_format)?;
        let clock = Clock::system();
        let settings = serve.settings(&clock)?;
        raise_file_limit();
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let mut stop = std::pin::pin!(stop);
        // Before a store is made or changed for a port that is taken; connections are let in later.
        let socket = bind(serve.listen)?;
        let opening = {
            let (serve, clock) = (serve.clone(), clock.clone());
            tokio::spawn(async move { open_store(&serve, &clock).await })
        };
        let store = tokio::select! {
            store = opening => store.map_err(|_panic| GAVE_UP)??,
            () = &mut stop => {
                tracing::info!("stopped while starting");
                return Ok::<_, AnyError>(());
            }
        };
        let listener = match socket.listen(BACKLOG) {
            Ok(listener) => listener,
            Err(error) => {
                store.close().await;
                return Err(cannot_listen(serve.listen, error).into());
            }
        };
        run(listener, Arc::clone(&store), clock, settings, stop).await?;
        Ok(())
    });
    // A store that is still opening does not keep a process that was told to stop.
    runtime.shutdown_background();
    done
}

/// Of a panic only the log tells, and only where it was.
const GAVE_UP: &str = "the store could not be opened: sled gave up; the log says where";

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Takes the port without letting anybody in.
fn bind(address: SocketAddr) -> Result<TcpSocket, RunError> {
    let taken = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A port whose last connections are still being forgotten is free.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    taken().map_err(|error| cannot_listen(address, error))
}

fn cannot_listen(address: SocketAddr, error: std::io::Error) -> RunError {
    RunError::Io { what: format!("--listen {address}"), error }
}

/// Every connection is a file, and systems give a process 1,024 of them unless it asks for what it may have.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
}

#[allow(clippy::print_stdout, reason = "the token is what this command is for")]
fn print_token(token: &Token) -> Result<(), AnyError> {
    let secret = SecretFile::read(&token.secret_file).map_err(|error| format!("--secret-file: {error}"))?;
    if secret.is_short() {
        complain(&*AnyError::from("the secret is shorter than the 32 bytes that HS256 asks for"));
    }
    let claims = MintClaims {
        sub: &token.sub,
        aud: &token.aud,
        scope: token.scope.as_deref(),
        iss: token.iss.as_deref(),
        lifetime_secs: token.lifetime_secs,
    };
    // Not `println!`, which panics where nobody reads.
    writeln!(std::io::stdout(), "{}", mint(&secret, &claims, Clock::system().now())?)?;
    Ok(())
}

fn print_completions(Completions { shell }: Completions) -> Result<(), AnyError> {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => clap_complete::generate(clap_complete::Shell::Bash, &mut command, name, &mut script),
        Shell::Zsh => clap_complete::generate(clap_complete::Shell::Zsh, &mut command, name, &mut script),
        Shell::Fish => clap_complete::generate(clap_complete::Shell::Fish, &mut command, name, &mut script),
    }
    // clap_complete 4.6.12 writes the name of a program with a hyphen in two ways, and its script for bash then knows no
    // flag of a subcommand.
    let script = String::from_utf8(script)?.replace("task__subcmd__broker", "task__broker");
    Ok(std::io::stdout().write_all(script.as_bytes())?)
}

fn print_man(man: &Man) -> Result<(), AnyError> {
    let mut program = Cli::command();
    // Gives commands their full names: the page about `serve` is called task-broker-serve.
    program.build();
    let about = match &man.command {
        None => program,
        Some(name) => {
            program.find_subcommand(name).ok_or_else(|| format!("there is no command {name}"))?.clone()
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(about).render(&mut page)?;
    Ok(std::io::stdout().write_all(&page)?)
}
