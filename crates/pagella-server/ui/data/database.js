// IndexedDB in promises. One record per message, so saving costs the message and not the conversation.
// Where the browser refuses storage, a memory stand-in keeps the page usable and `storageLasts` says so.

/** Each step brings a database of the version before to its own; steps are never edited, only added. */
export const MIGRATIONS = [
  (db) => {
    db.createObjectStore('conversations', { keyPath: 'id' });
    db.createObjectStore('nodes', { keyPath: 'id' }).createIndex('conversation', 'conversation');
    db.createObjectStore('notebooks', { keyPath: 'id' });
    db.createObjectStore('presets', { keyPath: 'id' });
  },
];

const DATABASE_NAME = 'pagella';
let databasePromise = null;
const memoryStores = { conversations: new Map(), nodes: new Map(), notebooks: new Map(), presets: new Map() };

function openDatabase() {
  databasePromise ??= new Promise((resolve) => {
    if (!globalThis.indexedDB) return resolve(null);
    const request = indexedDB.open(DATABASE_NAME, MIGRATIONS.length);
    request.onupgradeneeded = (event) => {
      for (let version = event.oldVersion; version < MIGRATIONS.length; version++) MIGRATIONS[version](request.result, request.transaction);
    };
    request.onsuccess = () => {
      // Another tab wants to migrate: let it, and read again when next asked.
      request.result.onversionchange = () => { request.result.close(); databasePromise = null; };
      resolve(request.result);
    };
    request.onerror = () => resolve(null);
    return undefined;
  });
  return databasePromise;
}

export const storageLasts = async () => (await openDatabase()) !== null;

async function withStore(name, mode, work, inMemory) {
  const db = await openDatabase();
  if (!db) return inMemory(memoryStores[name]);
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(name, mode);
    const request = work(transaction.objectStore(name));
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error('storage failed'));
  });
}

export const dbAll = (store) => withStore(store, 'readonly', (s) => s.getAll(), (m) => [...m.values()]);
export const dbGet = (store, id) => withStore(store, 'readonly', (s) => s.get(id), (m) => m.get(id));
export const dbNodesOf = (conversation) => withStore('nodes', 'readonly', (s) => s.index('conversation').getAll(conversation), (m) => [...m.values()].filter((n) => n.conversation === conversation));

export const dbPut = (store, ...values) => withStore(store, 'readwrite', (s) => { for (const value of values) s.put(value); }, (m) => { for (const value of values) m.set(value.id, structuredClone(value)); });
export const dbDelete = (store, ...ids) => withStore(store, 'readwrite', (s) => { for (const id of ids) s.delete(id); }, (m) => { for (const id of ids) m.delete(id); });

let persistAsked = false;

/** Asks the browser once, on the first save, not to clear our data under pressure. */
export function askPersistence() {
  if (persistAsked) return;
  persistAsked = true;
  navigator.storage?.persist?.().catch(() => {});
}

/** Bytes used, or null where the browser does not tell. */
export async function storageUsage() {
  const estimate = await navigator.storage?.estimate?.().catch(() => null);
  return estimate?.usage ?? null;
}
