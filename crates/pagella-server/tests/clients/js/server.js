// A server of its own for a file of tests: the demo model on a free port, with keys that only this run knows.
// The program is `$PAGELLA_BIN`, or the debug build of this checkout.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');

const ROOT = path.resolve(__dirname, '../../../../..');
const API_KEY = 'suite-api-secret';
const ADMIN_KEY = 'suite-admin-secret';
const READY_SECONDS = 120;

const KEYS = `
[[key]]
name = "suite"
key = "${API_KEY}"
role = "api"

[[key]]
name = "root"
key = "${ADMIN_KEY}"
role = "admin"
`;

const program = () => process.env.PAGELLA_BIN ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(ROOT, 'target'), 'debug', 'pagella');

class Server {
  /** Starts it and waits until the model is there. */
  static async start() {
    const server = new Server();
    server.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'pagella-'));
    const keys = path.join(server.dir, 'keys.toml');
    fs.writeFileSync(keys, KEYS, { mode: 0o600 });
    server.process = spawn(program(), ['serve', 'demo', '--port', '0', '--keys', keys], { cwd: server.dir, stdio: ['ignore', 'ignore', 'pipe'] });
    server.lines = [];
    const listening = new Promise((resolve, reject) => {
      server.process.on('error', reject);
      server.process.on('exit', () => reject(new Error(`the server ended:\n${server.lines.slice(-20).join('\n')}`)));
      readline.createInterface({ input: server.process.stderr }).on('line', (line) => {
        server.lines.push(line);
        if (line.includes('listening on http://')) resolve(line.split('listening on ')[1].trim());
      });
    });
    server.base = await listening;
    await server.waitFor('the model to be ready', async () => (await fetch(`${server.base}/health/ready`)).status === 200, READY_SECONDS);
    return server;
  }

  stop() {
    this.process.removeAllListeners('exit');
    this.process.kill();
    fs.rmSync(this.dir, { recursive: true, force: true });
  }

  async waitFor(what, holds, seconds = 20) {
    const end = performance.now() + seconds * 1000;
    while (!(await holds())) {
      if (performance.now() > end) throw new Error(`waited too long for ${what}`);
      await sleep(20);
    }
  }

  /** Waits until there is no request, no job and no page in use. */
  async waitIdle() {
    await this.waitFor('all pages to be free', async () => {
      const answer = await fetch(`${this.base}/v1/stats`, { headers: { 'x-api-key': ADMIN_KEY } });
      const { requests, engine } = await answer.json();
      return !(requests.running || requests.waiting || engine.pages.referenced || engine.queue.active || engine.queue.pending);
    });
  }
}

module.exports = { API_KEY, Server };
