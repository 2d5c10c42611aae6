// What has to be done so that this device and the server hold the same conversations. Pure: looks at what
// both have and says what to do. Nothing is ever lost: where both sides changed, both are kept.

/**
 * `locals`: `{id, version, changed, deleted}` each, where `version` is what the server had when this device
 * last agreed with it, or null. `remote`: versions on the server by id. Returns `{act, id, version}` each:
 * `push` stores ours over `version`; `pull` takes the server's; `fork` keeps ours under another id and
 * takes the server's; `remove` deletes the server's.
 */
export function planCopies(locals, remote) {
  const plan = [];
  for (const { id, version, changed, deleted } of locals) {
    const theirs = remote.get(id) ?? null;
    if (deleted) {
      // Deleted here: the copy goes too, unless someone changed it since.
      if (theirs !== null && theirs === version) plan.push({ act: 'remove', id, version });
    } else if (theirs === null) {
      // Deleted on another device: ours stays, and is a new document once it changes.
      if (version === null || changed) plan.push({ act: 'push', id, version: null });
    } else if (theirs === version) {
      if (changed) plan.push({ act: 'push', id, version });
    } else plan.push({ act: changed ? 'fork' : 'pull', id, version: theirs });
  }
  const known = new Set(locals.map((local) => local.id));
  for (const [id, version] of remote) if (!known.has(id)) plan.push({ act: 'pull', id, version });
  return plan;
}

/** Tells texts apart: 53 bits of a sum over all characters. */
export function textStamp(text) {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    high = Math.imul(high ^ unit, 2654435761);
    low = Math.imul(low ^ unit, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return 4294967296 * (2097151 & low) + (high >>> 0);
}
