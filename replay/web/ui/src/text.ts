import type { Text } from "./types";

// Text that a guest could have chosen is shown as what it is: every character that shows as
// nothing, moves the others or steers a terminal becomes a visible escape. It goes into the
// page as text nodes only (component Words), never as markup.

/** A stretch of text: as it was, or the escape that stands for one character or byte. */
export interface Stretch {
  text: string;
  escape: boolean;
}

// Everything without a glyph of its own: controls, formats (bidi, zero width), unassigned and
// private characters, odd spaces and separators, ignorables, variation selectors, fillers.
const invisible =
  /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;
const plain = /^[ -~]*$/;

/** The characters of a text; bytes that are not UTF-8 stand as U+DC80 to U+DCFF. */
export function decode(text: Text | undefined | null): string {
  if (text === undefined || text === null) return "";
  if (typeof text === "string") return text;
  let bytes: Uint8Array;
  try {
    bytes = Uint8Array.from(atob(text.base64), (c) => c.charCodeAt(0));
  } catch {
    return "";
  }
  return utf8(bytes);
}

/** Decodes UTF-8 and keeps each byte that is not part of it as U+DC00 plus the byte. */
export function utf8(bytes: Uint8Array): string {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const parts: string[] = [];
  for (let i = 0; i < bytes.length; ) {
    const first = bytes[i]!;
    const size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    let end = i + size;
    if (size === 1) while (end < bytes.length && bytes[end]! < 0x80 && end - i < 8192) end++;
    try {
      parts.push(decoder.decode(bytes.subarray(i, end)));
      i = Math.min(end, bytes.length);
    } catch {
      parts.push(String.fromCharCode(0xdc00 + first));
      i++;
    }
  }
  return parts.join("");
}

/** Escapes text for one line: also line ends and tabs. */
export function stretches(text: string, multiline = false): Stretch[] {
  if (plain.test(text)) return text === "" ? [] : [{ text, escape: false }];
  const out: Stretch[] = [];
  let from = 0;
  let at = 0;
  const cut = () => {
    if (at > from) out.push({ text: text.slice(from, at), escape: false });
  };
  for (const char of text) {
    const keep = multiline && (char === "\n" || char === "\t");
    if (!keep && invisible.test(char)) {
      cut();
      out.push({ text: escapeOf(char), escape: true });
      from = at + char.length;
    }
    at += char.length;
  }
  cut();
  return out;
}

/** The same as one string, for titles, canvas and labels. */
export function flat(text: Text | undefined | null, multiline = false): string {
  const s = decode(text);
  return plain.test(s) ? s : stretches(s, multiline).map((p) => p.text).join("");
}

function escapeOf(char: string): string {
  switch (char) {
    case "\n":
      return "\\n";
    case "\t":
      return "\\t";
    case "\r":
      return "\\r";
  }
  const code = char.codePointAt(0)!;
  if (code >= 0xdc80 && code <= 0xdcff) return `<0x${(code - 0xdc00).toString(16).toUpperCase()}>`;
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/** At most limit characters (UTF-16 units), never half of one, and whether that was all. */
export function clip(text: string, limit: number): { text: string; cut: boolean } {
  if (text.length <= limit) return { text, cut: false };
  const last = text.charCodeAt(limit - 1);
  return { text: text.slice(0, last >= 0xd800 && last <= 0xdbff ? limit - 1 : limit), cut: true };
}

/** A command line as a shell would need it. */
export function command(argv: Text[] | undefined | null): string {
  return (argv ?? []).map((arg) => quote(decode(arg))).join(" ");
}

function quote(arg: string): string {
  if (arg !== "" && /^[A-Za-z0-9_@%+=:,./-]+$/.test(arg)) return arg;
  return `'${arg.replaceAll("'", "'\\''")}'`;
}

/** A number of bytes for people: 1,234 B, 12.3 KiB. */
export function bytes(n: number | undefined): string {
  if (n === undefined) return "";
  if (n < 1024) return `${n} B`;
  let unit = -1;
  do {
    n /= 1024;
    unit++;
  } while (n >= 1024 && unit < 4);
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${["KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** A whole number with separators. */
export function count(n: number | undefined): string {
  return n === undefined ? "" : n.toLocaleString("en-GB");
}

/** "1 finding", "2 findings". */
export function plural(n: number, one: string, many = one + "s"): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
