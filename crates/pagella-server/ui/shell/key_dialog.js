// Asking for the key, showing who we are, forgetting it.

import { el } from '../page/element.js';
import { button, checkbox, field } from '../page/controls.js';
import { openDialog } from '../page/dialog.js';
import { toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { apiKey, keyIsRemembered, setKey } from '../net/api.js';
import { checkConnection, connection } from '../net/connection.js';

let keyDialogOpen = false;

export async function openKeyDialog() {
  if (keyDialogOpen) return;
  keyDialogOpen = true;
  await openDialog(say('key.title'), (close) => {
    const { state, role, keyName } = connection.value;
    const input = el('input', { type: 'password', autocomplete: 'off', autofocus: true, name: 'key' });
    const box = field(say('key.label'), input, { help: say('key.help') });
    const remember = checkbox(say('key.remember'), keyIsRemembered(), null, say('key.rememberHelp'));
    const accept = async () => {
      setKey(input.value.trim(), remember.input.checked);
      await checkConnection();
      if (connection.value.state === 'ok') close();
      else box.showError(connection.value.state === 'key' ? say('key.wrong') : say('connection.lost'));
    };
    return el('form.key-form', { on: { submit: (event) => { event.preventDefault(); accept(); } } },
      el('p', null, state === 'ok' ? say('key.known', { name: keyName ?? '', role: say(`role.${role}`) }) : say('key.needed')), box, remember,
      el('div.dialog-actions', null, apiKey.value ? button({ label: say('key.forget'), variant: 'plain', onClick: () => { setKey('', false); toast(say('key.forgotten')); close(); } }) : null,
        el('button.button.primary', { type: 'submit' }, say('key.use'))));
  });
  keyDialogOpen = false;
}
