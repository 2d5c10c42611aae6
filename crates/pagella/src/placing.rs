//! A model over several devices: rooms, the plan, and loading by it.
//!
//! The plan is made from headers and from what every device may give. If a device gives less than it
//! said, the model is planned once more with what was seen; a second time is an error.

use std::path::Path;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, BackendError, KvFormat, PAGE_TOKENS};
use pagella_cpu::CpuBackend;
use pagella_cuda::probe::Probe;
use pagella_engine::ModelWithCache;
use pagella_model::place::{
    Beside, NoRoom, PagesWanted, PartSizes, Placement, Room, RunSizes, Tail, place,
};
use pagella_model::{LoadOptions, Model, ModelError, ProgressFn};

use crate::builder::{LoadedModel, NamedAdapter};
use crate::host_memory::available_bytes;
use crate::memory::CpuLayout;
use crate::split::CpuLayers;
use crate::units::bytes_enough;
use crate::{Devices, EngineBuilder, Error, Place};

/// Tokens of a step that need little scratch; what is proposed where memory does not suffice.
const SMALL_STEP_TOKENS: usize = 64;
/// Caches that are proposed where memory does not suffice, from large to small.
const SMALLER_CACHES: [KvFormat; 2] = [KvFormat::Q8, KvFormat::Q4];

/// Everything that a plan is made of.
pub(crate) struct Placing {
    devices: Devices,
    /// What may be used of every device, and what stays free of it.
    rooms: Vec<(u64, u64)>,
    sizes: PartSizes,
    pages: PagesWanted,
    tail: Tail,
    /// What a draft model takes, which goes to one device as a whole.
    draft: Option<Beside>,
    /// Of adapters that are loaded with the model.
    adapter_bytes: u64,
}

/// A plan with the device of the draft model.
pub(crate) struct Planned {
    pub placement: Placement,
    pub draft_device: Option<usize>,
}

/// A device that refused memory while a model was loaded.
struct Refused {
    error: Error,
    /// What every device can hold, as far as was seen.
    seen: Vec<u64>,
}

impl Placing {
    /// The plan with the longest cache.
    pub fn plan(&self) -> Result<Planned, NoRoom> {
        let Some(draft) = self.draft else {
            let placement = self.with_draft_on(None)?;
            return Ok(Planned { placement, draft_device: None });
        };
        let mut best: Option<Result<Planned, NoRoom>> = None;
        for device in 0..self.rooms.len() {
            let tried = self.with_draft_on(Some((device, draft)));
            let is_better = match (&best, &tried) {
                (None, _) | (Some(Err(_)), Ok(_)) => true,
                (Some(Ok(best)), Ok(new)) => new.cache_tokens > best.placement.cache_tokens,
                (Some(Err(best)), Err(new)) => new.missing_bytes < best.missing_bytes,
                (Some(Ok(_)), Err(_)) => false,
            };
            if is_better {
                let planned = |placement| Planned { placement, draft_device: Some(device) };
                best = Some(tried.map(planned));
            }
        }
        match best {
            Some(best) => best,
            None => {
                self.with_draft_on(None).map(|placement| Planned { placement, draft_device: None })
            }
        }
    }

    fn with_draft_on(&self, draft: Option<(usize, Beside)>) -> Result<Placement, NoRoom> {
        let room = |(index, (free_bytes, reserve_bytes)): (usize, &(u64, u64))| Room {
            name: self.devices.name(index),
            free_bytes: *free_bytes,
            reserve_bytes: *reserve_bytes,
            beside: draft
                .filter(|(device, _)| *device == index)
                .map(|(_, b)| b)
                .unwrap_or_default(),
            sizes: &self.sizes,
        };
        let rooms: Vec<Room<'_>> = self.rooms.iter().enumerate().map(room).collect();
        place(&rooms, self.pages, self.tail)
    }

    /// Forgets what devices said and believes what was seen.
    fn believe(&mut self, seen: &[u64]) {
        for ((free, reserve), seen) in self.rooms.iter_mut().zip(seen) {
            *free = (*free).min(seen.saturating_add(*reserve));
        }
    }
}

impl EngineBuilder {
    /// Whether layers are placed by a plan: there are several devices, or what they may give is
    /// limited.
    pub fn is_placed(&self) -> bool {
        self.devices.are_limited() || !self.split.is_default()
    }

    /// The plan by which the model would be loaded, from headers alone; `None` where it is not placed.
    pub fn placement(&self) -> Result<Option<Placement>, Error> {
        if !self.is_placed() || self.place()? != Place::Cpu {
            return Ok(None);
        }
        let dir = self.dir()?;
        let spec = self.spec(&dir)?;
        let adapters = self.bind_adapters(&spec)?;
        let rows = self.logit_rows_max(Place::Cpu);
        let placing = self.placing(&dir, &spec, &adapters, rows)?;
        let planned = placing.plan().map_err(|refusal| self.no_room(&placing, &refusal));
        Ok(Some(planned?.placement))
    }

    /// Everything that the plan for the model in `dir` is made of. `logit_rows`: most of a step.
    pub(crate) fn placing(
        &self,
        dir: &Path,
        spec: &ModelSpec,
        adapters: &[NamedAdapter],
        logit_rows: usize,
    ) -> Result<Placing, Error> {
        let options = self.load_options(Place::Cpu);
        let mut sizes = self.part_sizes(dir, spec, &options, logit_rows)?;
        adapters.iter().for_each(|(_, adapter, _)| sizes.add_adapter(adapter));
        sizes.add_adapter_bytes(self.later_adapter_bytes);
        let (devices, tail) = self.devices_and_tail(spec)?;
        let least = (self.cache_tokens_for(spec) / PAGE_TOKENS) as u64;
        let most = match self.cache_is_stated() {
            true => least,
            false => self.cache_tokens_most.unwrap_or(spec.context).div_ceil(PAGE_TOKENS) as u64,
        };
        let draft = match self.draft_builder(0) {
            None => None,
            Some(own) => {
                let dir = own.dir()?;
                let spec = own.spec(&dir)?;
                Some(own.part_sizes(&dir, &spec, &options, logit_rows)?.whole())
            }
        };
        let rooms = self.rooms(&devices)?;
        let pages = PagesWanted { least, most };
        let adapter_bytes = adapters.iter().map(|(_, adapter, _)| adapter.bytes()).sum();
        Ok(Placing { devices, rooms, sizes, pages, tail, draft, adapter_bytes })
    }

    fn part_sizes(
        &self,
        dir: &Path,
        spec: &ModelSpec,
        options: &LoadOptions,
        logit_rows: usize,
    ) -> Result<PartSizes, Error> {
        let run = RunSizes { format: self.cache, logit_rows };
        Ok(PartSizes::of(dir, spec, options, run, &CpuLayout)?)
    }

    /// The devices, with the CPU behind them if it takes the last layers.
    fn devices_and_tail(&self, spec: &ModelSpec) -> Result<(Devices, Tail), Error> {
        let Some(asked) = self.split.cpu_layers else {
            return Ok((self.devices.clone(), Tail::Rest));
        };
        let (devices, layers) = (self.devices.with_cpu(), spec.layers.len());
        let tail = match asked {
            CpuLayers::Auto => Tail::Fewest,
            CpuLayers::Exactly(n) if n <= layers => Tail::Layers(n),
            CpuLayers::Exactly(n) => {
                let sentence = format!("the CPU cannot take {n} layers: the model has {layers}");
                return Err(Error::Split(sentence));
            }
        };
        let before = devices.all().split_last().map_or(&[][..], |(_, before)| before);
        if before.iter().any(|share| share.limit_bytes.is_none()) {
            let sentence = "layers for the CPU are those that other devices do not take: name one with \
                            its memory before it, such as --device cpu:4GiB";
            return Err(Error::Split(sentence.to_owned()));
        }
        Ok((devices, tail))
    }

    /// What may be used of every CPU of the list, and what stays free of it.
    fn rooms(&self, devices: &Devices) -> Result<Vec<(u64, u64)>, Error> {
        let all = devices.all().iter();
        let stated = all.filter_map(|share| share.limit_bytes).fold(0, u64::saturating_add);
        let rest = available_bytes().map_or(u64::MAX, |bytes| bytes.saturating_sub(stated));
        self.rooms_of(devices, rest)
    }

    /// The same, where devices without a limit have `rest`.
    fn rooms_of(&self, devices: &Devices, rest: u64) -> Result<Vec<(u64, u64)>, Error> {
        if let Some((_, sentence)) = self.split.longer_than(devices) {
            return Err(Error::Split(sentence));
        }
        let (all, shares) = (devices.all(), &self.split.shares);
        let room = |(index, share): (usize, &crate::DeviceShare)| {
            let free = share.limit_bytes.unwrap_or(rest);
            // What the CPU takes behind the listed devices is no part of the split.
            let is_listed = index < self.devices.all().len();
            let most = match shares.get(index) {
                Some(share) => *share,
                None if shares.is_empty() || !is_listed => u64::MAX,
                None => 0,
            };
            (free.min(most), self.split.reserves.get(index).copied().unwrap_or(0))
        };
        Ok(all.iter().enumerate().map(room).collect())
    }

    /// Refuses a model that is predicted to take more of a whole GPU than its share.
    pub(crate) fn check_share(
        &self,
        dir: &Path,
        spec: &ModelSpec,
        place: Place,
    ) -> Result<(), Error> {
        let Place::Cuda(index) = place else { return Ok(()) };
        if self.split.is_default() {
            return Ok(());
        }
        let (usable, reserve) = self.rooms_of(&self.devices, cuda_free_bytes(index))?[0];
        let usable = usable.saturating_sub(reserve);
        let tokens = self.cache_tokens_for(spec);
        let need = self.predict_memory(dir, spec, place)?;
        let logits = need.more_logits_bytes(self.logit_rows_max(place));
        let missing = (need.peak_bytes(self.cache, tokens) + logits).saturating_sub(usable);
        if missing == 0 {
            return Ok(());
        }
        let (device, missing) = (format!("cuda:{index}"), bytes_enough(missing));
        Err(Error::NoRoom {
            problem: format!(
                "the model and a cache of {tokens} tokens need {missing} more than {device} may hold"
            ),
            remedy: "lower --cache-tokens or --step-tokens, or raise the share".to_owned(),
        })
    }

    /// What is missing in a sentence, with what would fit.
    fn no_room(&self, placing: &Placing, refusal: &NoRoom) -> Error {
        let NoRoom { device, missing_bytes, devices, cache_tokens, fitting_tokens } = refusal;
        let missing = bytes_enough(*missing_bytes);
        let whole =
            if placing.draft.is_some() { "the model, its draft model" } else { "the model" };
        let place = match devices.len() {
            0 | 1 => format!("{device} may hold"),
            n => format!("{device}, the last of {n} devices that could take it, may hold"),
        };
        let problem = format!(
            "{whole} and a cache of {cache_tokens} tokens need {missing} more than {place}"
        );
        let mut remedies = Vec::new();
        if *fitting_tokens > 0 {
            remedies.push(format!("--cache-tokens {fitting_tokens}"));
        }
        let adapters = self.later_adapter_bytes + placing.adapter_bytes;
        let fits = |builder: EngineBuilder| {
            let builder = builder.later_adapter_bytes(adapters);
            let planned = builder.dir().and_then(|dir| {
                let spec = builder.spec(&dir)?;
                let rows = builder.logit_rows_max(Place::Cpu);
                builder.placing(&dir, &spec, &[], rows)
            });
            planned.is_ok_and(|placing| placing.plan().is_ok())
        };
        let smaller = SMALLER_CACHES.into_iter().filter(|format| {
            format.bytes(1024) < self.cache.bytes(1024) && fits(self.clone().cache(*format))
        });
        remedies.extend(smaller.take(1).map(|format| format!("--cache {}", format.name())));
        let tokens = self.load_options(Place::Cpu).step_tokens_max;
        if tokens > SMALL_STEP_TOKENS && fits(self.clone().step_tokens(SMALL_STEP_TOKENS)) {
            remedies.push(format!("--step-tokens {SMALL_STEP_TOKENS}"));
        }
        let remedy = match remedies.is_empty() {
            true => format!(
                "give {device} {missing} more, name another device, or choose a smaller model"
            ),
            false => format!("{} would fit", remedies.join(" or ")),
        };
        Error::NoRoom { problem, remedy }
    }

    /// Loads the model of `dir` by a plan, and with `draft` the one that drafts for it, each on its
    /// device.
    pub(crate) fn load_placed<D>(
        &self,
        dir: &Path,
        mut placing: Placing,
        progress: &mut ProgressFn<'_>,
        draft: &mut dyn FnMut(&LoadedModel, CpuBackend, &mut ProgressFn<'_>) -> Result<D, Error>,
    ) -> Result<(LoadedModel, D), Error> {
        let cpu = self.cpu()?;
        let limits =
            placing.rooms.iter().map(|(free, _)| Some(*free).filter(|free| *free < u64::MAX));
        let backends: Vec<CpuBackend> = limits.map(|limit| cpu.device(limit)).collect();
        self.load_on(dir, &mut placing, &backends, progress, draft)
    }

    fn load_on<D>(
        &self,
        dir: &Path,
        placing: &mut Placing,
        backends: &[CpuBackend],
        progress: &mut ProgressFn<'_>,
        draft: &mut dyn FnMut(&LoadedModel, CpuBackend, &mut ProgressFn<'_>) -> Result<D, Error>,
    ) -> Result<(LoadedModel, D), Error> {
        let plan =
            |placing: &Placing| placing.plan().map_err(|refusal| self.no_room(placing, &refusal));
        let planned = plan(placing)?;
        let refused = match self.try_plan(dir, &planned, backends, progress, draft) {
            Ok(loaded) => return Ok(loaded),
            Err(failed) => failed?,
        };
        placing.believe(&refused.seen);
        let again = plan(placing)?;
        if again.placement == planned.placement {
            return Err(refused.error);
        }
        match self.try_plan(dir, &again, backends, progress, draft) {
            Ok(loaded) => Ok(loaded),
            Err(failed) => Err(failed?.error),
        }
    }

    /// Loads by a plan. The outer error is of memory, the inner one of anything else.
    fn try_plan<D>(
        &self,
        dir: &Path,
        planned: &Planned,
        backends: &[CpuBackend],
        progress: &mut ProgressFn<'_>,
        draft: &mut dyn FnMut(&LoadedModel, CpuBackend, &mut ProgressFn<'_>) -> Result<D, Error>,
    ) -> Result<(LoadedModel, D), Result<Box<Refused>, Error>> {
        let missed: Vec<u64> = backends.iter().map(|cpu| cpu.memory().missed_bytes).collect();
        let loaded =
            self.load_parts(dir, &planned.placement, backends, progress).and_then(|model| {
                let device = planned.draft_device.and_then(|device| backends.get(device));
                let device = device.or(backends.last()).cloned().ok_or_else(no_device)?;
                let draft = draft(&model, device, progress)?;
                Ok((model, draft))
            });
        loaded.map_err(|error| {
            if !is_out_of_memory(&error) {
                return Err(error);
            }
            // A device that has refused has so much less than the plan thought.
            let seen = backends.iter().zip(&planned.placement.parts).zip(&missed);
            let seen = seen.map(|((cpu, part), missed_before)| {
                let memory = cpu.memory();
                let limit = memory.limit_bytes.unwrap_or(u64::MAX);
                let promised = part.free_bytes.saturating_sub(part.reserve_bytes);
                match memory.missed_bytes != *missed_before && limit >= promised {
                    true => promised.saturating_sub(memory.missed_bytes),
                    false => limit.min(promised),
                }
            });
            Ok(Box::new(Refused { seen: seen.collect(), error }))
        })
    }

    fn load_parts(
        &self,
        dir: &Path,
        placement: &Placement,
        backends: &[CpuBackend],
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedModel, Error> {
        let used = backends.iter().zip(&placement.parts).filter(|(_, part)| part.is_used());
        let parts: Vec<_> = used.map(|(cpu, part)| (cpu.clone(), part.layers.len())).collect();
        let n_devices = parts.len();
        let options = self.load_options(Place::Cpu);
        let model = Model::load_over(dir, self.spec(dir)?, parts, &options, progress)?;
        let over =
            if n_devices > 1 { format!(", over {n_devices} devices") } else { String::new() };
        let (memory, device) = (model.memory(), format!("{}{over}", model.backend().describe()));
        let forward = ModelWithCache::new(model, self.cache, placement.cache_tokens)?;
        Ok(LoadedModel {
            forward: Box::new(forward),
            memory,
            device,
            cache: self.cache,
            cache_tokens: placement.cache_tokens,
            placement: Some(placement.clone()),
        })
    }
}

/// Free memory of a GPU; all there could be where the driver does not tell.
fn cuda_free_bytes(index: usize) -> u64 {
    let mut probe = Probe::look();
    probe.measure_free();
    probe.gpus().get(index).and_then(|gpu| gpu.free_bytes).unwrap_or(u64::MAX)
}

fn no_device() -> Error {
    Error::Split("there is no device to load onto: name one with --device".to_owned())
}

fn is_out_of_memory(error: &Error) -> bool {
    let of_backend = |error: &BackendError| matches!(error, BackendError::OutOfMemory { .. });
    match error {
        Error::Backend(error) => of_backend(error),
        Error::Model(error) => matches!(&**error, ModelError::Backend(error) if of_backend(error)),
        Error::Engine(error) => error.is_out_of_memory(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
