//! Where an export goes and comes from: a file, or the standard streams.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::ToolError;
use crate::archive::MAX_LINE_BYTES;

/// Where an export goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file. It has its name only when it is complete.
    File(PathBuf),
}

/// Where an import comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl FromStr for Output {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::Stdout } else { Self::File(text.into()) })
    }
}

impl Output {
    /// Whether this is a file in that directory.
    pub(super) fn is_inside(&self, directory: &Path) -> bool {
        let Self::File(path) = self else { return false };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A link leads to where its file is.
        let place = path.canonicalize().or_else(|_absent| parent.canonicalize());
        place.is_ok_and(|place| directory.canonicalize().is_ok_and(|directory| place.starts_with(directory)))
    }
}

impl FromStr for Input {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::Stdin } else { Self::File(text.into()) })
    }
}

impl Input {
    pub(super) fn open(&self) -> Result<Lines, ToolError> {
        let (name, read): (_, Box<dyn BufRead>) = match self {
            Self::Stdin => ("standard input".to_owned(), Box::new(BufReader::new(std::io::stdin()))),
            Self::File(path) => {
                let name = format!("--in {}", path.display());
                let file = File::open(path).map_err(ToolError::io(name.clone()))?;
                (name, Box::new(BufReader::with_capacity(1 << 20, file)))
            }
        };
        Ok(Lines { read, name })
    }
}

/// The lines of an import.
pub(super) struct Lines {
    read: Box<dyn BufRead>,
    name: String,
}

impl Lines {
    /// The next line with its line break; nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ToolError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.read).take(MAX_LINE_BYTES);
        bounded.read_until(b'\n', &mut line).map_err(ToolError::io(self.name.clone()))?;
        Ok(if line.is_empty() { None } else { Some(line) })
    }
}

/// An export that is being written.
pub(super) struct Sink {
    to: BufWriter<Box<dyn Write>>,
    /// The file under its name for now, and its name when it is complete.
    file: Option<(File, PathBuf, PathBuf)>,
    name: String,
}

impl Sink {
    pub(super) fn open(output: &Output) -> Result<Self, ToolError> {
        match output {
            Output::Stdout => {
                let to: Box<dyn Write> = Box::new(std::io::stdout());
                Ok(Self { to: BufWriter::new(to), file: None, name: "standard output".into() })
            }
            Output::File(path) => {
                let name = format!("--out {}", path.display());
                let path = match fs::metadata(path) {
                    Ok(found) if found.is_dir() => {
                        return Err(ToolError::io(name)(io::ErrorKind::IsADirectory.into()));
                    }
                    // A pipe or a device: it is written to, and stays what it is.
                    Ok(found) if !found.is_file() => {
                        let device = OpenOptions::new().write(true).open(path);
                        let to: Box<dyn Write> = Box::new(device.map_err(ToolError::io(name.clone()))?);
                        return Ok(Self { to: BufWriter::with_capacity(1 << 20, to), file: None, name });
                    }
                    // A link stays one.
                    Ok(_) => path.canonicalize().map_err(ToolError::io(name.clone()))?,
                    Err(_) => path.clone(),
                };
                let mut beside = path.clone().into_os_string();
                beside.push(".partial");
                let beside = PathBuf::from(beside);
                // Payloads are nobody else's business.
                let file =
                    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
                let file = file.map_err(ToolError::io(name.clone()))?;
                let to: Box<dyn Write> = Box::new(file.try_clone().map_err(ToolError::io(name.clone()))?);
                let to = BufWriter::with_capacity(1 << 20, to);
                Ok(Self { to, file: Some((file, beside, path)), name })
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ToolError> {
        self.to.write_all(bytes).map_err(ToolError::io(self.name.clone()))
    }

    /// The export is complete: it is made durable, and gets its name.
    pub(super) fn finish(mut self) -> Result<(), ToolError> {
        let mut done = self.to.flush();
        if let Some((file, beside, path)) = self.file.take() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            done = done
                .and_then(|()| file.sync_all())
                .and_then(|()| fs::rename(&beside, &path))
                .and_then(|()| File::open(parent.unwrap_or(Path::new(".")))?.sync_all());
        }
        done.map_err(ToolError::io(self.name.clone()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((_, beside, _)) = &self.file {
            // What is there is not complete; if it cannot be removed, its name says so.
            drop(fs::remove_file(beside));
        }
    }
}
