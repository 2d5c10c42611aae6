// Everything the page can be told to do, by name: what palette, shortcuts and menus share.

const commandTable = new Map();

/** `{title, run, group, available}`; `available()` says whether it makes sense now. */
export function registerCommand(id, command) {
  commandTable.set(id, { id, available: () => true, ...command });
}

export const allCommands = () => [...commandTable.values()];

/** Runs a command if it makes sense now; says whether it ran. */
export function runCommand(id) {
  const command = commandTable.get(id);
  if (!command?.available()) return false;
  command.run();
  return true;
}

export const commandById = (id) => commandTable.get(id) ?? null;
