//! Templates: which there are, and which one makes prompts of conversations.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::model::ActiveTemplate;
use crate::templates;
use crate::wire::error::ApiError;

/// Which template is to be used.
#[derive(Deserialize, JsonSchema)]
pub struct TemplateFields {
    /// The name of a template
    #[schemars(length(max = 255), extend("x-aliases" = ["name"]))]
    prompt_template_name: String,
}

/// `GET /v1/templates`: the one in use; for administrators all in the folder.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    let active = call.app.model.loaded().and_then(|model| model.template());
    let names = match call.caller.role() {
        Role::Admin => templates::list(&call.app.settings.model.template_dir),
        Role::Api => active.map(|active| active.name.clone()).into_iter().collect(),
    };
    Reply::json(&json!({ "object": "list", "data": names }))
}

/// `POST /v1/template/switch`: tried out before it replaces the one in use.
pub async fn switch(mut call: Call) -> Result<Reply, ApiError> {
    let ((TemplateFields { prompt_template_name: name },), _) =
        call.read::<(TemplateFields,)>().await?;
    let model = call.app.model.need()?;
    let (dir, wanted) = (call.app.settings.model.template_dir.clone(), name.clone());
    let limits = call.app.settings.limits.template();
    let load = move || {
        let template = templates::load(&dir, &wanted, &limits, "prompt_template_name")?;
        templates::try_out(&template, &limits)?;
        Ok(template)
    };
    let template = call.app.blocking.run(load).await?;
    model.set_template(Some(Arc::new(ActiveTemplate { name: name.clone(), template })));
    Reply::json(&json!({ "status": "switched", "prompt_template": name }))
}

/// `POST /v1/template/unload`: conversations cannot be answered any more.
pub async fn unload(call: Call) -> Result<Reply, ApiError> {
    call.app.model.need()?.set_template(None);
    Reply::json(&json!({ "status": "unloaded" }))
}
