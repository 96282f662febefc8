//! What the operating system says about this process and its disk. Knows nothing of Lockwood.

use super::text::Text;
use std::{fs, path::Path};

/// Readings of one moment; a reading that this system does not offer is left out of the text.
#[derive(Debug, Default)]
pub struct Process {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    open_fds: Option<usize>,
    disk_bytes: Option<u64>,
    disk_free_bytes: Option<u64>,
}

impl Process {
    /// Reads them now; `data` is the directory whose size and free space are asked for.
    pub fn read(data: &Path) -> Process {
        Process {
            cpu_seconds: cpu_seconds(),
            resident_bytes: resident_bytes(),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
            disk_bytes: directory_bytes(data).ok(),
            disk_free_bytes: free_bytes(data),
        }
    }

    pub(super) fn render(&self, text: &mut Text) {
        if let Some(seconds) = self.cpu_seconds {
            let help = "CPU time used by the process.";
            text.single("process_cpu_seconds_total", help, "counter", seconds);
        }
        if let Some(bytes) = self.resident_bytes {
            text.single("process_resident_memory_bytes", "Memory in use.", "gauge", bytes);
        }
        if let Some(count) = self.open_fds {
            text.single("process_open_fds", "Open file descriptors.", "gauge", count);
        }
        if let Some(bytes) = self.disk_bytes {
            text.single("lockwood_disk_bytes", "Size of the data directory.", "gauge", bytes);
        }
        if let Some(bytes) = self.disk_free_bytes {
            let help = "Free space of the file system with the data directory.";
            text.single("lockwood_disk_free_bytes", help, "gauge", bytes);
        }
    }
}

/// The size of a directory, and the free space of its file system.
pub(crate) fn disk_bytes(data: &Path) -> Option<(u64, u64)> {
    Some((directory_bytes(data).ok()?, free_bytes(data)?))
}

fn free_bytes(data: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(data).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Files that vanish meanwhile, as those of a compaction do, count as nothing.
fn directory_bytes(directory: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)?.flatten() {
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()).unwrap_or(0),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

/// Physical memory the process has, where there is a `/proc`.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_offers_every_reading() {
        let process = Process::read(Path::new("/proc/self/fdinfo"));
        assert!(process.cpu_seconds.is_some_and(|seconds| seconds >= 0.0), "{process:?}");
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{process:?}");
        assert!(process.open_fds.is_some_and(|count| count > 2), "{process:?}");
        let own = Process::read(Path::new(env!("CARGO_MANIFEST_DIR")));
        assert!(own.disk_bytes.is_some_and(|bytes| bytes > 100_000), "{own:?}");
        assert!(process.disk_free_bytes.is_some(), "{process:?}");
    }
}
