//! Gives up models that nobody uses, if the operator wants that.

use std::sync::Arc;
use std::time::Duration;

use super::change::give_up_idle;
use crate::app::App;

/// How often models are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// Looks at models again and again.
pub async fn watch(app: Arc<App>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let idle = app.settings.model.idle_unload;
        if !idle.is_zero() {
            let app = app.clone();
            // It waits for engines to end. A panic in it is told by the runtime and ends nothing.
            let _ = tokio::task::spawn_blocking(move || give_up_idle(&app, idle)).await;
        }
    }
}
