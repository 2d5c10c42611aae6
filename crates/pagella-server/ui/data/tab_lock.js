// Two tabs, one writer: a tab that shows a conversation holds its lock, others follow what it saves.
// Without the locks API (plain http on the network) every tab writes, as if it were alone.

const tabChannel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('pagella') : null;
const tabListeners = new Set();

tabChannel?.addEventListener('message', (event) => {
  for (const listener of tabListeners) listener(event.data);
});

/** Tells other tabs that a record changed. */
export const tellTabs = (message) => tabChannel?.postMessage(message);

export function hearTabs(listener) {
  tabListeners.add(listener);
  return () => tabListeners.delete(listener);
}

/**
 * Tries to become the writer of `name`. Resolves to a release function, or null when another tab holds
 * it. What the release function returns resolves when the lock is free again. `onLost` is called when a tab takes over. `steal` takes the lock away from its holder.
 */
export function acquireLock(name, { steal = false, onLost } = {}) {
  if (!navigator.locks) return Promise.resolve(() => {});
  return new Promise((resolve) => {
    const options = steal ? { steal: true } : { ifAvailable: true };
    const ended = navigator.locks.request(`pagella:${name}`, options, (lock) => {
      if (!lock) return resolve(null);
      return new Promise((release) => resolve(() => {
        release();
        return ended;
      }));
    }).catch(() => onLost?.());
  });
}
