//! What a model takes of the memory of every device, before or while it is there.

use serde_json::{Value, json};

/// What a model takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Every device it uses.
    pub devices: Vec<DevicePlan>,
}

/// What a model takes of one device, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePlan {
    /// The device, such as `cuda:0` or `cpu`.
    pub name: String,
    /// Which parts of the model it has, such as `layers 12–31, head`, where there are several devices.
    pub parts: Option<String>,
    /// All of its memory.
    pub total_bytes: u64,
    /// What could be taken now.
    pub available_bytes: u64,
    /// Weights.
    pub weights_bytes: u64,
    /// Keys and values.
    pub cache_bytes: u64,
    /// Activations and everything else.
    pub other_bytes: u64,
    /// Of all this, what is sure to be taken while the model is there; the rest comes with use.
    pub held_bytes: u64,
}

impl DevicePlan {
    /// Everything it takes.
    pub fn needed_bytes(&self) -> u64 {
        self.weights_bytes.saturating_add(self.cache_bytes).saturating_add(self.other_bytes)
    }

    /// What is left; negative is what is missing.
    pub fn free_bytes(&self) -> i64 {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        signed(self.available_bytes).saturating_sub(signed(self.needed_bytes()))
    }
}

impl MemoryPlan {
    /// The plan if these models were gone first.
    pub fn without<'m>(mut self, models: impl IntoIterator<Item = &'m MemoryPlan>) -> Self {
        for gone in models.into_iter().flat_map(|model| &model.devices) {
            if let Some(device) = self.devices.iter_mut().find(|own| own.name == gone.name) {
                let available = device.available_bytes.saturating_add(gone.held_bytes);
                device.available_bytes = available.min(device.total_bytes);
            }
        }
        self
    }

    /// Whether every device has enough.
    pub fn fits(&self) -> bool {
        self.devices.iter().all(|device| device.free_bytes() >= 0)
    }

    /// Everything it takes of all devices.
    pub fn needed_bytes(&self) -> u64 {
        self.devices.iter().map(DevicePlan::needed_bytes).fold(0, u64::saturating_add)
    }

    /// As answers show it. With `free`, also what is left.
    fn devices_json(&self, free: bool) -> Vec<Value> {
        let device = |plan: &DevicePlan| {
            let mut device = json!({
                "name": plan.name,
                "parts": plan.parts,
                "total_bytes": plan.total_bytes,
                "weights_bytes": plan.weights_bytes,
                "cache_bytes": plan.cache_bytes,
                "other_bytes": plan.other_bytes,
            });
            if free {
                device["free_bytes"] = plan.free_bytes().into();
            }
            device
        };
        self.devices.iter().map(device).collect()
    }

    /// The plan of a load.
    pub fn json(&self) -> Value {
        json!({
            "fits": self.fits(),
            "needed_bytes": self.needed_bytes(),
            "devices": self.devices_json(true),
        })
    }

    /// What a model that is there takes.
    pub fn taken_json(&self) -> Value {
        json!({ "devices": self.devices_json(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(available: u64, weights: u64) -> MemoryPlan {
        let device = DevicePlan {
            name: "cpu".to_owned(),
            parts: None,
            total_bytes: 100,
            available_bytes: available,
            weights_bytes: weights,
            cache_bytes: 10,
            other_bytes: 5,
            held_bytes: weights,
        };
        MemoryPlan { devices: vec![device] }
    }

    #[test]
    fn what_a_model_that_goes_holds_can_be_taken() {
        let new = plan(30, 20);
        assert_eq!(
            (new.fits(), new.json()["devices"][0]["free_bytes"].as_i64()),
            (false, Some(-5))
        );
        let after = new.clone().without([&plan(0, 40)]);
        assert!(after.fits());
        assert_eq!(after.devices[0].free_bytes(), 35);
        assert_eq!(new.without([&plan(0, 400)]).devices[0].available_bytes, 100);
    }

    #[test]
    fn extreme_numbers_do_not_wrap() {
        let huge = plan(u64::MAX, u64::MAX);
        assert_eq!(huge.needed_bytes(), u64::MAX);
        assert!(huge.devices[0].free_bytes() >= 0);
        assert!(!plan(0, u64::MAX).fits());
    }
}
