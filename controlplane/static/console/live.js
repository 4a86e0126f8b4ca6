// A websocket that comes back: with growing pauses after failures, not at all while nobody looks at the page.
// Whoever uses it hears of messages and of states: connecting, live, off (with the reason), paused.
const FIRST_MS = 1000;
const MOST_MS = 30000;
const SILENT_MS = 5000; // the server speaks every second
const FINAL = {
  4400: "this page asked for something the control plane does not know; reload it",
  4401: "your login has ended; reload the page to log in",
  4403: "you may not see this any more",
  4503: "the control plane has no Valkey to hear workers through",
};
const BUSY = 4429;

export class Live {
  constructor(path, heard, changed) {
    this.url = new URL(path, location.href);
    this.url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.heard = heard;
    this.changed = changed;
    this.failures = 0;
    this.isPaused = false;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stop();
      else if (!this.isPaused) this.start();
    });
    addEventListener("online", () => this.retryNow());
    if (!document.hidden) this.start();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.stop();
    if (isPaused) this.changed("paused", "");
    else this.start();
  }

  start() {
    if (this.socket) return;
    clearTimeout(this.timer);
    if (!this.failures) this.changed("connecting", "");
    const socket = (this.socket = new WebSocket(this.url));
    socket.onmessage = (event) => {
      this.failures = 0;
      this.watch();
      this.changed("live", "");
      this.heard(JSON.parse(event.data));
    };
    socket.onclose = (event) => this.socket === socket && this.lost(event.code);
    this.watch();
  }

  stop() {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    const socket = this.socket;
    this.socket = null;
    if (socket) socket.close();
  }

  retryNow() {
    if (this.failures && !this.socket && !this.isPaused && !document.hidden && !this.isOver) this.start();
  }

  watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      if (!this.socket) return;
      this.stop();
      this.lost(0);
    }, SILENT_MS * 2);
  }

  lost(code) {
    clearTimeout(this.silence);
    this.socket = null;
    if (FINAL[code]) {
      this.isOver = true;
      this.changed("off", FINAL[code]);
      return;
    }
    this.failures += 1;
    const pause = Math.min(MOST_MS, FIRST_MS * 2 ** (this.failures - 1)) * (0.75 + Math.random() / 2);
    const why = code === BUSY ? "too many look at once" : "no connection to the control plane";
    this.changed("off", `${why}; trying again.`);
    this.timer = setTimeout(() => this.start(), pause);
  }
}
