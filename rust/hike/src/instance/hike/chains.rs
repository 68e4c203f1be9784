// SPDX-License-Identifier: GPL-2.0

//! Chains of an instance: which program each has, and which classes take it.

use anyhow::{anyhow, bail, Context as _, Result};
use aya::programs::ProgramFd;

use super::{ChainId, Engine, Hike};
use crate::config::chain::Chain;
use crate::instance::loader;
use crate::tables::packets;

/// The program of a distinct chain.
pub(super) struct Loaded {
    chain: Chain,
    program: ProgramFd,
    users: usize,
}

impl Hike {
    /// Adds a chain.
    pub fn add_chain(&mut self, chain: &Chain) -> Result<ChainId> {
        let number = self.chains.free().context("no chain is free")?;
        self.put_chain(number, chain)?;
        Ok(ChainId(number))
    }

    /// Makes all classes of a chain take another one instead.
    pub fn replace_chain(&mut self, id: ChainId, chain: &Chain) -> Result<()> {
        let old = self.chains.get(id.0).context("no such chain")?;
        let new_path = chain.needs_path().is_some() && old.needs_path().is_none();
        let new_behaviour =
            chain.needs_behaviour().is_some() && chain.needs_behaviour() != old.needs_behaviour();
        if new_path || new_behaviour {
            let users = self.entries().filter(|(_, one)| one.class.chain == id);
            for (destination, entry) in users {
                self.check_needs(chain, entry).map_err(|needs| {
                    anyhow!("{needs}, and the class of {destination} has none; give it one first")
                })?;
            }
            // A packet may still have a class as it was before it had these.
            packets::wait()?;
        }
        self.put_chain(id.0, chain)
    }

    /// Removes a chain that no class takes.
    pub fn remove_chain(&mut self, id: ChainId) -> Result<()> {
        self.chains.get(id.0).context("no such chain")?;
        if let Some(destination) = self.user(|entry| entry.class.chain == id) {
            bail!("the class of {destination} takes this chain; change that first");
        }
        let _moves = self.epoch.moves_behind();
        // Another chain may take its slot.
        packets::wait()?;
        self.tables.chains.clear_index(&id.0)?;
        if let Some(chain) = self.chains.take(id.0) {
            self.unload(&chain);
        }
        Ok(())
    }

    fn put_chain(&mut self, number: u32, chain: &Chain) -> Result<()> {
        self.hook.check(chain)?;
        let _moves = self.epoch.moves_behind();
        let place = match self.loaded.iter().position(|one| one.chain == *chain) {
            Some(place) => place,
            None => {
                let program = match self.engine {
                    Engine::Compiled => {
                        loader::compiled(self.hook, &self.folder, chain, self.cache)?
                    }
                    Engine::TailCalls => {
                        loader::chain_start(self.hook, &self.folder, chain, self.cache)?
                    }
                };
                self.loaded.push(Loaded {
                    chain: chain.clone(),
                    program,
                    users: 0,
                });
                self.loaded.len() - 1
            }
        };
        let program = &self.loaded[place].program;
        let put = self.tables.chains.set(number, program, 0);
        if put.is_ok() {
            self.loaded[place].users += 1;
            if let Some(old) = self.chains.put(number, chain.clone()) {
                self.unload(&old);
            }
        }
        self.loaded.retain(|one| one.users > 0);
        Ok(put?)
    }

    /// Takes one user from the program of a chain, which goes with the last.
    fn unload(&mut self, chain: &Chain) {
        for one in &mut self.loaded {
            if one.chain == *chain {
                one.users -= 1;
            }
        }
        self.loaded.retain(|one| one.users > 0);
    }
}
