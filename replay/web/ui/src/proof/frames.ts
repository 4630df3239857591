// The frames of a segment, each of which holds a record or stands where one was.

import { type Bytes, equal, latin1, utf8 } from "./bytes";
import { crc32c } from "./crc32c";
import { check } from "./finding";
import { sha256 } from "./sha256";

export interface Frame {
  seq: bigint;
  leaf: Bytes;
  /** Undefined if it was erased, or is withheld. */
  record?: Bytes;
  withheld: boolean;
}

const maxRecord = 4 << 20;
const recordAt = 29;
const bodyAt = 12;

/** Reads the frames of a run's segment, which has to hold what the leaves say. They share memory with data. */
export function* frames(data: Bytes, leaves: readonly Bytes[], run: string): Generator<Frame> {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const head = utf8(`{"v":1,"run":"${run}","seq":`);
  let at = 0;
  for (const leaf of leaves) {
    check(data.length - at >= recordAt, "a record is missing");
    const length = view.getUint32(at + 4, true);
    const end = at + recordAt + length;
    check(length <= maxRecord && end <= data.length, "a record was altered: its frame has another length");
    check(crc32c(data, at + 4, at + 8, at + bodyAt, end) === view.getUint32(at + 8, true), "a record was altered: its checksum is another");
    const body = data.subarray(at + bodyAt, end);
    const magic = latin1(data.subarray(at, at + 4));
    if (magic === "CWF1") {
      check(body[0] === 0 && equal(sha256(body), leaf), "a record was altered, is missing, was inserted or is out of order");
      const record = body.subarray(17);
      yield { seq: seqOf(record, head), leaf, record, withheld: false };
    } else {
      check(magic === "CWE1" || magic === "CWH1", "a record was altered: its frame does not begin as one");
      yield { seq: gone(body, leaf, run), leaf, withheld: magic === "CWH1" };
    }
    at = end;
  }
  check(at === data.length, "something was appended to a segment");
}

/** The seq of a record, which has to begin with these bytes. */
export function seqOf(record: Bytes, head: Bytes): bigint {
  const found = equal(record.subarray(0, head.length), head) && /^([1-9][0-9]{0,19}),/.exec(latin1(record.subarray(head.length, head.length + 21)));
  check(found && BigInt(found[1]!) < 1n << 63n, "a record does not begin as those of this run do");
  return BigInt(found[1]!);
}

/** The seq of a record that is not there: leaf, seq, the run's name, zeros. */
function gone(body: Bytes, leaf: Bytes, run: string): bigint {
  const end = 41 + run.length;
  const good = body.length >= end && equal(body.subarray(0, 32), leaf) && body[40] === run.length && latin1(body.subarray(41, end)) === run
    && body.subarray(end).every((b) => b === 0);
  check(good, "an erased or withheld record was altered");
  const seq = new DataView(body.buffer, body.byteOffset).getBigUint64(32, true);
  check(seq > 0n && seq < 1n << 63n, "an erased or withheld record has no seq");
  return seq;
}
