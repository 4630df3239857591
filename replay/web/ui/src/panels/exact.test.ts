import assert from "node:assert/strict";
import { test } from "node:test";
import { recordText } from "./exact";

test("the exact text of a record", () => {
  for (const record of ['{}', '{"v":1,"text":"a}b]\\"{"}', '{"a":[{"b":"\\\\"},1e5],"n":9007199254740993,"u":"\\u00e9"}', '{"x":"\\\\\\"}"}']) {
    assert.equal(recordText(`{"seq":17,"record":${record},"why":{"seq":17},"findings":[]}\n`), record);
  }
  for (const none of ['', '{"seq":1,"erased":"00"}', '{"why":1,"record":{}}', '{"seq":1,"record":{"a":"', '{"seq":1,"record":{"a":1']) {
    assert.equal(recordText(none), undefined, none);
  }
});
