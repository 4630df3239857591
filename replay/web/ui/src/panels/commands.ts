// The same answers at a terminal: command lines of custody, quoted for a shell.

/** Quotes a word for a POSIX shell. */
export function shellWord(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'";
}

function line(...words: string[]): string {
  return ["custody", ...words].map(shellWord).join(" ");
}

export function timelineAt(run: string, at: string): string {
  return line("timeline", run, "--at", at);
}

export function timelineKind(run: string, kind: string): string {
  return line("timeline", run, "--kind", kind);
}

export function verifyRun(run: string): string {
  return line("verify", run);
}

export function bundleRun(run: string): string {
  return line("bundle", run, "-o", `${run}.tar`);
}
