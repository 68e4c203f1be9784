// SPDX-License-Identifier: GPL-2.0

//! The plug-in itself: what QEMU calls, and the state between the calls.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use std::io::BufWriter;
use std::mem::size_of;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use mflow_protocol::mark::Mark;

use crate::api::{self, Block, Counter, Info, PluginId, Scoreboard};
use crate::counters::Places;
use crate::window;

/// The most places that there may be; one guest's kernel has about 60,000 blocks that ever run.
const PLACES: usize = 1 << 18;
/// The longest instruction.
const MOST_BYTES: usize = 15;

/// QEMU reads this before anything else, and refuses a plug-in that it is too old or too new for.
// No other symbol of this name is linked into a plug-in.
#[no_mangle]
#[allow(unreachable_pub, reason = "QEMU reaches it by name")]
pub static qemu_plugin_version: c_int = api::VERSION;

struct Plugin {
    scoreboard: ScoreboardPointer,
    state: Mutex<WindowState>,
}

struct WindowState {
    places: Places,
    out: BufWriter<File>,
    /// The counters at the begin of the window that is open.
    before: Option<Vec<Vec<u64>>>,
    windows: u64,
}

struct ScoreboardPointer(*mut Scoreboard);

// SAFETY: QEMU's functions on a scoreboard may be called on any thread.
unsafe impl Send for ScoreboardPointer {}
// SAFETY: QEMU's functions on a scoreboard may be called on several threads at once, and it is never freed.
unsafe impl Sync for ScoreboardPointer {}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// Called once by QEMU when it has loaded the plug-in; returns 0 if it may stay.
///
/// # Safety
///
/// `info` points to an `Info`, `argv` to `argc` strings; QEMU sees to both.
// No other symbol of this name is linked into a plug-in.
#[no_mangle]
#[allow(unreachable_pub, reason = "QEMU reaches it by name")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a valid `info` and `argc` strings, as this function's contract says.
    let (info, arguments) = unsafe { (&*info, arguments(argc, argv)) };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("mflow-insn-plugin: {error}");
            1
        }
    }
}

/// # Safety
///
/// `argv` points to `argc` strings.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    (0..count)
        .map(|index| {
            // SAFETY: `index` is below `argc`, and `argv` points to this many strings, as this function's contract says.
            let text = unsafe { CStr::from_ptr(*argv.add(index)) };
            text.to_string_lossy().into_owned()
        })
        .collect()
}

fn install(id: PluginId, info: &Info, arguments: &[String]) -> Result<(), String> {
    if !info.system_emulation {
        return Err("it counts whole machines, not single programs".to_owned());
    }
    let mut out = None;
    for argument in arguments {
        match argument.split_once('=') {
            Some(("out", path)) => out = Some(path),
            _ => return Err(format!("unknown argument {argument:?}; it takes out=FILE")),
        }
    }
    let path = out.ok_or("it needs out=FILE")?;
    let file = File::create(path).map_err(|error| format!("cannot write {path}: {error}"))?;
    // SAFETY: QEMU allows all functions of its interface during `qemu_plugin_install`.
    let scoreboard = unsafe { api::qemu_plugin_scoreboard_new(PLACES * size_of::<u64>()) };
    let plugin = Plugin {
        scoreboard: ScoreboardPointer(scoreboard),
        state: Mutex::new(WindowState {
            places: Places::new(PLACES),
            out: BufWriter::new(file),
            before: None,
            windows: 0,
        }),
    };
    if PLUGIN.set(plugin).is_err() {
        return Err("it can only be loaded once".to_owned());
    }
    // SAFETY: the callback is a function and stays one; `id` is the one QEMU gave us.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(
            id,
            on_translation,
            #[cfg(feature = "api-7")]
            ptr::null_mut(),
        )
    };
    Ok(())
}

#[cfg(not(feature = "api-7"))]
extern "C" fn on_translation(_id: PluginId, block: *mut Block) {
    translated(block);
}

#[cfg(feature = "api-7")]
extern "C" fn on_translation(block: *mut Block, _user_data: *mut c_void) {
    translated(block);
}

/// Takes a block that QEMU has translated, before the block runs; on any CPU's thread.
fn translated(block: *mut Block) {
    let Some(plugin) = PLUGIN.get() else { return };
    // SAFETY: QEMU keeps the block alive during this call.
    let (address, count) = unsafe {
        (
            api::qemu_plugin_tb_vaddr(block),
            api::qemu_plugin_tb_n_insns(block),
        )
    };
    let place = plugin.lock().places.number(address);
    let counter = Counter {
        scoreboard: plugin.scoreboard.0,
        offset: place * size_of::<u64>(),
    };
    // SAFETY: the block is alive, and the counter lies within an element: `place` is below PLACES.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            block,
            api::ADD_U64,
            counter,
            count as u64,
        );
    }
    // Marks are in programs only, never in the kernel.
    if address >> 63 != 0 {
        return;
    }
    for index in 0..count {
        let mut bytes = [0; MOST_BYTES];
        // SAFETY: `index` is within the block; `bytes` has room for what is asked for.
        let (instruction, length) = unsafe {
            let instruction = api::qemu_plugin_tb_get_insn(block, index);
            let length = api::qemu_plugin_insn_size(instruction).min(MOST_BYTES);
            let length = api::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), length);
            (instruction, length)
        };
        let callback = match Mark::of(&bytes[..length.min(MOST_BYTES)]) {
            Some(Mark::Begin) => begin,
            Some(Mark::End) => end,
            None => continue,
        };
        // SAFETY: the instruction is alive, the callback is a function that needs no data.
        unsafe {
            api::qemu_plugin_register_vcpu_insn_exec_cb(
                instruction,
                callback,
                api::NO_REGISTERS,
                ptr::null_mut(),
            );
        }
    }
}

extern "C" fn begin(_cpu: c_uint, _data: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let mut state = plugin.lock();
    let now = plugin.read(state.places.addresses().len());
    state.before = Some(now);
}

extern "C" fn end(_cpu: c_uint, _data: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let mut state = plugin.lock();
    let now = plugin.read(state.places.addresses().len());
    let Some(before) = state.before.take() else {
        eprintln!("mflow-insn-plugin: a window ends that was not begun");
        return;
    };
    let number = state.windows;
    state.windows += 1;
    let WindowState { places, out, .. } = &mut *state;
    if let Err(error) = window::write(out, number, places.addresses(), &before, &now) {
        eprintln!("mflow-insn-plugin: cannot write window {number}: {error}");
    }
}

impl Plugin {
    fn lock(&self) -> std::sync::MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first `places` counters of each CPU. Other CPUs go on counting meanwhile: a window's ends are sharp to
    /// some microseconds, not to the instruction.
    fn read(&self, places: usize) -> Vec<Vec<u64>> {
        // SAFETY: QEMU allows this call at any time.
        let cpus = unsafe { api::qemu_plugin_num_vcpus() };
        (0..c_uint::try_from(cpus).unwrap_or(0))
            .map(|cpu| {
                // SAFETY: the scoreboard lives for ever, and QEMU only moves it while no CPU runs, this one's thread included.
                let row = unsafe { api::qemu_plugin_scoreboard_find(self.scoreboard.0, cpu) };
                // SAFETY: a row has PLACES counters. Their owner may write them meanwhile; reading them volatile, one by
                // one, takes each either before or after, as aligned words do on the hosts QEMU runs on.
                (0..places)
                    .map(|place| unsafe { row.cast::<u64>().add(place).read_volatile() })
                    .collect()
            })
            .collect()
    }
}
