// Asking for the key, showing who we are, forgetting it.

import { el } from '../page/element.js';
import { button, field, select } from '../page/controls.js';
import { openDialog } from '../page/dialog.js';
import { toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { apiKey, keyPlace, setKey } from '../net/api.js';
import { checkConnection, connection } from '../net/connection.js';

const KEY_PLACES = ['page', 'tab', 'device'];

let keyDialogOpen = false;

export async function openKeyDialog() {
  if (keyDialogOpen) return;
  keyDialogOpen = true;
  await openDialog(say('key.title'), (close) => {
    const { state, role, keyName, link } = connection.value;
    const input = el('input', { type: 'password', autocomplete: 'off', autofocus: true, name: 'key' });
    const box = field(say('key.label'), input, { help: say('key.help') });
    const place = select(KEY_PLACES.map((name) => [name, say(`key.keep.${name}`)]), keyPlace());
    const accept = async () => {
      setKey(input.value.trim(), place.value);
      await checkConnection();
      if (connection.value.state === 'ok') close();
      else box.showError(connection.value.state === 'key' ? say('key.wrong') : say('connection.lost'));
    };
    return el('form.key-form', { on: { submit: (event) => { event.preventDefault(); accept(); } } },
      state === 'ok' ? el('p', null, say('key.known', { name: keyName ?? '', role: say(`role.${role}`) })) : whereKeysAre(link), box, field(say('key.keep'), place),
      el('div.dialog-actions', null, apiKey.value ? button({ label: say('key.forget'), variant: 'plain', onClick: () => { setKey(''); toast(say('key.forgotten')); close(); } }) : null,
        el('button.button.primary', { type: 'submit' }, say('key.use'))));
  });
  keyDialogOpen = false;
}

/** Why there is no key, and where one is. The file's path is known only if the server told it to this link. */
function whereKeysAre(link) {
  const reason = link?.message ? `${link.message[0].toUpperCase()}${link.message.slice(1)}.` : say('key.needed');
  return [el('p', { role: link ? 'alert' : undefined }, reason), el('p', null, say(link?.keysFile ? 'key.file' : 'key.someFile'), ' ', el('code', null, link?.keysFile ?? 'keys.toml'), link?.keysFile ? null : say('key.whichFile'))];
}
